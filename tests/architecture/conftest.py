"""Every source file of EXARL, parsed once."""

from __future__ import annotations

import pytest
from benchmarks.source import SourceFile, read_sources


@pytest.fixture(scope="session")
def sources() -> list[SourceFile]:
    return read_sources()
