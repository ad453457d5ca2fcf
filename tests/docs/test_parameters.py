"""The parameter tables of docs/configuration.md are those of the code.

``python tests/docs/test_parameters.py`` brings them into step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from exarl import registry
from exarl.cli.tables import markdown_table
from exarl.config import LearnerConfig, schema_of
from exarl.config.layers import FAMILIES

PAGE = Path(__file__).parents[2] / "docs/configuration.md"
COMPONENTS: dict[str, Callable[[], type]] = {
    "learner": lambda: LearnerConfig,
    "DQN-v0": lambda: registry.agents.load("DQN-v0").Config,
    "MLP": lambda: registry.networks.load("MLP").Config,
    "LSTM": lambda: registry.networks.load("LSTM").Config,
    "CNN": lambda: registry.networks.load("CNN").Config,
}
_TABLE = "<!-- parameters of {} -->\n{}<!-- end -->"


def test_tables_are_in_step_with_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_tables(text), f"run: python {Path(__file__).relative_to(PAGE.parents[1])}"


def test_every_family_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"{family}_cfg" in text for family in FAMILIES)


def with_tables(text: str) -> str:
    """The page with every table as the code has it now."""
    for name, config in COMPONENTS.items():
        pattern = re.escape(_TABLE).replace(r"\{\}", "{}").format(re.escape(name), "(?:.*?)")
        fresh = _TABLE.format(name, markdown_table(schema_of(config())))
        text, count = re.subn(pattern, lambda _, fresh=fresh: fresh, text, flags=re.S)
        assert count == 1, f"{PAGE.name} has {count} tables of {name}"
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
