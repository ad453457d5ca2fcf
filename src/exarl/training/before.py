"""Learning from prior data without an environment: cloning before a run, and runs of nothing else."""

from __future__ import annotations

from collections.abc import Callable

from exarl.errors import Stopped
from exarl.training.process import Learner
from exarl.training.rounds import Report
from exarl.types import Metrics

AT_ONCE = 100
"""Updates in one call."""


def clone(learner: Learner) -> None:
    """Let a new run begin with a policy that does what was done in its prior data.

    Nothing of it is in a checkpoint: a run that is killed meanwhile begins again, and comes to the
    same.
    """
    loop, wanted = learner.loop, learner.config.clone
    if not wanted or loop.counters.iteration:
        return
    made = 0
    while made < wanted:
        if learner.signals.received is not None:
            raise Stopped(learner.signals.received)
        updates = min(AT_ONCE, wanted - made)
        _count(learner, lambda updates=updates: loop.agent.clone(updates))  # type: ignore[misc]
        made += updates
    loop.note(f"cloned the actions of the prior data in {made:,} updates")


def learn_offline(learner: Learner) -> None:
    """A run that learns from its prior data alone."""
    loop, wanted = learner.loop, learner.config.updates or 0
    assert learner.actor is not None
    loop.note(f"learning from prior data alone: {wanted:,} updates, no environment steps")
    while not loop.finished:
        made = loop.counters.updates
        updates = min(AT_ONCE - made % AT_ONCE, wanted - made)
        _count(learner, lambda updates=updates: loop.agent.train_on_prior(updates))  # type: ignore[misc]
        if loop.checkpoint_due():
            loop.checkpoint(learner.actor.rollout.state(unfinished=True))


def _count(learner: Learner, learn: Callable[[], Metrics]) -> None:
    with learner.clock.phase("learn"):
        metrics = learn()
    learner.loop.count(Report(), dict(metrics))
