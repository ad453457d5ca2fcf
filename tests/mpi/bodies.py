"""What one rank does in the tests of this folder: ``mpiexec -n N python bodies.py BODY FOLDER``.

Every rank leaves ``<rank>.json`` in the folder when its checks held; a failed one takes the job down.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import exarl
from exarl.comm import placement
from exarl.comm.channel import Channel
from exarl.comm.cores import find_sharing
from exarl.comm.team import MpiTeam

RNG_SEED = 20
WORLD = MPI.COMM_WORLD


def message(sender: int, receiver: int, number: int, limit: int) -> np.ndarray:
    """Random bytes of random length, which both sides can make; every fourth message is empty."""
    rng = np.random.default_rng((RNG_SEED, sender, receiver, number))
    size = 0 if number % 4 == 0 else int(rng.integers(1, limit + 1))
    return rng.integers(0, 256, size, np.uint8)


# -- the channel -------------------------------------------------------------------------------------


def flood(channel: Channel, count: int, limit: int) -> int:
    """Each rank sends small messages to every other, then receives them in any order."""
    rank, size = channel.rank, channel.size
    order = [to for to in range(size) if to != rank for _ in range(count)]
    sent = [0] * size
    for to in np.random.default_rng(rank).permutation(order).tolist():
        channel.send(message(rank, to, sent[to], limit), to, tag=7)
        sent[to] += 1
    received = [0] * size
    for _ in order:
        sender, payload = channel.receive(tag=7)
        expected = message(sender, rank, received[sender], limit)
        assert payload.tobytes() == expected.tobytes(), (sender, received[sender])
        received[sender] += 1
    return sum(received)


def take_turns(channel: Channel, limit: int) -> int:
    """Long messages: in each round one rank, drawn by lot, sends to the others in any order."""
    rng = np.random.default_rng(RNG_SEED)
    rounds = rng.integers(0, channel.size, 3 * channel.size).tolist()
    for number, sender in enumerate(rounds):
        others = [r for r in rng.permutation(channel.size).tolist() if r != sender]
        if channel.rank != sender:
            source, payload = channel.receive(sender, tag=8)
            expected = message(sender, channel.rank, number, limit)
            assert (source, payload.tobytes()) == (sender, expected.tobytes())
            continue
        for to in others:
            channel.send(message(sender, to, number, limit).tobytes(), to, tag=8)
    return len(rounds)


def one_to_all(channel: Channel, sizes: list[int]) -> int:
    """The same bytes to many, of lengths around a whole number of chunks."""
    others = [r for r in range(channel.size) if r != 0]
    for size in sizes:
        expected = np.arange(size, dtype=np.uint32).astype(np.uint8)
        if channel.rank == 0:
            channel.send(expected, others, tag=9)
        else:
            assert channel.receive(0, tag=9)[1].tobytes() == expected.tobytes(), size
    return len(sizes)


def tags_apart(channel: Channel) -> None:
    """A message is found by its tag even when another came first."""
    if channel.size == 1:
        return  # a blocking send to oneself has no receiver
    to, source = (channel.rank + 1) % channel.size, (channel.rank - 1) % channel.size
    channel.send(b"first", to, tag=1)
    channel.send(b"second", to, tag=2)
    assert channel.receive(source, tag=2)[1].tobytes() == b"second"
    assert channel.receive(source, tag=1)[1].tobytes() == b"first"


def channel_body(folder: Path) -> dict[str, Any]:
    small = Channel(WORLD, chunk=64)
    flooded = flood(small, count=40, limit=300)
    sizes = [n * 64 + d for n in range(4) for d in (-1, 0, 1) if n * 64 + d >= 0]
    around = one_to_all(small, sizes)
    tags_apart(small)
    middle = Channel(WORLD, chunk=1 << 16)
    rounds = take_turns(middle, limit=1 << 20)
    whole = Channel(WORLD)
    rounds += take_turns(whole, limit=1 << 20)
    whole.wait_for_all()
    return {"flooded": flooded, "around": around, "rounds": rounds}


def idle_body(folder: Path) -> dict[str, Any]:
    """How busy a rank is that waits a second and a half for a message."""
    channel = Channel(WORLD)
    channel.wait_for_all()
    started, busy = time.perf_counter(), time.process_time()
    if channel.rank == 0:
        time.sleep(1.5)
        channel.send(b"", range(1, channel.size), tag=1)
    else:
        channel.receive(0, tag=1)
    return {"cpu": (time.process_time() - busy) / (time.perf_counter() - started)}


def team_body(folder: Path) -> dict[str, Any]:
    """Averages of long vectors over learners of which the first comes a second late once, and how busy
    the others are meanwhile."""
    team = MpiTeam(WORLD)
    rng = np.random.default_rng(RNG_SEED)
    vectors = rng.normal(size=(team.size, 100_001)).astype(np.float32)
    found = {}
    for name, weights in (("equal", [1.0] * team.size), ("unequal", [*range(team.size)])):
        mean = team.average(vectors[team.index], weights[team.index])
        expected = np.average(vectors, 0, weights)
        found[name] = float(np.abs(mean - expected).max())
        found[f"{name} bits"] = zlib.crc32(mean.tobytes())
    started, busy = time.perf_counter(), time.process_time()
    if team.index == 0:
        time.sleep(1.0)
    team.average(vectors[0], 1.0)
    found["cpu"] = (time.process_time() - busy) / (time.perf_counter() - started)
    return found


def cores_body(folder: Path) -> dict[str, Any]:
    """Who shares a rank's cores: where none is bound, and where the last rank has one of its own."""
    found = {"free": dataclasses.astuple(find_sharing(WORLD, learns=WORLD.rank == 0))}
    first, *_, last = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {last if WORLD.rank == WORLD.size - 1 else first})
    return {**found, "bound": dataclasses.astuple(find_sharing(WORLD, learns=WORLD.rank == 0))}


def placement_body(folder: Path) -> dict[str, Any]:
    """A run of two learners on what they take for two machines, of ranks 0 to 2 and 3 to 5."""
    placement.on_this_machine = lambda comm: [*range(comm.rank // 3 * 3, comm.rank // 3 * 3 + 3)]
    learner = exarl.ExaLearner(
        argv=(),
        run_dir=str(folder / "run"),
        agent="Teamed-v0",
        env="CartPole-v1",
        workflow="async",
        learner_procs=2,
        total_steps=400,
        progress=False,
    )
    return {"rank": learner.role.rank, "trained": learner.run() is not None}


def post_body(folder: Path) -> dict[str, Any]:
    """Long messages posted all at once, where blocking sends would wait for each other for ever."""
    channel = Channel(WORLD, chunk=1 << 16)
    count, limit = 4, 1 << 19
    for number in range(count):
        for to in range(channel.size):
            channel.post(message(channel.rank, to, number, limit), to, tag=5)
    received = [0] * channel.size
    polls = 0
    while sum(received) < count * channel.size:
        polls += 1
        if (found := channel.poll(tag=5)) is None:
            time.sleep(1e-4)
            continue
        sender, payload = found
        expected = message(sender, channel.rank, received[sender], limit)
        assert payload.tobytes() == expected.tobytes(), (sender, received[sender])
        received[sender] += 1
    channel.close()
    assert channel.poll(tag=5) is None
    return {"received": sum(received)}


def close_body(folder: Path) -> dict[str, Any]:
    """Long messages that no rank asks for keep no rank from closing its channel."""
    channel = Channel(WORLD, chunk=1 << 16)
    for to in range(channel.size):
        channel.post(message(channel.rank, to, 0, 1 << 19), to, tag=5 + channel.rank)
    channel.close()
    return {"left": channel.poll(tag=MPI.ANY_TAG) is not None}


# -- groups ------------------------------------------------------------------------------------------


def group_body(folder: Path) -> dict[str, Any]:
    """All ranks are one group around ExaCartPole: what its actor sees at every step."""
    from exarl.envs import group, make_env

    channel = Channel(WORLD)
    env, _ = make_env("ExaCartPole-v1", {"intervals": 5000}, comm=WORLD)
    alone, _ = make_env("ExaCartPole-v1", {"intervals": 5000})
    if channel.rank:
        group.serve([env], channel)
        return {"state": list(env.unwrapped.state)}
    shared = group.join(env, channel, 0)
    same = shared.reset(seed=3)[0].tolist() == alone.reset(seed=3)[0].tolist()
    worst, kept = 0.0, {}
    for step in range(60):
        one, other = shared.step(step % 2), alone.step(step % 2)
        same = same and one[0].tolist() == other[0].tolist() and one[1:4] == other[1:4]
        worst = max(worst, abs(one[4]["pi"] - np.pi))
        if step == 9:
            kept = shared.get_state()
        if one[2] or one[3]:
            break
    shared.reset(seed=9)
    shared.set_state(kept)
    names = sorted(kept)
    state = list(env.unwrapped.state)
    group.dismiss(channel)
    return {"same": same, "worst": worst, "names": names, "state": state}


# -- whole runs --------------------------------------------------------------------------------------


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("something was pickled on the hot path")


def no_pickle_body(folder: Path) -> dict[str, Any]:
    """Train while every door to pickle is shut, mpi4py's own included."""
    from exarl import ExaLearner

    learner = ExaLearner(
        WORLD,
        argv=(),
        run_dir=str(folder / "run"),
        total_steps=1500,
        learning_starts=200,
        hidden=[16],
        checkpoint_interval=0.05,
    )
    train = learner.workflow.run

    def without_pickle(experiment: Any) -> None:
        for name in ("dumps", "loads", "dump", "load", "Pickler", "Unpickler"):
            setattr(pickle, name, refuse)
        MPI.pickle.__init__(refuse, refuse)
        try:
            WORLD.isend("this must not pass", WORLD.rank)
        except AssertionError:
            train(experiment)
            return
        raise RuntimeError("pickle is still open")

    learner.workflow.run = without_pickle  # type: ignore[method-assign]
    result = learner.run()
    return {"reason": result.reason if result else None}


def compilations_body(folder: Path) -> dict[str, Any]:
    """Train asynchronously; on the learner, updates and compilations so far after each block."""
    from exarl import ExaLearner
    from exarl.training.loop import LearningLoop

    counts: list[tuple[int, int]] = []
    learner = ExaLearner(
        WORLD,
        argv=(),
        run_dir=str(folder / "run"),
        workflow="async",
        env="ExaCartPole-v1",
        total_steps=960,
        learning_starts=200,
        hidden=[16],
        eval_interval=128,
        eval_episodes=1,
        checkpoint_interval=0.05,
    )
    if learner.role.learns:
        import jax

        compiled: list[str] = []
        train = LearningLoop.train

        def heard(event: str, seconds: float, **_: Any) -> None:
            if event.endswith("backend_compile_duration"):
                compiled.append(event)

        def watched(loop: Any, *arguments: Any) -> None:
            train(loop, *arguments)
            counts.append((loop.counters.updates, len(compiled)))

        jax.monitoring.register_event_duration_secs_listener(heard)
        LearningLoop.train = watched  # type: ignore[method-assign]
    learner.run()
    return {
        "counts": counts,
        "jax": "jax" in sys.modules,
        "platforms": os.environ.get("JAX_PLATFORMS"),
    }


BODIES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "channel": channel_body,
    "idle": idle_body,
    "placement": placement_body,
    "cores": cores_body,
    "team": team_body,
    "post": post_body,
    "close": close_body,
    "group": group_body,
    "no_pickle": no_pickle_body,
    "compilations": compilations_body,
}


def main() -> None:
    folder = Path(sys.argv[2])
    try:
        found = BODIES[sys.argv[1]](folder)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        WORLD.Abort(1)
        raise
    (folder / f"{WORLD.rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
