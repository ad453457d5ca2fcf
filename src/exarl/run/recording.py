"""What a run records: the form of its episodes, and where it may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exarl.config import Configuration, LearnerConfig
from exarl.data.episodes import SpaceForm
from exarl.data.minari import hdf5
from exarl.data.recorder import Form, Recorder, RecordLimit
from exarl.envs.base import Space
from exarl.envs.space_json import space_from_json, space_to_json
from exarl.envs.spaces import SpaceAdapter
from exarl.envs.structured import JoinedActions
from exarl.errors import ConfigError
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.run.build import adapter_for
from exarl.training.recording import EpisodeRecording
from exarl.types import ArraySpec, EnvSpec


def check_recording(learner: LearnerConfig) -> None:
    """ConfigError where a run cannot record its episodes."""
    RecordLimit.read(learner.record_limit)
    if not learner.record:
        if learner.record_limit is not None:
            raise ConfigError("record_limit needs record")
        return
    if learner.workflow == "fused":
        raise ConfigError(
            "record: workflow 'fused' keeps its steps on the device; use another workflow"
        )
    if learner.learner_procs > 1:
        raise ConfigError("record needs one learner: learner_procs must be 1")
    hdf5()


def build_recording(
    configuration: Configuration, spec: EnvSpec, run: RunDirectory, clock: Clock, *, fresh: bool
) -> EpisodeRecording:
    """The recording of a run, which does nothing without ``record``; ``fresh``: it begins."""
    learner = configuration.learner
    if not learner.record:
        return EpisodeRecording(None, clock)
    form = form_of(configuration, spec)
    recording = EpisodeRecording(
        Recorder(run.data, form, RecordLimit.read(learner.record_limit)), clock
    )
    if fresh:
        recording.begin()
    return recording


def form_of(configuration: Configuration, spec: EnvSpec) -> Form:
    """How the episodes of an environment are kept: observations as the agent sees them, actions as the
    environment takes them, those of several parts as one vector."""
    adapter, acted = own_actions(configuration, spec)
    joined = JoinedActions.of(acted)
    given = space_to_json(acted if joined is None else joined.box)
    return Form(spec.env_id, seen_as(spec), given, units_of(adapter, joined))


def own_actions(configuration: Configuration, spec: EnvSpec) -> tuple[SpaceAdapter, Space]:
    """The adapter of an environment and its action space, from its spec alone; ConfigError where the
    spec does not have its spaces, or has those of several agents."""
    if spec.agents > 1:
        raise ConfigError(f"{spec.env_id} has several agents: its episodes cannot be kept or read")
    if not spec.spaces:
        raise ConfigError(
            f"the spaces of {spec.env_id} have no form in a file: its episodes cannot be kept or read"
        )
    seen, acted = (space_from_json(spec.spaces[name]) for name in ("observation", "action"))
    return adapter_for(configuration, seen, acted, spec.max_episode_steps), acted


def seen_as(spec: EnvSpec) -> SpaceForm:
    """The space of observations as the agent sees them."""
    own = spec.spaces.get("observation", {})
    shape = list(spec.observation.shape)
    if own.get("type") == "Box" and list(own["shape"]) == shape:
        return {**own, "dtype": spec.observation.dtype}
    return of_array(spec.observation)


def of_array(array: ArraySpec) -> SpaceForm:
    """A space of all arrays like this one."""
    low, high = (0, 255) if array.dtype == "uint8" else ("-inf", "inf")
    return {
        "type": "Box",
        "dtype": array.dtype,
        "shape": list(array.shape),
        "low": low,
        "high": high,
    }


def units_of(
    adapter: SpaceAdapter, joined: JoinedActions | None
) -> Callable[[np.ndarray], np.ndarray]:
    """What the environment takes for actions [N, ...] of the agent."""
    values: Callable[[Any], Any] = np.asarray if joined is None else joined.together

    def units(actions: np.ndarray) -> np.ndarray:
        chosen = actions.tolist() if adapter.spec.n_actions is not None else actions
        return np.stack([values(adapter.decode(action)) for action in chosen])

    return units
