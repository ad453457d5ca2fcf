"""Bad input by the thousand: every mistake must end in one line, exit code 2 and nothing written.

    python benchmarks/bad_config.py [--count 1000] [--processes 20] [--seed 0]

Mistakes are made up from what EXARL itself registers: mutated keys and ids, values of the wrong type or
out of range, damaged files and run directories, ranks that do not fit, and a list of curiosities. All
run inside this process, some again as processes of their own. Exit code 1 when any is mishandled.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import gymnasium

from exarl import registry
from exarl.cli.main import main as exarl
from exarl.config import LearnerConfig, Parameter, schema_of
from exarl.envs import env_ids
from exarl.run.configure import lookup

TRAIN = ("train", "--total_steps", "1")
"""A mistake that is not noticed trains for one block only."""
OPTIONS = ("config", "procs", "serial", "max_restarts")
SELECTORS = ("agent", "env", "workflow", "model_type")
CPU_SECONDS = 1.5
"""After so much computing a mistake counts as accepted."""
GOOD_RUN = {"hidden": [4], "total_steps": 32, "block_steps": 32, "replay_capacity": 64}

Damage = Callable[[Path], Any]


@dataclass(frozen=True)
class Case:
    """One mistake: the words typed, the files that lie around, what was done to the run in ``run``."""

    kind: str
    words: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    damage: Damage | None = None

    def __str__(self) -> str:
        words = [word if len(word) < 60 else f"{word[:40]}...({len(word)})" for word in self.words]
        files = {name: data[:40] for name, data in self.files.items()}
        damage = getattr(self.damage, "__name__", "")
        return " ".join(filter(None, [repr(words), repr(files) if files else "", damage]))


@dataclass(frozen=True)
class Answer:
    """What came of it."""

    code: int | None
    out: str
    err: str


class Runaway(BaseException):
    """The mistake was accepted: something was started."""


# -- the material ------------------------------------------------------------------------------------


def parameters() -> list[Parameter]:
    """Every parameter of the default run but the ids of its parts."""
    schemas = [schema_of(LearnerConfig)]
    chosen = {"agent": "DQN-v0", "model": "MLP", "workflow": "sync", "env": "CartPole-v1"}
    schemas += [lookup(family, id)[0] for family, id in chosen.items()]
    return [p for schema in schemas for p in schema.values() if p.name not in SELECTORS]


PARAMETERS = parameters()
KEYS = {p.name for p in PARAMETERS} | {*SELECTORS, *OPTIONS}
IDS = {
    "agent": registry.agents.ids(),
    "workflow": registry.workflows.ids(),
    "model_type": registry.networks.ids(),
    "env": env_ids(),
}
WRONG_WORDS = {
    int: ("abc", "", "1.5", "nan", "[]", "{}", "true", "0x10", "1 2", "1,5", "1e", "[1]", "½"),
    float: ("abc", "", "[]", "{}", "true", "1 2", "1,5", "e5", "1e", "[0.1]", "--1", "∞"),
    bool: ("maybe", "2", "", "[]", "null", "0.5", "truee"),
    Literal: ("zzz", "", "1", "null", "HUBER?", "[]"),
    tuple: ("abc", "1.5,2", "{}", "null", "true", "a,b", "1,,2", ",", "[[1]]", '{"a": 1}'),
}
WRONG_JSON = {
    int: ("1", 1.5, [], {}, True, [1], ""),
    float: ("1", [], {}, True, [0.5], ""),
    bool: (1, 0, "true", [], {}, 0.5),
    str: (5, [], {}, True, 1.5),
    Literal: ("zzz", 5, [], {}, True),
    tuple: ("1,2", 5, {}, [1.5], ["a"], [[1]], True),
}


def kinds_of(parameter: Parameter) -> set[Any]:
    """The plain types a parameter may have: ``int``, ``NoneType``, ``Literal`` ..."""
    union = typing.get_origin(parameter.type) in (types.UnionType, typing.Union)
    members = typing.get_args(parameter.type) if union else (parameter.type,)
    return {typing.get_origin(member) or member for member in members}


def mutate(rng: random.Random, word: str) -> str:
    """The word as a tired hand types it."""
    at = rng.randrange(len(word))
    letter = rng.choice("abcxyzEXARL0159_é")
    return rng.choice(
        [
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + letter + word[at:],
            word[:at] + letter + word[at + 1 :],
            word + letter,
            word.upper(),
            word.replace("_", ""),
            word[::-1],
        ]
    )


def mutant(rng: random.Random, words: Sequence[str], known: set[str]) -> str:
    """A mutation of one of ``words`` that is none of them and none of ``known``."""
    while True:
        word = mutate(rng, rng.choice(list(words)))
        if word.replace("-", "_") not in {k.replace("-", "_") for k in {*words, *known}} and word:
            return word


def as_file(rng: random.Random, values: Any) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """The words and the file that bring ``values`` in through one of the layers."""
    data = values if isinstance(values, bytes) else json.dumps(values).encode()
    if rng.random() < 0.4:
        return ("--config", "given.json"), {"given.json": data}
    folder, words = rng.choice(
        [("exarl/config", ()), ("~/.exarl/config", ()), ("mine", ("--config", "mine"))]
    )
    name = rng.choice(["learner_cfg.json", "tuned/DQN-v0/CartPole-v1.json"])
    return words, {f"{folder}/{name}": data}


# -- mistakes ----------------------------------------------------------------------------------------


def unknown_key(rng: random.Random) -> Case:
    key = mutant(rng, sorted(KEYS), KEYS)
    if rng.random() < 0.3:
        family = rng.choice(["agent", "learner", "model", "workflow", "env", "agnt", "", "x"])
        key = f"{family}.{key}"
    if rng.random() < 0.5:
        words, files = as_file(rng, {key: 1})
        return Case("unknown key", (*TRAIN, *words), files)
    spelt = (f"--{key}=1",) if rng.random() < 0.5 else (f"--{key}", "1")
    return Case("unknown key", (*TRAIN, *spelt))


def wrong_type(rng: random.Random) -> Case:
    in_file = rng.random() < 0.5
    pool = WRONG_JSON if in_file else WRONG_WORDS
    while True:
        parameter = rng.choice(PARAMETERS)
        kinds = kinds_of(parameter) - {type(None)}
        words = tuple in kinds and "str" in str(parameter.type)  # any text is a list of words
        if len(kinds) == 1 and not words and (kind := kinds.pop()) in pool:
            break
    value: Any = rng.choice(pool[kind])
    if in_file:
        flags, files = as_file(rng, {parameter.name: value})
        return Case("wrong type", (*TRAIN, *flags), files)
    return Case("wrong type", (*TRAIN, f"--{parameter.name}={value}"))


def out_of_range(rng: random.Random) -> Case:
    while True:
        parameter = rng.choice(PARAMETERS)
        kinds = kinds_of(parameter)
        if {int, float, tuple} & kinds and str not in kinds:
            break
    value = rng.choice(beyond(parameter, float in kinds))
    if rng.random() < 0.5:
        words, files = as_file(rng, {parameter.name: [value] if tuple in kinds else value})
        return Case("out of range", (*TRAIN, *words), files)
    word = f"[{value}]" if tuple in kinds else str(value)
    return Case("out of range", (*TRAIN, f"--{parameter.name}", word))


def beyond(parameter: Parameter, real: bool) -> list[int | float]:
    """Numbers outside a parameter's range, or outside all numbers."""
    values: list[int | float] = [10**400]
    values += [float("nan"), float("inf"), float("-inf")] if real else [2**63, 10**30]
    for limit, step in ((parameter.ge, -1), (parameter.le, 1)):
        values += [limit + step] * 3 if limit is not None else []
    for limit in (parameter.gt, parameter.lt):
        values += [limit] * 3 if limit is not None else []
    return values


def absurd_size(rng: random.Random) -> Case:
    names = ("replay_capacity", "batch_size", "block_steps", "envs_per_actor", "nactions")
    size = str(10 ** rng.randint(15, 18))
    env = ("--env", "Pendulum-v1", "--learning_starts", "1", "--n_steps", "2")
    return Case("absurd size", (*TRAIN, *env, f"--{rng.choice(names)}", size))


def bad_file(rng: random.Random) -> Case:
    good = json.dumps({"seed": 1, "agent": {"epsilon": 0.5, "gamma": 0.9}, "hidden": [3]}).encode()
    data = rng.choice(
        [
            good[: rng.randrange(len(good))],
            good[rng.randrange(1, len(good)) :],
            rng.randbytes(rng.randrange(1, 200)) + b"\xff",
            good.decode().encode("utf-16"),
            good + good,
            b"[1, 2]",
            b"null",
            b"17",
            b"{'seed': 1}",
            b'{"seed": 1,}',
            b"// comment\n{}",
            b"\x00" * 50,
            b"[" * 100_000,
            b'{"a":' * 50_000,
            b'{"seed": ' + b"9" * 5000 + b"}",
            b'{"agent": {"agent": {"epsilon": 1}}}',
            b'{"epsilon": {"value": 0.5}}',
            b'{"agent": null}',
            b'{"env": [1]}',
            b'{"hidden": {"0": 64}}',
            b'{"": 0}',
        ]
    )
    words, files = as_file(rng, data)
    return Case("bad file", (*TRAIN, *words), files)


def wrong_id(rng: random.Random) -> Case:
    key = rng.choice(SELECTORS)
    known = {"agent": registry.agents, "workflow": registry.workflows}
    planned = known[key]._planned if key in known else ()
    strange = ["", " ", "null", "../x", "a/b", "x\ny", "é", ":", "a:b:c", "A" * 5000, "no_pkg:X-v0"]
    id = rng.choice([mutant(rng, IDS[key][:40], set(IDS[key])), *rng.sample(strange, 2), *planned])
    if rng.random() < 0.3:
        words, files = as_file(rng, {key: id})
        return Case("wrong id", (*TRAIN, *words), files)
    return Case("wrong id", (*TRAIN, f"--{key}", id))


def wrong_ranks(rng: random.Random) -> Case:
    while True:
        world, learners, group = (
            rng.choice([1, 2, 3, 5, 8, 16, 1000]),
            *rng.choices(range(1, 9), k=2),
        )
        rest = world - learners
        fits = learners == group == 1 if world == 1 else rest >= group and rest % group == 0
        if not fits:
            break
    words = ["--learner_procs", str(learners), "--process_per_env", str(group)]
    if world > 1 or rng.random() < 0.5:
        words += ["--procs", str(world)]
    if rng.random() < 0.2:
        words += ["--procs", rng.choice(["0", "-1", "x", "1.5", "", "two", "²", "9" * 5000])]
    return Case("wrong ranks", (*TRAIN, *words))


LSTM = ("--model_type", "LSTM")  # windows have to fit into its blocks


def bad_combination(rng: random.Random) -> Case:
    steps = rng.randint(1, 64)
    words = rng.choice(
        [
            (*LSTM, "--block_steps", str(steps), "--n_step", str(steps + rng.randint(1, 9))),
            (*LSTM, "--procs", "2", "--block_steps", str(steps), "--n_step", str(steps + 1)),
            ("--env", "Pendulum-v1", "--nactions", str(rng.randint(10_001, 99_999))),
            ("--max_restarts", str(rng.randint(1, 9))),
            ("--action_type", "random"),
            ("--serial", "--process_per_env", str(rng.randint(2, 9))),
            ("--run_dir", "run", "--gamma", str(rng.random())),
            ("--run_dir", "run", "--seed", str(rng.randint(1, 99))),
        ]
    )
    return Case("bad combination", (*TRAIN, *words), damage=lambda run: None)


ENV_WORDS = """
    Pendulum-v1 --g abc
    Pendulum-v1 --env.g [1]
    Pendulum-v1 --g nan
    Pendulum-v1 --gravity 1
    CartPole-v1 --sutton_barto_reward 5
    CartPole-v1 --render_mode human
    CartPole-v1 --env.nonsense 1
    MountainCar-v0 --goal_velocity fast
    FrozenLake-v1 --is_slippery 3
    FrozenLake-v1 --desc 5
    FrozenLake-v1 --map_name nowhere
    ExaCartPole-v1 --intervals x
    ExaCartPole-v1 --intervals 1.5
    ExaCartPole-v1 --intervals 0
    ExaCartPole-v1 --intervals -5
    ExaCartPole-v1 --comm 1
    Blackjack-v1 --natural maybe
    Acrobot-v1 --torque 1
    Ant-v2 --x 1
    GymV21Environment-v0 --nonsense 1
"""


def bad_env_value(rng: random.Random) -> Case:
    id, key, value = rng.choice(ENV_WORDS.strip().splitlines()).split()
    command = ("check-env", id) if rng.random() < 0.5 else (*TRAIN, "--env", id)
    return Case("bad environment value", (*command, key, value))


def bad_command(rng: random.Random) -> Case:
    words = rng.choice(
        [
            (mutant(rng, ["train", "resume", "evaluate", "describe", "check-env"], {"list"}),),
            ("list", mutant(rng, ["agents", "envs", "workflows", "models"], set())),
            ("describe", mutant(rng, IDS["agent"], {i for ids in IDS.values() for i in ids})),
            ("check-env", mutant(rng, IDS["env"][:40], set(IDS["env"]))),
            (rng.choice(["describe", "check-env", "resume", "evaluate"]),),
            (rng.choice(["describe", "check-env", "resume", "evaluate"]), "--x", "1"),
            ("describe", "DQN-v0", "more"),
            (*TRAIN, rng.choice(["word", "-x", "--", "", "-", "=", "--=", "--=1", "—epsilon"])),
            (
                *TRAIN,
                rng.choice(["--config", "--procs", "--config=", "--run_dir=", "--output_dir="]),
            ),
            (
                *TRAIN,
                "--config",
                rng.choice(["nothing.json", "a/b", "\0", "x" * 5000, "~nobody_/x"]),
            ),
            (rng.choice(["resume", "evaluate"]), rng.choice(["nowhere", "", "\0", "x" * 5000])),
            ("evaluate", "run", *rng.choice(EVALUATE_WORDS)),
            ("resume", "run", *rng.choice(RESUME_WORDS)),
        ]
    )
    return Case("bad command", words, {"a_file": b"x"}, damage=lambda run: None)


EVALUATE_WORDS = (
    *(("--episodes", text) for text in ("0", "-1", "x", "", "1.5", "²", "9" * 5000)),
    *(("--checkpoint", text) for text in ("5", "x", "-1", "²")),
    *(("--seed", text) for text in ("x", "-1", "", "1.5", "null", "1" + "0" * 30)),
    *(
        ("--video", text)
        for text in ("x.avi", "no/x.gif", "", ".gif", "a\0.gif", "x" * 300 + ".gif")
    ),
    ("--episodes",),
    ("--nonsense", "1"),
    ("word",),
)
RESUME_WORDS = (
    *(("--seed", "7"), ("--gamma", "0.5"), ("--hidden", "[8]"), ("--env", "Acrobot-v1")),
    *(("--run_dir", "other"), ("--agent", "DQN-v9"), ("--nonsense", "1"), ("word",)),
    *(("--total_steps", "-1"), ("--procs", "0"), ("--process_per_env", "2"), ("--config", "x")),
)


def bad_place(rng: random.Random) -> Case:
    places = ["a_file", "a_file/deeper", "/dev/null", "/proc/nowhere", "a\0b", "~nobody_here/x"]
    option = rng.choice(["output_dir", "run_dir"])
    words = (*TRAIN, f"--{option}", rng.choice([*places, "x" * 300, "/sys/x"]))
    return Case("bad place", words, {"a_file": b"x"})


def _config(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def edit(run: Path) -> None:
        data = json.loads((run / "config.json").read_text())
        change(data)
        (run / "config.json").write_text(json.dumps(data))

    return edit


def _written(name: str, data: bytes) -> Damage:
    return lambda run: (run / name).write_bytes(data)


BROKEN_CONFIG: dict[str, Damage] = {
    "gone": lambda run: (run / "config.json").unlink(),
    "empty": _written("config.json", b""),
    "list": _written("config.json", b"[]"),
    "number": _written("config.json", b"0"),
    "nothing": _written("config.json", b"{}"),
    "binary": _written("config.json", b"\xff\xfe"),
    "deep": _written("config.json", b"[" * 100_000),
    "agent is a list": _config(lambda data: data.update(agent=[])),
    "agent is gone": _config(lambda data: data.pop("agent")),
    "learner is a word": _config(lambda data: data.update(learner="x")),
    "unknown key": _config(lambda data: data["agent"].update(nonsense=1)),
    "bad value": _config(lambda data: data["agent"].update(gamma=5)),
    "unknown agent": _config(lambda data: data["learner"].update(agent="X-v0")),
    "another environment": _config(lambda data: data["learner"].update(env="Acrobot-v1")),
}
BROKEN_MANIFEST: dict[str, Damage] = {
    "gone": lambda run: (run / "manifest.json").unlink(),
    **{
        data.decode(errors="replace"): _written("manifest.json", data)
        for data in (b"", b"[]", b"{}", b"\xff", b'{"layout": []}', b'{"layout": {"world": "x"}}')
    },
    "null ranks": _written("manifest.json", b'{"layout": {"world": null}}'),
    "minus ranks": _written("manifest.json", b'{"layout": {"world": -3}}'),
}


def bad_run(rng: random.Random) -> Case:
    if rng.random() < 0.3:
        name = rng.choice(list(BROKEN_MANIFEST))
        return Case(f"bad run (manifest: {name})", ("resume", "run"), {}, BROKEN_MANIFEST[name])
    name = rng.choice(list(BROKEN_CONFIG))
    words = rng.choice([("resume", "run"), ("evaluate", "run", "--episodes", "1")])
    return Case(f"bad run (config: {name})", words, {}, BROKEN_CONFIG[name])


CURIOUS: tuple[tuple[str, ...], ...] = (
    ("--hidden", "[" * 3000),
    ("--hidden", "[" * 200_000),
    ("--log_level", "[]"),
    ("--log_level", "[9, 9]"),
    ("--log_level", "loud"),
    ("--epsilon", "\udcff"),
    ("--\udcff", "1"),
    ("--env", "\udcff"),
    ("--env", "A" * 5000),
    ("--agent", "A" * 5000),
    ("--total_steps", "9" * 400),
    ("--total_steps", "9" * 5000),
    ("--epsilon", "9" * 400),
    ("--reward_window", "1" + "0" * 30),
    ("--env", "Ant-v5", "--seed", "-1"),
    ("--\x1b[31mred", "1"),
    ("--agent.epsilon.x", "1"),
    ("--.", "1"),
    ("--agent.", "1"),
    ("--learner.learner.seed", "1"),
    ("--epsilon", "0.1", "--epsilon", "x"),
    ("--config", "given.json", "--config", "nothing.json"),
    ("--config", "/dev/null"),
    ("--config", "/proc/self/mem"),
    ("--config", "."),
    ("--env", "no_such_package:CartPole-v1"),
    ("--serial=1",),
    ("--help=1",),
)


def curious(rng: random.Random) -> Case:
    return curiosity(rng.choice(CURIOUS))


def curiosity(words: tuple[str, ...]) -> Case:
    files = {"given.json": b"{}", "learner_cfg.json": b"[]"}
    return Case("curious", (*TRAIN, *words), files)


MAKERS: dict[str, Callable[[random.Random], Case]] = {
    "unknown key": unknown_key,
    "wrong type": wrong_type,
    "out of range": out_of_range,
    "absurd size": absurd_size,
    "bad file": bad_file,
    "wrong id": wrong_id,
    "wrong ranks": wrong_ranks,
    "bad combination": bad_combination,
    "bad environment value": bad_env_value,
    "bad command": bad_command,
    "bad place": bad_place,
    "bad run": bad_run,
    "curious": curious,
}


def generate(count: int, seed: int, kinds: Sequence[str] = tuple(MAKERS)) -> list[Case]:
    """So many mistakes, the kinds in turn; the same for the same seed."""
    rng = random.Random(f"{seed} {kinds}")
    return [MAKERS[kinds[number % len(kinds)]](rng) for number in range(count)]


# -- making them -------------------------------------------------------------------------------------


def make_run(folder: Path) -> Path:
    """A small good run, as training leaves it."""
    from exarl.run.experiment import ExaLearner

    run = folder / "good"
    with standing_in(folder, folder):
        ExaLearner(argv=(), serial=True, progress=False, run_dir=str(run), **GOOD_RUN).run()
    return run


def attempt(case: Case, good: Path, *, process: bool = False) -> list[str]:
    """Make the mistake in a fresh folder; what was wrong with the answer."""
    with tempfile.TemporaryDirectory(prefix="exarl-bad-") as scratch:
        home, work = Path(scratch) / "home", Path(scratch) / "work"
        home.mkdir()
        work.mkdir()
        prepare(case, good, home, work)
        before = tree(Path(scratch))
        with standing_in(home, work):
            answer = (in_process if process else in_place)(case.words)
        complaints = judge(answer)
        changed = sorted(set(tree(Path(scratch)).items()) ^ set(before.items()))
        if changed:
            complaints.append(f"wrote {changed[0][0]} (and {len(changed) - 1} more)")
        return complaints


def prepare(case: Case, good: Path, home: Path, work: Path) -> None:
    for name, data in case.files.items():
        path = home / name[2:] if name.startswith("~/") else work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if case.damage is not None:
        shutil.copytree(good, work / "run")
        case.damage(work / "run")


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder, with what changes when it is written to."""
    paths = ((path, path.lstat()) for path in folder.rglob("*"))
    return {str(path.relative_to(folder)): (at.st_size, at.st_mtime_ns) for path, at in paths}


def judge(answer: Answer) -> list[str]:
    """What is wrong with an answer to a mistake."""
    complaints = []
    if answer.code != 2:
        complaints.append(f"exit code {answer.code}")
    if "Traceback" in answer.err:
        complaints.append("traceback: " + answer.err.strip().splitlines()[-1][:200])
    elif answer.err.count("\n") != 1 or not answer.err.startswith("exarl: "):
        complaints.append(f"not one line: {answer.err[:200]!r}")
    elif not answer.err.rstrip("\n").isprintable() and "\\" not in answer.err:
        complaints.append(f"not printable: {answer.err[:200]!r}")
    if answer.out:
        complaints.append(f"standard output: {answer.out[:100]!r}")
    return complaints


def in_place(words: Sequence[str]) -> Answer:
    """The command line inside this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), guarded():
        code: int | None = None
        try:
            code = exarl(list(words))
        except Runaway as accepted:
            err.write(f"accepted: {accepted}")
        except Exception:  # noqa: BLE001 - any exception here is the finding
            err.write(traceback.format_exc())
    return Answer(code, out.getvalue(), err.getvalue())


def in_process(words: Sequence[str]) -> Answer:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "exarl", *words]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    text = [stream.decode(errors="replace") for stream in (done.stdout, done.stderr)]
    return Answer(done.returncode, *text)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Nothing computes for long, and nobody starts MPI jobs."""

    def expire(*_: object) -> None:
        raise Runaway(f"still busy after {CPU_SECONDS} s")

    def launch(procs: int, *_: object) -> int:
        raise Runaway(f"mpiexec -n {procs}")

    previous = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        with mock.patch("exarl.cli.mpiexec.launch", launch):
            yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


@contextlib.contextmanager
def standing_in(home: Path, work: Path) -> Iterator[None]:
    """In ``work``, at home in ``home``; environment variables and environments as before after it."""
    known = set(gymnasium.registry)
    with mock.patch.dict(os.environ, HOME=str(home)), contextlib.chdir(work):
        yield
    for id in set(gymnasium.registry) - known:
        del gymnasium.registry[id]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.perf_counter()
    cases = generate(options.count, options.seed)
    possible = [case for case in cases if not any("\0" in word for word in case.words)]
    chosen = random.Random(options.seed).sample(possible, min(options.processes, len(possible)))
    mishandled: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="exarl-bad-") as scratch:
        good = make_run(Path(scratch))
        for process, these in ((False, cases), (True, chosen)):
            for case in these:
                if complaints := attempt(case, good, process=process):
                    mishandled["process" if process else "in place"] += 1
                    print(f"{case.kind}: {case}\n    {'; '.join(complaints)}")
    seconds = time.perf_counter() - started
    print(
        f"{len(cases)} mistakes: {len(cases) - mishandled['in place']} refused in one line with exit"
        f" code 2 and nothing written, {mishandled['in place']} not; {len(chosen)} again as"
        f" processes: {mishandled['process']} not; {seconds:.0f} s"
    )
    return 1 if mishandled else 0


if __name__ == "__main__":
    sys.exit(main())
