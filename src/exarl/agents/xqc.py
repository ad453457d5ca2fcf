"""XQC: a critic that is easy to optimise, by batch normalisation, weights of length 1 and probabilities
of values instead of one number.

Palenicek et al. 2025 (arXiv 2509.25174).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from exarl.agents.agent import NetworkAgent
from exarl.agents.base import MakeNetwork
from exarl.agents.crossq import BatchCritics, CrossQ, CrossQConfig, critics_for
from exarl.config import param
from exarl.types import EnvSpec


@dataclass(frozen=True)
class XQCConfig(CrossQConfig):
    """Parameters of XQC."""

    learning_rate: float = param(3e-4, "step size of the optimiser", gt=0)
    learning_rate_fraction: float = param(
        1.0, "if not 0: it falls linearly to its end over this part of total_steps", ge=0, le=1
    )
    betas: tuple[float, float] | None = param(
        None, "how slowly the optimiser's two averages forget, [b1, b2]; null: its own", ge=0, lt=1
    )
    updates_per_step: float = param(
        2.0,
        "updates per environment step; what is left over of a block counts for the next one",
        gt=0,
        le=10**4,
    )
    alpha: float = param(0.01, "temperature (weight of the entropy) at the start", gt=0)
    target_entropy: float | None = param(None, "entropy to hold; null: -dimensions / 2")
    normalize_rewards: bool = param(
        True,
        "divide rewards by the running standard deviation of the discounted return, before"
        " reward_scale and reward_clip",
    )
    atoms: int = param(101, "values that critics give probabilities to", ge=2, le=10_000)
    value_limit: float = param(5.0, "the largest of these values; the least is its negative", gt=0)


def make(spec: EnvSpec, config: XQCConfig, network: MakeNetwork) -> BatchCritics:
    """CrossQ's algorithm with critics of probabilities, a target network and weights of length 1;
    ConfigError when it cannot learn in this environment."""
    networks, sac = critics_for(spec, network, config, "XQC-v0", config.atoms)
    return BatchCritics(
        spec, config, networks, sac, config.atoms, lags=True, unit_weights=True, entropy=-0.5
    )


class XQC(NetworkAgent[XQCConfig]):
    """Soft actor-critic with a well-conditioned critic."""

    Config = XQCConfig
    defaults: ClassVar[Mapping[str, Any]] = {
        "models": {"MLP": {"hidden": (256, 256, 256, 256), "batch_norm": "before"}}
    }
    action_kind = "continuous"
    metrics = CrossQ.metrics
    make_algorithm = staticmethod(make)
