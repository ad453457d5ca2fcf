"""The long short-term memory network, against the equations written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exarl.networks.lstm import LSTM, LSTMConfig
from exarl.types import Arrays, ArraySpec


def network(hidden: tuple[int, ...] = (6,), units: int = 5, extra: int = 0) -> LSTM:
    return LSTM(LSTMConfig(hidden, units, "tanh"), ArraySpec((2, 2), "float32"), 3, extra)


def sequence(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def zeros(net: LSTM, count: int) -> Arrays:
    return {name: spec.zeros(count) for name, spec in net.memory.items()}


def oracle(params: Arrays, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    """One step of one environment in double precision, gate by gate and unit by unit."""
    p = {name: array.astype(float) for name, array in params.items()}
    if "0/w" in p:
        x = np.tanh(x @ p["0/w"] + p["0/b"])
    units = len(h)
    new_h, new_c = np.zeros(units), np.zeros(units)
    for unit in range(units):
        i, f, g, o = (
            sum(v * p["cell/w"][row, gate * units + unit] for row, v in enumerate([*x, *h]))
            + p["cell/b"][gate * units + unit]
            for gate in range(4)
        )
        i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f, o))
        new_c[unit] = f * c[unit] + i * np.tanh(g)
        new_h[unit] = o * np.tanh(new_c[unit])
    return new_h @ p["out/w"] + p["out/b"], new_h, new_c


@pytest.mark.parametrize("hidden", [(), (6,)])
@pytest.mark.parametrize("extra", [0, 2])
def test_steps_are_those_of_the_equations(hidden: tuple[int, ...], extra: int) -> None:
    net = network(hidden, extra=extra)
    params = net.init(np.random.default_rng(0))
    params["cell/b"] += sequence(3, 20)  # so that every gate has biases of its own
    seen, beside = sequence(1, 9, 3, 2, 2), sequence(2, 9, 3, extra)
    memory, expected = zeros(net, 3), [(np.zeros(5), np.zeros(5))] * 3
    for x, e in zip(seen, beside, strict=True):
        outputs, memory = net.step(np, params, x, memory, e if extra else None)
        assert outputs.shape == (3, 3)
        assert {outputs.dtype, memory["h"].dtype, memory["c"].dtype} == {np.dtype("float32")}
        for n in range(3):
            out, h, c = oracle(params, np.concatenate([x[n].ravel(), e[n]]), *expected[n])
            expected[n] = h, c
            np.testing.assert_allclose(outputs[n], out, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(memory["h"][n], h, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(memory["c"][n], c, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extra", [0, 2])
def test_numpy_equals_a_scan_in_jax(extra: int) -> None:
    net = network((8, 7), 6, extra)
    params = net.init(np.random.default_rng(0))
    seen, beside = sequence(1, 12, 4, 2, 2), sequence(2, 12, 4, extra)
    memory, ours = zeros(net, 4), []
    for x, e in zip(seen, beside, strict=True):
        outputs, memory = net.step(np, params, x, memory, e if extra else None)
        ours.append(outputs)

    def step(memory: Arrays, inputs: tuple[np.ndarray, np.ndarray]) -> tuple[Arrays, np.ndarray]:
        x, e = inputs
        outputs, memory = net.step(jnp, params, x, memory, e if extra else None)
        return memory, outputs

    last, theirs = jax.jit(lambda: jax.lax.scan(step, zeros(net, 4), (seen, beside)))()
    np.testing.assert_allclose(np.stack(ours), theirs, rtol=1e-5, atol=1e-5)
    for name, array in memory.items():
        np.testing.assert_allclose(array, last[name], rtol=1e-5, atol=1e-5)


def test_memory_given_is_not_changed() -> None:
    net = network()
    before = zeros(net, 2)
    net.step(np, net.init(np.random.default_rng(0)), sequence(1, 2, 2, 2), before)
    assert not before["h"].any()
    assert not before["c"].any()


def test_initial_values() -> None:
    net = LSTM(LSTMConfig((64,), 32), ArraySpec((4,), "float32"), 3, extra=1)
    params = net.init(np.random.default_rng(0))
    assert {name: array.shape for name, array in params.items()} == {
        "0/w": (5, 64), "0/b": (64,), "cell/w": (96, 128), "cell/b": (128,),
        "out/w": (32, 3), "out/b": (3,),
    }  # fmt: skip
    assert {array.dtype for array in params.values()} == {np.dtype("float32")}
    for name, fan_in in (("0/w", 5), ("cell/w", 96), ("out/w", 32)):
        assert 0.9 < np.abs(params[name]).max() * fan_in**0.5 <= 1 + 1e-6
    assert params["cell/b"].reshape(4, 32).mean(1).tolist() == [0, 1, 0, 0]
    assert net.memory == {"h": ArraySpec((32,), "float32"), "c": ArraySpec((32,), "float32")}


def test_large_numbers_do_not_overflow() -> None:
    net = network(())
    params = {name: array * 1000 for name, array in net.init(np.random.default_rng(0)).items()}
    outputs, memory = net.step(np, params, 1000 * sequence(1, 3, 2, 2), zeros(net, 3))
    assert all(np.isfinite(array).all() for array in (outputs, *memory.values()))


def test_it_cannot_be_used_without_its_memory() -> None:
    net = network()
    with pytest.raises(TypeError, match="use step"):
        net.apply(np, net.init(np.random.default_rng(0)), sequence(1, 2, 2, 2))
