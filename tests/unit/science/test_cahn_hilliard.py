"""ExaCH-v0 and ExaCH3D-v0 as environments: tasks, controls, files, pictures, compiled form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl.envs.registration import make_env
from exarl.errors import ConfigError
from exarl.science.cahn_hilliard.env import ExaCH, ExaCH3D

SMALL: dict[str, Any] = {"grid": 16, "box": 93.75, "shells": 8, "step_time": 1e-4}
SMALL3D: dict[str, Any] = {"grid": 8, "layers": 4, "shells": 4, "step_time": 0.02}


def played(env: Any, actions: list[Any], seed: int) -> float:
    """The return of an episode of these actions."""
    env.reset(seed=seed)
    return sum(env.step(action)[1] for action in actions)


# -- the task ---------------------------------------------------------------------------------------


def test_annealing_beats_doing_nothing_and_quenching() -> None:
    """Heat by 0.1, hold while the guide wins, cool: neither extreme is the answer."""
    env = ExaCH(dt=4e-5)
    anneal = [2, 1, 1, 1, 1, 1] + [0] * 24
    for seed in (0, 1):
        returns = [played(env, actions, seed) for actions in (anneal, [1] * 30, [0] * 30)]
        assert returns[0] > returns[1] + 3
        assert returns[0] > returns[2] + 3


def test_in_three_dimensions_too() -> None:
    env = ExaCH3D(dt=1e-2)
    anneal = [2] * 9 + [0] * 21
    returns = np.mean(
        [[played(env, a, seed) for a in (anneal, [1] * 30, [0] * 30)] for seed in (0, 1)], axis=0
    )
    assert returns[0] > returns[1] + 1
    assert returns[0] > returns[2] + 4


def test_the_guide_decides_the_orientation_and_the_target_its_sign() -> None:
    ends = {}
    for target in ("vertical", "horizontal"):
        env = ExaCH(target=target, dt=4e-5)
        env.reset(seed=5)
        for action in [2, 1, 1, 1, 1, 1, 0, 0]:
            *_, info = env.step(action)
        ends[target] = info
    assert ends["vertical"]["vertical"] > 0.9
    assert ends["horizontal"]["horizontal"] > 0.9


def test_rewards_are_minus_the_distance_and_a_blank_field_is_at_distance_one() -> None:
    for env in (ExaCH(**SMALL), ExaCH(target=stripes(), **SMALL), ExaCH3D(**SMALL3D)):
        env.reset(seed=0)
        _, reward, _, _, info = env.step(1)
        assert reward == pytest.approx(-info["distance"])
        blank = ExaCH(**SMALL) if isinstance(env, ExaCH) else ExaCH3D(**SMALL3D)
        model = blank.functions.model  # type: ignore[attr-defined]
        flat = model.structure(np, np.full(model.shape, model.mean, np.float32))
        target = env.functions.target  # type: ignore[attr-defined]
        assert target.distance(np, flat) == pytest.approx(1, abs=1e-5)


# -- the controls -----------------------------------------------------------------------------------


def test_discrete_actions_lower_keep_and_raise_within_the_limits() -> None:
    env = ExaCH(initial_temperature=0.95, **SMALL)
    env.reset(seed=0)
    seen = [env.step(action)[4]["temperature"] for action in (2, 2, 1, 0, 0)]
    assert seen == pytest.approx([1.0, 1.0, 1.0, 0.9, 0.8])
    kappa = ExaCH3D(**SMALL3D)
    kappa.reset(seed=0)
    assert [kappa.step(0)[4]["kappa"] for _ in range(5)][-1] == pytest.approx(0.004)


def test_a_continuous_action_is_a_fraction_of_the_greatest_change() -> None:
    env = ExaCH(control="continuous", **SMALL)
    env.reset(seed=0)
    actions = [np.array([value], np.float32) for value in (0.5, -1.0, 0.0)]
    seen = [env.step(action)[4]["temperature"] for action in actions]
    assert seen == pytest.approx([0.55, 0.45, 0.45])
    assert np.array_equal(env.functions.idle, [0])  # type: ignore[attr-defined]


def test_time_and_temperature_stand_at_the_end_of_the_observation() -> None:
    env = ExaCH(episode_steps=4, **SMALL)
    seen, _ = env.reset(seed=0)
    assert seen[-2:] == pytest.approx([3 / 8, 0])
    for step in range(6):
        seen = env.step(2)[0]
        assert seen[-1] == pytest.approx(min(1, (step + 1) / 4))
    assert seen[-2] == pytest.approx(1)


# -- beginnings and targets -------------------------------------------------------------------------


def stripes(n: int = 16) -> np.ndarray:
    wave = 0.15 + 0.5 * np.cos(2 * np.pi * 2 * np.arange(n) / n)
    return np.broadcast_to(wave, (n, n)).copy()


@pytest.mark.parametrize("suffix", ["npy", "txt", "array", "list"])
def test_a_field_may_be_given(suffix: str, tmp_path: Path) -> None:
    field: Any = stripes()
    given: Any = str(tmp_path / f"field.{suffix}")
    if suffix == "npy":
        np.save(given, field)
    elif suffix == "txt":
        np.savetxt(given, field)
    else:
        given = field if suffix == "array" else field.tolist()
    env = ExaCH(initial=given, target=given, noise=0.0, **SMALL)
    _, info = env.reset(seed=0)
    np.testing.assert_allclose(env.state.field, field, atol=1e-6)
    assert info["distance"] == pytest.approx(0, abs=1e-9)
    assert env.functions.terminal(env.state, None)


def test_noise_is_added_to_a_given_field() -> None:
    env = ExaCH(initial=stripes(), noise=0.1, **SMALL)
    fields = [env.reset(seed=seed) and env.state.field for seed in (0, 1)]
    assert 0.05 < np.abs(fields[0] - fields[1]).max() < 0.3


def test_a_generated_target_is_reached_by_the_path_that_made_it() -> None:
    options = {**SMALL, "step_time": 1e-3, "noise": 0.0, "guide": 0.02, "episode_steps": 12}
    env = ExaCH(target="generated", target_path=(0.4,), initial_temperature=0.4, dt=5e-5, **options)
    env.reset(seed=3)
    ended = [env.step(1)[2] for _ in range(12)]
    assert ended[-1] and not ended[0]


def test_a_published_structure_file_is_read(tmp_path: Path) -> None:
    """Two rows: q in rad/pixel of a 128 grid, and q times the averaged |FFT|."""
    name = str(tmp_path / "target.out")
    q = np.linspace(0, 2, 200)
    field = 0.15 + 0.5 * np.cos(2 * np.pi * 9 * np.arange(128) / 128)[None, :] * np.ones((128, 1))
    shells = ExaCH(grid=128, box=750, target=field).functions.target.spectrum  # type: ignore[attr-defined]
    # shell j stands at q = 2 pi j / 128, and 2 pi j A is q A 128
    j = np.arange(1, 33)
    np.savetxt(name, [q, np.interp(q, 2 * np.pi * j / 128, 128 * shells)])
    read = ExaCH(grid=64, box=750, target=name).functions.target.spectrum  # type: ignore[attr-defined]
    assert np.argmax(read) == np.argmax(shells) == 8
    assert read[8] == pytest.approx(shells[8], rel=0.2)  # its q fall between ours
    with pytest.raises(ValueError, match="set box to 750"):
        ExaCH(target=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "sideways"}, "target 'sideways' cannot be read"),
        ({"target": [[0.0, 1.0]]}, "target has shape (1, 2), not (16, 16)"),
        ({"target": np.zeros((16, 16))}, "uniform field"),
        ({"initial": np.full((16, 16), np.nan)}, "not finite"),
        ({"initial_temperature": 1.5}, "initial_temperature must lie between 0.2 and 1.0"),
        ({"lowest_temperature": 0.0}, "lowest_temperature must lie between 0 and 1"),
        ({"temperature_step": 0.0}, "temperature_step must be positive"),
        ({"dt": 0.0}, "dt must be positive"),
        ({"noise": -1.0}, "noise must be at least 0"),
        ({"mean": 1.0}, "mean must lie between"),
        ({"box": -1.0}, "positive lengths"),
        ({"grid": 15}, "even number of points"),
        ({"shells": 9}, "shells must lie between 1 and 8"),
        ({"episode_steps": 0}, "episode_steps must be at least 1"),
        ({"target_path": (2.0,)}, "target_path must hold values between"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_env("ExaCH-v0", {**SMALL, **options})
    assert "environment 'ExaCH-v0' cannot be made" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# -- pictures and the compiled form -----------------------------------------------------------------


@pytest.mark.parametrize("make", [ExaCH, ExaCH3D])
def test_a_picture_shows_the_field_and_changes_with_it(make: Any) -> None:
    env = make(render_mode="rgb_array", **(SMALL if make is ExaCH else SMALL3D))
    env.reset(seed=0)
    first = env.render()
    for _ in range(4):
        env.step(0)
    second = env.render()
    assert first.shape == second.shape == (320, 1050, 3)
    assert first.dtype == np.uint8
    assert all((first[:, part] != second[:, part]).any() for part in (slice(350), slice(720, 1050)))


@pytest.mark.parametrize(
    ("make", "options", "precision"),
    [
        (ExaCH, SMALL, "float64"),
        (ExaCH, {**SMALL, "boundary": "neumann", "control": "continuous"}, "float32"),
        (ExaCH3D, SMALL3D, "float32"),
    ],
)
def test_the_compiled_form_agrees(make: Any, options: dict[str, Any], precision: str) -> None:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(precision == "float64"):
        env = make(precision=precision, **options)
        functions, compiled = env.functions, env.make(xp=jnp)
        starts = [functions.initial(np.random.default_rng(seed)) for seed in (0, 1, 2)]
        actions = [env.action_space.sample() for _ in starts]
        step = jax.jit(jax.vmap(lambda state, action: compiled.transition(state, action, None)))
        batch = jax.tree.map(lambda *arrays: jnp.stack(arrays), *starts)
        for _ in range(4):
            batch = step(batch, jnp.asarray(np.array(actions)))
        for row, (state, action) in enumerate(zip(starts, actions, strict=True)):
            for _ in range(4):
                state = functions.transition(state, action, None)  # noqa: PLW2901
            other = jax.tree.map(lambda array, row=row: array[row], batch)
            within = 1e-11 if precision == "float64" else 1e-4
            for name, mine, its in zip(state._fields, state, other, strict=True):
                np.testing.assert_allclose(mine, its, atol=within, err_msg=name)
                assert mine.dtype == its.dtype
            np.testing.assert_allclose(
                functions.observation(state, None), compiled.observation(other, None), atol=1e-5
            )
            rewards = [
                f.reward(s, action, s, None) for f, s in ((functions, state), (compiled, other))
            ]
            assert rewards[0] == pytest.approx(float(rewards[1]), abs=within)
            assert bool(functions.terminal(state, None)) == bool(compiled.terminal(other, None))


def test_a_key_starts_an_episode_of_the_compiled_form() -> None:
    import jax
    import jax.numpy as jnp

    compiled = ExaCH(**SMALL).make(xp=jnp)
    start = jax.jit(jax.vmap(compiled.initial))
    states = start(jax.random.split(jax.random.PRNGKey(0), 3))
    fields = np.asarray(states.field)
    assert fields.shape == (3, 16, 16)
    np.testing.assert_allclose(fields.mean(axis=(1, 2)), 0.15, atol=1e-6)
    assert np.abs(fields[0] - fields[1]).max() > 0.005
