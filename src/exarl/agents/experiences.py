"""Which experience an algorithm learns from, as its configuration says."""

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
from exarl.agents.prior import Prior
from exarl.agents.resets import Resetting
from exarl.agents.updates import compile_padded, compile_updates, on_devices
from exarl.types import Array, Arrays


def make_experience(
    engine: Engine,
    hyper: Hyper,
    team: Team | None,
    acting: Callable[[TrainState], Sequence[Array]],
    observer: CompileObserver,
    rng: np.random.Generator,
    first: Callable[[int], Arrays],
    prior: Prior | None = None,
    prior_rows: Arrays | None = None,
) -> Experience:
    """The replay or the blocks that a learner's updates are made from, alone or in a ``team``.

    ``first`` gives the parameters that a reset begins with. Beside a replay, ``prior`` says how many
    rows of a batch come from ``prior_rows``.
    """
    cfg = engine.algorithm.config
    if not isinstance(cfg, OffPolicyConfig):
        update = compile_updates(engine, hyper, team, acting, observer)
        return FreshBlocks(engine.algorithm, update, rng)
    made = _replay(engine, cfg, hyper, team, acting, observer, rng, prior, prior_rows)
    return Resetting(made, engine, hyper, first) if cfg.reset_interval else made


def _replay(
    engine: Engine,
    cfg: OffPolicyConfig,
    hyper: Hyper,
    team: Team | None,
    acting: Callable[[TrainState], Sequence[Array]],
    observer: CompileObserver,
    rng: np.random.Generator,
    prior: Prior | None,
    prior_rows: Arrays | None,
) -> Experience:
    def of_prior(size: int) -> int:
        return prior.share(size) if prior is not None else 0

    if cfg.replay_device == "device":
        seed, share = int(rng.integers(2**32)), of_prior(cfg.batch_size)
        return DeviceReplay(engine, hyper, acting, observer, seed, prior_rows, share)
    index, learners = (team.index, team.size) if team else (0, 1)
    size = share_of(cfg.batch_size, index, learners)
    weight = size * learners / cfg.batch_size  # 1 unless there is a remainder
    update, padded = compile_updates(engine, hyper, team, acting, observer, weight), None
    if cfg.learner_devices > 1:
        update = on_devices(update, cfg.learner_devices)
    elif learners == 1:
        padded = compile_padded(engine, hyper, acting, observer)
    return HostReplay(
        engine.algorithm,
        hyper,
        update,
        rng,
        size,
        padded=padded,
        prior=prior_rows,
        prior_share=of_prior(size),
        alone=learners == 1,
    )
