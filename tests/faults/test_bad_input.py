"""Bad input of every kind: one line, exit code 2, no traceback, nothing started, nothing written.

The mistakes come from ``benchmarks/bad_config.py``, which makes a thousand of them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bad_config.py"
OF_EACH_KIND = 20
PROCESSES = 3


def load(path: Path) -> ModuleType:
    """The benchmark as a module, though it lies in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


bad: Any = load(SCRIPT)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing is wrong with."""
    run: Path = bad.make_run(tmp_path_factory.mktemp("good"))
    return run


@pytest.mark.parametrize("kind", bad.MAKERS)
def test_every_mistake_is_one_line(good: Path, kind: str) -> None:
    cases = bad.generate(OF_EACH_KIND, seed=1, kinds=[kind])
    mishandled = [
        f"{case}\n        {'; '.join(complaints)}"
        for case in cases
        if (complaints := bad.attempt(case, good))
    ]
    assert not mishandled, f"{len(mishandled)} of {len(cases)}:\n    " + "\n    ".join(mishandled)


@pytest.mark.parametrize("words", bad.CURIOUS, ids=lambda words: ascii(" ".join(words))[1:30])
def test_every_curiosity_is_one_line(good: Path, words: tuple[str, ...]) -> None:
    assert bad.attempt(bad.curiosity(words), good) == []


@pytest.mark.parametrize("words", bad.ENV_WORDS.strip().splitlines(), ids=str.strip)
@pytest.mark.parametrize("command", [("check-env",), (*bad.TRAIN, "--env")], ids=lambda c: c[0])
def test_a_bad_value_for_an_environment_is_one_line(
    good: Path, command: tuple[str, ...], words: str
) -> None:
    assert bad.attempt(bad.Case("environment", (*command, *words.split())), good) == []


@pytest.mark.parametrize("damage", bad.BROKEN_CONFIG)
@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_run_with_a_damaged_configuration_is_refused(
    good: Path, command: str, damage: str
) -> None:
    assert bad.attempt(bad.Case("run", (command, "run"), {}, bad.BROKEN_CONFIG[damage]), good) == []


@pytest.mark.parametrize("damage", bad.BROKEN_MANIFEST)
def test_a_run_with_a_damaged_manifest_is_not_resumed(good: Path, damage: str) -> None:
    case = bad.Case("run", ("resume", "run"), {}, bad.BROKEN_MANIFEST[damage])
    assert bad.attempt(case, good) == []


@pytest.mark.parametrize("words", bad.RESUME_WORDS, ids=" ".join)
def test_a_resumed_run_stays_the_run_it_was(good: Path, words: tuple[str, ...]) -> None:
    case = bad.Case("run", ("resume", "run", *words), {}, lambda run: None)
    assert bad.attempt(case, good) == []


@pytest.mark.parametrize("words", bad.EVALUATE_WORDS, ids=lambda words: ascii(" ".join(words))[:30])
def test_a_bad_evaluation_is_refused(good: Path, words: tuple[str, ...]) -> None:
    case = bad.Case("run", ("evaluate", "run", *words), {}, lambda run: None)
    assert bad.attempt(case, good) == []


def test_weights_that_do_not_fit_their_configuration_are_one_line(good: Path) -> None:
    """A checkpoint that is at odds with its run is a failure (1) rather than bad input (2)."""

    def widen(run: Path) -> None:
        data = json.loads((run / "config.json").read_text())
        data["model"]["hidden"] = [5, 5]
        (run / "config.json").write_text(json.dumps(data))

    case = bad.Case("run", ("evaluate", "run", "--episodes", "1"), {}, widen)
    assert bad.attempt(case, good) in ([], ["exit code 1"])


def test_mistakes_in_processes_of_their_own(good: Path) -> None:
    cases = bad.generate(PROCESSES, seed=2, kinds=["unknown key", "bad file", "wrong ranks"])
    for case in cases:
        assert bad.attempt(case, good, process=True) == [], case


def test_the_benchmark_makes_the_same_mistakes_for_the_same_seed() -> None:
    first, second = (list(map(str, bad.generate(60, seed=3))) for _ in range(2))
    assert first == second
    assert first != list(map(str, bad.generate(60, seed=4)))


def test_a_good_configuration_is_not_among_the_mistakes(good: Path) -> None:
    """The judge can tell: what is right runs, writes, and is complained about."""
    assert bad.attempt(bad.Case("good", bad.TRAIN), good)
