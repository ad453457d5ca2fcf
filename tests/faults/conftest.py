"""Reference runs, made once and compared with by many tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_jobs import DEEP, LIGHT, paused, reference, train


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DQN on one rank, undisturbed."""
    return reference(tmp_path_factory.getbasetemp(), "deep1", *DEEP)


@pytest.fixture(scope="session")
def deep3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DQN on three ranks, undisturbed."""
    return reference(tmp_path_factory.getbasetemp(), "deep3", *DEEP, "--procs", 3)


@pytest.fixture(scope="session")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linear agent on one rank, undisturbed."""
    return reference(tmp_path_factory.getbasetemp(), "light1", *LIGHT, "--procs", 1)


@pytest.fixture(scope="session")
def light3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linear agent on three ranks, undisturbed."""
    return reference(tmp_path_factory.getbasetemp(), "light3", *LIGHT, "--procs", 3)


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linear agent killed in its 25th block, with three checkpoints behind it."""
    folder = tmp_path_factory.mktemp("killed")
    words = (*LIGHT, "--env", "Replayed-v0", "--checkpoint_interval", 0)
    job = paused(train(folder / "run", *words), folder / "pause", at=790)
    job.kill()
    assert job.process.wait() == -9
    return folder / "run"
