"""Checks before anything is built: the layout of the ranks, and what cannot work."""

from __future__ import annotations

from exarl import registry
from exarl.comm.layout import Layout, plan_layout
from exarl.config import Configuration
from exarl.errors import ConfigError
from exarl.records.sinks import check_sinks
from exarl.run.build import build_workflow
from exarl.run.prior import check_prior
from exarl.run.recording import check_recording


def plan(configuration: Configuration, ranks: int, serial: bool = False) -> Layout:
    """The roles of ``ranks``; a workflow that starts its own processes counts those.

    ConfigError where the number does not fit.
    """
    learner, workflow = configuration.learner, build_workflow(configuration)
    if workflow.hosted and not serial:
        if learner.process_per_env > 1 and not workflow.listens:
            raise ConfigError(
                f"workflow '{learner.workflow}' starts no MPI ranks: process_per_env must be 1"
            )
        actors = getattr(workflow.config, "n_actors", None) or 1
        width, learners = learner.process_per_env, learner.learner_procs
        return Layout(learners + actors * width, learners, width)
    return plan_layout(ranks, learner.learner_procs, learner.process_per_env)


def check_configuration(configuration: Configuration, ranks: int = 1) -> None:
    """Raise ConfigError for what can be known to fail before anything is built or started."""
    learner = configuration.learner
    check_sinks(learner.log_to, learner.log_online)
    check_recording(learner)
    check_prior(configuration)
    workflow = build_workflow(configuration)
    workflow.check(learner, ranks)
    several = learner.learner_procs > 1
    if several and not registry.agents.load(learner.agent).learns_in_team:
        raise ConfigError(
            f"agent '{learner.agent}' learns alone (learns_in_team): learner_procs must be 1"
        )
    lags = workflow.lags and getattr(workflow.config, "max_policy_lag", None) != 0
    check_agent(configuration, learners=learner.learner_procs, lags=lags)


def check_agent(configuration: Configuration, *, learners: int, lags: bool) -> None:
    """Raise ConfigError if the agent cannot learn with this number of learners or, where it
    ``lags``, from blocks of older weights."""
    agent = registry.agents.load(configuration.learner.agent)
    config = configuration.build("agent", agent.Config)
    agent.check(config, configuration.learner, learners=learners, lags=lags)
