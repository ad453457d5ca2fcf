"""Environments of other packages train as they are; a package that is not installed is skipped.

docs/envs/packages.md lists them.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/envs/packages.md"
LINES = re.findall(r"`(--agent \S+ --env (\w+):[^`]*)`", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("line", "module"), LINES, ids=[module for _, module in LINES])
def test_an_environment_of_another_package_trains(line: str, module: str, tmp_path: Path) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    short = ["--total_steps", "32", "--block_steps", "16", "--run_dir", str(tmp_path / "run")]
    command = [sys.executable, "-m", "exarl", "train", "--serial", *shlex.split(line), *short]
    trained = subprocess.run(command, capture_output=True, text=True, check=False)
    assert trained.returncode == 0, trained.stderr[-2000:]
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["timesteps_total"] == 32


def test_the_page_lists_packages() -> None:
    assert len(LINES) >= 7
