"""Where the time goes: seconds added up by phase, and spans for the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns

from exarl.records.trace import Tracer

BEGINNING = ("start", "compile")
"""Phases of a learner before it can work; they do not tell how fast it is afterwards."""
LEARNING = ("learn", "compile", "device")
"""Phases in which a learner computes what it learns."""
BOUNDS = (
    "environment",
    "uneven",
    "inference",
    "learning",
    "failures",
    "messages",
    "device",
    "host",
    "start",
)


class Clock:
    """Adds up the seconds this rank spends in named phases.

    ``lanes``, where a ``LaneLog`` wants them, are the sums since its start; ``take`` keeps them.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._on_move: Callable[[], None] = lambda: None
        self.seconds: dict[str, float] = {}
        self.lanes: dict[str, float] | None = None
        self._started = perf_counter_ns()

    @contextmanager
    def phase(self, name: str, within: str | None = None) -> Iterator[None]:
        """Count the time of the body as ``name``, and not as the phase ``within`` that surrounds it."""
        start = perf_counter_ns()
        try:
            yield
        finally:
            end = perf_counter_ns()
            self.add(name, (end - start) / 1e9)
            if within is not None:
                self.add(within, (start - end) / 1e9)
            self.tracer.add(name, start, end)
            if name != "wait":
                self.moved()

    def moved(self) -> None:
        """Something was done: a phase of work ended, or a step within a long one."""
        self._on_move()

    def tell(self, moved: Callable[[], None]) -> None:
        """Call ``moved`` from now on whenever something was done."""
        self._on_move = moved

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        if self.lanes is not None:
            self.lanes[name] = self.lanes.get(name, 0.0) + seconds

    def acted(self, parts: Mapping[str, float]) -> None:
        """Count the parts of a phase ``rollout`` that ended, for the lanes."""
        if self.lanes is not None:
            for part, seconds in parts.items():
                self.lanes[part] = self.lanes.get(part, 0.0) + seconds

    @property
    def elapsed(self) -> float:
        return (perf_counter_ns() - self._started) / 1e9

    def take(self) -> dict[str, float]:
        """Return the sums so far and reset them."""
        taken, self.seconds = self.seconds, {}
        return taken


def fractions(seconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Each phase as a fraction of ``whole`` seconds, and the rest as ``other``."""
    whole = max(whole, sum(seconds.values()), 1e-9)
    parts = {name: value / whole for name, value in seconds.items()}
    return parts | {"other": max(0.0, 1 - sum(parts.values()))}


def bound(
    learner: Mapping[str, float], actors: Mapping[str, float], compared: bool = True
) -> tuple[str, str]:
    """What limits the speed of a run: one of ``BOUNDS``, and one line for the user.

    ``learner`` and ``actors`` are fractions of their time by phase. ``compared``: there are several
    actors, some of which may be slower than others. The learner's start and compiling, during which
    actors wait as well, do not count.
    """
    began = sum(learner.get(name, 0.0) for name in BEGINNING)
    if began > 0.7:
        return "start", f"starting and compiling ({began:.0%} of the time): too short to tell"
    own = {n: part / (1 - began) for n, part in learner.items() if n not in BEGINNING}
    idle = max(0.0, actors.get("wait", 0.0) + actors.get("send", 0.0) - began) / (1 - began)
    learning, env, inference = (own.get(name, 0.0) for name in ("learn", "env", "inference"))
    waiting, send = own.get("wait", 0.0), actors.get("send", 0.0)
    if (restarting := actors.get("restart", 0.0)) > 0.3:
        return "failures", (
            f"environments that fail: actors spend {restarting:.0%} of their time restarting them;"
            " see env_failures in summary.json"
        )
    if (device := own.get("device")) is not None:
        if device < 0.5:
            return "host", f"the host: the device works {device:.0%} of the time"
        return "device", f"the device ({device:.0%} of the time)"
    if send > max(actors.get("env", 0.0), actors.get("wait", 0.0), 0.3) and waiting > 0.3:
        return "messages", (
            f"messages: actors spend {send:.0%} of their time on them, and the learner waits"
        )
    if (both := idle + waiting - 1) > 0.2:  # the learner waits as well: then it is for other actors
        if not compared:
            return "messages", f"messages: learner and actors both wait {both:.0%} of the time"
        return "uneven", (
            f"the slowest environments: the other actors wait {both:.0%} of their time for them"
        )
    if idle > 0.3:
        return "learning", f"the learner: actors wait {idle:.0%} of their time for it"
    if waiting > 0.3 or "env" not in own:
        waits = f"the learner waits {waiting:.0%} of its time"
        if actors.get("env", 0.0) >= actors.get("inference", 0.0):
            return "environment", f"the environments: {waits}"
        return "inference", f"inference: {waits}"
    if max(learning, env, inference) < 0.1:
        return "start", "starting up: the run was too short to tell"
    if learning > max(env, inference):
        return "learning", f"learning ({learning:.0%} of the time)"
    if inference > env:
        return "inference", f"inference ({inference:.0%} of the time)"
    return "environment", f"the environment ({env:.0%} of the time)"
