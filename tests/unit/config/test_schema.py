"""Parameters: how a value is checked, and that every documented default passes its own check."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exarl import registry
from exarl.config import LearnerConfig, Parameter, param, schema_of, schema_of_signature, type_name
from exarl.config.schema import check
from exarl.errors import ConfigError
from exarl.run.configure import lookup

REGISTRIES = {
    "agent": registry.agents,
    "workflow": registry.workflows,
    "model": registry.networks,
}


@dataclass(frozen=True)
class Sample:
    """One field of each kind."""

    count: int = param(3, "a count", ge=1, le=9)
    rate: float = param(0.5, "a rate", gt=0, lt=1)
    flag: bool = param(False, "a flag")
    word: str = param("x", "a word")
    choice: Literal["a", "b"] = param("a", "a choice")
    maybe: float | None = param(None, "perhaps", gt=0)
    sizes: tuple[int, ...] = param((1, 2), "sizes", ge=1)


SAMPLE = schema_of(Sample)


def documented() -> Iterator[Any]:
    """Every parameter of every registered component and of the run itself."""
    schemas = {"learner": schema_of(LearnerConfig)}
    for family, known in REGISTRIES.items():
        schemas |= {f"{family} {id}": lookup(family, id).schema for id in known.ids()}
    for owner, schema in schemas.items():
        for parameter in schema.values():
            yield pytest.param(parameter, id=f"{owner}-{parameter.name}".replace(" ", "-"))


@pytest.mark.parametrize("parameter", documented())
def test_every_default_passes_its_own_check(parameter: Parameter) -> None:
    assert not parameter.required, "a parameter of EXARL's own has a default"
    assert check(parameter, parameter.default, "default") == parameter.default


@pytest.mark.parametrize("parameter", documented())
def test_every_default_survives_a_file_and_a_command_line(parameter: Parameter) -> None:
    text = json.dumps(parameter.default)
    assert check(parameter, json.loads(text), "file") == parameter.default
    word = parameter.default if isinstance(parameter.default, str) else text
    assert check(parameter, word, "command line", text=True) == parameter.default


@pytest.mark.parametrize("parameter", documented())
def test_every_parameter_is_documented(parameter: Parameter) -> None:
    assert parameter.help.strip()
    assert "\n" not in parameter.help
    assert type_name(parameter.type)


@pytest.mark.parametrize("parameter", documented())
def test_every_bound_is_enforced(parameter: Parameter) -> None:
    beyond = {"ge": -1, "gt": 0, "le": 1, "lt": 0}
    many = isinstance(parameter.default, tuple)
    for bound, step in beyond.items():
        limit = getattr(parameter, bound)
        if limit is not None:
            value = type(limit)(limit) + step
            with pytest.raises(ConfigError, match=parameter.name):
                check(parameter, [value] if many else value, "file")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("count", 9, 9),
        ("rate", 0.25, 0.25),
        ("flag", True, True),
        ("word", "", ""),
        ("choice", "b", "b"),
        ("maybe", None, None),
        ("maybe", 2, 2.0),
        ("sizes", [4, 5], (4, 5)),
        ("sizes", [], ()),
    ],
)
def test_a_good_value_is_converted(name: str, value: Any, expected: Any) -> None:
    got = check(SAMPLE[name], value, "file")
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", "3"),
        ("count", 3.5),
        ("count", True),
        ("count", None),
        ("count", 0),
        ("count", 10),
        ("count", 10**30),
        pytest.param("count", 10**400, id="count-huge"),
        ("rate", 0.0),
        ("rate", 1.0),
        ("rate", float("nan")),
        ("rate", float("inf")),
        ("rate", "0.5"),
        ("flag", 1),
        ("flag", "true"),
        ("word", 5),
        ("word", None),
        ("choice", "c"),
        ("choice", ["a"]),
        ("maybe", 0),
        ("maybe", "null"),
        ("sizes", 4),
        ("sizes", [1.5]),
        ("sizes", [0]),
        ("sizes", [[1]]),
        ("sizes", {"a": 1}),
    ],
)
def test_a_bad_value_from_a_file_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check(SAMPLE[name], value, "some.json")
    message = str(caught.value)
    assert name in message
    assert "some.json" in message
    assert "\n" not in message
    assert len(message) < 200


def test_a_number_beyond_64_bits_is_refused_without_a_bound_of_its_own() -> None:
    for value in (2**63, -(2**63) - 1, 10**400):
        with pytest.raises(ConfigError, match="steps"):
            check(Parameter("steps", int, 1), value, "file")
    assert check(Parameter("steps", int, 1), 2**63 - 1, "file") == 2**63 - 1


LETTERS = st.characters(max_codepoint=0x2FF)


@settings(deadline=None)
@given(st.text(LETTERS, max_size=40), st.sampled_from(sorted(SAMPLE)))
def test_any_word_is_taken_or_refused_in_one_line(word: str, name: str) -> None:
    try:
        value = check(SAMPLE[name], word, "command line", text=True)
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert check(SAMPLE[name], value, "again") == value


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(LETTERS, max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(LETTERS, max_size=3), inner)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(ANYTHING, st.sampled_from(sorted(SAMPLE)))
def test_any_json_is_taken_or_refused_in_one_line(value: Any, name: str) -> None:
    try:
        taken = check(SAMPLE[name], value, "file")
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert check(SAMPLE[name], taken, "again") == taken


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (int, "int"),
        (float | None, "float | null"),
        (tuple[int, ...], "list[int]"),
        (list[str], "list[str]"),
        (Literal["a", "b"], '"a" | "b"'),
        (Any, "any"),
        (dict, "object"),
    ],
)
def test_types_have_names_a_user_would_write(kind: Any, name: str) -> None:
    assert type_name(kind) == name


@pytest.mark.parametrize(
    ("bounds", "words"),
    [({}, ""), ({"ge": 0, "le": 1}, ">= 0, <= 1"), ({"gt": 0}, "> 0"), ({"lt": 5}, "< 5")],
)
def test_ranges_in_words(bounds: dict[str, float], words: str) -> None:
    assert Parameter("x", int, 1, **bounds).range() == words


# -- parameters read off a constructor ---------------------------------------------------------------


class Constructed:
    """Stands for an environment's class."""

    def __init__(
        self,
        needed: int,
        size: int = 4,
        bare=0.5,
        name="x",
        data_dir: Path = Path("data"),
        limit: float = float("inf"),
        nothing: int | None = None,
        **others: Any,
    ) -> None: ...


def test_a_constructor_documents_itself() -> None:
    schema, open_ended = schema_of_signature(Constructed)
    assert open_ended
    assert list(schema) == ["needed", "size", "bare", "name", "data_dir", "limit", "nothing"]
    assert schema["needed"].required
    assert schema["size"].type is int
    assert check(schema["bare"], 3, "file") == 3
    with pytest.raises(ConfigError):
        check(schema["bare"], "three", "file")
    with pytest.raises(ConfigError):
        check(schema["name"], 3, "file")


def test_what_a_registry_sets_wins_over_the_signature() -> None:
    schema, _ = schema_of_signature(Constructed, {"size": 9, "needed": 1}, leave_out=("bare",))
    assert schema["size"].default == 9
    assert not schema["needed"].required
    assert "bare" not in schema


def test_annotations_that_cannot_be_evaluated_cost_only_the_check() -> None:
    def function(size: Unknown = 4) -> None:  # type: ignore[name-defined]  # noqa: F821
        ...

    schema, _ = schema_of_signature(function)
    assert check(schema["size"], 5, "file") == 5


def test_a_required_parameter_has_no_default() -> None:
    assert Parameter("x", int, dataclasses.MISSING).required
    assert not Parameter("x", int, None).required
