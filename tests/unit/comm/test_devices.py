"""Which GPU a learner takes, and that no other process takes one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from exarl.comm.devices import PLATFORMS, PREALLOCATE, VISIBLE, leave_gpu, take_gpu


def machine(path: Path, gpus: int) -> str:
    """A /dev with N GPUs, and the other files their driver puts there."""
    for name in ["nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(gpus))]:
        (path / name).touch()
    return str(path)


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("learners", [2, 4])
def test_learners_of_a_machine_take_gpus_in_turn(tmp_path: Path, gpus: int, learners: int) -> None:
    dev = machine(tmp_path, gpus)
    taken = []
    for index in range(learners):
        environ: dict[str, str] = {}
        take_gpu(index, learners, environ, dev)
        taken.append(environ.pop(VISIBLE))
        assert environ == ({PREALLOCATE: "false"} if gpus < learners else {})
    assert taken == [str(index % gpus) for index in range(learners)]


def test_what_the_scheduler_gave_is_shared_out(tmp_path: Path) -> None:
    dev = machine(tmp_path, 8)
    for index, expected in enumerate(["3", "GPU-ab", "3"]):
        environ = {VISIBLE: "3,GPU-ab", PREALLOCATE: "true"}
        take_gpu(index, 3, environ, dev)
        assert environ == {VISIBLE: expected, PREALLOCATE: "true"}


@pytest.mark.parametrize(
    ("gpus", "learners", "environ"), [(2, 1, {}), (0, 2, {}), (2, 2, {VISIBLE: ""})]
)
def test_nothing_is_changed_where_there_is_nothing_to_share(
    tmp_path: Path, gpus: int, learners: int, environ: dict[str, str]
) -> None:
    """One learner alone; no GPU; GPUs that the user hides."""
    changed = dict(environ)
    take_gpu(0, learners, changed, machine(tmp_path, gpus))
    assert changed == environ


def test_a_rank_that_does_not_learn_stays_off_unless_told_otherwise() -> None:
    environ: dict[str, str] = {PLATFORMS: "cuda"}
    leave_gpu(environ)
    assert environ == {PLATFORMS: "cuda"}


@pytest.mark.parametrize("imported", [False, True])
def test_a_rank_that_does_not_learn_keeps_jax_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, imported: bool
) -> None:
    told: list[tuple[str, str]] = []
    jax = SimpleNamespace(config=SimpleNamespace(update=lambda *setting: told.append(setting)))
    monkeypatch.setitem(sys.modules, "jax", jax if imported else None)
    environ: dict[str, str] = {}
    leave_gpu(environ)
    assert environ == {PLATFORMS: "cpu"}, "for what it imports and starts later"
    assert told == [("jax_platforms", "cpu")] * imported
