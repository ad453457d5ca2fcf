"""The convolutional network, against JAX's own convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exarl.errors import ConfigError
from exarl.networks.cnn import CNN, CNNConfig, convolve
from exarl.types import ArraySpec

SMALL = CNNConfig((4, 6), (4, 3), (2, 1), (7,))


def images(seed: int, shape: tuple[int, ...], dtype: str, count: int = 3) -> np.ndarray:
    bytes = np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)
    return bytes if dtype == "uint8" else bytes.astype(np.float32) / 255


def lax_convolve(x: Any, w: Any, stride: int) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "VALID", dimension_numbers=numbers, precision="highest"
    )


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize(("height", "width"), [(11, 9), (5, 12)])
def test_a_convolution_is_that_of_jax(kernel: int, stride: int, height: int, width: int) -> None:
    rng = np.random.default_rng(kernel)
    x = rng.normal(size=(2, height, width, 3)).astype(np.float32)
    w = rng.normal(size=(kernel, kernel, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(
        convolve(np, x, w, stride), lax_convolve(x, w, stride), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(
    "shape", [(12, 10), (12, 10, 3), (3, 12, 10), (2, 12, 10, 3), (2, 3, 12, 10), (84, 84, 4)]
)
def test_numpy_equals_jax(shape: tuple[int, ...], dtype: str, extra: int) -> None:
    config = CNNConfig() if shape[0] == 84 else SMALL
    net = CNN(config, ArraySpec(shape, dtype), 5, extra)
    params = net.init(np.random.default_rng(0))
    seen = images(1, shape, dtype)
    beside = np.random.default_rng(2).normal(size=(3, extra)).astype(np.float32) if extra else None
    ours = net.apply(np, params, seen, beside)
    theirs = jax.jit(lambda p, x, e: net.apply(jnp, p, x, e))(params, seen, beside)
    assert ours.shape == (3, 5)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extra", [0, 2])
def test_the_whole_network_by_hand(extra: int) -> None:
    net = CNN(SMALL, ArraySpec((12, 10, 3), "uint8"), 5, extra)
    params = net.init(np.random.default_rng(0))
    seen = images(1, (12, 10, 3), "uint8")
    beside = np.random.default_rng(2).normal(size=(3, extra)).astype(np.float32)
    x = seen.astype(np.float32) / 255
    for n, stride in enumerate((2, 1)):
        x = jax.nn.relu(lax_convolve(x, params[f"conv{n}/w"], stride) + params[f"conv{n}/b"])
    x = np.concatenate([np.reshape(x, (3, -1)), beside], 1)
    x = np.maximum(x @ params["0/w"] + params["0/b"], 0)
    expected = x @ params["1/w"] + params["1/b"]
    ours = net.apply(np, params, seen, beside if extra else None)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((3, 12, 10), (1, 2, 0)),
        ((12, 3, 10), (0, 2, 1)),
        ((12, 12, 12), (0, 1, 2)),
        ((2, 12, 10, 3), (1, 2, 0, 3)),
        ((2, 3, 12, 10), (2, 3, 0, 1)),
    ],
)
def test_channels_and_frames_are_found(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """The same picture gives the same answer, however its axes lie."""
    seen = images(1, shape, "uint8")
    plain = seen.transpose(0, *(axis + 1 for axis in axes))
    plain = plain.reshape(*plain.shape[:3], -1)
    net = CNN(SMALL, ArraySpec(shape, "uint8"), 5)
    usual = CNN(SMALL, ArraySpec(plain.shape[1:], "uint8"), 5)
    params = net.init(np.random.default_rng(0))
    assert net._image == plain.shape[1:]
    np.testing.assert_array_equal(
        net.apply(np, params, seen), usual.apply(np, params, np.ascontiguousarray(plain))
    )


def test_bytes_and_their_255ths_are_one() -> None:
    byte, real = (CNN(SMALL, ArraySpec((12, 10), kind), 5) for kind in ("uint8", "float32"))
    params = byte.init(np.random.default_rng(0))
    of_bytes = byte.apply(np, params, images(1, (12, 10), "uint8"))
    np.testing.assert_array_equal(of_bytes, real.apply(np, params, images(1, (12, 10), "float32")))


def test_gradients_are_those_of_jaxs_convolution() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 8, 8, 3)).astype(np.float32)
    w = rng.normal(size=(4, 4, 3, 5)).astype(np.float32)
    ours = jax.grad(lambda x, w: (convolve(jnp, x, w, 2) ** 2).sum(), (0, 1))(x, w)
    theirs = jax.grad(lambda x, w: (lax_convolve(x, w, 2) ** 2).sum(), (0, 1))(x, w)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-2)


def test_initial_values() -> None:
    net = CNN(CNNConfig(), ArraySpec((4, 84, 84), "uint8"), 6, extra=2)
    params = net.init(np.random.default_rng(0))
    assert {name: array.shape for name, array in params.items()} == {
        "conv0/w": (8, 8, 4, 32), "conv0/b": (32,), "conv1/w": (4, 4, 32, 64), "conv1/b": (64,),
        "conv2/w": (3, 3, 64, 64), "conv2/b": (64,), "0/w": (3138, 512), "0/b": (512,),
        "1/w": (512, 6), "1/b": (6,),
    }  # fmt: skip
    for name, fan_in in (("conv0/w", 256), ("conv1/w", 512), ("conv2/w", 576), ("0/w", 3138)):
        assert params[name].dtype == np.float32
        assert 0.99 < np.abs(params[name]).max() * fan_in**0.5 <= 1 + 1e-6
        assert abs(params[name].mean()) * fan_in**0.5 < 4 / (3 * params[name].size) ** 0.5
    assert net.memory == {}


@pytest.mark.parametrize("shape", [(10, 10), (20, 10, 3), (1, 1), (35, 84, 4), (2, 5, 84, 3)])
def test_an_image_that_is_too_small_is_told_what_fits(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="too small for kernels") as caught:
        CNN(CNNConfig(), ArraySpec(shape, "uint8"), 2)
    words = str(caught.value).split("try ")[1].split()
    assert words[::2] == ["--filters", "--kernels", "--strides"]
    layers = [tuple(map(int, word.split(","))) for word in words[1::2]]
    net = CNN(CNNConfig(*layers), ArraySpec(shape, "uint8"), 2)
    seen = images(0, shape, "uint8")
    assert net.apply(np, net.init(np.random.default_rng(0)), seen).shape == (3, 2)


def test_the_numbers_are_named() -> None:
    with pytest.raises(ConfigError, match=r"20x10 .* kernels \[8, 4, 3\] with strides \[4, 2, 1\]"):
        CNN(CNNConfig(), ArraySpec((20, 10), "uint8"), 2)


@pytest.mark.parametrize("shape", [(), (4,), (2, 2, 12, 10, 3), (0, 10, 10)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="needs images"):
        CNN(CNNConfig(), ArraySpec(shape, "float32"), 2)


def test_layers_need_as_many_kernels_and_strides_as_filters() -> None:
    with pytest.raises(ConfigError, match="not 2, 3 and 3"):
        CNN(CNNConfig(filters=(8, 8)), ArraySpec((84, 84), "uint8"), 2)


def test_without_convolutions_it_is_an_mlp_of_the_pixels() -> None:
    net = CNN(CNNConfig((), (), (), (8,)), ArraySpec((4, 5), "float32"), 2)
    params = net.init(np.random.default_rng(0))
    assert params["0/w"].shape == (20, 8)
    assert net.apply(np, params, images(0, (4, 5), "float32")).shape == (3, 2)
