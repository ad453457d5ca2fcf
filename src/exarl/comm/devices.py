"""Which rank uses which GPU, set in the environment before JAX looks for devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from exarl.comm.channel import on_this_machine

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

VISIBLE = "CUDA_VISIBLE_DEVICES"
PLATFORMS = "JAX_PLATFORMS"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def choose_device(learners: Intracomm | None) -> None:
    """Set what JAX may use in this rank; ``learners`` is their communicator, None in other ranks."""
    if learners is None:
        leave_gpu()
    else:
        here = on_this_machine(learners)
        take_gpu(here.index(learners.rank), len(here))


def take_gpu(
    index: int, learners: int, environ: MutableMapping[str, str] = os.environ, dev: str = "/dev"
) -> None:
    """Give each learner on this machine one GPU, in turn; this is learner ``index`` of them.

    If there are more learners than GPUs they share, and none reserves the whole memory, unless the
    user has set that. For a single learner nothing is changed.
    """
    if learners == 1:
        return
    visible = _visible(environ, dev)
    if not visible:
        return
    environ[VISIBLE] = visible[index % len(visible)]
    if len(visible) < learners:
        environ.setdefault(PREALLOCATE, "false")


def leave_gpu(environ: MutableMapping[str, str] = os.environ) -> None:
    """Keep JAX off the GPU in a rank that does not learn, in case its environment or network imports
    JAX. A user whose simulation runs on a GPU sets JAX_PLATFORMS."""
    if PLATFORMS in environ:
        return
    environ[PLATFORMS] = "cpu"
    if (jax := sys.modules.get("jax")) is not None:  # it has read the environment already
        jax.config.update("jax_platforms", "cpu")


def gpus_here(environ: Mapping[str, str] = os.environ, dev: str = "/dev") -> int:
    """How many GPUs this machine has for learners."""
    return len(_visible(environ, dev))


def _visible(environ: Mapping[str, str], dev: str) -> list[str]:
    known = environ.get(VISIBLE)
    visible = _numbers(dev) if known is None else known.split(",")
    return visible if visible and visible[0] else []


def _numbers(dev: str) -> list[str]:
    """The numbers of this machine's NVIDIA GPUs, as CUDA counts them."""
    found = [path.name.removeprefix("nvidia") for path in Path(dev).glob("nvidia[0-9]*")]
    return [str(n) for n in range(sum(name.isdigit() for name in found))]
