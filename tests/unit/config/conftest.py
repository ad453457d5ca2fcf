"""A user's machine in miniature: a home, a working folder, and the configuration files in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from exarl.config import Configuration
from exarl.run.configure import configure


@dataclass(frozen=True)
class Place:
    """Where configuration is looked for."""

    home: Path
    work: Path

    def user(self, name: str, data: Any) -> Path:
        """A file of ``~/.exarl/config``."""
        return write(self.home / ".exarl/config" / name, data)

    def project(self, name: str, data: Any) -> Path:
        """A file of ``./exarl/config``."""
        return write(self.work / "exarl/config" / name, data)

    def file(self, name: str, data: Any) -> Path:
        """A file in the working folder."""
        return write(self.work / name, data)

    def configure(self, *flags: str, config: Path | None = None, **values: Any) -> Configuration:
        """What ``exarl train --config CONFIG FLAGS`` resolves to."""
        return configure(config, flags, values)


def write(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty home and an empty working folder."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    return Place(home, work)
