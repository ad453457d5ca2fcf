"""A policy as an ONNX graph of standard operators."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from exarl.errors import ConfigError, install
from exarl.export.policy import (
    FORBIDDEN,
    Activation,
    Affine,
    ArgMax,
    ArgMaxEach,
    Choose,
    ChooseEach,
    Convolution,
    Layer,
    LayerNorm,
    Lstm,
    Mask,
    Mixed,
    Normalise,
    Pick,
    Policy,
    Round,
    Scale,
    Squash,
    ToBox,
)

OPSET, IR_VERSION = 17, 8
"""Of 2022, so that old runtimes read it too."""
INT64_MAX = 2**63 - 1
"""In a Slice: to the end."""


def to_onnx(policy: Policy, path: str | os.PathLike[str]) -> None:
    """Write a model "observation" [N, inputs] -> "action" [N, outputs] of float32.

    The i-th layer, if an Lstm, adds inputs "h<i>" and "c<i>" [N, units], zero at the beginning of
    an episode, and outputs "h<i>_next" and "c<i>_next" to be given back at the next step.
    ConfigError without the package onnx.
    """
    onnx = load_onnx()
    graph = _Graph(onnx)
    x = graph.input("observation", policy.inputs)
    for number, layer in enumerate(policy.layers):
        x = _add(graph, layer, x, number)
    graph.output("action", x, policy.outputs)
    onnx.save(graph.model(), str(path))


def load_onnx() -> Any:
    """The package onnx; ConfigError when it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise ConfigError(f"onnx needs {install('export')}; npz and c do not") from error
    return onnx


def _add(graph: _Graph, layer: Layer, x: str, number: int) -> str:
    """Append a layer that takes the value ``x``; the name of its result."""
    match layer:
        case Affine():
            return graph.op("Gemm", x, layer.weight, layer.bias)
        case Activation("relu"):
            return graph.op("Relu", x)
        case Activation("silu"):
            return graph.op("Mul", x, graph.op("Sigmoid", x))
        case Activation() | Squash():
            return graph.op("Tanh", x)
        case LayerNorm():
            groups = graph.op("Reshape", x, np.array([0, -1, layer.features]))
            scale = np.ones(layer.features)
            normal = graph.op("LayerNormalization", groups, scale, epsilon=layer.epsilon)
            return graph.op("Flatten", normal, axis=1)
        case Normalise():
            scaled = graph.op("Div", graph.op("Sub", x, layer.mean), layer.std)
            return graph.op("Clip", scaled, -layer.clip, layer.clip)
        case Scale():
            return graph.op("Mul", x, layer.factor)
        case Convolution():
            return _convolution(graph, layer, x)
        case Lstm():
            return _lstm(graph, layer, x, number)
        case ArgMax():
            return _index(graph, x)
        case Choose():
            index = graph.op("Cast", graph.op("Reshape", x, np.array([-1])), to=7)  # int64
            return graph.op("Gather", layer.values, index, axis=0)
        case Pick():
            return graph.op("Gather", x, layer.places.astype(int), axis=1)
        case Mask():
            return _mask(graph, layer, x)
        case ArgMaxEach():
            return _argmax_each(graph, x, layer.counts, 0)
        case Mixed():
            return _mixed(graph, layer, x)
        case ChooseEach():
            row = np.arange(len(layer.values)) * layer.values.shape[1]
            index = graph.op("Add", graph.op("Cast", x, to=7), row)
            return graph.op("Gather", layer.values.ravel(), index, axis=0)
        case ToBox():
            moved = graph.op("Mul", graph.op("Add", x, 1.0), 0.5 * (layer.high - layer.low))
            moved = graph.op("Add", moved, layer.low)
            return graph.op("Min", graph.op("Max", moved, layer.low), layer.high)
        case Round():
            return graph.op("Round", x)


def _mask(graph: _Graph, layer: Mask, x: str) -> str:
    places = np.arange(layer.start, layer.stop)
    mask = graph.op("Gather", "observation", places, axis=1)
    ends = np.array([len(places)])
    last = graph.op("Slice", x, -ends, np.array([INT64_MAX]), np.array([1]))
    before = graph.op("Slice", x, np.array([0]), -ends, np.array([1]))
    allowed = graph.op("Where", graph.op("Greater", mask, 0.0), last, FORBIDDEN)
    return graph.op("Concat", before, allowed, axis=1)


def _argmax_each(graph: _Graph, x: str, counts: np.ndarray, start: int) -> str:
    """The index of the largest value in each run of ``counts`` values, which begin at ``start``."""
    runs = counts.astype(int)
    parts = np.split(start + np.arange(runs.sum()), np.cumsum(runs)[:-1])
    found = [_index(graph, graph.op("Gather", x, part, axis=1)) for part in parts]
    return graph.op("Concat", *found, axis=1)


def _mixed(graph: _Graph, layer: Mixed, x: str) -> str:
    size = len(layer.shift)
    numbers = graph.op("Gather", x, np.arange(size), axis=1)
    moved = graph.op("Add", graph.op("Mul", numbers, layer.scale), layer.shift)
    moved = graph.op("Min", graph.op("Max", moved, layer.low), layer.high)
    whole = graph.op("Greater", layer.whole, 0.5)
    moved = graph.op("Where", whole, graph.op("Round", moved), moved)
    chosen = graph.op("Add", _argmax_each(graph, x, layer.counts, size), layer.first * 1.0)
    return graph.op("Concat", moved, chosen, axis=1)


def _index(graph: _Graph, x: str) -> str:
    """The index of the largest value, as a float."""
    return graph.op("Cast", graph.op("ArgMax", x, axis=1, keepdims=1), to=1)


def _convolution(graph: _Graph, layer: Convolution, x: str) -> str:
    """ONNX has channels first, in pictures and in kernels."""
    shape = np.array([-1, layer.height, layer.width, layer.weight.shape[2]])
    pictures = graph.op("Transpose", graph.op("Reshape", x, shape), perm=[0, 3, 1, 2])
    strides = [layer.stride, layer.stride]
    kernels = layer.weight.transpose(3, 2, 0, 1)
    found = graph.op("Conv", pictures, kernels, layer.bias, strides=strides)
    return graph.op("Flatten", graph.op("Transpose", found, perm=[0, 2, 3, 1]), axis=1)


def _lstm(graph: _Graph, layer: Lstm, x: str, number: int) -> str:
    """Written out, since ONNX's own LSTM runs over a sequence, not over a step."""
    h, c = (graph.input(f"{name}{number}", layer.units) for name in "hc")
    gates = graph.op("Gemm", graph.op("Concat", x, h, axis=1), layer.weight, layer.bias)
    bounds = np.arange(5) * layer.units
    i, f, g, o = (
        graph.op("Slice", gates, bounds[n : n + 1], bounds[n + 1 : n + 2], np.array([1]))
        for n in range(4)
    )
    kept = graph.op("Mul", graph.op("Sigmoid", f), c)
    new = graph.op("Mul", graph.op("Sigmoid", i), graph.op("Tanh", g))
    c = graph.op("Add", kept, new)
    h = graph.op("Mul", graph.op("Sigmoid", o), graph.op("Tanh", c))
    graph.output(f"h{number}_next", h, layer.units)
    graph.output(f"c{number}_next", c, layer.units)
    return h


class _Graph:
    """A graph under construction; values are known by their names."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, size: int) -> str:
        self._inputs.append(self._value(name, size))
        return name

    def output(self, name: str, value: str, size: int) -> None:
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value(name, size))

    def op(self, kind: str, *operands: Any, **attributes: Any) -> str:
        """Append an operator over names and constants (float32, or integers as they are)."""
        names = [o if isinstance(o, str) else self._constant(o) for o in operands]
        result = f"v{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, names, [result], **attributes))
        return result

    def model(self) -> Any:
        helper = self._onnx.helper
        parts = (self._nodes, "policy", self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            helper.make_graph(*parts),
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="exarl",
        )
        self._onnx.checker.check_model(model)
        return model

    def _constant(self, value: Any) -> str:
        array = np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        name = f"k{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def _value(self, name: str, size: int) -> Any:
        kind = self._onnx.TensorProto.FLOAT
        return self._onnx.helper.make_tensor_value_info(name, kind, ["N", size])
