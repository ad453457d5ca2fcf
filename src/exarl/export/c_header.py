"""A policy as a C header that needs nothing but the C library."""

from __future__ import annotations

import re
from textwrap import indent
from typing import Any

import numpy as np

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

_HEADER = """\
/* A policy exported by EXARL, in C99 and C++; link with -lm.

{usage}
   From Fortran, through one more C file:

{caller}
{fortran}*/
#ifndef {guard}_H
#define {guard}_H

#include <math.h>

enum {{ {guard}_INPUTS = {inputs}, {guard}_OUTPUTS = {outputs} }};

{arrays}
static inline float {name}_clip(float x, float low, float high)
{{
    return x < low ? low : x > high ? high : x;
}}

static inline float {name}_sigmoid(float x)
{{
    return 0.5f * (1.0f + tanhf(0.5f * x));
}}
{state}
/* The action for an observation. */
static inline void {name}_act({arguments})
{{
{body}}}

#endif
"""

_STATE = """
/* What the policy remembers; reset it at the beginning of every episode. */
typedef struct {{
{members}}} {name}_state;

static inline void {name}_reset({name}_state *state)
{{
{resets}}}
"""

_ELEMENTWISE = """\
for (int i = 0; i < {n_in}; i++)
    {y}[i] = {value};
"""

_AFFINE = """\
for (int j = 0; j < {n_out}; j++)
    {y}[j] = {name}_bias{k}[j];
for (int i = 0; i < {n_in}; i++)
    for (int j = 0; j < {n_out}; j++)
        {y}[j] += {x}[i] * {name}_weight{k}[i * {n_out} + j];
"""

_CONVOLUTION = """\
for (int row = 0; row < {rows}; row++)
    for (int column = 0; column < {columns}; column++) {{
        float *out = {y} + (row * {columns} + column) * {n_out};
        for (int j = 0; j < {n_out}; j++)
            out[j] = {name}_bias{k}[j];
        for (int line = 0; line < {kernel_rows}; line++) {{
            const float *in = {x} + ((row * {stride} + line) * {width} + column * {stride}) * {n_in};
            const float *w = {name}_weight{k} + line * {line} * {n_out};
            for (int i = 0; i < {line}; i++)
                for (int j = 0; j < {n_out}; j++)
                    out[j] += in[i] * w[i * {n_out} + j];
        }}
    }}
"""

_LAYER_NORM = """\
for (int group = 0; group < {n_in}; group += {features}) {{
    const float *in = {x} + group;
    float mean = 0.0f, variance = 0.0f;
    for (int i = 0; i < {features}; i++)
        mean += in[i] / {features}.0f;
    for (int i = 0; i < {features}; i++)
        variance += (in[i] - mean) * (in[i] - mean) / {features}.0f;
    for (int i = 0; i < {features}; i++)
        {y}[group + i] = (in[i] - mean) / sqrtf(variance + {epsilon});
}}
"""

_LSTM = """\
float gates{k}[{gates}];
for (int j = 0; j < {gates}; j++)
    gates{k}[j] = {name}_bias{k}[j];
for (int i = 0; i < {n_in}; i++)
    for (int j = 0; j < {gates}; j++)
        gates{k}[j] += {x}[i] * {name}_weight{k}[i * {gates} + j];
for (int i = 0; i < {units}; i++)
    for (int j = 0; j < {gates}; j++)
        gates{k}[j] += state->h{k}[i] * {name}_weight{k}[({n_in} + i) * {gates} + j];
for (int i = 0; i < {units}; i++) {{
    const float *gate = gates{k} + i;
    state->c{k}[i] = {name}_sigmoid(gate[{units}]) * state->c{k}[i]
                   + {name}_sigmoid(gate[0]) * tanhf(gate[2 * {units}]);
    state->h{k}[i] = {name}_sigmoid(gate[3 * {units}]) * tanhf(state->c{k}[i]);
    {y}[i] = state->h{k}[i];
}}
"""

_ARGMAX = """\
int best{k} = 0;
for (int i = 1; i < {n_in}; i++)
    if ({x}[i] > {x}[best{k}])
        best{k} = i;
{y}[0] = (float)best{k};
"""

_CHOOSE = """\
for (int i = 0; i < {n_out}; i++)
    {y}[i] = {name}_values{k}[(int){x}[0] * {n_out} + i];
"""


_MASK = """\
for (int i = 0; i < {n_in}; i++)
    {y}[i] = i < {before} || observation[{start} - {before} + i] > 0.0f ? {x}[i] : {forbidden};
"""

_PICK = """\
for (int i = 0; i < {n_out}; i++)
    {y}[i] = {x}[(int){name}_places{k}[i]];
"""

_ARGMAX_EACH = """\
for (int j = 0, first = 0; j < {n_out}; j++) {{
    int count = (int){name}_counts{k}[j], best = 0;
    for (int i = 1; i < count; i++)
        if ({x}[first + i] > {x}[first + best])
            best = i;
    {y}[j] = (float)best;
    first += count;
}}
"""

_MIXED = """\
for (int i = 0; i < {numbers}; i++) {{
    float moved = {name}_shift{k}[i] + {x}[i] * {name}_scale{k}[i];
    moved = {name}_clip(moved, {name}_low{k}[i], {name}_high{k}[i]);
    {y}[i] = {name}_whole{k}[i] > 0.0f ? rintf(moved) : moved;
}}
for (int j = 0, start = {numbers}; j < {factors}; j++) {{
    int count = (int){name}_counts{k}[j], best = 0;
    for (int i = 1; i < count; i++)
        if ({x}[start + i] > {x}[start + best])
            best = i;
    {y}[{numbers} + j] = {name}_first{k}[j] + (float)best;
    start += count;
}}
"""

_CHOOSE_EACH = """\
for (int i = 0; i < {n_in}; i++)
    {y}[i] = {name}_values{k}[i * {most} + (int){x}[i]];
"""


def to_c(policy: Policy, name: str) -> str:
    """A header with ``NAME_act(observation, action)``, both arrays of float.

    A recurrent policy has ``NAME_state`` as well, which is the first argument of ``NAME_act`` and
    which ``NAME_reset`` sets to the beginning of an episode. An ArgMax gives its index as a float.
    ValueError when ``name`` cannot begin a C identifier.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"'{name}' cannot begin a C identifier")
    arguments = "const float *observation, float *action"
    text = _HEADER.format(
        name=name,
        guard=name.upper(),
        inputs=policy.inputs,
        outputs=policy.outputs,
        usage=indent(_usage(policy, name), " " * 6),
        caller=indent(c_caller(policy, name), " " * 6),
        fortran=indent(fortran_interface(policy, name), " " * 6),
        arrays="\n".join(_arrays(policy, name)),
        state=_state(policy, name),
        arguments=f"{name}_state *state, {arguments}" if policy.recurrent else arguments,
        body=indent(_body(policy, name), " " * 4),
    )
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def c_caller(policy: Policy, name: str) -> str:
    """The C file through which other languages call the policy."""
    arguments = "const float *observation, float *action"
    include = f'#include "{name}.h"\n'
    if not policy.recurrent:
        call = f"{name}_act(observation, action);"
        return f"{include}void {name}_call({arguments}) {{ {call} }}\n"
    return (
        f"{include}static {name}_state state;\n"
        f"void {name}_restart(void) {{ {name}_reset(&state); }}\n"
        f"void {name}_call({arguments}) {{ {name}_act(&state, observation, action); }}\n"
    )


def fortran_interface(policy: Policy, name: str) -> str:
    """The Fortran interface of what ``c_caller`` defines."""
    restart = (
        f'  subroutine {name}_restart() bind(c, name="{name}_restart")\n  end subroutine\n'
        if policy.recurrent
        else ""
    )
    return (
        "interface\n"
        f'  subroutine {name}_call(observation, action) bind(c, name="{name}_call")\n'
        "    use, intrinsic :: iso_c_binding, only: c_float\n"
        f"    real(c_float), intent(in) :: observation({policy.inputs})\n"
        f"    real(c_float), intent(out) :: action({policy.outputs})\n"
        f"  end subroutine\n{restart}"
        "end interface\n"
    )


def _usage(policy: Policy, name: str) -> str:
    sizes = f"observation[{name.upper()}_INPUTS], action[{name.upper()}_OUTPUTS]"
    lines = [f'#include "{name}.h"', f"float {sizes};", f"{name}_act(observation, action);"]
    if policy.recurrent:
        lines[2:] = [
            f"{name}_state state;",
            f"{name}_reset(&state);  // at the beginning of an episode",
            f"{name}_act(&state, observation, action);  // at every step of it",
        ]
    return "\n".join([*lines, ""])


def _arrays(policy: Policy, name: str) -> list[str]:
    """The definitions of all arrays, prefixed with ``name`` like all that has the file's scope."""
    return [
        f"static const float {name}_{field}{number}[{value.size}] = {{\n{_numbers(value)}}};\n"
        for number, layer in enumerate(policy.layers)
        for field, value in vars(layer).items()
        if isinstance(value, np.ndarray)
    ]


def _numbers(array: np.ndarray) -> str:
    texts = [_literal(value) for value in np.asarray(array, np.float32).ravel().tolist()]
    return "".join(f"    {', '.join(texts[at : at + 6])},\n" for at in range(0, len(texts), 6))


def _literal(value: float) -> str:
    """Nine digits tell any two floats apart."""
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _state(policy: Policy, name: str) -> str:
    cells = [(n, layer.units) for n, layer in enumerate(policy.layers) if isinstance(layer, Lstm)]
    members = "".join(f"    float h{n}[{units}], c{n}[{units}];\n" for n, units in cells)
    resets = "".join(
        f"    for (int i = 0; i < {units}; i++)\n        state->h{n}[i] = state->c{n}[i] = 0.0f;\n"
        for n, units in cells
    )
    return _STATE.format(name=name, members=members, resets=resets) if cells else ""


def _body(policy: Policy, name: str) -> str:
    """Every layer reads what the one before wrote, in one of two buffers by turns."""
    sizes = policy.sizes()
    last = len(policy.layers) - 1
    buffers = [f"buffer{n}" for n in range(2)]
    text = "".join(
        f"float {buffer}[{max(sizes[1:-1][n::2])}];\n"
        for n, buffer in enumerate(buffers)
        if n < last
    )
    x = "observation"
    for number, layer in enumerate(policy.layers):
        y = "action" if number == last else buffers[number % 2]
        values = {"name": name, "k": number, "x": x, "y": y}
        values |= {"n_in": sizes[number], "n_out": sizes[number + 1]}
        text += f"/* {type(layer).__name__} */\n" + _code(layer, values)
        x = y
    return text


def _code(layer: Layer, values: dict[str, Any]) -> str:
    match layer:
        case Affine():
            return _AFFINE.format(**values)
        case Convolution():
            kernel_rows, kernel_columns, n_in, n_out = layer.weight.shape
            rows, columns = layer.output
            return _CONVOLUTION.format(
                **{**values, "n_in": n_in, "n_out": n_out},
                rows=rows,
                columns=columns,
                kernel_rows=kernel_rows,
                line=kernel_columns * n_in,  # a line of a window is contiguous
                stride=layer.stride,
                width=layer.width,
            )
        case LayerNorm():
            epsilon = _literal(layer.epsilon)
            return _LAYER_NORM.format(**values, features=layer.features, epsilon=epsilon)
        case Lstm():
            return _LSTM.format(**values, units=layer.units, gates=4 * layer.units)
        case ArgMax():
            return _ARGMAX.format(**values)
        case Choose():
            return _CHOOSE.format(**values)
        case Pick():
            return _PICK.format(**values)
        case Mask():
            before = values["n_in"] - (layer.stop - layer.start)
            places = {"start": layer.start, "before": before}
            return _MASK.format(**values, **places, forbidden=_literal(FORBIDDEN))
        case Mixed():
            return _MIXED.format(**values, numbers=len(layer.shift), factors=len(layer.counts))
        case ArgMaxEach():
            return _ARGMAX_EACH.format(**values)
        case ChooseEach():
            return _CHOOSE_EACH.format(**values, most=layer.values.shape[1])
        case _:
            value = _elementwise(layer, values["name"], f"{values['x']}[i]", values["k"])
            return _ELEMENTWISE.format(**values, value=value)


def _elementwise(
    layer: Activation | Normalise | Scale | Squash | ToBox | Round, name: str, x: str, k: int
) -> str:
    """The expression for one value of a layer whose values are independent."""
    match layer:
        case Activation("relu"):
            return f"{x} < 0.0f ? 0.0f : {x}"
        case Activation("silu"):
            return f"{x} * {name}_sigmoid({x})"
        case Activation() | Squash():
            return f"tanhf({x})"
        case Normalise():
            clip = _literal(layer.clip)
            return f"{name}_clip(({x} - {name}_mean{k}[i]) / {name}_std{k}[i], -{clip}, {clip})"
        case Scale():
            return f"{x} * {_literal(layer.factor)}"
        case ToBox():
            low, high = f"{name}_low{k}[i]", f"{name}_high{k}[i]"
            return f"{name}_clip({low} + ({x} + 1.0f) * (0.5f * ({high} - {low})), {low}, {high})"
        case Round():
            return f"rintf({x})"
