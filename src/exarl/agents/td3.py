"""Twin delayed DDPG (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from exarl.agents.agent import NetworkAgent
from exarl.agents.base import MakeNetwork
from exarl.agents.ddpg import DDPG, DDPGConfig, DeterministicPolicy, check_bounded, networks_for
from exarl.config import param
from exarl.types import EnvSpec


@dataclass(frozen=True)
class TD3Config(DDPGConfig):
    """Parameters of twin delayed DDPG."""

    policy_delay: int = param(2, "critic updates for each update of the policy", ge=1)
    target_noise: float = param(0.2, "noise on the target policy's actions", ge=0)
    target_noise_clip: float = param(0.5, "that noise is cut off here", ge=0)


def make(spec: EnvSpec, config: TD3Config, network: MakeNetwork) -> DeterministicPolicy:
    """DDPG's algorithm with the lesser of two critics as target, and a smoothed target policy that
    moves less often; ConfigError when it cannot learn in this environment."""
    check_bounded(spec, "TD3-v0")
    critics, size = ("q1", "q2"), math.prod(spec.action.shape)
    networks = networks_for(size, critics, network)
    return DeterministicPolicy(spec, config, networks, critics, config.policy_delay, smooths=True)


class TD3(NetworkAgent[TD3Config]):
    """Twin delayed DDPG."""

    Config = TD3Config
    defaults = DDPG.defaults
    action_kind = "continuous"
    metrics = DDPG.metrics
    make_algorithm = staticmethod(make)
