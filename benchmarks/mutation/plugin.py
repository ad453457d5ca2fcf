"""A plugin of pytest: each test begins with no function entered, and its outcome is noted."""

from __future__ import annotations

import sys
from typing import Any


def pytest_runtest_logstart() -> None:
    sys.modules["sitecustomize"].seen.clear()


def pytest_runtest_logreport(report: Any) -> None:
    if getattr(report, "node", None) is None:  # not the copy that a worker of pytest-xdist sends
        outcome = "failed" if report.failed else "passed"
        line = f"ended\t{report.nodeid}\t{report.duration:.4f}\t{outcome}"
        sys.modules["sitecustomize"].note(line)
