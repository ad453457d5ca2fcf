"""``exarl bench``: how fast each part of a configuration is, and what limits the whole."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from exarl.cli import words as line
from exarl.cli.advice import advise, shown
from exarl.cli.train import check_ranks
from exarl.comm.channel import launched_ranks
from exarl.comm.layout import Layout, plan_layout
from exarl.config import STOPS, Configuration
from exarl.errors import ConfigError
from exarl.training.measure import (
    ActingRate,
    EnvRate,
    LearningRate,
    TrainingRate,
    expected_split,
    measure_acting,
    measure_env,
    measure_learning,
    replayed_block,
    training_rate,
)

HELP = """\
usage: exarl bench [--seconds S] [--json] [--config FILE] [--procs N] [--key value ...]

Measures the speed of a configuration: the environment alone, acting, learning, and complete training.
Reports what limits the speed and what could raise it. Takes the options of 'exarl train'; no files are
kept.

  --seconds S     time to measure (default 10), without starting and compiling
  --json          print JSON
  --procs N       train on N MPI ranks; the parts alone are measured in this process
"""
SHARES = {"environment": 0.2, "acting": 0.1, "learning": 0.2, "training": 0.5}
"""The share of the time that each part is measured for."""
NOT_MEASURED = (*(key for key in STOPS if key != "wall_time"), "eval_interval")
"""Parameters that would end or interrupt the measurement."""
MOST_PRINTED = 4000  # last characters of a failed job's output


@dataclass(frozen=True)
class Measurements:
    """The measured rates; None for a part that could not be measured."""

    environment: EnvRate
    acting: ActingRate
    learning: LearningRate | None
    training: TrainingRate | None
    bound_by: str
    advice: str
    time_split: Mapping[str, Mapping[str, float]]
    note: str = ""


class TrainingStopped(Exception):
    """The training run ended early with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


def bench(words: list[str]) -> int:
    seconds = line.take_seconds(words, "seconds", 10.0)
    as_json = line.take_flag(words, "json")
    config = line.take(words, "config")
    procs = line.take_count(words, "procs", 1)
    if line.take_flag(words, "serial"):
        procs = 1
    launched = launched_ranks()
    if launched is not None and max(launched[1], procs) > 1:
        raise ConfigError("exarl bench starts its own ranks: exarl bench --procs N")

    from exarl.run.configure import configure

    configuration = configure(config, words)
    check_ranks(configuration, procs)
    words = [*words, *as_benched(configuration)]
    configuration = configure(config, words)
    layout = plan_layout(
        procs, configuration.learner.learner_procs, configuration.learner.process_per_env
    )
    if config is not None:
        words = ["--config", config, *words]
    try:
        found = measure(configuration, layout, words, seconds)
    except TrainingStopped as stopped:
        return stopped.code
    show = to_json if as_json else table
    sys.stdout.write(show(found, configuration, layout))
    return 0


def as_benched(configuration: Configuration) -> list[str]:
    """Return flags that make a run learn from its first block and end by its time limit only."""
    changes = [word for name in NOT_MEASURED for word in (f"--learner.{name}", "null")]
    changes += ["--learner.checkpoint_interval", "1e9", "--learner.profile", "none"]
    if "learning_starts" in configuration.values["agent"]:
        changes += ["--agent.learning_starts", "0"]
    return [*changes, "--learner.wall_time", "1"]


def measure(
    configuration: Configuration, layout: Layout, words: Sequence[str], seconds: float
) -> Measurements:
    """Measure all four parts, one after another."""
    times = {name: share * seconds for name, share in SHARES.items()}
    environment, acting, learning = measure_parts(configuration, layout, times)
    env_s, act_s = 1 / environment.steps_per_s, 1 / acting.actions_per_s
    learn_s = 1 / learning.steps_per_s if learning else 0.0
    split = expected_split(env_s, act_s, learn_s, layout.actors, alone=layout.alone)
    block = configuration.learner.block_steps * configuration.learner.envs_per_actor
    training, note = None, ""
    if 2 * block * env_s > seconds:
        note = (
            f"a block takes {block * env_s:.3g} s; to measure it: --seconds {8 * block * env_s:.0f}"
        )
    else:
        compiling = learning.first_s if learning else 0.0
        training, split = train(words, layout, times["training"], compiling)
    parts = (env_s, act_s, learn_s)
    speed = training.steps_per_s if training else None
    bound_by, advice = advise(configuration, layout, parts, environment, learning, split, speed)
    named = dict(zip(("learner", "actors"), split, strict=True))
    return Measurements(environment, acting, learning, training, bound_by, advice, named, note)


def measure_parts(
    configuration: Configuration, layout: Layout, times: Mapping[str, float]
) -> tuple[EnvRate, ActingRate, LearningRate | None]:
    """Measure environment, acting and learning in this process."""
    from exarl.envs.episode import Episode
    from exarl.envs.joint import joint_of
    from exarl.run.build import build_agent, build_episode, build_guard, build_workflow

    learner = configuration.learner
    say("the environment")
    env, adapter, limit = build_episode(configuration)
    if joint_of(env) is not None:
        env.close()
        raise ConfigError(f"'{learner.env}' has several agents, which bench does not measure")
    guard = build_guard(configuration)
    episode = Episode(env, adapter, limit, learner.seed, 0, guard=guard)
    try:
        environment, tape = measure_env(episode, adapter.spec, times["environment"])
    finally:
        episode.close()
    say("acting")
    agent = build_agent(configuration, adapter.spec)
    width = learner.envs_per_actor
    acting = measure_acting(agent, tape, width, times["acting"])
    say("learning")
    # If all actors act with the same weights, their blocks are trained as one.
    joined = 1 if build_workflow(configuration).lags else layout.actors
    block = replayed_block(agent, tape, learner.block_steps, width * joined)
    with nullcontext() if layout.alone else sharing_the_device():
        agent.set_learner()
        learning = measure_learning(agent, block, times["learning"])
    return environment, acting, learning


@contextmanager
def sharing_the_device() -> Iterator[None]:
    """Keep JAX from reserving most of a GPU for this process: the learner's rank needs it next."""
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    given = name in os.environ
    os.environ.setdefault(name, "false")
    try:
        yield
    finally:
        if not given:
            del os.environ[name]


Split = tuple[dict[str, float], dict[str, float]]


def train(
    words: Sequence[str], layout: Layout, seconds: float, compiling: float
) -> tuple[TrainingRate | None, Split]:
    """Train for about ``seconds`` after the first update; the speed and the split of the time."""
    from exarl.records.directory import RunDirectory, read_json
    from exarl.records.metrics import read_rows

    say("training")
    limit = seconds + compiling + 0.5
    for attempt in range(2):
        with tempfile.TemporaryDirectory(prefix="exarl-bench-") as scratch:
            run = RunDirectory(Path(scratch) / "run")
            where = ["--learner.run_dir", str(run.path), "--learner.wall_time", f"{limit:.3f}"]
            run_once([*words, *where], layout, Path(scratch) / "output")
            rows, summary = read_rows(run.result), read_json(run.summary)
        rate = training_rate(rows)
        if attempt or rate is None or (rate.seconds >= seconds / 2 and not rate.whole):
            break
        # The start took longer than the parts suggested. Compiled programs are now in the cache.
        began = next((row["time_total_s"] for row in rows if row["updates_total"] > 0), limit)
        limit = began + 1.5 * seconds
    return rate, (summary["time_split"]["learner"], summary["time_split"]["actors"])


def run_once(words: Sequence[str], layout: Layout, output: Path) -> None:
    """Train in this process or on ranks; TrainingStopped if the run fails or is interrupted."""
    if not layout.alone:
        from exarl.cli.mpiexec import launch

        with output.open("wb") as file:
            code = launch(layout.world, ["train", *words], output=file)
        if code:
            if code < 128:
                sys.stderr.write(output.read_text("utf-8", "replace")[-MOST_PRINTED:])
            ended = "interrupted" if code >= 128 else f"the training run failed (exit code {code})"
            sys.stderr.write(f"exarl: {ended}\n")
            raise TrainingStopped(code)
        return
    from exarl.run.experiment import ExaLearner

    words = list(words)
    result = ExaLearner(
        config=line.take(words, "config"), argv=words, serial=True, progress=False
    ).run()
    if result is not None and result.reason in signal.Signals.__members__:
        sys.stderr.write("exarl: interrupted\n")
        raise TrainingStopped(128 + signal.Signals[result.reason])


def say(part: str) -> None:
    sys.stderr.write(f"measuring {part} ...\n")
    sys.stderr.flush()


def to_json(found: Measurements, configuration: Configuration, layout: Layout) -> str:
    learner = configuration.learner
    where = ("envs_per_actor", "block_steps", "learner_procs", "process_per_env")
    names = ("agent", "env", "workflow", "model_type", *where)
    about = {name: getattr(learner, name) for name in names}
    measured = {**about, "procs": layout.world, **dataclasses.asdict(found)}
    return json.dumps(measured, indent=2) + "\n"


def table(found: Measurements, configuration: Configuration, layout: Layout) -> str:
    """The measurements as a table of text."""
    learner, env, acting = configuration.learner, found.environment, found.acting
    learning, training = found.learning, found.training
    many = "" if acting.observations == 1 else f" for {acting.observations} environments"
    rows = [
        (
            "environment",
            f"{rate(env.steps_per_s)} steps/s    a step {span(env.median_us)} (median),"
            f" {span(env.p99_us)} (p99), a reset {span(env.reset_us)}",
        ),
        ("acting", f"{rate(acting.actions_per_s)} actions/s  a call {span(acting.call_us)}{many}"),
    ]
    if learning is None:
        rows.append(("learning", f"{'-':>9}            the agent makes no updates"))
    else:
        rows.append(
            (
                "learning",
                f"{rate(learning.steps_per_s)} steps/s    {rate(learning.updates_per_s).strip()}"
                f" updates/s, an update {span(learning.update_us)};"
                f" compiled in {learning.first_s:.1f} s",
            )
        )
    if training is None:
        rows.append(("training", f"{'-':>9}            not measured: {found.note}"))
    else:
        whole = ", its start included" if training.whole else ""
        rows.append(
            (
                "training",
                f"{rate(training.steps_per_s)} steps/s    {rate(training.updates_per_s).strip()}"
                f" updates/s, over {training.seconds:.1f} s{whole}",
            )
        )
    rows += [("bound by", found.bound_by), ("advice", found.advice)]
    if env.failures:
        rows.insert(1, ("", f"{env.failures} failures of the environment"))
    title = f"{learner.agent} · {learner.env} · {learner.workflow}, {ranks(layout)}\n"
    return title + "".join(f"{name:<12}{text}\n" for name, text in rows)


def ranks(layout: Layout) -> str:
    if layout.alone:
        return "one process"
    counts = {"learner": layout.learners, "actor": layout.actors}
    return " and ".join(f"{n} {role}{'s' * (n > 1)}" for role, n in counts.items())


def rate(value: float) -> str:
    return f"{shown(value):>9}"


def span(microseconds: float) -> str:
    """``14 us``, ``3.2 ms`` or ``1.5 s``."""
    if microseconds < 1000:
        return f"{microseconds:.3g} us"
    return f"{microseconds / 1e3:.3g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.3g} s"
