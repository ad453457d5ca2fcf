"""``exarl surrogate``: learn an environment from recorded episodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from exarl.cli import booster
from exarl.cli import words as line
from exarl.cli.booster import hidden_of
from exarl.data import read
from exarl.envs.surrogate import save_surrogate
from exarl.errors import ConfigError, StorageError
from exarl.records.directory import expand, reason
from exarl.report.surrogate import draw
from exarl.run.surrogate import Fitting, HorizonErrors, learn

HELP = f"""\
usage: exarl surrogate DATA... --out FOLDER [--option value ...]

Learns a model of an environment from recorded episodes and writes it to FOLDER, as an environment:
exarl train --env ExaSurrogate-v0 --path FOLDER. DATA are runs that were trained with --record, or other
datasets (exarl data --help).

  --out FOLDER         output: model.safetensors, surrogate.json, error.json and error.png
  --horizon N          steps over which errors are measured (default 50)
  --members N          networks (default {Fitting.members})
  --elites N           of these, the best are kept (default {Fitting.elites})
  --hidden N,N         units of each hidden layer (default 200,200)
  --updates N          updates of the networks (default {Fitting.updates})
  --batch_size N       steps in an update (default {Fitting.batch_size})
  --learning_rate X    step size of Adam (default {Fitting.learning_rate})
  --seed N             seed of the initial weights and of the order of steps (default 1)
  --force              replace the files in FOLDER if there are any

{booster.HELP.replace("usage: ", "or, for the Booster: ", 1)}"""


def surrogate(words: list[str]) -> int:
    if not words or words[0].startswith("--"):
        return booster.surrogate(words)
    data = []
    while words and not words[0].startswith("--"):
        data.append(words.pop(0))
    out, horizon = line.take(words, "out"), line.take_count(words, "horizon", 50)
    how = Fitting(
        line.take_count(words, "members", Fitting.members),
        line.take_count(words, "elites", Fitting.elites),
        hidden_of(line.take(words, "hidden"), Fitting.hidden),
        line.take_count(words, "updates", Fitting.updates),
        line.take_count(words, "batch_size", Fitting.batch_size),
        booster.rate_of(line.take(words, "learning_rate"), Fitting.learning_rate),
        line.take_count(words, "seed", Fitting.seed, least=0),
    )
    force = line.take_flag(words, "force")
    line.nothing_left(words)
    if how.elites > how.members:
        raise ConfigError(f"elites={how.elites} are more than members={how.members}")
    if not out:
        raise ConfigError("--out FOLDER is required")
    folder = new_folder(out, force)
    datasets = [read(path) for path in data]
    first = datasets[0]
    episodes = [episode for dataset in datasets for episode in dataset]
    for other in datasets[1:]:
        if (other.observation, other.action) != (first.observation, first.action):
            raise ConfigError(f"{other.path} has other spaces than {first.path}")
    if first.observation is None or first.action is None:
        raise ConfigError(f"{first.path} does not say which spaces its environment has")
    env_id = first.env_id or "unknown"
    made, errors = learn(episodes, first.observation, first.action, env_id, how, horizon)
    about = {"data": [str(d.path) for d in datasets], "episodes": len(episodes), "seed": how.seed}
    try:
        folder.mkdir(exist_ok=True)
        save_surrogate(made, folder, about)
        (folder / "error.json").write_text(json.dumps(as_json(errors), indent=2) + "\n")
        draw(errors, f"surrogate of {env_id}, {made.steps:,} steps", folder / "error.png")
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {reason(error)}") from error
    sys.stdout.write(told(folder, errors))
    return 0


def new_folder(out: str, force: bool) -> Path:
    """The folder to write to; ConfigError if it cannot be written, or has files and not ``force``."""
    folder = expand(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"cannot write {folder}: it is not a folder")
    if not folder.parent.is_dir():
        raise ConfigError(f"cannot write {folder}: there is no folder {folder.parent}")
    if folder.exists() and any(folder.iterdir()) and not force:
        raise ConfigError(f"{folder} already exists; --force replaces its files")
    return folder


def as_json(errors: HorizonErrors) -> dict[str, Any]:
    return {
        "steps": errors.horizons.tolist(),
        "model": [round(float(e), 6) for e in errors.model],
        "persistence": [round(float(e), 6) for e in errors.persistence],
        "episodes": errors.episodes,
    }


def told(folder: Path, errors: HorizonErrors) -> str:
    """The result for the user: errors after some steps, and how far the model is to be trusted."""
    shown = [n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if n <= errors.horizons[-1]]
    rows = "".join(
        f"  {n:>5}  {errors.model[n - 1]:>8.3g}  {errors.persistence[n - 1]:>11.3g}\n"
        for n in shown
    )
    count = errors.episodes
    trusted = f"better than persistence for the first {errors.trusted} steps"
    if not errors.trusted:
        trusted = "worse than persistence: more data are needed, or the state is not observed"
    return (
        f"error in standard deviations, on {count} episode{'s' * (count > 1)} not learned from:\n"
        f"  steps     model  persistence\n{rows}{trusted}\n"
        f"{folder}: train in it with --env ExaSurrogate-v0 --path {folder}\n"
    )
