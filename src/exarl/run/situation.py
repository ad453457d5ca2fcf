"""The properties of a run on which advice about its speed depends."""

from __future__ import annotations

import os

from exarl import registry
from exarl.comm.channel import launched_ranks
from exarl.comm.layout import Layout
from exarl.comm.threads import local_ranks
from exarl.config import Configuration
from exarl.errors import ConfigError
from exarl.run.checks import check_agent
from exarl.training.advice import Situation
from exarl.workflows.base import ExaWorkflow


def situation_of(configuration: Configuration, workflow: ExaWorkflow, layout: Layout) -> Situation:
    """The situation of a run of this configuration."""
    learner, agent = configuration.learner, configuration.values["agent"]
    in_team = registry.agents.load(learner.agent).learns_in_team
    cores, actors = len(os.sched_getaffinity(0)), layout.actors
    if workflow.hosted and getattr(workflow.config, "n_actors", None) is None:
        actors = max(1, cores - layout.learners)  # it uses all that there are
    return Situation(
        workflow=learner.workflow,
        learners=layout.learners,
        actors=actors,
        ranks_per_actor=layout.process_per_env,
        alone=layout.alone,
        envs_per_actor=learner.envs_per_actor,
        cores=cores,
        lags=workflow.lags and not layout.alone,
        may_lag=agent_accepts(configuration, lags=True),
        many_learners=workflow.many_learners
        and not workflow.listens
        and in_team
        and agent_accepts(configuration, learners=2),
        one_rank=workflow.one_rank,
        hosted=workflow.hosted,
        joined=workflow.listens,
        several_machines=launched_ranks() is not None
        and 1 < local_ranks(os.environ) < layout.world,
        updates_per_step=agent.get("updates_per_step"),
        epochs=int(agent.get("epochs", 1)),
    )


def agent_accepts(configuration: Configuration, *, learners: int = 1, lags: bool = False) -> bool:
    """Whether the agent could learn with this many learners, or from blocks of older weights."""
    try:
        check_agent(configuration, learners=learners, lags=lags)
    except ConfigError:
        return False
    return True
