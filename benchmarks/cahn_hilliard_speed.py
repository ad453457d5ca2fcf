"""Speed of the Cahn-Hilliard-Oono solver beside an explicit scheme of like accuracy, on one core.

    taskset -c 0 python benchmarks/cahn_hilliard_speed.py [--time 0.004] [--repeat 3]

The peer is what such codes start from: five-point Laplacians and explicit Euler steps near the limit
of stability, dx^4 / (32 eps2), with buffers of its own and nothing allocated in the loop. Both start
from the same band-limited noise on 128 x 128 at T = 0.5, in float64. Errors are relative, in the mean
square, against the spectral scheme with a step of 1e-6; "comparable" means the longest step of ours
whose error is not above the explicit scheme's. Then the time of one step by grid, precision and
namespace, and of one step of the environments. All times are CPU time, which a busy machine disturbs
less than the clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from exarl.science.cahn_hilliard.kernel import (
    Coefficients,
    Polymer,
    evolve,
    polymer_coefficients,
    propagator,
    squared,
    wave_vectors,
)

MEAN, TEMPERATURE, POINTS = 0.15, 0.5, 128
STEPS = (5e-6, 1e-5, 2e-5, 2.5e-5, 4e-5, 5e-5, 8e-5)


def explicit(field: np.ndarray, material: Coefficients, dt: float, steps: int) -> np.ndarray:
    """Explicit Euler steps of the equation on the unit square with five-point Laplacians."""
    n = len(field)
    c, mu = np.zeros((2, n + 2, n + 2), field.dtype)
    change, work = np.empty((2, n, n), field.dtype)
    c[1:-1, 1:-1] = field
    inner = c[1:-1, 1:-1]
    for _ in range(steps):
        _laplacian(c, n * n * material.eps2, change)
        np.multiply(inner, inner, out=work)
        work -= 1
        work *= inner
        np.subtract(work, change, out=mu[1:-1, 1:-1])
        _laplacian(mu, n * n * dt, change)
        np.subtract(inner, MEAN, out=work)
        work *= dt * material.sigma
        inner += change
        inner -= work
    return inner.copy()


def _laplacian(padded: np.ndarray, factor: float, out: np.ndarray) -> None:
    """``factor`` times the sum of the neighbours' differences; wraps the padding around first."""
    padded[0], padded[-1] = padded[-2], padded[1]
    padded[:, 0], padded[:, -1] = padded[:, -2], padded[:, 1]
    np.multiply(padded[1:-1, 1:-1], -4, out=out)
    out += padded[:-2, 1:-1]
    out += padded[2:, 1:-1]
    out += padded[1:-1, :-2]
    out += padded[1:-1, 2:]
    out *= factor


def spectral(field: np.ndarray, material: Coefficients, dt: float, steps: int) -> np.ndarray:
    """The environment's solver on the unit square, coefficients included."""
    k2 = squared(wave_vectors(field.shape, (1.0, 1.0))).astype(field.dtype)
    result: np.ndarray = evolve(np, field, propagator(np, k2, material, dt), MEAN, steps)
    return result


def smooth_noise(n: int, seed: int) -> np.ndarray:
    """Noise of standard deviation 0.02 in the modes up to 24."""
    k2 = squared(wave_vectors((n, n), (1.0, 1.0)))
    modes = np.fft.rfft2(np.random.default_rng(seed).standard_normal((n, n)))
    modes[(k2 > (2 * np.pi * 24) ** 2) | (k2 == 0)] = 0
    noise = np.fft.irfft2(modes, (n, n))
    return MEAN + 0.02 * noise / noise.std()


def timed(work: Callable[[], Any], repeat: int) -> tuple[Any, float]:
    """The result and the least seconds of ``repeat`` runs."""
    best = np.inf
    for _ in range(repeat):
        started = time.process_time()
        result = work()
        best = min(best, time.process_time() - started)
    return result, best


def compare(end: float, repeat: int) -> None:
    material = polymer_coefficients(Polymer(), TEMPERATURE)
    field = smooth_noise(POINTS, seed=0)
    truth = spectral(field, material, 1e-6, round(end / 1e-6))

    def error(result: np.ndarray) -> float:
        return float(np.linalg.norm(result - truth) / np.linalg.norm(truth - MEAN))

    limit = POINTS**-4 / (32 * material.eps2)
    count = int(np.ceil(end / (0.95 * limit)))
    result, peer = timed(lambda: explicit(field, material, end / count, count), repeat)
    allowed = error(result)
    print(
        f"to t = {end:g} on {POINTS} x {POINTS}, T = {TEMPERATURE}, limit of stability {limit:.2e}"
    )
    print(f"{'scheme':<18} {'step':>8} {'steps':>6} {'seconds':>8} {'error':>9} {'ratio':>6}")
    print(f"{'explicit':<18} {end / count:8.1e} {count:6} {peer:8.3f} {allowed:9.1e} {1:6.1f}")
    best = 0.0
    for dt in STEPS:
        count = round(end / dt)
        result, seconds = timed(lambda c=count: spectral(field, material, end / c, c), repeat)
        missed = error(result)
        if missed <= allowed:
            best = peer / seconds
        row = f"{end / count:8.1e} {count:6} {seconds:8.3f} {missed:9.1e} {peer / seconds:6.1f}"
        print(f"{'ETDRK2, S = 2':<18} {row}")
    print(f"faster than explicit at comparable accuracy: {best:.1f} times (wanted: 5)\n")


def steps_table(repeat: int) -> None:
    import jax
    import jax.numpy as jnp

    material = polymer_coefficients(Polymer(), TEMPERATURE)
    print(
        f"{'grid':<10} {'NumPy float32':>14} {'NumPy float64':>14} {'JAX float32':>14}   us a step"
    )
    for n in (64, 128, 256):
        row = []
        count = 100 if n < 256 else 20
        for dtype in ("float32", "float64"):
            field = smooth_noise(n, seed=0).astype(dtype)
            k2 = squared(wave_vectors((n, n), (1.0, 1.0))).astype(dtype)
            step = propagator(np, k2, material, 1e-5)
            _, took = timed(partial(evolve, np, field, step, MEAN, count), repeat)
            row.append(took / count)
        k2 = squared(wave_vectors((n, n), (1.0, 1.0))).astype("float32")
        step = propagator(jnp, jnp.asarray(k2), material, 1e-5)
        compiled = jax.jit(partial(evolve, jnp, mean=MEAN, steps=count))
        field = jnp.asarray(smooth_noise(n, seed=0), "float32")
        jax.block_until_ready(compiled(field, step=step))
        _, took = timed(
            lambda c=compiled, f=field, s=step: jax.block_until_ready(c(f, step=s)), repeat
        )
        row.append(took / count)
        print(f"{n} x {n:<5} " + " ".join(f"{1e6 * seconds:14.0f}" for seconds in row))


def environment_table(repeat: int) -> None:
    from exarl.science.cahn_hilliard.env import ExaCH, ExaCH3D

    print("\nstep of an environment (NumPy float32)        ms")
    for name, env in (
        ("ExaCH-v0", ExaCH()),
        ("ExaCH-v0, grid 128, box 750", ExaCH(grid=128, box=750.0)),
        ("ExaCH-v0, boundary neumann", ExaCH(boundary="neumann")),
        ("ExaCH3D-v0", ExaCH3D()),
    ):
        env.reset(seed=0)
        _, took = timed(lambda env=env: [env.step(1) for _ in range(3)], repeat)
        print(f"{name:<40} {1e3 * took / 3:8.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time", type=float, default=0.004, help="physical time to reach")
    parser.add_argument("--repeat", type=int, default=3, help="runs; the fastest counts")
    given = parser.parse_args()
    compare(given.time, given.repeat)
    steps_table(given.repeat)
    environment_table(given.repeat)
