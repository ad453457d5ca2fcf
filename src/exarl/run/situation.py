"""What a run is made of, as far as advice about its speed depends on it."""

from __future__ import annotations

import os

from exarl import registry
from exarl.comm.layout import Layout
from exarl.config import Configuration
from exarl.training.advice import Situation
from exarl.workflows.base import ExaWorkflow


def situation_of(configuration: Configuration, workflow: ExaWorkflow, layout: Layout) -> Situation:
    """The situation of a run of this configuration."""
    learner, agent = configuration.learner, configuration.values["agent"]
    agent_class = registry.agents.load(learner.agent)
    team = agent_class.learns_in_team and agent.get("replay_device") != "device"
    cores, actors = len(os.sched_getaffinity(0)), layout.actors
    if workflow.hosted and getattr(workflow.config, "n_actors", None) is None:
        actors = max(1, cores - layout.learners)  # it takes what there is
    return Situation(
        workflow=learner.workflow,
        learners=layout.learners,
        actors=actors,
        ranks_per_actor=layout.process_per_env,
        alone=layout.alone,
        envs_per_actor=learner.envs_per_actor,
        cores=cores,
        lags=workflow.lags and not layout.alone,
        may_lag=not agent_class.needs_vtrace or bool(agent.get("vtrace", True)),
        many_learners=workflow.many_learners and bool(team),
        one_rank=workflow.one_rank,
        hosted=workflow.hosted,
        updates_per_step=agent.get("updates_per_step"),
        epochs=int(agent.get("epochs", 1)),
    )
