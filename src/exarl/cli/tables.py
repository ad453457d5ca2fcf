"""Parameters as text: one or two lines each."""

from __future__ import annotations

import json
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Literal

from exarl.config import Parameter, Schema, type_name

_NAME_WIDTH, _WIDTH = 28, 104
_PLACES = {str: "TEXT", float: "X", int: "N", list: "LIST", tuple: "LIST"}
"""The placeholder of a parameter's value by its type; of several types the first counts."""


def parameter_table(schema: Schema) -> str:
    """Every parameter in two lines: name, type, default and range; then its meaning."""
    return "".join(_entry(parameter) for parameter in schema.values())


def short_table(schema: Schema) -> str:
    """Every parameter, on one line if it fits: name, placeholder, meaning and default."""
    return "".join(_line(parameter) for parameter in schema.values())


def grouped_table(schema: Schema, groups: Mapping[str, Sequence[str]]) -> str:
    """``short_table`` under the headings of ``groups``; parameters without a group come last."""
    named = {name for names in groups.values() for name in names}
    groups = {**groups, "more": [name for name in schema if name not in named]}
    parts = {
        heading: short_table({name: schema[name] for name in names if name in schema})
        for heading, names in groups.items()
    }
    return "\n".join(f"{heading}:\n{table}" for heading, table in parts.items() if table)


def markdown_table(schema: Schema) -> str:
    """Every parameter as a row of a table in Markdown."""
    rows = "".join(_row(parameter) for parameter in schema.values())
    return f"| parameter | type | default | meaning |\n|---|---|---|---|\n{rows}"


def choices(parameter: Parameter) -> list[str]:
    """The possible values of the parameter; empty if its type does not list them."""
    kinds = typing.get_args(parameter.type) if _is_union(parameter.type) else [parameter.type]
    found = [str(c) for kind in kinds if typing.get_origin(kind) is Literal
             for c in typing.get_args(kind)]  # fmt: skip
    return found or (["true", "false"] if bool in kinds else [])


def shown(value: object) -> str:
    """A value as it is written in a file of parameters."""
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)


def _entry(parameter: Parameter) -> str:
    default = "required" if parameter.required else f"default {shown(parameter.default)}"
    facts = [type_name(parameter.type), default, parameter.range()]
    head = f"--{parameter.name}  ({'; '.join(fact for fact in facts if fact)})"
    head = textwrap.fill(head, _WIDTH, subsequent_indent=" " * 6, initial_indent="  ") + "\n"
    body = textwrap.fill(parameter.help, 92, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return head + (f"{body}\n" if parameter.help else "")


def _row(parameter: Parameter) -> str:
    kind = type_name(parameter.type).replace("|", "\\|")
    bounds = f" ({parameter.range()})" if parameter.range() else ""
    default = "required" if parameter.required else f"`{shown(parameter.default)}`"
    meaning = parameter.help.replace("|", "\\|")
    return f"| `{parameter.name}` | {kind}{bounds} | {default} | {meaning} |\n"


def _line(parameter: Parameter) -> str:
    default = "required" if parameter.required else f"[{parameter.default}]"
    if parameter.default in (None, "", (), []):
        default = ""
    elif not parameter.required and not isinstance(parameter.default, str):
        default = f"[{shown(parameter.default).strip('[]')}]"
    head = f"  --{parameter.name} {_place(parameter)}"
    text = " ".join(f"{parameter.help} {default}".split())
    indent = " " * _NAME_WIDTH
    first = head + "\n" + indent if len(head) >= _NAME_WIDTH else f"{head:<{_NAME_WIDTH}}"
    lines = textwrap.wrap(text, _WIDTH - _NAME_WIDTH) or [""]
    return (first + f"\n{indent}".join(lines)).rstrip() + "\n"


def _place(parameter: Parameter) -> str:
    """The placeholder of the parameter's value: its choices, or a name for its type."""
    if words := choices(parameter):
        return "|".join(words)
    kinds = typing.get_args(parameter.type) if _is_union(parameter.type) else [parameter.type]
    plain = [typing.get_origin(kind) or kind for kind in kinds]
    return next((place for kind, place in _PLACES.items() if kind in plain), "VALUE")


def _is_union(kind: object) -> bool:
    return typing.get_origin(kind) in (types.UnionType, typing.Union)
