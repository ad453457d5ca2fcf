"""Returns and V-trace against RLax, cases by hand, and NumPy against JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from exarl.learning.returns import backward_sum, n_step_returns, q_lambda, vtrace

GAMMA = 0.9


def flags(*rows: list[int]) -> np.ndarray:
    """[T, B] booleans from one list an environment."""
    return np.array(rows, bool).T


def rewards(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32).T


def random_block(seed: int, steps: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    terminated = rng.random((steps, width)) < 0.15
    truncated = (rng.random((steps, width)) < 0.15) & ~terminated
    return rng.normal(size=(steps, width)).astype(np.float32), terminated, truncated


def by_definition(
    reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, gamma: float, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each window followed step by step, in double precision."""
    steps, width = reward.shape
    returns, discounts = np.zeros((steps, width)), np.zeros((steps, width))
    last = np.zeros((steps, width), int)
    for t, b in np.ndindex(steps, width):
        for k in range(n):
            at = t + k
            returns[t, b] += gamma**k * float(reward[at, b])
            discounts[t, b], last[t, b] = gamma ** (k + 1), at
            if terminated[at, b]:
                discounts[t, b] = 0
            if terminated[at, b] or truncated[at, b] or at == steps - 1:
                break
    return returns, discounts, last


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("steps", [1, 4, 13])
def test_equals_rlax_without_truncation(seed: int, n: int, steps: int) -> None:
    reward, terminated, _ = random_block(seed, steps, 3)
    values = np.random.default_rng(seed + 100).normal(size=(steps, 3)).astype(np.float32)
    nothing = np.zeros_like(terminated)
    returns, discounts, last = n_step_returns(np, reward, terminated, nothing, GAMMA, n)
    ours = returns + discounts * np.take_along_axis(values, last, 0)
    discount_t = (GAMMA * ~terminated).astype(np.float32)
    for b in range(3):
        expected = rlax.n_step_bootstrapped_returns(
            jnp.array(reward[:, b]), jnp.array(discount_t[:, b]), jnp.array(values[:, b]), n
        )
        np.testing.assert_allclose(ours[:, b], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 2, 4, 30])
@pytest.mark.parametrize("gamma", [0.0, 0.97, 1.0])
def test_equals_its_definition_with_both_endings(seed: int, n: int, gamma: float) -> None:
    block = random_block(seed, 23, 4)
    ours = n_step_returns(np, *block, gamma, n)
    for got, expected in zip(ours, by_definition(*block, gamma, n), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_truncation_bootstraps_and_termination_does_not() -> None:
    reward = rewards([1, 2, 4, 8], [1, 2, 4, 8])
    terminated = flags([0, 1, 0, 0], [0, 0, 0, 0])
    truncated = flags([0, 0, 0, 0], [0, 1, 0, 0])
    returns, discounts, last = n_step_returns(np, reward, terminated, truncated, 0.5, 3)
    both = [1 + 0.5 * 2, 2, 4 + 0.5 * 8, 8]
    np.testing.assert_allclose(returns.T, [both, both])
    np.testing.assert_allclose(discounts.T, [[0, 0, 0.25, 0.5], [0.25, 0.5, 0.25, 0.5]])
    np.testing.assert_array_equal(last.T, [[1, 1, 3, 3]] * 2)


def test_a_step_that_both_terminates_and_truncates_has_terminated() -> None:
    end = flags([1, 0])
    _, discounts, _ = n_step_returns(np, rewards([1, 1]), end, end, 0.5, 2)
    np.testing.assert_allclose(discounts.T, [[0, 0.5]])


def test_a_window_stops_at_the_first_of_two_ends() -> None:
    truncated, terminated = flags([1, 0, 0]), flags([0, 1, 0])
    returns, discounts, last = n_step_returns(
        np, rewards([1, 10, 100]), terminated, truncated, 0.5, 3
    )
    np.testing.assert_allclose(returns.T, [[1, 10, 100]])
    np.testing.assert_allclose(discounts.T, [[0.5, 0, 0.5]])
    np.testing.assert_array_equal(last.T, [[0, 1, 2]])


@pytest.mark.parametrize("n", [1, 3, 40])
def test_numpy_jax_and_jit_agree_and_keep_float32(n: int) -> None:
    block = random_block(7, 16, 3)
    on_device = [jnp.array(array) for array in block]

    def in_jax(*arrays: Any) -> Any:
        return n_step_returns(jnp, *arrays, GAMMA, n)

    ours = n_step_returns(np, *block, GAMMA, n)
    for form in (in_jax, jax.jit(in_jax)):
        for here, there in zip(ours, form(*on_device), strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-6, atol=1e-6)
            assert there.dtype.kind == here.dtype.kind
    assert ours[0].dtype == ours[1].dtype == np.float32


def test_leaves_its_inputs_alone() -> None:
    block = random_block(3, 8, 2)
    before = [array.copy() for array in block]
    n_step_returns(np, *block, GAMMA, 3)
    for array, kept in zip(block, before, strict=True):
        np.testing.assert_array_equal(array, kept)


# -- V-trace and GAE ------------------------------------------------------------------------------


def trace_inputs(seed: int, steps: int = 17, width: int = 3) -> dict[str, np.ndarray]:
    """The arguments of ``vtrace`` where every end is a termination and values follow each other."""
    reward, terminated, _ = random_block(seed, steps, width)
    rng = np.random.default_rng(seed + 100)
    values = rng.normal(size=(steps + 1, width)).astype(np.float32)
    return {
        "v_tm1": values[:-1],
        "v_t": values[1:],
        "r_t": reward,
        "discount_t": (GAMMA * ~terminated).astype(np.float32),
        "ended": terminated.astype(np.float32),
        "rho": np.exp(rng.normal(size=(steps, width))).astype(np.float32),
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lambda_", [0.0, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 17])
def test_vtrace_equals_rlax(seed: int, lambda_: float, steps: int) -> None:
    block = trace_inputs(seed, steps)
    targets, advantages = vtrace(np, **block, lambda_=lambda_)
    names = ("v_tm1", "v_t", "r_t", "discount_t", "rho")
    trace = jax.vmap(partial(rlax.vtrace_td_error_and_advantage, lambda_=lambda_), 1, 1)
    expected = jax.jit(trace)(*(block[name] for name in names))
    errors = targets - block["v_tm1"]
    np.testing.assert_allclose(errors, expected.errors, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(advantages, expected.pg_advantage, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lambda_", [0.0, 0.9, 1.0])
def test_vtrace_of_the_own_policy_is_generalised_advantage_estimation(
    seed: int, lambda_: float
) -> None:
    block = trace_inputs(seed)
    block["rho"] = np.ones_like(block["rho"])
    targets, advantages = vtrace(np, **block, lambda_=lambda_)
    values = np.concatenate([block["v_tm1"], block["v_t"][-1:]])
    estimate = jax.vmap(rlax.truncated_generalized_advantage_estimation, (1, 1, None, 1), 1)
    expected = jax.jit(estimate)(block["r_t"], block["discount_t"], lambda_, values)
    np.testing.assert_allclose(advantages, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(targets, block["v_tm1"] + advantages, rtol=1e-5, atol=1e-5)


def traced_by_definition(
    b: dict[str, np.ndarray], lambda_: float, clip_rho: float, clip_c: float
) -> tuple[np.ndarray, np.ndarray]:
    """Remark 1 of the paper, step by step backwards and in double precision."""
    v, steps = {name: array.astype(float) for name, array in b.items()}, len(b["rho"])
    targets, advantages = v["v_tm1"].copy(), np.zeros_like(v["rho"])
    for t in reversed(range(steps)):
        rho, c = np.minimum(clip_rho, v["rho"][t]), lambda_ * np.minimum(clip_c, v["rho"][t])
        ahead = 0.0
        if t + 1 < steps:
            ahead = (1 - v["ended"][t]) * (targets[t + 1] - v["v_tm1"][t + 1])
        error = v["r_t"][t] + v["discount_t"][t] * v["v_t"][t] - v["v_tm1"][t]
        targets[t] += rho * error + v["discount_t"][t] * c * ahead
        advantages[t] = rho * (error + v["discount_t"][t] * lambda_ * ahead)
    return targets, advantages


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clips", [(1.0, 1.0), (2.0, 0.5), (0.5, 3.0)])
def test_vtrace_equals_its_definition_with_both_endings(
    seed: int, clips: tuple[float, float]
) -> None:
    block = trace_inputs(seed, 23)
    rng = np.random.default_rng(seed)
    block["ended"] = np.maximum(block["ended"], rng.random((23, 3)) < 0.15).astype(np.float32)
    block["v_t"] = rng.normal(size=(23, 3)).astype(np.float32)  # where a cut step truly led
    expected = traced_by_definition(block, 0.9, *clips)
    for got, wanted in zip(
        vtrace(np, **block, lambda_=0.9, clip_rho=clips[0], clip_c=clips[1]), expected, strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("end", [0, 5, 15])
@pytest.mark.parametrize("terminates", [False, True])
def test_an_end_cuts_a_block_in_two(end: int, terminates: bool) -> None:
    block = trace_inputs(3)
    block["ended"][end] = 1
    if terminates:
        block["discount_t"][end] = 0
    first = {name: array[: end + 1] for name, array in block.items()}
    second = {name: array[end + 1 :] for name, array in block.items()}
    parts = zip(vtrace(np, **first), vtrace(np, **second), strict=True)
    for whole, (one, other) in zip(vtrace(np, **block), parts, strict=True):
        np.testing.assert_allclose(whole, np.concatenate([one, other]), rtol=1e-6, atol=1e-6)


def test_a_truncated_trace_bootstraps_and_a_terminated_does_not() -> None:
    """Two environments, values 0 but for 10 where the step led that ended the episode."""
    v_t, zeros = np.zeros((3, 2)), np.zeros((3, 2))
    v_t[1] = 10.0
    discount, ended, ones = np.full((3, 2), 0.5), np.zeros((3, 2)), np.ones((3, 2))
    ended[1] = 1
    discount[1, 1] = 0  # terminated
    targets, advantages = vtrace(np, zeros, v_t, ones, discount, ended, ones)
    np.testing.assert_allclose(targets, [[1 + 0.5 * 6, 1 + 0.5], [1 + 0.5 * 10, 1], [1, 1]])
    np.testing.assert_allclose(advantages, targets)


@pytest.mark.parametrize("length", range(1, 41))
def test_backward_sum_equals_a_loop(length: int) -> None:
    rng = np.random.default_rng(length)
    values, factors = rng.normal(size=(2, length, 3))
    expected, ahead = np.zeros((length, 3)), np.zeros(3)
    for t in reversed(range(length)):
        ahead = expected[t] = values[t] + factors[t] * ahead
    np.testing.assert_allclose(backward_sum(np, values, factors), expected, rtol=1e-9, atol=1e-9)


def test_vtrace_in_numpy_and_jax_agree_and_keep_float32() -> None:
    block = trace_inputs(7)
    in_jax = jax.jit(lambda block: vtrace(jnp, **block, lambda_=0.9))
    there = in_jax({name: jnp.array(array) for name, array in block.items()})
    for got, other in zip(vtrace(np, **block, lambda_=0.9), there, strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-5, atol=1e-5)
        assert got.dtype == other.dtype == np.float32


def targets_by_definition(
    values: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    ended: np.ndarray,
    lambda_: float,
) -> np.ndarray:
    """Backwards, step by step, in double precision."""
    made = np.zeros(reward.shape)
    for t, b in reversed([*np.ndindex(*reward.shape)]):
        ahead = float(values[t, b])
        if not ended[t, b] and t + 1 < len(reward):
            ahead = (1 - lambda_) * ahead + lambda_ * made[t + 1, b]
        made[t, b] = reward[t, b] + GAMMA * (not terminated[t, b]) * ahead
    return made


@pytest.mark.parametrize("lambda_", [0.0, 0.65, 1.0])
@pytest.mark.parametrize("steps", [1, 13])
def test_targets_of_q_lambda(lambda_: float, steps: int) -> None:
    """Those of RLax where nothing is truncated, and of the definition anywhere."""
    reward, terminated, truncated = random_block(steps, steps, 5)
    values = np.random.default_rng(100).normal(size=reward.shape).astype(np.float32)
    discounts = (GAMMA * (1.0 - terminated)).astype(np.float32)
    for ended in (terminated, terminated | truncated):
        expected = targets_by_definition(values, reward, terminated, ended, lambda_)
        for xp in (np, jnp):
            found = q_lambda(xp, values, reward, discounts, 1.0 * ended, lambda_)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    plain = q_lambda(np, values, reward, discounts, 1.0 * terminated, lambda_)
    theirs = jax.vmap(partial(rlax.lambda_returns, lambda_=lambda_), 1, 1)
    np.testing.assert_allclose(plain, theirs(reward, discounts, values), rtol=1e-4, atol=1e-5)
