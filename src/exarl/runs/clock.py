"""Where the time goes: seconds added up by phase, and spans for the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns

from exarl.runs.trace import Tracer


class Clock:
    """Adds up the seconds this rank spends in named phases."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.on_move: Callable[[], None] = lambda: None  # what hears that work goes on
        self.seconds: dict[str, float] = {}
        self._started = perf_counter_ns()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the body's time as ``name``."""
        start = perf_counter_ns()
        try:
            yield
        finally:
            end = perf_counter_ns()
            self.add(name, (end - start) / 1e9)
            self.tracer.add(name, start, end)
            if name != "wait":
                self.moved()

    def moved(self) -> None:
        """Something was done: a phase of work ended, or a step within a long one."""
        self.on_move()

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @property
    def elapsed(self) -> float:
        return (perf_counter_ns() - self._started) / 1e9

    def take(self) -> dict[str, float]:
        """The sums so far, starting again from nothing."""
        taken, self.seconds = self.seconds, {}
        return taken


def fractions(seconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Each phase as a part of ``whole`` seconds, and what is left as ``other``."""
    whole = max(whole, sum(seconds.values()), 1e-9)
    parts = {name: value / whole for name, value in seconds.items()}
    return parts | {"other": max(0.0, 1 - sum(parts.values()))}


def bottleneck(learner: Mapping[str, float], actors: Mapping[str, float]) -> str:
    """What bounds a run, in one line, from the parts of time of its learner and its actors."""
    env, inference = actors.get("env", 0.0), actors.get("inference", 0.0)
    idle = actors.get("wait", 0.0) + actors.get("send", 0.0)
    learning = learner.get("learn", 0.0)
    if (restarting := actors.get("restart", 0.0)) > 0.3:
        return (
            f"environments that fail: actors spend {restarting:.0%} of their time restarting them;"
            " see env_failures in summary.json"
        )
    if (device := learner.get("device")) is not None:
        if device < 0.5:
            return (
                f"the host: the device works {device:.0%} of the time; raise n_envs or block_steps"
            )
        return f"the device ({device:.0%} of the time)"
    if idle > 0.3:
        return (
            f"the learner: actors wait {idle:.0%} of their time for it;"
            " lower updates_per_step, or add learners (learner_procs)"
        )
    if learner.get("wait", 0.0) > 0.3 or "env" not in learner:
        kind = "the environments" if env >= inference else "inference in the actors"
        return f"{kind}: the learner waits {learner.get('wait', 0.0):.0%} of its time; add actors"
    if max(learning, learner.get("env", 0.0), learner.get("inference", 0.0)) < 0.1:
        return "starting up: the run was too short to tell"
    if learning > max(learner.get("env", 0.0), learner.get("inference", 0.0)):
        return f"learning ({learning:.0%} of the time); more ranks would act meanwhile (--procs 2)"
    return f"the environment ({learner.get('env', 0.0):.0%} of the time); add actors (--procs N)"
