"""What the algorithms that learn from a replay share: parameters, transitions, targets that lag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal, TypeVar

from exarl.agents.algorithm import (
    Algorithm,
    AlgorithmConfig,
    Hyper,
    TrainState,
    flat,
)
from exarl.agents.blocks import KNOWN, AnyBlock, Rewarded, steps_of
from exarl.agents.optimizers import ScheduleEnd
from exarl.config import LearnerConfig, param
from exarl.errors import ConfigError
from exarl.learning.returns import n_step_returns, window_rewards
from exarl.types import ABSENT, Array, Batch, Namespace, Params, Steps


@dataclass(frozen=True)
class OffPolicyConfig(AlgorithmConfig):
    """Parameters of the algorithms that learn from a replay."""

    batch_size: int = param(64, "transitions in an update", ge=1, le=10**6)
    updates_per_step: float = param(
        1.0,
        "updates per environment step; what is left over of a block counts for the next one",
        gt=0,
        le=10**4,
    )
    learning_starts: int = param(1000, "environment steps before the first update", ge=0)
    replay_capacity: int = param(50_000, "transitions kept", ge=1, le=10**9)
    replay_device: Literal["host", "device"] = param(
        "host", "where they are kept: in the learner's memory, or on its device (GPU)"
    )
    learner_devices: int = param(
        1, "devices (GPUs) of one learner among which each batch is divided", ge=1, le=1000
    )
    n_step: int = param(1, "rewards summed before the target bootstraps", ge=1, le=10**6)
    priority_scale: float = param(
        0.0, "exponent of the priority of a transition in the replay; 0: all alike", ge=0, le=1
    )
    priority_beta: float = param(
        0.4, "exponent of the importance weights at the start; 1 after priority_updates", ge=0, le=1
    )
    priority_updates: int = param(100_000, "updates until the importance weights are whole", ge=1)
    tau: float = param(0.005, "soft target update after each update; 0: periodic copy", ge=0, le=1)
    target_update_interval: int = param(500, "updates between copies when tau is 0", ge=1)
    reset_interval: int = param(
        0, "if not 0: after every N updates networks begin again, and the replay stays", ge=0
    )
    reset_networks: tuple[str, ...] = param(
        (), 'the networks that do, as in \'["q1","q2"]\'; []: all, and the temperature'
    )


C_co = TypeVar("C_co", bound=OffPolicyConfig, covariant=True)


@dataclass(frozen=True)
class OffPolicy(Algorithm[C_co]):
    """Learns from transitions, against a target network that lags behind."""

    uses_replay = True

    @property
    def lead_steps(self) -> int:
        return self.config.n_step - 1

    def n_updates(self, steps: int, made: int) -> int:
        """Those that fall due within the block, as if updates were made at even distances from the
        first step on: no remainder is lost, and none needs to be kept."""
        if made < max(self.config.learning_starts, 1):
            return 0
        return falls_due(self.config.updates_per_step, steps, made)

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        return self.transitions(xp, hyper, block)

    def transitions(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        """The windows of ``n_step`` steps as independent transitions, [T * B] of each array.

        As many begin in each block as it has steps: at the steps that lead to it, and at its own
        except the last of them, whose windows the next block completes. Without a lead they begin at
        all its own steps, and end with the block."""
        steps, starts = steps_of(xp, block), len(block.rewards)
        earned, last = self.windows(xp, hyper, steps, starts)
        following = steps.next_observations
        if self.config.n_step > 1:
            following = following[last, xp.arange(last.shape[1])]
        arrays = {
            "observation": steps.observations,
            "action": steps.actions,
            **earned,
            "next_observation": following,
        }
        return self.from_starts(block, steps, arrays)

    def from_starts(
        self, block: AnyBlock, steps: Steps, arrays: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Of arrays over ``steps_of`` a block, the rows of the steps where its windows begin, and
        which of these are ``known`` if that may not be all."""
        some = block.lead is not None or ABSENT in block.recorded
        known = {KNOWN: steps.known} if some else {}
        return {n: flat(a[: len(block.rewards)]) for n, a in {**arrays, **known}.items()}

    def windows(
        self, xp: Namespace, hyper: Hyper, steps: Rewarded, starts: int | None = None
    ) -> tuple[dict[str, Array], Array]:
        """What the windows of ``n_step`` steps earn that begin at the first ``starts`` steps
        (None: at all): ``reward`` and ``discount`` [starts, B]; and the last step of each. Where
        rewards are to be normalised and then cut off, each window's are kept one by one instead, as
        ``rewards`` [starts, B, n]: a sum cannot be cut off by its parts."""
        rewards, n_step = self.rewards(hyper, steps), self.config.n_step
        returns, discounts, last = n_step_returns(
            xp, rewards, steps.terminated, steps.truncated, hyper["gamma"], n_step, starts
        )
        if n_step == 1 or not self.config.normalize_rewards or "reward_clip" not in hyper:
            return {"reward": returns, "discount": discounts}, last
        single = window_rewards(xp, rewards, last, n_step)
        return {"rewards": single, "discount": discounts}, last

    def clone_loss(self, xp: Namespace, hyper: Hyper, params: Params, batch: Batch) -> Array:
        """How unlike the actions of a batch those of the first acting network are."""
        raise ConfigError(f"{type(self).__name__} cannot clone actions: clone must be 0")

    def schedule_ends(self) -> tuple[ScheduleEnd, ...]:
        cfg = self.config
        if not cfg.priority_scale or cfg.priority_beta == 1:
            return ()
        decisive = ("priority_beta", "priority_scale")
        return (
            ScheduleEnd("priority_beta", 1.0, updates=cfg.priority_updates, parameters=decisive),
        )

    def after_update(self, hyper: Hyper, state: TrainState, complete: bool) -> TrainState:
        return self.move_target(hyper, state, soft=True)

    def move_target(self, hyper: Hyper, state: TrainState, soft: bool) -> TrainState:
        """The state with its target moved: by a copy where one is due or, if ``soft``, by ``tau``."""
        tau = hyper["tau"]
        copied = 1.0 * (state.updates % self.config.target_update_interval == 0)
        if not isinstance(tau, int | float):  # swept: it may be 0 for some of a population
            rate = soft * tau + (tau == 0) * copied
        elif tau and not soft:
            return state
        else:
            rate = tau or copied
        moved = {k: v + rate * (state.params[k] - v) for k, v in state.target.items()}
        return state._replace(target=moved)


def falls_due(rate: float, steps: int, made: int) -> int:
    """How much of what is to be done at ``rate`` per step is due within the last ``steps`` of those
    made."""
    count, of = _fraction(rate)
    return made * count // of - (made - steps) * count // of


@cache  # it is asked for with every block, and takes longer than all other arithmetic there
def _fraction(rate: float) -> tuple[int, int]:
    """A rate as a fraction, so that 0.1 of 10 steps is 1 whatever the number of steps before them."""
    return Fraction(rate).limit_denominator(10**12).as_integer_ratio()


def beta_after(
    xp: Namespace, config: OffPolicyConfig, hyper: Hyper, updates: float | Array
) -> Array:
    """The exponent of the importance weights after N updates."""
    done = xp.minimum(1.0, updates / config.priority_updates)
    beta: Array = hyper["priority_beta"] + (1 - hyper["priority_beta"]) * done
    return beta


def share_of(batch_size: int, index: int, learners: int) -> int:
    """How many transitions of a batch are those of learner ``index``; the first take a remainder."""
    whole, remainder = divmod(batch_size, learners)
    return whole + (index < remainder)


LEARNS_ALONE = "replay_device must be host with several learners (learner_procs)"


def check_replay(config: OffPolicyConfig, run: LearnerConfig, learners: int) -> None:
    """ConfigError if such a run cannot have this replay."""
    if config.n_step > run.block_steps and run.model_type == "LSTM":
        raise ConfigError(
            f"n_step={config.n_step} needs block_steps >= n_step, not {run.block_steps}, with"
            " an LSTM, which learns from whole blocks"
        )
    if learners > 1 and config.replay_device == "device":
        raise ConfigError(LEARNS_ALONE)
    check_devices(config, run.workflow, learners)
    check_resets(config, run.workflow)
    if learners > config.batch_size:
        raise ConfigError(
            f"batch_size={config.batch_size} cannot be shared by learner_procs={learners}:"
            " each learner needs at least one transition of a batch"
        )


def check_resets(config: OffPolicyConfig, workflow: str) -> None:
    """ConfigError if resets are asked for where there are none."""
    if config.reset_interval and workflow == "fused":
        raise ConfigError("reset_interval cannot be used in workflow 'fused': use another workflow")
    if config.reset_networks and not config.reset_interval:
        raise ConfigError("reset_networks needs a reset_interval")


def check_devices(config: OffPolicyConfig, workflow: str, learners: int) -> None:
    """ConfigError if batches cannot be divided among ``learner_devices``."""
    devices = config.learner_devices
    if devices == 1:
        return
    if workflow == "fused":
        raise ConfigError("workflow 'fused' divides environments: use devices, not learner_devices")
    if config.replay_device == "device":
        raise ConfigError(f"replay_device must be host with learner_devices={devices}")
    if config.batch_size % (learners * devices):
        of_all = f"{learners} learners of " * (learners > 1)
        raise ConfigError(
            f"batch_size={config.batch_size} cannot be divided among {of_all}{devices} devices"
            " (learner_devices)"
        )


def weighted_mean(values: Array, batch: Batch) -> Array:
    """The mean over a batch, with importance weights where the replay gave some: for the losses of
    values, and not for those of policies and temperatures."""
    # A priority depends on the reward and the state that happened to follow, so that without weights
    # the values would learn an environment that surprises too often. A policy's loss has only the
    # state of a transition, and which states it learns from more often is a choice that priorities
    # make; implementations of TD3 and SAC with priorities weight critics only, too.
    weights = batch.get("weight")
    return values.mean() if weights is None else (weights * values).mean()
