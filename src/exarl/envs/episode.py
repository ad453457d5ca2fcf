"""One environment as the rollout sees it: seeded episode by episode, cut, counted, restorable."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from exarl.envs.base import Env, can_snapshot
from exarl.envs.group import GroupEnv
from exarl.envs.guard import (
    FAILING,
    Guard,
    check_numbers,
    close_at_end,
    give_up,
    in_words,
    moment,
)
from exarl.envs.info import CostSums, InfoSums
from exarl.envs.outcome import ContractError, as_number, begin, not_finite, not_five
from exarl.envs.spaces import SpaceAdapter
from exarl.envs.taken import TAKEN, encoder
from exarl.errors import EnvironmentFailure
from exarl.learning.exploration import EPISODE, episode_seed
from exarl.types import FAILURES, Arrays, EpisodeInfo

log = logging.getLogger(__name__)

ADVICE = "; train with --env_failure restart to have such an environment made again and go on"


class Episode:
    """Runs one episode after another in an environment of its own.

    Episode n of environment ``env_id`` starts from a seed that depends on nothing else, so the
    present episode can be restored from its number and its actions when the environment itself
    cannot give its state. With a ``guard`` an environment that fails is made again: ``begin``,
    ``state`` and ``restore`` do so themselves; after an exception of ``step`` the caller calls
    ``recover``, then ``begin``. A failed step changes none of the public attributes.
    """

    def __init__(
        self,
        env: Env,
        adapter: SpaceAdapter,
        limit: int | None,
        seed: int,
        env_id: int,
        kind: int = EPISODE,
        guard: Guard | None = None,
        log_info: Sequence[str] = (),
        costs: Sequence[str] = (),
    ) -> None:
        self.env = env
        self.env_id = env_id
        self.number = -1
        self.length = 0
        self.total_reward = 0.0
        self.observation: Any = None
        self.raw: Any = None  # the observation as the environment gave it
        self.taken: Any = None  # in the last step, if it was not the action given
        self.restarts = 0
        self.failures = np.zeros(len(FAILURES), np.int64)  # by kind, since the last block
        self._adapter = adapter
        self._shape = adapter.spec.observation.shape[adapter.frames > 1 :]
        self._limit = limit
        self._seed = seed
        self._kind = kind
        self._snapshots = can_snapshot(env)
        self._guard = guard
        self._info = InfoSums(log_info) if log_info else None
        self._actions: list[Any] = []
        self._encode_action: Callable[[Any], Any] | None = None
        self._costs = CostSums(costs) if costs else None

    @property
    def info(self) -> EpisodeInfo:
        """The sums of the logged numbers in this episode so far; empty without ``log_info``."""
        return self._info.of_episode if self._info is not None else {}

    @property
    def agent(self) -> Any:
        """Which agent of a joint simulation this is; None where there is one only."""
        return None

    @property
    def costs(self) -> Sequence[Sequence[float]]:
        """The costs of the last step, and their sums in this episode."""
        return self._costs.step_and_sum if self._costs is not None else ((), ())

    def begin(self) -> Any:
        """Start the next episode; its first observation."""
        while True:
            try:
                return self._start(self.number + 1)
            except FAILING as error:
                self.recover(error)

    def step(self, action: Any) -> tuple[Any, float, bool, bool]:
        """Observation, reward, terminated, truncated after ``action`` (the agent's form of it)."""
        outcome = self.env.step(self._adapter.decode(action))
        try:
            raw, paid, terminated, truncated, info = outcome
        except (TypeError, ValueError):
            raise self._broken(not_five(outcome)) from None
        seen, reward = self._checked("step", raw, paid)
        if self._costs is not None:
            self._add_costs(info)
        if self._info is not None:
            self._info.add(info)
        self.taken = self._action_in(info) if info and TAKEN in info else None
        if not self._snapshots:
            self._actions.append(action)
        self.length += 1
        self.total_reward += reward
        truncated = bool(truncated) or (self._at_limit() and not terminated)
        if self._adapter.frames > 1:
            seen = np.concatenate([self.observation[1:], np.asarray(seen)[None]])
        self.observation = seen
        return seen, reward, bool(terminated), truncated

    def _at_limit(self) -> bool:
        return self.length == self._limit

    def _action_in(self, info: Any) -> Any:
        """The action that the environment says was taken, in the agent's form of it."""
        if self._encode_action is None:
            self._encode_action = encoder(self._adapter, self.env.action_space)
        try:
            return self._encode_action(info[TAKEN])
        except (TypeError, ValueError, LookupError) as error:
            raise self._broken(f"step returned in info an {TAKEN} that is none") from error

    def recover(self, error: BaseException) -> None:
        """Make the environment again after ``error``; without a guard, raise it.

        The episode is over; the next one is still to begin.
        """
        if self._guard is None:
            alone = self.agent is None and not isinstance(self.env, GroupEnv)
            advice = ADVICE if alone else ""
            give_up(self.env_id, moment(self.number, self.length), error, advice)
        self.restarts += 1
        at = self.env_id, self.number, self.length
        self.env = self._guard.restart(self.env, at, error, self.failures)

    def state(self) -> Arrays:
        """The running episode as named arrays; a new one where the environment fails meanwhile."""
        kept: Arrays = {}
        while self._snapshots:
            try:
                kept = self.env.unwrapped.get_state()  # type: ignore[attr-defined]
                break
            except FAILING as error:
                self.recover(error)
                self.begin()
        arrays = {
            "number": np.array(self.number),
            "length": np.array(self.length),
            "total_reward": np.array(self.total_reward),
            "observation": np.array(self.observation),
            **(self._info.state() if self._info is not None else {}),
            **({"costs": np.array(self.costs)} if self._costs is not None else {}),
        }
        if self._snapshots:
            return arrays | {f"env/{name}": np.asarray(array) for name, array in kept.items()}
        spec = self._adapter.spec.action
        shape = (len(self._actions), *spec.shape)
        return arrays | {"actions": np.array(self._actions, spec.dtype).reshape(shape)}

    def restore(self, state: Arrays) -> None:
        """Continue the episode that ``state`` described, or begin the next if it cannot be."""
        if not self.replay(state):
            self.begin()

    def replay(self, state: Arrays) -> bool:
        """Continue the episode that ``state`` described; where this is False, the next is to begin."""
        try:
            same = self._replay(state)
        except FAILING as error:
            self.recover(error)
            return False
        if not same:
            log.warning(
                "environment %d: episode %d could not be played again to where it was (the"
                " environment is not deterministic, or changed); a new episode begins",
                self.env_id,
                self.number,
            )
            self.restarts += 1
        return same

    def close(self) -> None:
        """Close the environment; if that fails, log a warning."""
        close_at_end(self.env_id, self.env)

    def _replay(self, state: Arrays) -> bool:
        """Bring the environment to where it was; whether that came out the same."""
        self._start(int(state["number"]))
        kept = {n.removeprefix("env/"): a for n, a in state.items() if n.startswith("env/")}
        if self._snapshots and kept:
            self.env.unwrapped.set_state(kept)  # type: ignore[attr-defined]
            self.observation = state["observation"]  # with the frames before, where stacked
            self.length = int(state["length"])
            self._restore_sums(state)
        else:
            for action in state.get("actions", ()):
                *_, terminated, truncated = self.step(action)
                if terminated or truncated:  # a running episode has not ended: this is another one
                    break
        self.total_reward = float(state["total_reward"])
        return self.length == int(state["length"]) and np.array_equal(
            np.asarray(self.observation), state["observation"], equal_nan=True
        )

    def _start(self, number: int) -> Any:
        self.number, self.length, self.total_reward = number, 0, 0.0
        self._actions = []
        self._forget_sums()
        seed = episode_seed(self._seed, self.env_id, number, self._kind)
        try:
            raw = begin(self.env, seed)
        except ContractError as error:
            raise self._broken(error) from error
        seen, _ = self._checked("reset", raw)
        frames = self._adapter.frames
        self.observation = np.stack([seen] * frames) if frames > 1 else seen
        return self.observation

    def _forget_sums(self) -> None:
        for sums in (self._info, self._costs):
            if sums is not None:
                sums.begin()

    def _restore_sums(self, state: Arrays) -> None:
        if self._info is not None:
            self._info.restore(state)
        if self._costs is not None:
            self._costs.restore(state["costs"])

    def _add_costs(self, info: object) -> None:
        assert self._costs is not None
        try:
            self._costs.add(info)
        except ContractError as error:
            raise self._broken(error) from None

    def _broken(self, why: object) -> EnvironmentFailure:
        return EnvironmentFailure(f"environment {self.env_id}: {why}", "shape")

    def _checked(self, call: str, raw: Any, reward: Any = 0.0) -> tuple[Any, float]:
        """The observation as the agent sees it and the reward as a number, if they are such."""
        self.raw = raw
        try:
            seen = self._adapter.encode(raw)
            right = getattr(seen, "shape", None) == self._shape or np.shape(seen) == self._shape
            numeric = np.asarray(seen).dtype.kind in "biuf"
        except (TypeError, ValueError, LookupError) as error:
            raise EnvironmentFailure(
                f"environment {self.env_id}: {call} returned what is not of its spaces"
                f" ({in_words(error)})",
                "shape",
            ) from error
        if not right or not numeric:
            found = f"shape {np.shape(seen)}" if numeric else f"type {np.asarray(seen).dtype}"
            raise EnvironmentFailure(
                f"environment {self.env_id}: {call} returned an observation of {found},"
                f" its space says {self._shape if numeric else self._adapter.spec.observation.dtype}",
                "shape",
            )
        try:
            reward = as_number(reward)
        except ContractError as error:
            raise self._broken(f"{call} returned {error}") from error
        if self._guard is not None:
            check_numbers(self.env_id, call, seen, reward)
        return seen, reward


def check_finite(env_ids: Sequence[int], *arrays: np.ndarray) -> None:
    """EnvironmentFailure naming the environment when a number in [T, B, ...] is not finite."""
    if all(np.isfinite(array).all() for array in arrays):
        return
    for column, env_id in enumerate(env_ids):
        for array in arrays:
            for values in array[:, column]:
                if not (good := np.isfinite(values)).all():
                    what = f"the reward {values}"
                    if values.ndim:
                        what = f"an observation with {not_finite(values, ~good)}"
                    raise EnvironmentFailure(f"environment {env_id} returned {what}", "nan")
