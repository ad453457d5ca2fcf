"""Makes what a learner learns from: fresh blocks or a replay, with the updates compiled for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from exarl.agents.algorithm import Hyper, TrainState
from exarl.agents.base import Team
from exarl.agents.compiled import CompileObserver
from exarl.agents.device_experience import DeviceReplay
from exarl.agents.engine import Engine
from exarl.agents.experience import Experience, FreshBlocks, HostReplay
from exarl.agents.offpolicy import OffPolicyConfig, share_of
from exarl.agents.resets import Resetting
from exarl.agents.updates import compile_updates, on_devices
from exarl.types import Array, Arrays


def make_experience(
    engine: Engine,
    hyper: Hyper,
    team: Team | None,
    acting: Callable[[TrainState], Sequence[Array]],
    observer: CompileObserver,
    rng: np.random.Generator,
    first: Callable[[int], Arrays],
) -> Experience:
    """What the configuration asks for; ``first`` gives the parameters that a reset begins with."""
    cfg = engine.algorithm.config
    if not isinstance(cfg, OffPolicyConfig):
        return FreshBlocks(
            engine.algorithm, compile_updates(engine, hyper, team, acting, observer), rng
        )
    made = _replay(engine, cfg, hyper, team, acting, observer, rng)
    return Resetting(made, engine, hyper, first) if cfg.reset_interval else made


def _replay(
    engine: Engine,
    cfg: OffPolicyConfig,
    hyper: Hyper,
    team: Team | None,
    acting: Callable[[TrainState], Sequence[Array]],
    observer: CompileObserver,
    rng: np.random.Generator,
) -> Experience:
    if cfg.replay_device == "device":
        return DeviceReplay(engine, hyper, acting, observer, int(rng.integers(2**32)))
    index, learners = (team.index, team.size) if team else (0, 1)
    size = share_of(cfg.batch_size, index, learners)
    weight = size * learners / cfg.batch_size  # 1 unless there is a remainder
    update = compile_updates(engine, hyper, team, acting, observer, weight)
    if cfg.learner_devices > 1:
        update = on_devices(update, cfg.learner_devices)
    return HostReplay(engine.algorithm, hyper, update, rng, size, alone=learners == 1)
