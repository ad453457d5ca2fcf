"""Mistakes on the command line: one line on standard error, exit code 2, nothing written.

Half of them are those of benchmarks/bad_config.py (keys, values, ids, files and ranks that do not fit),
the others wrong and half-typed words after every command.
"""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks import bad_config
from benchmarks.attack.checkpoints import FRESH
from benchmarks.attack.jobs import exarl
from benchmarks.attack.runs import OFTEN, TRAIN, reference, tree
from benchmarks.attack.tries import Attempt
from benchmarks.bad_config import Answer, Case, mutant

TRIES = 500
NUMBERS = ("x", "-1", "0", "", "1.5", "nan", "1e999", "²", "9" * 5000, "0x10", "1,5", "[]")
PLACES = ("nowhere", "", "a_file/x", "\udcff", "x" * 5000, "/dev/null/x", "a_file")
RIGHT: tuple[tuple[str, ...], ...] = (  # commands of which one word will be wrong
    ("resume", "run", "--total_steps", "700"),
    ("evaluate", "run", "--episodes", "1", "--seed", "3"),
    ("export", "run", "--format", "npz"),
    ("report", "run", "--x", "time"),
    ("watch", "run", "--once"),
    ("check-env", "CartPole-v1"),
    ("describe", "DQN-v0"),
    ("list", "agents"),
    ("bench", "--env", "CartPole-v1"),
    ("serve-env", "CartPole-v1", "--bind", "tcp://127.0.0.1:*", "--idle", "5"),
    ("new", "env", "my_env"),
    ("train", "--env", "CartPole-v1", "--agent", "DQN-v0", "--workflow", "sync"),
)
VALUES: dict[
    str, tuple[tuple[str, ...], tuple[str, ...]]
] = {  # a command, and bad last words for it
    "episodes": (("evaluate", "run", "--episodes"), NUMBERS),
    "checkpoint": (("evaluate", "run", "--checkpoint"), (*NUMBERS, "7")),
    "format": (("export", "run", "--format"), ("x", "", "NPZ", "h", "npz,c", "1")),
    "output": (("export", "run", "--format", "c", "--output"), ("no/x.h", "a_file/x", "x" * 5000)),
    "axis": (("report", "run", "--x"), ("y", "", "Steps", "1")),
    "page": (("report", "run", "--out"), ("no/x.html", "run", "a_file/x")),
    "group": (("report", "run", "--group-by"), ("nonsense", "agent.nonsense")),
    "interval": (("watch", "run", "--interval"), NUMBERS),
    "report": (("report",), PLACES),
    "resume": (("resume",), PLACES),
    "evaluate": (("evaluate",), PLACES),
    "export": (("export",), PLACES),
    "once": (("watch", "--once"), PLACES),
    "bind": (
        ("serve-env", "CartPole-v1", "--bind"),
        (
            "x",
            "",
            "tcp://",
            "tcp://127.0.0.1",
            "tcp://0.0.0.0:5999",
            "tcp://*:*",
            "udp://x:1",
            "tcp://127.0.0.1:99999",
            "ipc://",
            "ipc://no/such/folder/x",
            "ipc://@name",
            "inproc://x",
        ),
    ),
    "sessions": (("serve-env", "CartPole-v1", "--max-sessions"), NUMBERS[:5]),
    "served": (("serve-env",), ("Nothing-v0", "", "--bind", "no_module:X-v0", "CartPole")),
    "keys": (("serve-env", "CartPole-v1", "--keys"), ("nowhere", "a_file", "")),
    "checked": (("check-env",), ("Nothing-v0", "", "CartPole", "no_module:X-v0", "a:b:c")),
    "described": (("describe",), ("DQN", "dqn-v0", "", "MLPP", "no_module:X")),
    "listed": (("list",), ("agent", "x", "", "--x")),
    "made": (("new",), ("x", "env", "agent", "", "env 1bad", "--x")),
    "named": (("new", "env"), ("1bad", "a b", "", "class", "../x", "a/b", "é-", "x" * 5000)),
    "bench": (("bench", "--env", "CartPole-v1", "--procs"), NUMBERS),
    "swept": (("sweep", "--learning_rate"), ("x:y", "1:2:3", "", ":", "1:0:log", "0:1:log")),
    "study": (("sweep", "--nonsense"), ("1:2", "x")),
    "slurm": (("slurm", "--nodes"), NUMBERS),
    "time": (("slurm", "--nodes", "1", "--time"), ("x", "", "-1")),
    "data": (("surrogate", "--out", "x.npz", "--data"), PLACES),
}


def prepare(folder: Path) -> None:
    """A good run, for the commands that want one."""
    reference(folder, "mistakes", *TRAIN, *OFTEN)


def attempt(rng: random.Random, references: Path, work: Path) -> Attempt:
    """Make one mistake and look at the answer, and at what was written."""
    makers = [rng.choice(list(bad_config.MAKERS.values())), wrong_word, wrong_value, half_typed]
    case = rng.choices(makers, [50, 15, 25, 10])[0](rng)
    home = work.parent / f"{work.name}.home"
    work.mkdir()
    home.mkdir()
    bad_config.prepare(case, references / "mistakes" / "run", home, work)
    before = tree(work) | tree(home)
    if any("\0" in word for word in case.words):  # which no shell can pass
        return Attempt(str(case))
    ended = exarl(list(case.words), work, limit=20, fresh=rng.random() < FRESH)
    if ended.code is None:
        return Attempt(f"{case.kind}: {case}", f"accepted or hung: {ended.err[-200:]!r}")
    problems = bad_config.judge(Answer(ended.code, ended.out, ended.err))
    after = tree(work) | tree(home)
    if changed := [n for n in {**before, **after} if before.get(n) != after.get(n)]:
        problems.append(f"wrote {changed[0]} (and {len(changed) - 1} more)")
    if ended.left:
        problems.append(f"left {ended.left[0]} behind")
    return Attempt(f"{case.kind}: {case}", "; ".join(problems))


def wrong_value(rng: random.Random) -> Case:
    """A command with a last word that cannot be."""
    name = rng.choice(list(VALUES))
    words, values = VALUES[name]
    return with_run("wrong value", (*words, rng.choice(values)))


def wrong_word(rng: random.Random) -> Case:
    """A right command with a word misspelt, one missing, or one that does not belong there."""
    words = list(rng.choice(RIGHT))
    ids = {"CartPole-v1", "DQN-v0", "npz", "time", "agents", "env", "sync", "my_env", "run"}
    at = rng.choice([i for i, w in enumerate(words) if i == 0 or w in ids or w.startswith("--")])
    known = {"list", "train", "onnx", "steps", "updates", "envs", "agent", "c"}
    way = rng.choice(["misspelt", "misspelt", "more"])
    if way == "more" or words[at] in ("my_env", "--bind", "--idle"):
        words.append(rng.choice(["--nonsense=1", "--nonsense", "--Env=x", "-e", "--=1"]))
    elif words[at].startswith("--"):
        words[at] = f"--{mutant(rng, [words[at][2:]], known)}"
    else:
        words[at] = mutant(rng, [words[at]], known)
    return with_run("wrong word", tuple(words))


def half_typed(rng: random.Random) -> Case:
    """A command that ends after an option that wants a value."""
    options = ["--env", "--agent", "--total_steps", "--procs", "--config", "--run_dir", "--epsilon"]
    commands = [("train",), ("resume", "run"), ("bench",), ("sweep",), ("train", "--seed", "1")]
    lines = [(*rng.choice(commands), rng.choice(options))]
    lines += [("evaluate", "run", rng.choice(["--episodes", "--seed", "--checkpoint", "--video"]))]
    lines += [("export", "run", rng.choice(["--format", "--output"])), ("report", "run", "--out")]
    lines += [("serve-env", "CartPole-v1", rng.choice(["--bind", "--keys", "--idle"]))]
    lines += [("watch", "run", "--interval"), ("resume",), ("evaluate",), ("export",), ("report",)]
    lines += [("watch",), ("new",), ("check-env",), ("describe",), ("serve-env",), ("surrogate",)]
    return with_run("half-typed", rng.choice(lines))


def with_run(kind: str, words: tuple[str, ...]) -> Case:
    """A mistake in a folder with a run and a file in it."""
    return Case(kind, words, {"a_file": b"x"}, damage=lambda run: None)
