"""``benchmarks.mutation`` makes programs with one fault each, and leaves texts and settings alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from benchmarks import source as parsed
from benchmarks.mutation.mutants import mutants, sample
from benchmarks.source import SourceFile

CODE = '''
"""A module: 1 + 1."""
LIMIT = 7


def f(x: int | None = 3, *, y: float = 0.5) -> int:
    """Not 1 < 2."""
    if x is None or y < 0:
        raise ValueError(f"{1 + 1} and {x}")
    log.warning("seen %d", 1 + 1)
    self.total += x
    self.last = x
    os.kill(x, 0)
    return -x * 2


@decorated(1 + 1)
def g(values):
    while not values:
        values.append(g(values[1:]))
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceFile:
    monkeypatch.setattr(parsed, "SOURCE", tmp_path)
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "module.py").write_text(CODE)
    return SourceFile(tmp_path / "room" / "module.py")


def test_what_can_be_changed_and_into_what(module: SourceFile) -> None:
    found = {(mutant.before, mutant.after) for mutant in mutants(module)}
    assert found == {
        ("x is None or y < 0", "(x is None and y < 0)"),
        ("x is None", "(x is not None)"),
        ("y < 0", "(y <= 0)"),
        ("0", "(1)"),
        ("0", "(-1)"),
        ("self.total += x", "pass"),
        ("self.total += x", "self.total -= x"),
        ("self.last = x", "pass"),
        ("os.kill(x, 0)", "pass"),
        ("-x * 2", "(-x / 2)"),
        ("-x", "(x)"),
        ("2", "(3)"),
        ("2", "(1)"),
        ("not values", "(values)"),
        ("values.append(g(values[1:]))", "pass"),
        ("1", "(2)"),
        ("1", "(0)"),
    }


def test_a_mutant_knows_its_function_by_the_first_line(module: SourceFile) -> None:
    lines = CODE.splitlines()
    first = {lines[mutant.function - 1] for mutant in mutants(module)}
    assert first == {"def f(x: int | None = 3, *, y: float = 0.5) -> int:", "@decorated(1 + 1)"}


def test_every_mutant_of_the_code_is_a_program_with_one_change(sources: list[SourceFile]) -> None:
    chosen = [source for source in sources if source.room in ("learning", "replay")]
    for source in chosen:
        for mutant in mutants(source):
            changed = mutant.apply(source.text)
            assert ast.dump(ast.parse(changed)) != ast.dump(source.tree), mutant


def test_a_sample_is_the_same_again_and_of_different_lines(sources: list[SourceFile]) -> None:
    chosen = [source for source in sources if source.room == "learning"]
    one, same, other = (sample(chosen, 40, seed) for seed in (0, 0, 1))
    assert one == same != other
    assert len({(mutant.file, mutant.line) for mutant in one}) == len(one) == 40
