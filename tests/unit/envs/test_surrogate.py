"""An environment that was learned from recorded episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.surrogates import LIMIT, untrained, written

from exarl.envs.registration import make_env
from exarl.envs.surrogate import ABOUT, ARRAYS, SurrogateFunctions, load_surrogate
from exarl.errors import ConfigError


def made(path: Path, **parameters: Any) -> tuple[Any, int | None]:
    return make_env("ExaSurrogate-v0", {"path": str(path), **parameters})


@pytest.mark.parametrize("discrete", [False, True])
def test_what_is_written_is_read_again(discrete: bool, tmp_path: Path) -> None:
    before, after = (
        untrained(discrete=discrete),
        load_surrogate(str(written(tmp_path, discrete=discrete))),
    )
    assert (before.dynamics, before.limit, before.env_id) == (
        after.dynamics,
        after.limit,
        after.env_id,
    )
    assert before.observation == after.observation and before.action == after.action
    for name, array in before.params.items():
        np.testing.assert_array_equal(array, after.params[name])


@pytest.mark.parametrize("discrete", [False, True])
def test_without_noise_and_with_one_member_numpy_and_jax_take_the_same_course(
    discrete: bool,
) -> None:
    whole = untrained(discrete=discrete)
    alone = {
        n: a if n.startswith("log_var") else a[:1].repeat(3, 0) for n, a in whole.params.items()
    }
    whole.params.update(alone)
    one, other = SurrogateFunctions(whole, 0.0), SurrogateFunctions(whole, 0.0, jnp)
    state = one.initial(np.random.default_rng(0))
    twin = jax.tree.map(jnp.asarray, state)
    step = jax.jit(other.transition)
    for number in range(5):
        action = whole.action.sample() if not discrete else 1 + number % 3
        state = one.transition(state, action, np.random.default_rng(0))
        twin = step(twin, action, jax.random.key(0))
        np.testing.assert_allclose(state.observation, twin.observation, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.reward, twin.reward, rtol=1e-3, atol=1e-5)


def test_episodes_begin_where_recorded_ones_did_and_are_cut_after_the_same_steps(
    tmp_path: Path,
) -> None:
    env, limit = made(written(tmp_path))
    assert limit == LIMIT
    starts = untrained().starts
    for seed in range(5):
        begun = env.reset(seed=seed)[0]
        assert (np.abs(starts - begun).max(1) < 1e-6).any()
    cut = [env.step(env.action_space.sample())[3] for _ in range(LIMIT)]
    assert cut == [False] * (LIMIT - 1) + [True]


def test_predictions_stay_near_what_was_recorded(tmp_path: Path) -> None:
    """Within a tenth beyond [-1, 1], however large the noise is."""
    env, _ = made(written(tmp_path, limit=None), noise=100.0)
    env.reset(seed=0)
    seen = np.array([env.step(env.action_space.sample())[0] for _ in range(100)])
    assert np.abs(seen).max() == pytest.approx(1.2)
    assert env.unwrapped.describe()["surrogate"].startswith("of Toy-v0, learned from 100 steps")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda folder: (folder / ABOUT).unlink(), "no surrogate in"),
        (lambda folder: (folder / ABOUT).write_text("{"), "is no surrogate"),
        (lambda folder: (folder / ABOUT).write_text('{"format": 2}'), "format 2"),
        (lambda folder: (folder / ARRAYS).write_bytes(b"no"), "is no surrogate"),
        (
            lambda folder: (folder / ABOUT).write_text(
                (folder / ABOUT).read_text().replace('"members": 3', '"members": 4')
            ),
            "do not fit",
        ),
    ],
)
def test_what_is_no_surrogate_is_refused_in_one_line(
    spoil: Any, reason: str, tmp_path: Path
) -> None:
    spoil(written(tmp_path))
    with pytest.raises(ConfigError, match=reason) as refused:
        made(tmp_path)
    assert "\n" not in str(refused.value)
