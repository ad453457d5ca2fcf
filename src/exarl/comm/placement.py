"""Learners on different nodes: the ranks of a run in another order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from exarl.comm.channel import on_this_machine
from exarl.comm.devices import gpus_here
from exarl.comm.layout import Layout, spread_ranks

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def spread_learners(
    comm: Intracomm, layout: Layout, environ: Mapping[str, str] = os.environ
) -> Intracomm:
    """``comm``, or one with its ranks in an order that spreads several learners over nodes; collective.

    Learners stay on nodes with a GPU if the first node has one, and where they are in a heterogeneous
    job of Slurm, whose user has said which nodes are for learners.
    """
    if layout.learners == 1 or "SLURM_HET_SIZE" in environ:
        return comm
    own = np.array([min(on_this_machine(comm)), gpus_here(environ) > 0], np.int64)
    found = np.empty((comm.size, 2), np.int64)
    comm.Allgather(own, found)
    nodes, with_gpu = found.T.tolist()
    suited = [bool(gpu) or not with_gpu[0] for gpu in with_gpu]
    order = spread_ranks(nodes, suited, layout.learners, layout.process_per_env)
    if order == list(range(comm.size)):
        return comm
    return cast("Intracomm", comm.Split(0, order.index(comm.rank)))
