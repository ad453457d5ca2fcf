"""The ensemble that predicts an environment's next step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from exarl.networks.dynamics import FAR, Dynamics, Scales, chosen

SIZES = (3, 2)


def scaling(dynamics: Dynamics, seed: int = 0) -> Scales:
    rng = np.random.default_rng(seed)
    shapes = (dynamics.inputs, dynamics.inputs, dynamics.outputs, dynamics.outputs)
    return Scales(*(rng.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes))


def steps(dynamics: Dynamics, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(count, dynamics.observation)).astype(np.float32)
    if dynamics.n_actions is not None:
        return seen, rng.integers(dynamics.n_actions, size=count)
    return seen, rng.uniform(-1, 1, (count, dynamics.action)).astype(np.float32)


@pytest.mark.parametrize("n_actions", [None, 4])
def test_numpy_and_jax_predict_alike(n_actions: int | None) -> None:
    dynamics = Dynamics(*SIZES, 5, (16, 8), n_actions)
    params, (seen, actions) = dynamics.init(np.random.default_rng(0)), steps(dynamics, 7)
    inputs = dynamics.encoded(np, seen, actions)
    assert inputs.shape == (7, dynamics.inputs)
    one = dynamics.apply(np, params, scaling(dynamics), inputs)
    other = dynamics.apply(jnp, params, scaling(dynamics), inputs)
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert one.mean.shape == one.log_var.shape == (5, 7, 4) and one.ends.shape == (5, 7)
    assert (one.log_var > -10.1).all() and (one.log_var < 0.6).all()


def test_each_member_predicts_an_equal_part_of_the_steps() -> None:
    dynamics = Dynamics(*SIZES, 4, (8,))
    params, scales = dynamics.init(np.random.default_rng(0)), scaling(dynamics)
    elites, (seen, actions) = chosen(params, np.array([2, 0])), steps(dynamics, 6)
    found = dynamics.next_step(np, elites, scales, seen, actions, None)
    means = dynamics.apply(np, params, scales, dynamics.encoded(np, seen, actions)).mean
    expected = scales.out_mean + scales.out_std * np.concatenate([means[2, :3], means[0, 3:]])
    np.testing.assert_allclose(found.observation, seen + expected[:, :-1], rtol=1e-5)
    np.testing.assert_allclose(found.reward, expected[:, -1], rtol=1e-5)


def test_noise_is_drawn_with_the_predicted_deviation() -> None:
    dynamics = Dynamics(*SIZES, 1, (8,))
    params, scales = dynamics.init(np.random.default_rng(0)), scaling(dynamics)
    seen, actions = (np.repeat(array[:1], 4000, 0) for array in steps(dynamics, 1))
    noise = np.random.default_rng(2).normal(size=(4000, dynamics.outputs))
    found = dynamics.next_step(np, params, scales, seen, actions, noise)
    log_var = dynamics.apply(np, params, scales, dynamics.encoded(np, seen, actions)).log_var[0, 0]
    expected = (scales.out_std * np.exp(log_var / 2))[:-1]
    np.testing.assert_allclose(found.observation.std(0), expected, rtol=0.06)


def test_what_is_far_from_all_that_was_seen_is_not_sound() -> None:
    dynamics = Dynamics(*SIZES, 1, (8,))
    params, (seen, actions) = dynamics.init(np.random.default_rng(0)), steps(dynamics, 3)
    scales = scaling(dynamics)
    seen[1, 0] = scales.in_mean[0] + (FAR + 5) * scales.in_std[0]
    seen[2, 1] = np.nan
    found = dynamics.next_step(jnp, params, scales, seen, actions, None)
    assert found.sound.tolist() == [True, False, False]
