"""Twin delayed DDPG (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.ddpg import DDPG, DDPGConfig
from exarl.config import param
from exarl.types import Arrays


@dataclass(frozen=True)
class TD3Config(DDPGConfig):
    """Parameters of twin delayed DDPG."""

    policy_delay: int = param(2, "critic updates for each update of the policy", ge=1)
    target_noise: float = param(0.2, "noise on the target policy's actions", ge=0)
    target_noise_clip: float = param(0.5, "that noise is cut off here", ge=0)


class TD3(DDPG):
    """DDPG with the lesser of two critics as target, a smoothed target policy that moves less often."""

    Config = TD3Config
    critics = ("q1", "q2")

    def target_actions(self, xp: Any, target: Any, batch: Any) -> Any:
        limit = self.config.target_noise_clip
        noise = (self.config.target_noise * batch["noise"]).clip(-limit, limit)
        return (self.policy(xp, target, batch["next_observation"]) + noise).clip(-1, 1)

    def report(self, updates: int, metrics: Any) -> dict[str, Any]:
        reported = super().report(updates, metrics)
        before = self._updates_made - updates
        if -before % self.config.policy_delay >= updates:  # none was the policy's turn
            reported.pop("policy_loss", None)
        return reported

    def draws(self, rng: Any, updates: int, batch: int) -> Arrays:
        return {"noise": rng.standard_normal((updates, batch, self.size), np.float32)}
