"""``exarl surrogate --data``: train a surrogate of the Booster on the BOOSTR recording."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exarl.cli import words as line
from exarl.cli.targets import check_target
from exarl.errors import ConfigError, StorageError
from exarl.networks.mlp import MLP, MLPConfig
from exarl.records.directory import expand, reason
from exarl.records.replacing import replacing
from exarl.science.booster.data import ROWS, Recording, read_recording
from exarl.science.booster.kernel import VARIABLES
from exarl.science.booster.surrogate import Dense, Flatten, Surrogate, save_surrogate, scaled
from exarl.types import ArraySpec

HELP = f"""\
usage: exarl surrogate --data BOOSTR.csv --out FILE.npz [--option value ...]

Trains a network that predicts the next sample of the Booster's regulation from the previous ones, and
writes it to a file for the parameter 'surrogate' of ExaBoosterDiscrete-v0 and ExaBooster-v0.

  --data FILE          the recording: a csv with the columns of BOOSTR
  --out FILE.npz       output file
  --rows N             rows of the recording to use (default {ROWS})
  --look_back N        previous samples that a prediction uses (default 150)
  --hidden N,N         units of each hidden layer (default 128,128)
  --epochs N           passes over the first 70% of the rows (default 10); the rest is the test set
  --learning_rate X    initial step size of Adam, decreasing to 0 (default 0.001)
  --seed N             seed of the initial weights and of the order of samples (default 1)
  --force              replace FILE if it exists
"""
OUTPUTS, BATCH, TESTED = 3, 128, 5000
"""Predicted channels (B:VIMIN, B:IMINER, B:LINFRQ), windows per update, windows of the test."""


@dataclass(frozen=True)
class Errors:
    """Mean square errors in scaled units on the test set."""

    network: float
    persistence: float  # of the prediction that nothing changes


def surrogate(words: list[str]) -> int:
    data, out = line.take(words, "data"), line.take(words, "out")
    rows = line.take_count(words, "rows", ROWS)
    counts = {name: line.take_count(words, name, n) for name, n in _COUNTS.items()}
    hidden = hidden_of(line.take(words, "hidden"), (128, 128))
    rate = rate_of(line.take(words, "learning_rate"), 0.001)
    force = line.take_flag(words, "force")
    line.nothing_left(words)
    if not data or not out or Path(out).suffix != ".npz":
        raise ConfigError("--data FILE.csv and --out FILE.npz are required")
    path = expand(out)
    check_target(path, force)
    try:
        recording = read_recording(data, rows)
        made, errors = fit(recording, hidden=hidden, learning_rate=rate, **counts)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    write(made, path)
    sys.stdout.write(
        f"{path}: {made.weights:,} weights, mean square error {errors.network:.3g} on the test"
        f" set ({errors.persistence:.3g} for the prediction that nothing changes)\n"
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
    falling = compiled.optax.linear_schedule(learning_rate, 0.0, epochs * updates)
    optimiser = compiled.optimizer("adam", falling, 1.0)

    def step(state: tuple[Any, Any], starts: Any) -> tuple[tuple[Any, Any], None]:
        inputs, targets = windows(placed, starts, look_back)

        def loss(params: Any) -> Any:
            error = network.apply(jax.numpy, params, inputs) - targets
            return (error**2).mean()

        params, opt = state
        moves, opt = optimiser.update(jax.grad(loss)(params), opt, params)
        return (compiled.optax.apply_updates(params, moves), opt), None

    jax = compiled.jax
    placed = jax.numpy.asarray(table)
    run = jax.jit(lambda state, starts: jax.lax.scan(step, state, starts)[0], donate_argnums=0)
    params = compiled.to_device(network.init(rng))
    state = (params, optimiser.init(params))
    for _ in np.arange(epochs):
        starts = rng.permutation(trained - look_back)[: updates * BATCH].reshape(updates, BATCH)
        state = run(state, starts)
    learnt = {name: np.asarray(array) for name, array in state[0].items()}
    held = trained + rng.integers(0, rows - trained - look_back, TESTED)
    inputs, targets = windows(table, held, look_back)
    errors = Errors(
        float(((network.apply(np, learnt, inputs) - targets) ** 2).mean()),
        float(((inputs[:, :OUTPUTS, -1] - targets) ** 2).mean()),
    )
    return Surrogate(_layers(learnt, len(hidden)), look_back, range), errors


def windows(table: Any, starts: Any, look_back: int) -> tuple[Any, Any]:
    """Samples [N, variables, look_back] beginning at each start, and the next outputs [N, outputs]."""
    inputs = table[:, starts[:, None] + np.arange(look_back)].swapaxes(0, 1)
    return inputs, table[:OUTPUTS, starts + look_back].T


def write(made: Surrogate, path: Path) -> None:
    """Write the file whole, or leave it as it was; StorageError in one line."""
    try:
        with replacing(path) as aside:
            save_surrogate(made, aside)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error


_COUNTS = {"look_back": 150, "epochs": 10, "seed": 1}


def _layers(params: dict[str, np.ndarray], hidden: int) -> tuple[Flatten | Dense, ...]:
    kinds = ["tanh"] * hidden + ["linear"]
    dense = [Dense(kind, params[f"{n}/w"], params[f"{n}/b"]) for n, kind in enumerate(kinds)]
    return (Flatten(), *dense)


def hidden_of(text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """Units of hidden layers, from words such as 128,128."""
    if text is None:
        return default
    parts = text.strip("[]()").split(",")
    if not all(part.strip().isdigit() and 0 < int(part) < 65536 for part in parts):
        raise ConfigError(f"hidden is a list of whole numbers, not '{text}' (command line)")
    return tuple(int(part) for part in parts)


def rate_of(text: str | None, default: float) -> float:
    """A step size."""
    try:
        rate = default if text is None else float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < 1:
        raise ConfigError(f"learning_rate is between 0 and 1, not '{text}' (command line)")
    return rate
