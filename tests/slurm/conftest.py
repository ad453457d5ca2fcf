"""One cluster for all tests of this folder, and a folder on it for each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.jobs import PLUGIN, PYTHON, wait_until
from support.slurm import Cluster, unfit

DONE = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := unfit():
        pytest.skip(why)
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


class Site:
    """A user on the cluster: submits by ``exarl slurm`` and looks at what comes of it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        path = os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])
        # Slurm's pmi2 now and then cuts the long addresses of MPICH's other network module in two
        # (docs/slurm.md says what a user sees and does).
        self.environ = {"HOME": str(folder), "PYTHONPATH": path, "MPICH_CH4_NETMOD": "ofi"}
        self.environ["TMPDIR"] = str(folder)

    def submit(self, *words: str, subject: Mapping[str, Any] | None = None) -> str:
        """``exarl slurm --submit WORDS``; the job's number."""
        environ = {**self.environ, "SUBJECT": json.dumps(dict(subject or {}))}
        command = (PYTHON, "-m", "exarl", "slurm", "--submit", *words)
        done = self.cluster.run(*command, cwd=self.folder, environ=environ)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def begin(self, *words: str, subject: Mapping[str, Any] | None = None) -> str:
        """Submit, and wait for the first checkpoint."""
        id = self.submit(*words, subject=subject)
        wait_until(lambda: list(self.folder.glob("results_dir/*/checkpoints/0*")), 60)
        return id

    def stop(self, id: str, *words: str) -> None:
        """What Slurm does before the time limit; then do not wait the two minutes that it waits
        before it starts a job again."""
        self.cluster.say("scancel", "--signal=USR1", *words, id)
        self.hasten(id)

    def hasten(self, id: str) -> None:
        self.cluster.wait(id, "PENDING", *DONE)
        # The two minutes are for credentials to expire and for the step of the same number to go.
        command = ("scontrol", "update", f"JobId={id}", "StartTime=now+6")
        wait_until(lambda: self.cluster.run(*command).returncode == 0, 30)

    def end(self, id: str, patience: float = 90) -> dict[str, str]:
        """The job at its end."""
        return self.cluster.wait(id, *DONE, patience=patience)

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("slurm-*.out")))

    def runs(self) -> list[Path]:
        return sorted((self.folder / "results_dir").iterdir())


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    yield Site(cluster, tmp_path)
    cluster.say("scancel", "--user=root")
    wait_until(lambda: not cluster.say("squeue", "--noheader"), 30)
