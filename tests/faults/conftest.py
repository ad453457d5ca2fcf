"""Reference runs, made once and compared with by many tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.jobs import DEEP, LIGHT, paused, reference, train


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Four megabytes of storage of its own, where we may mount it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
