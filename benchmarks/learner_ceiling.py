"""The most blocks a second that one learner of ``async`` can train: its actors need no time at all.

    python benchmarks/learner_ceiling.py [--actors 64] [--updates 0.15 0.03] [--agents DQN-v0]
                                         [--together 8 1] [--source OTHER/src] [--rounds 3] [--profile]

The learner is the real one (source, pacer, codec, loop, rows of metrics), its actors are a transport in
the same process that answers every grant with a finished block of 32 steps. Printed are milliseconds
per block: of wall time, and of CPU time of the learner's thread and of the whole process, which other
work on the machine changes less. What is compared is measured in turns, in processes of its own, and
the ratio to the first is printed: numbers of blocks that may be trained at once (``--together``), and
the package of another checkout (``--source``). ``--profile`` shows where the time of the learner's
thread goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

STEPS = 32
WARM = 3000
"""Blocks before those that are measured: everything is compiled then."""
KINDS = ("wall", "thread", "process")
HERE = str(Path(__file__).parents[1] / "src")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--agents", nargs="+", default=["DQN-v0"])
    parser.add_argument("--actors", type=int, default=64)
    parser.add_argument("--updates", type=float, nargs="+", default=[0.15], help="per step")
    parser.add_argument("--blocks", type=int, default=6000, help="measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--together", type=int, nargs="+", default=[8], help="blocks in one call")
    parser.add_argument("--source", help="the folder src of another checkout")
    parser.add_argument("--extra", default="{}", help="more parameters, as JSON")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(**json.loads(options.measure))))
        return
    cases = [(f"{count} at once", HERE, count) for count in options.together]
    cases += [("other", options.source, 1)] * bool(options.source)
    print("agent    updates/step  case        ms per block: wall  learner's thread  process")
    for agent in options.agents:
        for updates in options.updates:
            found: list[list[dict[str, float]]] = [[] for _ in cases]
            for _ in range(options.rounds):
                for (_, source, together), results in zip(cases, found, strict=True):
                    words = {"agent": agent, "actors": options.actors, "updates": updates}
                    words |= {"blocks": options.blocks, "extra": json.loads(options.extra)}
                    words |= {"profile": options.profile, "together": together}
                    results.append(apart(source, json.dumps(words)))
            for (name, *_), results in zip(cases, found, strict=True):
                ms = [statistics.median(r[k] for r in results) for k in KINDS]
                print(f"{agent:8} {updates:12}  {name:10} {ms[0]:19.3f} {ms[1]:17.3f} {ms[2]:8.3f}")
            for (name, *_), results in list(zip(cases, found, strict=True))[1:]:
                pairs = list(zip(found[0], results, strict=True))
                ratios = [statistics.median(b[k] / a[k] for a, b in pairs) for k in KINDS]
                print(
                    f"{'':22} {name} / first {ratios[0]:10.2f} {ratios[1]:17.2f} {ratios[2]:8.2f}"
                )


def apart(source: str, words: str) -> dict[str, float]:
    """The measurement in a process that imports the package of a source."""
    environ = {**os.environ, "PYTHONPATH": source, "NPROC": "1"}
    command = [sys.executable, __file__, "--measure", words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    sys.stderr.write(done.stderr if "tottime" in done.stderr else "")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    agent: str,
    actors: int,
    updates: float,
    blocks: int,
    extra: dict[str, Any],
    profile: bool,
    together: int,
) -> dict[str, float]:
    from exarl.comm.codec import BlockCodec
    from exarl.comm.layout import Layout, Role
    from exarl.records.clock import Clock
    from exarl.records.directory import RunDirectory
    from exarl.records.signals import StopSignals
    from exarl.records.trace import Tracer
    from exarl.run.build import build_agent, build_episode
    from exarl.run.configure import configure
    from exarl.training.loop import LearningLoop
    from exarl.training.process import Learner
    from exarl.workflows.async_workflow import AsyncConfig, TwoSidedSource
    from exarl.workflows.lagging_loops import learn

    chosen: dict[str, Any] = {"env": "ExaLatency-v0", "agent": agent, "workflow": "async"}
    chosen |= {"block_steps": STEPS, "envs_per_actor": 1, "checkpoint_interval": 1e6, **extra}
    if agent == "DQN-v0":
        chosen |= {"updates_per_step": updates, "learning_starts": 500}
    configuration = configure(overrides={**chosen, "total_steps": (WARM + blocks) * STEPS})
    _, adapter, _ = build_episode(configuration)
    learning: Any = build_agent(configuration, adapter.spec)
    learning.set_learner()
    codec = BlockCodec(adapter.spec, learning.recorded, learning.lead_steps)
    config = configuration.learner
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        run.create({}, {})
        clock, signals = Clock(Tracer(0, "learner", enabled=False)), StopSignals()
        loop = LearningLoop(learning, config, run, Silent(), clock, signals)
        layout = Layout(actors + 1, 1, 1)
        channel: Any = Actors(block_of(codec, adapter.spec))
        learner = Learner(
            config=config,
            layout=layout,
            role=Role(0, True, False, None),
            run_directory=run,
            clock=clock,
            signals=signals,
            agent=learning,
            codec=codec,
            channel=channel,
            loop=loop,
            fresh=True,
        )
        source = TwoSidedSource(learner, AsyncConfig())
        channel.started_after = WARM
        profiler = cProfile.Profile(time.thread_time) if profile else None
        channel.profiler = profiler
        # A checkout from before blocks were trained together has no fourth parameter.
        learn(learner, source, False, *[together] * (together > 1))
        ended = now()
        if profiler is not None:
            profiler.disable()
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(45)
        loop.close()
    count = channel.sent - channel.started_after
    return {name: 1e3 * (ended[name] - channel.started[name]) / count for name in ended}


def now() -> dict[str, float]:
    return {
        "wall": time.perf_counter(),
        "thread": time.thread_time(),
        "process": time.process_time(),
    }


def block_of(codec: Any, spec: Any) -> Any:
    """The message of a block, in which no episode ends."""
    import numpy as np

    from exarl.types import Block, unknown_steps

    def zeros(given: Any, *leading: int) -> Any:
        return np.zeros((*leading, *given.shape), given.dtype)

    block = Block(
        np.random.default_rng(0).normal(size=(STEPS + 1, 1, *spec.observation.shape)).astype("f4"),
        zeros(spec.action, STEPS, 1),
        np.ones((STEPS, 1), "f4"),
        np.zeros((STEPS, 1), bool),
        np.zeros((STEPS, 1), bool),
        zeros(spec.observation, 0),
        np.zeros(0),
        np.zeros(0, np.int64),
        {name: zeros(given, STEPS, 1) for name, given in codec.recorded.items()},
        lead=unknown_steps(spec, codec.lead_steps, 1) if codec.lead_steps else None,
    )
    return codec.encode(block)


class Silent:
    """A progress display that shows nothing."""

    def update(self, row: Any) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def busy(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class Actors:
    """A transport to actors that have the block of every grant at once."""

    def __init__(self, message: Any) -> None:
        from exarl.comm.codec import encode_arrays
        from exarl.comm.messages import LAST, ActorState, Grant, Tag, decode, encode

        self._message, self._decode = message, decode
        self._tags, self._grant = Tag, Grant
        self._answer = lambda sent: encode(ActorState(LAST, sent, 0), encode_arrays({}))
        self._blocks: deque[int] = deque()
        self._answers: deque[tuple[int, bytes]] = deque()
        self._sent: dict[int, int] = {}
        self.sent, self.started_after = 0, 0
        self.started: dict[str, float] = {}
        self.profiler: Any = None

    rank, size = 0, 1

    def post(self, payload: Any, dest: int, tag: int) -> None:
        from exarl.comm.messages import Order

        order, _ = self._decode(payload, Order)
        if isinstance(order, self._grant):
            self._blocks.append(dest)
        else:
            self._answers.append((dest, self._answer(self._sent.get(dest, 0))))

    def poll(self, source: int = -1, tag: int = 0) -> Any:
        import numpy as np

        if tag == self._tags.BLOCK and self._blocks:
            rank = self._blocks.popleft()
            self._sent[rank] = self._sent.get(rank, 0) + 1
            self.sent += 1
            if self.sent == self.started_after:
                self.started = now()
                if self.profiler is not None:
                    self.profiler.enable()
            return rank, self._message
        if tag == self._tags.STATE and self._answers:
            rank, answer = self._answers.popleft()
            return rank, np.frombuffer(answer, np.uint8)
        return None


if __name__ == "__main__":
    main()
