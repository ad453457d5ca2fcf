"""``exarl data``: show, check, convert and import recorded episodes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from exarl.cli import words as line
from exarl.data import Dataset, check, read, write
from exarl.data.episodes import SpaceForm, leaves
from exarl.errors import ConfigError

HELP = """\
usage: exarl data RUN|PATH [--check [--env ID]] [--to npz|csv|minari OUT]
       exarl data import FILE.csv --env ID --columns COLUMNS --to npz|csv|minari OUT

Shows the recorded episodes of a run (train --record), a Minari dataset, an .npz or a .csv file: how
many, their returns and lengths, and the range of each number.

  --check        read every episode and check it; against an environment's spaces with --env (default:
                 the environment that the dataset names)
  --to FORM OUT  write the episodes to OUT: an .npz, a .csv, or a new folder in Minari's layout
  --env ID       the environment, followed by its parameters (--key value)

'import' makes episodes of a log with a line for each observation, the action that was then given and
the reward that followed; the last line of an episode has its last observation alone.

  --columns COLUMNS  which columns are what, as in
                     "observation=T1,T2*0.001 action=valve reward=yield episode=run terminated=fault";
                     NAME*FACTOR+OFFSET converts units, observation/PART=... is a part of observations.
                     Without an episode column, an episode ends where terminated or truncated is above 0
"""
_SHOWN = 12
_QUANTILES = (0, 0.25, 0.5, 0.75, 1)


def data(words: list[str]) -> int:
    if words and words[0] == "import":
        return import_log(words[1:])
    path = line.take_path(words, "run or dataset")
    checked, target = line.take_flag(words, "check"), take_target(words)
    dataset = read(path)
    env = any(word.split("=")[0] == "--env" for word in words)
    if words and not checked:
        line.nothing_left(words)
    if target is None:
        sys.stdout.write(shown(dataset))
    if checked:
        sys.stdout.write(check_against(dataset, words if env or not dataset.env_id else [
            "--env", dataset.env_id, *words
        ]))  # fmt: skip
    if target is not None:
        save(target, dataset)
    return 0


def import_log(words: list[str]) -> int:
    path = line.take_path(words, "file")
    columns, target = line.take(words, "columns"), take_target(words)
    if columns is None or target is None:
        raise ConfigError("import needs --columns and --to, as in 'exarl data --help'")

    from exarl.data.imported import import_csv

    observation, action, env_id = spaces_of(words)
    save(target, import_csv(Path(path), columns, observation, action, env_id))
    return 0


def take_target(words: list[str]) -> Path | None:
    """Remove ``--to FORM OUT``; the path to write to, with the ending of its form."""
    if "--to" not in words:
        line.take(words, "to")  # as --to=..., which lacks OUT
        return None
    place = words.index("--to")
    given = words[place + 1 : place + 3]
    if len(given) < 2 or any(word.startswith("--") for word in given):
        raise ConfigError("--to needs a form and a path, as in --to csv episodes.csv")
    del words[place : place + 3]
    form, out = given
    line.check_choice(form, ("npz", "csv", "minari"), f"--to has no form '{form}'")
    ending = Path(out).suffix.lower()
    if form == "minari" and ending in (".npz", ".csv"):
        raise ConfigError(
            f"--to minari writes a folder: choose a name that does not end in {ending}"
        )
    return Path(out) if form == "minari" or ending == f".{form}" else Path(f"{out}.{form}")


def save(target: Path, dataset: Dataset) -> None:
    write(target, dataset)
    sys.stdout.write(f"wrote {target} ({len(dataset)} episodes, {dataset.steps:,} steps)\n")


def spaces_of(words: list[str]) -> tuple[SpaceForm, SpaceForm, str]:
    """The spaces of the environment that ``--env`` names, and its id."""
    from exarl.run.build import build_env, written
    from exarl.run.configure import configure

    if not any(word.split("=")[0] == "--env" for word in words):
        raise ConfigError("which environment? --env ID")
    configuration = configure(None, words)
    env, _ = build_env(configuration)
    try:
        spaces = written(env.observation_space, env.action_space)
    finally:
        env.close()
    if not spaces:
        raise ConfigError(f"the spaces of {configuration.learner.env} have no form in a file")
    return spaces["observation"], spaces["action"], configuration.learner.env


def check_against(dataset: Dataset, words: list[str]) -> str:
    """What checking has found, in one line; ConfigError where something is wrong."""
    if not words:
        for _ in dataset:
            pass
        return f"{len(dataset)} episodes are whole; --env ID checks them against an environment\n"
    from exarl.run.build import build_episode
    from exarl.run.configure import configure

    configuration = configure(None, [*words, *agent_for(dataset, words)])
    env, adapter, _ = build_episode(configuration)
    env.close()
    check(dataset, adapter.spec)
    return f"{len(dataset)} episodes are whole and fit {configuration.learner.env}\n"


def agent_for(dataset: Dataset, words: list[str]) -> list[str]:
    """An agent that takes any actions, unless one is given."""
    return [] if any(word.split("=")[0] == "--agent" for word in words) else ["--agent", "PPO-v0"]


def shown(dataset: Dataset) -> str:
    """What a user wants to know of a dataset."""
    text = f"{dataset.path} ({dataset.kind}): {len(dataset):,} episodes, {dataset.steps:,} steps\n"
    if not len(dataset):
        return text
    returns, ends, ranges = [], {"termination": 0, "truncation": 0}, Ranges()
    for episode in dataset:
        returns.append(float(episode.rewards.sum()))
        ends["termination" if episode.terminations[-1] else "truncation"] += 1
        for what, tree in (("observation", episode.observations), ("action", episode.actions)):
            for name, array in leaves(tree):
                ranges.add(f"{what}/{name}" if name else what, array)
    for name, space in (("observation", dataset.observation), ("action", dataset.action)):
        if space is not None:
            text += f"{name:12}{in_words(space)}\n"
    text += f"{'environment':12}{dataset.env_id or 'not known'}\n"
    text += f"{'ended by':12}" + ", ".join(f"{n} {what}" for what, n in ends.items() if n) + "\n\n"
    text += f"{'':24}{'min':>12}{'25%':>12}{'median':>12}{'75%':>12}{'max':>12}\n"
    for name, values in (("return", returns), ("length", list(dataset.lengths))):
        quantiles = np.quantile(values, _QUANTILES)
        text += f"{name:24}" + "".join(f"{value:12.5g}" for value in quantiles) + "\n"
    return text + ranges.text()


def in_words(space: SpaceForm) -> str:
    """A space on one line."""
    kind = space["type"]
    if kind == "Box":
        return f"Box {list(space['shape'])} {space['dtype']}"
    if "subspaces" in space:
        inner = space["subspaces"]
        names = inner if isinstance(inner, dict) else range(len(inner))
        return f"{kind} of {', '.join(map(str, names))}"
    return f"{kind} {space.get('n', space.get('nvec', ''))}"


class Ranges:
    """The range of each number over all episodes."""

    def __init__(self) -> None:
        self._low: dict[str, np.ndarray] = {}
        self._high: dict[str, np.ndarray] = {}

    def add(self, name: str, array: np.ndarray) -> None:
        """Take more values [N, ...] into account."""
        flat = array.reshape(len(array), -1)
        ends: tuple[tuple[dict[str, np.ndarray], Callable[..., np.ndarray], np.ndarray], ...] = (
            (self._low, np.minimum, flat.min(0)),
            (self._high, np.maximum, flat.max(0)),
        )
        for known, better, found in ends:
            known[name] = better(known[name], found) if name in known else found

    def text(self) -> str:
        """A line for each number, of the first few of each part."""
        lines = []
        for name, low in self._low.items():
            for i, (least, most) in enumerate(zip(low, self._high[name], strict=True)):
                if i == _SHOWN:
                    lines.append(f"{name}: {len(low) - i} more numbers\n")
                    break
                one = f"{name}/{i}" if len(low) > 1 else name
                lines.append(f"{one:24}{least:12.5g}{'':36}{most:12.5g}\n")
        return "".join(lines)
