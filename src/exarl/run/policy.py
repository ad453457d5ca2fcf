"""The policy of a run, for use from Python: ``exarl.load``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exarl.agents.base import ExaAgent
from exarl.agents.policies import Policies
from exarl.config import Configuration, Declared
from exarl.envs.base import Space
from exarl.envs.joint import members_of, policies_in
from exarl.envs.layout import Flattened
from exarl.envs.masks import KEY, SEEN, own_space
from exarl.envs.space_json import space_from_json
from exarl.envs.spaces import SpaceAdapter
from exarl.envs.structured import unflattened
from exarl.errors import CheckpointError, ConfigError
from exarl.records.checkpoint import (
    check_made_for,
    fitting,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    made_for,
    weights_of,
)
from exarl.records.directory import RunDirectory, open_run, read_json
from exarl.run.build import adapter_of, build_agent, build_env
from exarl.run.configure import configure_again, lookup
from exarl.run.residual import ResidualPolicy, without_controller
from exarl.types import Arrays


class TrainedPolicy:
    """A policy without exploration, in the units of its environment. It needs NumPy only.

    ``steps`` are the environment steps it was trained with, None if it was not. A policy with a memory,
    or with stacked frames, remembers what it has seen since ``reset``.
    """

    def __init__(
        self,
        agent: ExaAgent,
        adapter: SpaceAdapter,
        spaces: tuple[Space, Space],
        steps: int | None = None,
        residual: ResidualPolicy | None = None,
    ) -> None:
        self._seen, self.action_space = spaces
        self.observation_space = own_space(self._seen)
        self.agent, self.adapter, self.steps = agent, adapter, steps
        self.residual = residual
        self._memory: Arrays = {}
        self._frames: np.ndarray | None = None  # [rows, frames, ...]
        self._rows = 0

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Forget what was seen: an episode begins. With ``rows``, in these environments of a batch."""
        if rows is None:
            self._memory, self._frames, self._rows = {}, None, 0
            if self.residual is not None:
                self.residual.begin()
            return
        if self.residual is not None:
            for row in rows:
                self.residual.begin(row)
        for array in self._memory.values():
            array[list(rows)] = 0
        if self._rows:
            self._fresh[list(rows)] = True

    def act(self, observation: Any, mask: Any = None) -> Any:
        """The action for an observation, or the actions for a batch of them.

        Observations and actions are those of the environment. A batch is an array with one more axis
        than the observation space has, or, where observations are no arrays, a list. ``mask``, or a
        mask for each of a batch, says which actions are allowed, where the environment says it.
        """
        if not self._is_batch(observation):
            return self.act_on([self._with_mask(observation, mask)])[0]
        rows = list(observation)
        masks = [None] * len(rows) if mask is None else list(mask)
        actions = self.act_on([self._with_mask(*row) for row in zip(rows, masks, strict=True)])
        return actions if self.action_space.shape is None else np.array(actions)

    def _is_batch(self, observation: Any) -> bool:
        shape = self.observation_space.shape
        if shape is None:
            return isinstance(observation, list)
        return np.ndim(observation) == len(shape) + 1

    def _with_mask(self, observation: Any, mask: Any) -> Any:
        """An observation in the form that has its mask; ValueError where there is none."""
        if mask is None:
            flat = isinstance(self._seen, Flattened)
            inside = flat or (isinstance(observation, Mapping) and KEY in observation)
            if self.adapter.spec.mask is None or inside:
                return observation
            raise ValueError("the policy needs to know what is allowed: act(observation, mask)")
        if self.adapter.spec.mask is None:
            raise ValueError("the policy was trained without masks: act(observation)")
        if not np.any(mask):
            raise ValueError("the mask allows no action")
        joined = {SEEN: observation} if self.observation_space is not self._seen else observation
        return {**joined, KEY: np.asarray(mask)}

    def act_on(self, observations: Sequence[Any]) -> list[Any]:
        """The actions for several observations, each with its mask in it where there are masks."""
        adapter, spec, residual = self.adapter, self.adapter.spec, self.residual
        bases = residual.bases(list(observations)) if residual is not None else []
        if residual is not None:
            observations = [residual.seen(*each) for each in zip(observations, bases, strict=True)]
        encoded = [np.asarray(adapter.of(i).encode(one)) for i, one in enumerate(observations)]
        seen = np.stack(encoded).astype(spec.observation.dtype, copy=False)
        expected = spec.observation.shape[self.adapter.frames > 1 :]
        if seen.shape[1:] != expected:
            raise ValueError(
                f"an observation of shape {seen.shape[1:]}; the policy takes {expected}"
            )
        self._begin(len(seen))
        if self.adapter.frames > 1:
            seen = self._stacked(seen)
        if self._memory:
            actions, _ = self.agent.action(seen, None, self._memory)
        else:
            actions, _ = self.agent.action(seen)
        chosen = actions.tolist() if spec.n_actions is not None else actions
        decoded = [adapter.of(i).decode(action) for i, action in enumerate(chosen)]
        if residual is None:
            return decoded
        return [residual.action(*each) for each in zip(bases, decoded, strict=True)]

    def _begin(self, rows: int) -> None:
        """Make the memory of ``rows`` environments, unless there is one."""
        remembers = self.agent.memory or self.adapter.frames > 1 or self.residual is not None
        if self._rows not in (0, rows) and remembers:
            raise ValueError(
                f"the policy remembers {self._rows} environments, not {rows}: call reset() first"
            )
        if not self._rows:
            self._rows = rows
            self._memory = {name: spec.zeros(rows) for name, spec in self.agent.memory.items()}
            self._fresh = np.ones(rows, bool)

    def _stacked(self, seen: np.ndarray) -> np.ndarray:
        """The latest frames of each environment; in a new episode all of them are the first."""
        first = np.stack([seen] * self.adapter.frames, 1)
        if self._frames is None:
            self._frames = first
        else:
            moved = np.concatenate([self._frames[:, 1:], seen[:, None]], 1)
            fresh = self._fresh.reshape(-1, *[1] * (moved.ndim - 1))
            self._frames = np.where(fresh, first, moved)
        self._fresh[:] = False
        return self._frames


def load(
    run: str | os.PathLike[str],
    *,
    best: bool = False,
    checkpoint: int | None = None,
    policy: str | None = None,
    trust: bool = False,
) -> TrainedPolicy:
    """The policy of a run: of its newest checkpoint, of the one of step ``checkpoint``, or the one with
    the ``best`` evaluation during training. Of a run with several, ``policy`` names one.

    The environment is not made, unless the run is older than this function. ``trust`` allows code
    named by a run that this user did not make. ConfigError or CheckpointError if it cannot be loaded.
    """
    directory = open_run(run, fixed=True)
    policies: Mapping[str, tuple[int, ...]]
    try:
        configuration = configure_again(directory, trust=trust, lookup=_without_env)
        spaces, policies = stored_spaces(directory)
    except LookupError:
        configuration = configure_again(directory, trust=trust)
        env, _ = build_env(without_controller(configuration))
        each = [(member.observation_space, member.action_space) for member in members_of(env)]
        spaces = [(seen, unflattened(acted)) for seen, acted in each]
        policies = policies_in(env)
        env.close()
    found = policy_of(directory, configuration, spaces, policies, checkpoint=checkpoint, best=best)
    agent = found.agent
    if policy not in policies if policies else policy is not None:
        names = f"has the policies {', '.join(policies)}" if policies else "has one policy"
        raise ConfigError(f"{directory.path} {names}" + f", not '{policy}'" * bool(policy))
    if policy is None or not isinstance(agent, Policies):
        return found
    own = spaces[policies[policy][0]]
    adapter = adapter_of(configuration, [own], {}, configuration.learner.n_steps)
    return TrainedPolicy(agent.agents[policy], adapter, own, found.steps)


def policy_of(
    run: RunDirectory,
    configuration: Configuration,
    spaces: Sequence[tuple[Space, Space]],
    policies: Mapping[str, tuple[int, ...]],
    *,
    checkpoint: int | None = None,
    best: bool = False,
) -> TrainedPolicy:
    """The policy of a run, for an environment whose agents have these spaces and ``policies``."""
    residual = ResidualPolicy.of(configuration, spaces[0])
    acting = [residual.spaces] if residual is not None else spaces
    adapter = adapter_of(configuration, acting, policies, configuration.learner.n_steps)
    agent = build_agent(configuration, adapter.spec)
    wanted = made_for(configuration.learner, configuration.values["model"], adapter.spec)
    steps = load_weights(agent, run, wanted, checkpoint, best)
    return TrainedPolicy(agent, adapter, spaces[0], steps, residual)


def stored_spaces(
    run: RunDirectory,
) -> tuple[list[tuple[Space, Space]], dict[str, tuple[int, ...]]]:
    """The observation and the action space of each agent in a run's manifest, and the places of each
    policy; of agents that share one, those of the first. LookupError if it has none."""
    manifest = read_json(run.manifest)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        spec: Mapping[str, Any] = manifest["spec"]
        each = [(one["spec"]["spaces"], one["places"]) for one in spec.get("policies", ())]
        owned = {place: stored for stored, places in each for place in places}
        rows = [owned[place] for place in sorted(owned)] or [spec["spaces"]]
        names = ("observation", "action")  # with ``base_`` before them where a controller acts too
        found = [[space_from_json(r.get(f"base_{n}", r[n])) for n in names] for r in rows]
        spaces = [(seen, acted) for seen, acted in found]
        return spaces, {one["name"]: tuple(one["places"]) for one in spec.get("policies", ())}
    raise LookupError(f"{run.manifest} names no spaces")


def load_weights(
    agent: ExaAgent,
    run: RunDirectory,
    wanted: Mapping[str, str],
    step: int | None = None,
    best: bool = False,
) -> int:
    """Let ``agent`` act with the weights of a checkpoint; the step they are from.

    CheckpointError when it was not made for the agent, network and environment in ``wanted``.
    """
    if best and step is not None:
        raise ConfigError("best and checkpoint exclude each other")
    if best and not run.best.is_dir():
        raise ConfigError(f"{run.path} has no best policy: it was trained without eval_interval")
    if step is None:
        found = load_newest(run.best if best else run.checkpoints)
        if found is None:
            raise CheckpointError(f"no usable checkpoint in {run.path}")
    else:
        paths = {int(path.name): path for path in list_checkpoints(run.checkpoints)}
        if step not in paths:
            kept = ", ".join(str(s) for s in sorted(paths)) or "none"
            raise ConfigError(f"no checkpoint of step {step} in {run.path} (kept: {kept})")
        found = load_checkpoint(paths[step])
    with fitting(run, found):
        check_made_for(found, wanted)
        steps, weights = int(found.numbers["counters"]["steps"]), weights_of(found)
    try:
        agent.set_weights(weights)
    except ValueError as error:
        raise CheckpointError(f"weights and config.json of {run.path} differ: {error}") from error
    return steps


def _without_env(family: str, id: str) -> Declared:
    """``configure.lookup``, but what belongs to the environment is taken as it is stored."""
    return Declared({}, open_ended=True) if family == "env" else lookup(family, id)
