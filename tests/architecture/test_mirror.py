"""tests/unit mirrors src: a test is found beside the name of what it is about."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.source import SOURCE

UNIT = Path(__file__).parents[1] / "unit"


def mirrored(test: Path) -> bool:
    """Whether ``room/test_NAME[_topic].py`` names a module or package of its room, or the room itself.

    What a room holds counts at any depth: ``envs/test_serve.py`` is about ``envs/external/serve.py``.
    A test is named after its room if it is about something that all of its modules promise.
    """
    room = SOURCE / test.relative_to(UNIT).parent
    names = {room.name, *(path.stem for path in room.rglob("*.py"))}
    names |= {path.parent.name for path in room.rglob("__init__.py")}
    words = test.stem.removeprefix("test_").split("_")
    return any("_".join(words[:count]) in names for count in range(1, len(words) + 1))


def test_every_unit_test_names_what_it_is_about() -> None:
    odd = [str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py") if not mirrored(path)]
    assert not odd, "no module of this name:\n" + "\n".join(sorted(odd))


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("agents/test_dqn.py", True),
        ("agents/test_dqn_team.py", True),
        ("agents/test_agents_memory.py", True),
        ("science/test_cahn_hilliard.py", True),
        ("test_registry.py", True),
        ("agents/test_team.py", False),
        ("agents/test_dqnteam.py", False),
    ],
)
def test_the_rule_itself(test: str, expected: bool) -> None:
    assert mirrored(UNIT / test) is expected
