"""``exarl surrogate``: a learnt plant for the Booster environments, from the BOOSTR recording."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exarl.cli import words as line
from exarl.cli.export import check_target
from exarl.errors import ConfigError, StorageError
from exarl.networks.mlp import MLP, MLPConfig
from exarl.records.directory import expand, reason
from exarl.science.booster.data import ROWS, Recording, read_recording
from exarl.science.booster.kernel import VARIABLES
from exarl.science.booster.surrogate import Dense, Flatten, Surrogate, save_surrogate, scaled
from exarl.types import ArraySpec

HELP = f"""\
usage: exarl surrogate --data BOOSTR.csv --out FILE.npz [--option value ...]

Trains a network to predict the next sample of the Booster's regulation from those before it, and
writes it to a file for the parameter 'surrogate' of ExaBoosterDiscrete-v0 and ExaBooster-v0.

  --data FILE          the recording: a csv with the columns of BOOSTR
  --out FILE.npz       where to
  --rows N             rows of the recording to use (default {ROWS})
  --look_back N        samples that the prediction is made from (default 150)
  --hidden N,N         units of each hidden layer (default 128,128)
  --epochs N           passes over the first 70% of the rows (default 10); the rest is for the test
  --learning_rate X    step size of Adam, falling to 0 (default 0.001)
  --seed N             of first weights and order (default 1)
  --force              replace FILE if it is there
"""
OUTPUTS, BATCH, TESTED = 3, 128, 5000
"""Channels predicted (B:VIMIN, B:IMINER, B:LINFRQ), windows in an update, windows in the test."""


@dataclass(frozen=True)
class Errors:
    """Mean squares in scaled units on rows that were not trained on."""

    network: float
    persistence: float  # of "the next sample is the last one"


def surrogate(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(HELP)
        return 0
    data, out = line.take(words, "data"), line.take(words, "out")
    rows = line.take_count(words, "rows", ROWS)
    counts = {name: line.take_count(words, name, n) for name, n in _COUNTS.items()}
    hidden, rate = _hidden(line.take(words, "hidden")), _rate(line.take(words, "learning_rate"))
    force = line.take_flag(words, "force")
    line.nothing_left(words)
    if not data or not out or Path(out).suffix != ".npz":
        raise ConfigError("--data FILE.csv and --out FILE.npz are needed")
    path = expand(out)
    check_target(path, force)
    try:
        recording = read_recording(data, rows or ROWS)
        made, errors = fit(recording, hidden=hidden, learning_rate=rate, **counts)  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(str(error)) from error
    write(made, path)
    sys.stdout.write(
        f"{path}: {made.weights:,} weights, mean square error {errors.network:.3g} on rows not"
        f" trained on ({errors.persistence:.3g} if nothing changed)\n"
    )
    return 0


def fit(
    recording: Recording,
    look_back: int,
    hidden: tuple[int, ...],
    epochs: int,
    learning_rate: float,
    seed: int,
) -> tuple[Surrogate, Errors]:
    """A network trained on the first 70% of the rows, and how it does on the rest."""
    from exarl.agents import compiled

    rows = recording.samples.shape[1]
    trained = int(0.7 * rows)
    updates = (trained - look_back) // BATCH
    if updates < 1 or rows - trained <= look_back:
        raise ValueError(f"{rows} rows are too few to look back by {look_back} samples")
    seen = recording.samples[:, :trained]
    low, high = seen.min(1), seen.max(1)
    range = np.stack([low, np.where(high > low, high, low + 1)])
    table = scaled(recording.samples, range).astype(np.float32)
    network = MLP(
        MLPConfig(hidden=hidden, activation="tanh"),
        ArraySpec((len(VARIABLES), look_back), "float32"),
        OUTPUTS,
    )
    rng = np.random.default_rng(seed)
    falling = compiled.linear(learning_rate, 0.0, epochs * updates)
    optimiser = compiled.optimizer("adam", falling, 1.0)

    def gradient(state: Any, batch: Any) -> tuple[Any, Any]:
        inputs, targets = windows(batch["table"], batch["starts"], look_back)

        def loss(params: Any) -> tuple[Any, Any]:
            error = network.apply(compiled.jnp, params, inputs) - targets
            return (error**2).mean(), {}

        return compiled.gradient_of(loss, state["params"])

    def apply(state: Any, slope: Any) -> Any:
        params, opt = compiled.descend(optimiser, slope, state["opt"], state["params"])
        return {"params": params, "opt": opt}

    def pick(data: Any, i: Any) -> Any:
        return {"table": data["table"], "starts": data["starts"][i]}

    update = compiled.learner(compiled.Plan(gradient, apply, pick=pick), None)
    params = compiled.to_device(network.init(rng))
    state = {"params": params, "opt": optimiser.init(params)}
    for _ in np.arange(epochs):
        starts = rng.permutation(trained - look_back)[: updates * BATCH].reshape(updates, BATCH)
        state, _ = update(state, {"table": table, "starts": starts}, updates)
    learnt = {name: np.asarray(array) for name, array in state["params"].items()}
    held = trained + rng.integers(0, rows - trained - look_back, TESTED)
    inputs, targets = windows(table, held, look_back)
    errors = Errors(
        float(((network.apply(np, learnt, inputs) - targets) ** 2).mean()),
        float(((inputs[:, :OUTPUTS, -1] - targets) ** 2).mean()),
    )
    return Surrogate(_layers(learnt, len(hidden)), look_back, range), errors


def windows(table: Any, starts: Any, look_back: int) -> tuple[Any, Any]:
    """Samples [N, variables, look_back] from each start on, and what followed [N, outputs]."""
    inputs = table[:, starts[:, None] + np.arange(look_back)].swapaxes(0, 1)
    return inputs, table[:OUTPUTS, starts + look_back].T


def write(made: Surrogate, path: Path) -> None:
    """Write aside, then rename: the file is whole or as before."""
    aside = path.with_name(f".surrogate.{os.getpid()}.tmp")
    try:
        save_surrogate(made, aside)
        os.replace(aside, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error
    finally:
        aside.unlink(missing_ok=True)


_COUNTS = {"look_back": 150, "epochs": 10, "seed": 1}


def _layers(params: dict[str, np.ndarray], hidden: int) -> tuple[Flatten | Dense, ...]:
    kinds = ["tanh"] * hidden + ["linear"]
    dense = [Dense(kind, params[f"{n}/w"], params[f"{n}/b"]) for n, kind in enumerate(kinds)]
    return (Flatten(), *dense)


def _hidden(text: str | None) -> tuple[int, ...]:
    parts = (text or "128,128").strip("[]()").split(",")
    if not all(part.strip().isdigit() and 0 < int(part) < 65536 for part in parts):
        raise ConfigError(f"hidden is a list of whole numbers, not '{text}' (command line)")
    return tuple(int(part) for part in parts)


def _rate(text: str | None) -> float:
    try:
        rate = float(text or 0.001)
    except ValueError:
        rate = math.nan
    if not 0 < rate < 1:
        raise ConfigError(f"learning_rate is between 0 and 1, not '{text}' (command line)")
    return rate
