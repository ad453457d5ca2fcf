"""Managers that do not sleep between polls."""

from __future__ import annotations

import pytest

from exarl.sweep import manager


@pytest.fixture(autouse=True)
def no_naps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "POLL_S", 0.0)
