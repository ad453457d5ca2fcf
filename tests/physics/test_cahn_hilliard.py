"""Cahn-Hilliard-Oono dynamics against theory, tables and an independent integrator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from exarl.science.cahn_hilliard.env import ExaCH, ExaCH3D
from exarl.science.cahn_hilliard.kernel import (
    Coefficients,
    Polymer,
    energy,
    evolve,
    growth_rate,
    mirrored,
    mode_power,
    polymer_coefficients,
    propagator,
    squared,
    wave_vectors,
)
from exarl.science.cahn_hilliard.structure import make_probe, measure

MEAN = 0.15
WARM = polymer_coefficients(Polymer(), 0.5)


def solved(
    field: np.ndarray,
    lengths: tuple[float, ...],
    material: Coefficients,
    time: float,
    dt: float,
    mean: float = MEAN,
) -> np.ndarray:
    """``field`` after ``time`` in a periodic box, in the field's precision."""
    k2 = squared(wave_vectors(field.shape, lengths)).astype(field.dtype)
    result: np.ndarray = evolve(np, field, propagator(np, k2, material, dt), mean, round(time / dt))
    return result


def noise(shape: tuple[int, ...], size: float, seed: int, mean: float = MEAN) -> np.ndarray:
    """Uniform noise about ``mean``, which is its mean exactly."""
    rough = np.random.default_rng(seed).uniform(-size, size, shape)
    return mean + rough - rough.mean()


# -- coefficients -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "temperature", "eps2", "sigma"),
    [
        (0.15, 0.1, 1.485270e-5, 183.012),
        (0.15, 0.3, 4.358946e-5, 537.101),
        (0.15, 0.5, 7.110337e-5, 876.122),
        (0.15, 0.9, 1.227621e-4, 1512.652),
        (0.15, 1.0, 1.350246e-4, 1663.747),
        (0.0, 0.1, 1.451852e-5, 174.869),
        (0.0, 0.7, 9.527778e-5, 1147.580),
    ],
)
def test_coefficients_of_the_published_polymer(
    mean: float, temperature: float, eps2: float, sigma: float
) -> None:
    material = polymer_coefficients(Polymer(mean=mean), temperature)
    assert material.eps2 == pytest.approx(eps2, rel=1e-6)
    assert material.sigma == pytest.approx(sigma, rel=1e-5)


# -- the solver -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "lengths", "material", "mean", "time"),
    [
        ((16, 12), (0.2, 0.15), WARM, 0.15, 1e-3),
        ((6, 8, 8), (0.9, 1.2, 1.2), Coefficients(0.01, 1.0), 0.25, 0.1),
    ],
)
def test_an_independent_integrator_agrees(
    shape: tuple[int, ...],
    lengths: tuple[float, ...],
    material: Coefficients,
    mean: float,
    time: float,
) -> None:
    """Derivatives by complex FFTs, time by SciPy; errors fall with the square of the step."""
    axes = [2 * np.pi * n / x * np.fft.fftfreq(n) for n, x in zip(shape, lengths, strict=True)]
    k2 = sum(np.square(k) for k in np.meshgrid(*axes, indexing="ij"))

    def slope(_: float, flat: np.ndarray) -> np.ndarray:
        c = flat.reshape(shape)
        potential = np.fft.fftn(c**3 - c) + material.eps2 * k2 * np.fft.fftn(c)
        rate: np.ndarray = np.fft.ifftn(-k2 * potential).real - material.sigma * (c - mean)
        return rate.ravel()

    grids = np.meshgrid(*(2 * np.pi * np.arange(n) / n for n in shape), indexing="ij")
    start = mean + 0.05 + 0.2 * np.cos(grids[0] + 1) * np.sin(2 * grids[1])  # not its mean at rest
    start += 0.3 * np.cos(grids[-1] - grids[0] + 2)
    exact = solve_ivp(slope, (0, time), start.ravel(), "LSODA", rtol=1e-9, atol=1e-11).y[:, -1]
    errors = [
        np.abs(solved(start, lengths, material, time, time / n, mean).ravel() - exact).max()
        for n in (100, 200, 400)
    ]
    assert errors[2] < 2e-4
    assert 3.3 < errors[0] / errors[1] < 4.7
    assert 3.3 < errors[1] / errors[2] < 4.7


@pytest.mark.parametrize(
    ("q", "rate"),
    [(6, 305.548), (9, 1378.706), (12, 2127.121), (15, 1796.790), (18, -581.721)],
)
@pytest.mark.parametrize("walls", [False, True])
def test_modes_grow_as_linear_theory_says(q: int, rate: float, walls: bool) -> None:
    assert growth_rate((2 * np.pi * q) ** 2, WARM, MEAN) == pytest.approx(rate, abs=1e-3)
    x = (np.arange(64) + 0.5) / 64
    wave = np.cos(2 * np.pi * q * x)[None, :] * np.ones((4, 1))
    field, lengths, time = MEAN + 1e-5 * wave, (4 / 64, 1.0), 4e-4
    if walls:
        field, lengths = mirrored(np, field), (8 / 64, 2.0)
    later = solved(field, lengths, WARM, time, 1e-5)[:4, :64]
    growth = np.log(np.sum((later - MEAN) * wave) / np.sum(1e-5 * wave**2)) / time
    assert growth == pytest.approx(rate, rel=0.015)
    finer = solved(field, lengths, WARM, time, 2e-6)[:4, :64]
    growth = np.log(np.sum((finer - MEAN) * wave) / np.sum(1e-5 * wave**2)) / time
    assert growth == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_mean_relaxes_as_it_must_and_is_conserved_at_rest(seed: int, dtype: str) -> None:
    field = noise((32, 32), 0.8, seed).astype(dtype)
    within = 1e-12 if dtype == "float64" else 1e-6
    time = 2e-3
    assert solved(field, (0.25, 0.25), WARM, time, 2e-5).mean() == pytest.approx(MEAN, abs=within)
    shifted = solved((field - 0.2).astype(dtype), (0.25, 0.25), WARM, time, 2e-5)
    expected = MEAN - 0.2 * np.exp(-WARM.sigma * time)
    assert shifted.mean() == pytest.approx(expected, abs=within)


def test_the_mean_is_conserved_by_environments_in_every_form() -> None:
    small: dict[str, Any] = {"grid": 16, "shells": 8, "precision": "float64"}
    for env in (
        ExaCH(box=93.75, **small),
        ExaCH(box=93.75, boundary="neumann", **small),
        ExaCH3D(layers=4, **small),
    ):
        env.reset(seed=3)
        mean = env.functions.model.mean  # type: ignore[attr-defined]
        for action in (0, 0, 2, 1):
            env.step(action)
            assert env.state.field.mean() == pytest.approx(mean, abs=1e-12)
        assert env.state.field.std() > 1e-3


@pytest.mark.parametrize("temperature", [0.1, 0.5, 0.9])
def test_the_energy_falls_at_fixed_temperature(temperature: float) -> None:
    material = polymer_coefficients(Polymer(), temperature)
    for seed, dt in ((0, 2e-5), (1, 2e-4)):
        field, lengths = noise((64, 64), 0.05, seed), (0.5, 0.5)
        k2 = squared(wave_vectors(field.shape, lengths))
        energies = [energy(np, field, k2, material, MEAN)]
        for _ in range(40):
            field = solved(field, lengths, material, 5 * dt, dt)
            energies.append(energy(np, field, k2, material, MEAN))
        assert np.all(np.diff(energies) < 0)
    uniform = np.full((8, 8), MEAN)
    k2 = squared(wave_vectors((8, 8), (1.0, 1.0)))
    assert energy(np, uniform, k2, material, MEAN) == pytest.approx(-0.011123, abs=1e-6)


@pytest.mark.parametrize("kappa", [0.004, 0.012])
def test_the_energy_falls_at_fixed_kappa_in_three_dimensions(kappa: float) -> None:
    material, lengths = Coefficients(kappa, 1.0), (1.2, 4.8, 4.8)
    field = noise((8, 32, 32), 0.05, seed=0, mean=0.25)
    k2 = squared(wave_vectors(field.shape, lengths))
    energies = [energy(np, field, k2, material, 0.25)]
    for _ in range(30):
        field = solved(field, lengths, material, 0.04, 4e-3, mean=0.25)
        energies.append(energy(np, field, k2, material, 0.25))
    assert np.all(np.diff(energies) < 0)
    assert energies[-1] < energies[0] - 0.05


# -- what it does -----------------------------------------------------------------------------------


def test_order_below_the_critical_temperature_and_none_above() -> None:
    """T_c = 0.982 at this composition."""
    for temperature, ordered in ((0.9, True), (0.95, True), (1.0, False)):
        material = polymer_coefficients(Polymer(), temperature)
        field = solved(noise((32, 32), 0.1, seed=2), (0.5, 0.5), material, 0.25, 1e-4)
        assert (field.std() > 0.15) if ordered else (field.std() < 1e-6)


@pytest.mark.parametrize(
    ("temperature", "period", "least"),
    [
        (0.1, 0.12871, -0.166896),
        (0.3, 0.11226, -0.091836),
        (0.5, 0.10832, -0.047248),
        (0.9, 0.10673, -0.004709),
    ],
)
def test_lamellae_have_their_period_and_energy(
    temperature: float, period: float, least: float
) -> None:
    material = polymer_coefficients(Polymer(mean=0.0), temperature)
    lengths = period * np.array([0.97, 1.0, 1.03])
    energies = []
    for length in lengths:
        box = (length / 16, length)
        wave = 0.3 * np.cos(2 * np.pi * np.arange(64) / 64)[None, :] * np.ones((4, 1))
        field = solved(wave, box, material, 0.08, 1e-4, mean=0.0)
        k2 = squared(wave_vectors(field.shape, box))
        energies.append(energy(np, field, k2, material, 0.0))
    a, b, c = np.polyfit(lengths - period, energies, 2)
    assert a > 0
    assert period - b / (2 * a) == pytest.approx(period, rel=2e-3)
    assert c - b * b / (4 * a) == pytest.approx(least, rel=1e-4)


def test_domains_coarsen_with_the_power_one_third() -> None:
    """Lifshitz and Slyozov: length ~ t^(1/3) without Oono's term.

    The length is that of the spectrum averaged over directions, 1/k1 with k1 = int k S / int S. A mean
    of k over all modes weighs the interfaces' tail more and gives 0.27 on this grid and in this time.
    """
    times, lengths = np.array([0.004, 0.008, 0.016, 0.032]), []
    k = np.sqrt(squared(wave_vectors((128, 128), (1.0, 1.0))))
    inverse = np.where(k > 0, 1 / np.where(k > 0, k, 1), 0)
    for seed in (0, 1):
        field, reached = noise((128, 128), 0.05, seed, mean=0.0).astype(np.float32), 0.0
        for time in times:
            material = Coefficients(3e-5, 0.0)
            field = solved(field, (1.0, 1.0), material, time - reached, 5e-5, mean=0.0)
            power, reached = mode_power(np, field), time
            # The power of a mode over k is what an average over directions leaves of it.
            lengths.append(np.sum(power * inverse) / np.sum(power))
    curves = np.log(np.reshape(lengths, (2, 4)))
    exponent = np.polyfit(np.log(times), curves.mean(axis=0), 1)[0]
    assert 0.28 < exponent < 0.36


# -- what is seen of it -----------------------------------------------------------------------------


def seen(
    field: np.ndarray, lengths: tuple[float, ...], shells: int = 16, mean: float = MEAN
) -> Any:
    spacing = 2 * np.pi / max(lengths)
    return measure(np, field, make_probe(field.shape, lengths, shells, spacing, mean, field.dtype))


def stripes(n: int, q: int, amplitude: float) -> np.ndarray:
    """Vertical stripes: the field varies along x, the last axis."""
    wave = MEAN + amplitude * np.cos(2 * np.pi * q * np.arange(n) / n)
    return np.broadcast_to(wave, (n, n)).copy()


def test_the_spectrum_is_the_circular_average_of_the_whole_transform() -> None:
    n, field = 32, noise((32, 32), 0.7, seed=4)
    modes = np.abs(np.fft.fft2(field)) / n**2
    frequency = np.fft.fftfreq(n, 1 / n)
    radius = np.rint(np.hypot(*np.meshgrid(frequency, frequency))).astype(int)
    expected = [2 * np.pi * j * modes[radius == j].mean() for j in range(1, 17)]
    np.testing.assert_allclose(seen(field, (1.0, 1.0)).spectrum, expected, rtol=1e-10)


def test_a_cosine_shows_in_its_shell_alone() -> None:
    found = seen(stripes(64, 6, 0.4), (1.0, 1.0))
    members = sum(round(np.hypot(a, b)) == 6 for a in range(-9, 10) for b in range(-9, 10))
    expected = np.zeros(16)
    expected[5] = 2 * np.pi * 6 * 2 * (0.4 / 2) / members
    np.testing.assert_allclose(found.spectrum, expected, atol=1e-12)
    assert found.contrast == pytest.approx(0.4 / np.sqrt(2) / np.sqrt(1 - MEAN**2))


def test_stripes_are_vertical_or_horizontal_and_quenches_neither() -> None:
    np.testing.assert_allclose(seen(stripes(32, 5, 0.5), (1.0, 1.0)).order, [1, 0, 0, 0], atol=1e-9)
    np.testing.assert_allclose(
        seen(stripes(32, 5, 0.5).T, (1.0, 1.0)).order, [0, 1, 0, 0], atol=1e-9
    )
    slanted = stripes(32, 5, 0.5)
    slanted = np.array([np.roll(row, y) for y, row in enumerate(slanted)])
    np.testing.assert_allclose(seen(slanted, (1.0, 1.0)).order, [0, 0, 1, 0], atol=1e-9)
    orders = [
        seen(solved(noise((96, 96), 0.05, s), (0.75, 0.75), WARM, 4e-3, 4e-5), (0.75, 0.75)).order
        for s in range(3)
    ]
    np.testing.assert_allclose(np.mean(orders, axis=0), [0.25, 0.25, 0.5, 0.9], atol=0.1)


def test_order_in_three_dimensions() -> None:
    lengths = (1.2, 4.8, 4.8)
    flat = noise((32, 32), 0.5, seed=0)
    columns = np.broadcast_to(flat, (8, 32, 32)).copy()
    upright, x, _, z, _ = seen(columns, lengths).order
    assert (upright, z) == (pytest.approx(1), pytest.approx(0, abs=1e-12))
    assert x == pytest.approx(0.5, abs=0.05)
    layers = MEAN + 0.5 * np.cos(2 * np.pi * np.arange(8) / 8)[:, None, None] * np.ones((8, 32, 32))
    np.testing.assert_allclose(seen(layers, lengths).order, [0, 0, 0, 1, 0], atol=1e-9)
    modes = np.fft.rfftn(noise((32, 32, 32), 0.5, seed=1))
    modes *= squared(wave_vectors((32, 32, 32), (1.0, 1.0, 1.0))) < (2 * np.pi * 15) ** 2
    isotropic = seen(np.fft.irfftn(modes, (32, 32, 32), (0, 1, 2)), (4.8, 4.8, 4.8)).order
    np.testing.assert_allclose(isotropic, [1 / 3, 1 / 3, 1 / 3, 1 / 3, 1], atol=0.02)


def test_shells_in_three_dimensions_count_the_third_axis() -> None:
    """The predecessor's average forgot z: a wave along z must stand in its own shell."""
    wave = np.cos(2 * np.pi * np.arange(8) / 8)[:, None, None] * np.ones((8, 32, 32))
    spectrum = seen(MEAN + 0.5 * wave, (1.2, 4.8, 4.8)).spectrum
    assert np.argmax(spectrum) + 1 == 4  # k = 2 pi / 1.2 is 4 times 2 pi / 4.8
    assert np.sum(spectrum > 1e-9) == 1
