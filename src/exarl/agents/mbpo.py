"""Model-based policy optimisation: an off-policy algorithm that also learns from imagined steps.

Janner et al. 2019 (arXiv 1906.08253). The policy is learned by another agent's algorithm, SAC's unless
``base`` says otherwise; what is learned beside it is in ``world_model.py`` and ``dreams.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from exarl import registry
from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import Algorithm, AlgorithmConfig
from exarl.agents.base import MakeNetwork
from exarl.agents.experience import Experience
from exarl.agents.offpolicy import OffPolicyConfig, falls_due
from exarl.agents.sac import SAC, SACConfig
from exarl.config import LearnerConfig, param
from exarl.config.schema import check, schema_of
from exarl.errors import ConfigError, did_you_mean
from exarl.networks.dynamics import Dynamics
from exarl.registry import import_named
from exarl.types import Array, Arrays, EnvSpec, Namespace

if TYPE_CHECKING:
    from exarl.agents.compiled import CompileObserver
    from exarl.agents.dreams import Knowledge
    from exarl.agents.engine import Engine

METRICS = (
    "model_loss",
    "model_error",
    "model_persistence",
    "model_reward_error",
    "model_disagreement",
    "model_used",
    "model_horizon",
)


@dataclass(frozen=True)
class MBPOConfig(SACConfig):
    """Parameters of model-based policy optimisation."""

    base: str = param("SAC-v0", "agent whose algorithm learns the policy")
    base_parameters: tuple[str, ...] = param(
        (), "parameters of that agent that are not of the model, as in 'policy_delay=2'"
    )
    updates_per_step: float = param(
        20.0,
        "updates of the policy per environment step; what is left over of a block counts for the next"
        " one",
        gt=0,
        le=10**4,
    )
    replay_capacity: int = param(100_000, "transitions kept", ge=1, le=10**9)
    replay_device: Literal["device"] = param(
        "device", "where they are kept: on the learner's device, where the model is"
    )
    real_ratio: float = param(
        0.05, "part of each batch that is real; the rest is imagined", ge=0, le=1
    )
    rollouts_per_step: int = param(
        100, "rollouts in the model per environment step", ge=1, le=10**6
    )
    horizon: int = param(1, "steps of a rollout", ge=1, le=1000)
    horizon_end: int | None = param(
        None, "the same after horizon_steps, up to which it grows; null: horizon", ge=1, le=1000
    )
    horizon_steps: int = param(100_000, "environment steps until horizon_end", ge=1)
    imagined_capacity: int = param(100_000, "imagined transitions kept", ge=1, le=10**9)
    model_hidden: tuple[int, ...] = param(
        (200, 200), "units of each hidden layer of the model", ge=1, le=65536
    )
    model_members: int = param(7, "networks of the model", ge=1, le=1000)
    model_elites: int = param(5, "of these, the ones with the least errors are used", ge=1, le=1000)
    model_batch_size: int = param(256, "transitions in an update of the model", ge=1, le=10**6)
    model_updates_per_step: float = param(
        1.0, "updates of the model per environment step, from the first one on", gt=0, le=10**4
    )
    model_learning_rate: float = param(1e-3, "step size of the model's optimiser", gt=0)
    reward_function: str | None = param(
        None, "module:function that is the reward; null: the environment's, or the model learns it"
    )
    termination_function: str | None = param(
        None,
        "module:function that says whether a step terminates; null: the environment's, or the model"
        " learns it",
    )


FUNCTIONS = ("reward_function", "termination_function")


def base_of(config: MBPOConfig) -> type[NetworkAgent[Any]]:
    """The agent whose algorithm learns the policy; ConfigError unless it learns from transitions."""
    found = registry.agents.load(config.base)
    kinds = isinstance(found, type) and issubclass(found, NetworkAgent)
    if not kinds or found is MBPO or not issubclass(found.Config, OffPolicyConfig):  # type: ignore[attr-defined]
        raise ConfigError(
            f"base '{config.base}' does not learn from single transitions: try SAC-v0"
        )
    return found  # type: ignore[no-any-return]


def config_of_base(config: MBPOConfig, kind: type[OffPolicyConfig]) -> OffPolicyConfig:
    """The parameters of the base: those of MBPO that it has too, except SAC's where they were left as
    they are, and ``base_parameters``."""
    own, schema = MBPOConfig.__annotations__, schema_of(kind)
    values: dict[str, object] = {
        field.name: getattr(config, field.name)
        for field in fields(MBPOConfig)
        if field.name in schema
        and (field.name in own or getattr(config, field.name) != field.default)
    }
    for text in config.base_parameters:
        name, _, value = text.partition("=")
        if name not in schema:
            hint = did_you_mean(name, schema)
            raise ConfigError(f"base_parameters: {config.base} has no parameter '{name}'{hint}")
        if name in own:
            raise ConfigError(f"base_parameters: '{name}' is a parameter of MBPO-v0: give it there")
        values[name] = check(schema[name], value, "base_parameters", text=True)
    return kind(**values)  # type: ignore[arg-type]


def make(spec: EnvSpec, config: MBPOConfig, network: MakeNetwork) -> Algorithm[AlgorithmConfig]:
    """The algorithm that learns the policy; ConfigError when it, or a model, cannot learn there."""
    base = base_of(config)
    if spec.observation.dtype != "float32":
        raise ConfigError(
            f"MBPO-v0 learns a model of observations that are numbers; those of {spec.env_id} are"
            " images"
        )
    if base.action_kind == "discrete" and not spec.discrete:
        raise ConfigError(
            f"base '{config.base}' needs discrete actions, which {spec.env_id} has not"
        )
    made = base.make_algorithm(spec, config_of_base(config, base.Config), network)
    if made.recurrent and made.memory:
        raise ConfigError("MBPO-v0 cannot learn with a network that has memory: use an MLP")
    return made


def check_settings(config: MBPOConfig) -> None:
    """ConfigError for what model-based learning does not do."""
    refused = {
        "n_step": config.n_step != 1,
        "priority_scale": config.priority_scale > 0,
        "constraints": bool(config.constraints),
        "reset_interval": config.reset_interval > 0,
        "learner_devices": config.learner_devices != 1,
    }
    for name, given in refused.items():
        if given:
            raise ConfigError(f"MBPO-v0 learns from imagined single steps: {name} cannot be used")
    if config.model_elites > config.model_members:
        raise ConfigError(
            f"model_elites={config.model_elites} are more than model_members={config.model_members}"
        )


def horizon_after(config: MBPOConfig, steps: int) -> int:
    """The length of rollouts after this number of environment steps."""
    first, last = config.horizon, config.horizon_end or config.horizon
    return math.floor(first + (last - first) * min(1.0, steps / config.horizon_steps))


def dynamics_of(spec: EnvSpec, config: MBPOConfig) -> Dynamics:
    """The networks that predict an environment's next step."""
    sizes = (math.prod(spec.observation.shape), math.prod(spec.action.shape))
    return Dynamics(*sizes, config.model_members, config.model_hidden, spec.n_actions)


def named_function(name: str) -> Callable[..., Array]:
    """The function ``module:function``; ConfigError when there is none."""
    module, _, function = name.partition(":")
    try:
        found = getattr(import_named(module), function)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"function '{name}' (module:function) cannot be imported: {error}"
        ) from error
    if not callable(found):
        raise ConfigError(f"'{name}' is not a function")
    return found  # type: ignore[no-any-return]


class MBPO(NetworkAgent[MBPOConfig]):
    """Model-based policy optimisation."""

    Config = MBPOConfig
    defaults: ClassVar[Mapping[str, Any]] = SAC.defaults
    action_kind = "any"
    learns_in_team = False
    make_algorithm = staticmethod(make)

    def __init__(self, spec: EnvSpec, config: MBPOConfig, network: MakeNetwork, seed: int) -> None:
        check_settings(config)
        super().__init__(spec, config, network, seed)
        self.metrics = (*base_of(config).metrics, *METRICS)

    @classmethod
    def check(
        cls, config: AlgorithmConfig, run: LearnerConfig, *, learners: int, lags: bool
    ) -> None:
        assert isinstance(config, MBPOConfig)
        check_settings(config)
        if run.workflow == "fused":
            raise ConfigError(
                f"agent '{run.agent}' spares steps of the environment, which cost nothing in workflow"
                f" 'fused': use {config.base} there"
            )
        if run.prior_data:
            raise ConfigError("MBPO-v0 learns from its own steps alone: prior_data cannot be used")
        for name in (config.reward_function, config.termination_function):
            if name is not None:
                named_function(name)
        super().check(config, run, learners=learners, lags=lags)

    def _make_experience(
        self, engine: Engine, observer: CompileObserver, prior_rows: Arrays | None
    ) -> Experience:
        from exarl.agents.dreams import Dreams, DreamSettings, Imagination
        from exarl.agents.world_model import WorldModel

        cfg = self.config
        model = WorldModel(
            dynamics_of(self.spec, cfg),
            cfg.model_elites,
            cfg.model_batch_size,
            cfg.model_learning_rate,
            cfg.gamma,
        )
        settings = DreamSettings(
            cfg.batch_size,
            cfg.imagined_capacity,
            cfg.real_ratio,
            cfg.rollouts_per_step,
            partial(falls_due, cfg.model_updates_per_step),
            partial(horizon_after, cfg),
        )
        imagination = Imagination(self.algorithm, model, self.known())
        return Dreams(
            engine, self.hyper, imagination, settings, self.acting_order, observer, self._rng
        )

    def known(self) -> Knowledge:
        """The functions that are known of the environment."""
        from exarl.agents.dreams import Knowledge

        names = {
            name: getattr(self.config, name) or self.spec.about.get(name) for name in FUNCTIONS
        }
        reward, terminated = (named_function(n) if n else None for n in names.values())
        return Knowledge(
            None
            if reward is None
            else partial(_learned_reward, self.algorithm, self.hyper, reward),
            terminated,
            partial(own_actions, self.spec),
        )


def _learned_reward(
    algorithm: Algorithm[AlgorithmConfig],
    hyper: Mapping[str, float | Array],
    function: Callable[..., Array],
    xp: Namespace,
    observation: Array,
    action: Array,
    next_observation: Array,
) -> Array:
    """The environment's reward as the algorithm learns it."""
    found = xp.asarray(function(xp, observation, action, next_observation))
    no = xp.zeros(len(observation), bool)
    return algorithm.rewards(hyper, _Earned(found.reshape(len(observation)), no, no))


class _Earned(NamedTuple):
    """Single steps, of which only the rewards matter."""

    rewards: Array
    terminated: Array
    truncated: Array


def own_actions(spec: EnvSpec, actions: Array) -> Array:
    """An agent's actions [N, ...] as the environment takes them: [-1, 1] stretched to a bounded Box;
    others as they are."""
    low, high = (np.array(bound, np.float32) for bound in (spec.action_low, spec.action_high))
    if spec.discrete or not (np.isfinite(low).all() and np.isfinite(high).all()):
        return actions
    low, high = low.reshape(spec.action.shape), high.reshape(spec.action.shape)
    stretched: Array = (low + (actions + 1) / 2 * (high - low)).clip(low, high)
    return stretched
