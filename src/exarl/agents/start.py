"""What an agent takes from another run when it begins with its policy, and from its own."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from exarl.agents import normalizers
from exarl.agents.normalizers import Normalizers
from exarl.agents.offpolicy import OffPolicyConfig
from exarl.errors import CheckpointError
from exarl.learning.normalise import Moments
from exarl.networks import ParamLayout
from exarl.types import Arrays

POLICY, CRITICS, NORMALIZERS = "policy", "critics", "normalizers"
REPLAY, OPTIMIZER = "replay", "optimizer"


def begun_with(own: Arrays, stored: Arrays, layout: ParamLayout, parts: Collection[str]) -> Arrays:
    """The arrays of a new learner, ``own``, with these parts of ``stored``, which another run has.

    ``layout`` is that of the weights to act with. The target of a policy that is taken alone begins as
    a copy of it, as in any new run. ValueError where an array is missing or has another form.
    """
    acting = [name for name, _ in layout.shapes if f"params/{name}" in own]
    taken: dict[str, np.ndarray] = {}
    if POLICY in parts:
        params = _named([f"params/{name}" for name in acting], stored, layout)
        copies = {f"target/{name.removeprefix('params/')}": a for name, a in params.items()}
        taken |= params | {name: a for name, a in copies.items() if name in own}
    if CRITICS in parts:
        learned = [name for name in own if name.startswith(("params/", "target/"))]
        taken |= _named([n for n in learned if n.removeprefix("params/") not in acting], stored)
    if OPTIMIZER in parts:
        taken |= _named([name for name in own if name.startswith("optimizer/")], stored)
    for name, array in taken.items():
        if array.shape != own[name].shape:
            there, here = list(array.shape), list(own[name].shape)
            raise ValueError(f"{name} is {there} in the checkpoint, {here} in this run")
    return {**own, **taken}


def moments_begun_with(
    own: tuple[Moments, Moments], stored: Arrays, parts: Collection[str], used: Normalizers
) -> tuple[Moments, Moments]:
    """The statistics of a new learner: those of observations come with the policy, which is of no use
    without them; those of returns are ``normalizers``, as are the former without the policy."""
    seen = used.observations and bool({POLICY, NORMALIZERS} & {*parts})
    returns = used.rewards and NORMALIZERS in parts
    if not seen and not returns:
        return own
    if "seen/count" not in stored:
        raise ValueError("the best policy comes without the statistics of observations: start_best")
    there = normalizers.restored(stored)
    if there[0].mean.shape != own[0].mean.shape or not there[0].count:
        raise ValueError(
            "the checkpoint has no statistics of observations (normalize_observations)"
        )
    return there[0] if seen else own[0], there[1] if returns else own[1]


def replay_in(stored: Arrays, config: object) -> Arrays:
    """The replay in a checkpoint, by the names that it gave its arrays. CheckpointError if it was in
    another place (``replay_device``)."""
    replay = {n.removeprefix("replay/"): a for n, a in stored.items() if n.startswith("replay/")}
    if isinstance(config, OffPolicyConfig):
        there = "device" if "seed" in replay else "host"
        if there != config.replay_device:
            raise CheckpointError(
                f"the checkpoint is of a run with replay_device {there}, not {config.replay_device}"
            )
    return replay


def replay_to_begin_with(stored: Arrays, config: object) -> Arrays:
    """``replay_in``; ValueError where there is none."""
    if not isinstance(config, OffPolicyConfig):
        raise ValueError("this agent has no replay (start_parts)")
    if not any(name.startswith("replay/rows/") for name in stored):
        raise ValueError("there is no replay in the checkpoint")
    return replay_in(stored, config)


def _named(names: Collection[str], stored: Arrays, layout: ParamLayout | None = None) -> Arrays:
    """The arrays of these names, which a policy alone has in its flat weights, in their ``layout``."""
    if layout is not None and "weights" in stored and not any(n in stored for n in names):
        flat = layout.unpack(stored["weights"])
        return {name: flat[name.removeprefix("params/")] for name in names}
    for name in names:
        if name not in stored:
            raise ValueError(f"{name} is not in the checkpoint")
    return {name: stored[name] for name in names}
