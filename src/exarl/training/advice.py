"""What would make a run faster, and by how much at most.

Only changes that this agent allows in this workflow are named, and never a larger gain than Amdahl's
law allows: the parts that a change does not touch take as long as before.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass

import numpy as np

from exarl.plan.costs import team_factor
from exarl.records.clock import BEGINNING, Clock, bound, fractions
from exarl.types import ACTOR_PHASES

WORTHWHILE = 1.1
"""The smallest factor of speed for which a change is named."""
_MOST_NAMED = 2


@dataclass(frozen=True)
class Situation:
    """The properties of a run on which advice depends."""

    workflow: str = "sync"
    learners: int = 1
    actors: int = 1
    ranks_per_actor: int = 1
    alone: bool = True  # one process learns and acts in turns
    envs_per_actor: int = 1
    cores: int = 1  # of this machine
    lags: bool = False  # whether actors go on while the learner learns
    may_lag: bool = True  # whether the agent learns correctly then
    many_learners: bool = False  # whether workflow and agent allow several
    one_rank: bool = False
    hosted: bool = False  # its processes are not MPI ranks
    joined: bool = False  # actors join from elsewhere
    several_machines: bool = False
    updates_per_step: float | None = None
    epochs: int = 1


@dataclass(frozen=True)
class Update:
    """The seconds of one update on one learner, and the number of weights that it changes."""

    seconds: float
    weights: int


@dataclass(frozen=True)
class Work:
    """The cost of a step, in any unit: acting (environment and inference) and learning.

    ``inference`` and ``uneven``, the waiting for slower environments, are parts of acting; ``updates``
    are a part of learning. ``update`` describes one of them, where it is known.
    """

    acting: float
    learning: float
    inference: float = 0.0
    updates: float = 0.0
    uneven: float = 0.0
    update: Update | None = None

    def time(self, actors: int, lags: bool) -> float:
        """The time per step with ``actors`` actors; unless ``lags``, they wait for the learner."""
        acting = self.acting / actors
        return max(acting, self.learning) if lags else acting + self.learning


@dataclass(frozen=True)
class Option:
    """A change, and the factor by which it can make the run faster."""

    words: str
    gain: float
    elsewhere: bool = False  # whether it needs another machine
    price: str = ""

    def __str__(self) -> str:
        times = f"{self.gain:.1f}" if self.gain < 10 else f"{self.gain:,.0f}"
        return f"{self.words}: at most {times} times as fast{self.price}"


def bound_by(
    situation: Situation,
    learner: Mapping[str, float],
    actors: Mapping[str, float],
    update: Update | None = None,
) -> str:
    """What bounds a run, from the fractions of time of its learner and its actors, with advice."""
    kind, what = bound(learner, actors, situation.actors > 1 and situation.workflow != "seed")
    work = dataclasses.replace(work_of(situation, learner, actors), update=update)
    advice = "; or ".join(map(str, options(kind, work, situation)))
    if kind == "host":
        gain = 1 / max(_steady(learner).get("device", 1.0), 0.01)
        advice = str(Option("raise n_envs or block_steps", gain))
    return f"{what}; {advice}" if advice else what


def time_split(
    situation: Situation,
    clock: Clock,
    actor_seconds: np.ndarray,
    updates: int,
    weights: Callable[[], Sized],
) -> dict[str, object]:
    """Where the time of a run went, and what bounds it, for its summary."""
    parts = actor_seconds / max(actor_seconds.sum(), 1e-9)
    actors = dict(zip(ACTOR_PHASES, np.round(parts, 4).tolist(), strict=True))
    learner = fractions(clock.seconds, clock.elapsed)
    update = update_of(situation, clock.seconds, updates, weights)
    shares = {name: round(part, 4) for name, part in learner.items()}
    return {
        "time_split": {"learner": shares, "actors": actors},
        "bound_by": bound_by(situation, learner, actors, update),
    }


def update_of(
    situation: Situation,
    seconds: Mapping[str, float],
    updates: int,
    weights: Callable[[], Sized],
) -> Update | None:
    """What an update took, if there was one and advice on the number of learners depends on it."""
    if not updates or not situation.many_learners:
        return None
    return Update(seconds.get("learn", 0.0) / updates, len(weights()))


def work_of(
    situation: Situation, learner: Mapping[str, float], actors: Mapping[str, float]
) -> Work:
    """The cost of a step as parts of its whole time, which is 1."""
    own = _steady(learner)
    updates, waiting = own.get("learn", 0.0), own.get("wait", 0.0)
    if situation.alone:
        inference = own.get("inference", 0.0)
        acting = own.get("env", 0.0) + inference + own.get("restart", 0.0)
        return Work(acting, 1 - acting, inference, updates)
    began = sum(learner.get(name, 0.0) for name in BEGINNING)
    idle = max(0.0, actors.get("wait", 0.0) + actors.get("send", 0.0) - began) / (1 - began)
    each = 1 - idle if situation.lags else waiting  # in turns the learner waits for all acting
    uneven = 0.0 if situation.lags else max(0.0, idle + waiting - 1)
    busy = sum(actors.get(name, 0.0) for name in ("env", "inference", "restart"))
    inference = each * actors.get("inference", 0.0) / max(busy, 1e-9)
    n = situation.actors
    return Work(n * each, 1 - waiting, n * inference, updates, n * uneven)


def options(kind: str, work: Work, situation: Situation) -> list[Option]:
    """The changes worth naming for a run that is bound in this way, the most promising first."""
    ways = {
        "environment": (_overlap, _more_actors),
        "uneven": (_overlap, _more_actors),
        "inference": (_more_environments, _overlap, _more_actors),
        "messages": (_more_environments,),
        "learning": (_overlap, _more_learners, _fewer_updates),
    }
    possible = [way(work, situation) for way in ways.get(kind, ())]
    worth = [option for option in possible if option is not None and option.gain >= WORTHWHILE]
    return sorted(worth, key=lambda option: (option.elsewhere, -option.gain))[:_MOST_NAMED]


def _gain(
    work: Work, situation: Situation, *, then: Work | None = None, actors: int = 0, lags: bool
) -> float:
    before = work.time(situation.actors, situation.lags)
    return before / max((then or work).time(actors or situation.actors, lags), 1e-9)


def _overlap(work: Work, situation: Situation) -> Option | None:
    """Act and learn at the same time instead of in turns."""
    turns = situation.alone or not situation.lags
    if not turns or situation.one_rank or situation.hosted or not situation.may_lag:
        return None
    if situation.alone and situation.cores < 2:
        return None
    words = [] if situation.workflow in ("async", "rma") else ["--workflow async"]
    words += [f"--procs {1 + situation.ranks_per_actor}"] if situation.alone else []
    then = dataclasses.replace(work, acting=work.acting - work.uneven)
    return Option(" ".join(words), _gain(work, situation, then=then, lags=True)) if words else None


def _more_actors(work: Work, situation: Situation) -> Option | None:
    """As many actors as this machine has cores for, but no more than the learner can keep up with."""
    if situation.one_rank and not situation.joined:
        return None
    lags = situation.lags
    enough = math.ceil(work.acting / max(work.learning, 1e-9)) if lags else 10**9
    room = (situation.cores - situation.learners) // situation.ranks_per_actor
    actors = min(enough, room)
    if actors <= situation.actors or situation.joined:
        # Other machines may have room; then only the learner is a bound.
        limit = work.time(situation.actors, lags) / max(work.learning, 1e-9)
        flag = "--n_actors N" if situation.hosted else "--procs N"
        words = f"more actors, {flag}, on more cores (this machine has {situation.cores})"
        words = "let more simulations join ('exarl actor')" if situation.joined else words
        return Option(words, limit, elsewhere=True) if enough > situation.actors else None
    flag = f"--n_actors {actors}"
    if not situation.hosted:
        flag = f"--procs {situation.learners + actors * situation.ranks_per_actor}"
    return Option(flag, _gain(work, situation, actors=actors, lags=lags))


def _more_environments(work: Work, situation: Situation) -> Option | None:
    """Several environments share a call of the policy; at best a call takes as long as before."""
    if situation.one_rank:
        return None
    then = dataclasses.replace(work, acting=work.acting - 0.75 * work.inference)
    words = f"--envs_per_actor {4 * situation.envs_per_actor}"
    return Option(words, _gain(work, situation, then=then, lags=situation.lags))


def _more_learners(work: Work, situation: Situation) -> Option | None:
    """One learner more, where it shortens an update after all that a team costs."""
    count, update = situation.learners + 1, work.update
    if situation.alone or not situation.many_learners or not situation.lags or update is None:
        return None
    cores: int | None = None
    if not situation.hosted and not situation.several_machines:
        acting = situation.actors * situation.ranks_per_actor
        cores = max(situation.cores - acting, situation.learners)
        if count > cores:
            return None
    factor = team_factor(update.seconds, update.weights, situation.learners, count, cores)
    rest = (work.learning - work.updates) * situation.learners / count
    then = dataclasses.replace(work, learning=rest + factor * work.updates)
    words = f"--learner_procs {count}"
    if not situation.hosted:
        words += f" --procs {count + situation.actors * situation.ranks_per_actor}"
    return Option(words, _gain(work, situation, then=then, lags=True))


def _fewer_updates(work: Work, situation: Situation) -> Option | None:
    """Half the updates for each step."""
    if situation.updates_per_step:
        words, left = f"--updates_per_step {situation.updates_per_step / 2:g}", 0.5
    elif situation.epochs > 1:
        words = f"--epochs {situation.epochs // 2}"
        left = (situation.epochs // 2) / situation.epochs
    else:
        return None
    then = dataclasses.replace(work, learning=work.learning - (1 - left) * work.updates)
    gain = _gain(work, situation, then=then, lags=situation.lags)
    return Option(words, gain, price=", but it learns less from each step")


def _steady(learner: Mapping[str, float]) -> dict[str, float]:
    """A learner's fractions of the time after its start."""
    began = sum(learner.get(name, 0.0) for name in BEGINNING)
    left = max(1 - began, 1e-9)
    return {name: part / left for name, part in learner.items() if name not in BEGINNING}
