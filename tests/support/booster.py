"""Recordings in BOOSTR's layout and surrogates in Keras's, made up for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from exarl.science.booster import kernel

COLUMNS = [
    "time", "file", "B:ACMNIG", "B:ACMNPG", "B:ACMXIG", "B:ACMXPG", "B:DCIG", "B:DCPG",
    "B:GMPS4V", "B:GMPSBT", "B:GMPSFF", "B:IMAXXG", "B:IMAXXO", "B:IMINER", "B:IMINST",
    "B:IMINXG", "B:IMINXO", "B:IPHSTC", "B:LINFRQ", "B:NGMPS", "B:VIMAX", "B:VIMIN", "B:VINHBT",
    "B:VIPHAS", "B_ACMNIG", "B_ACMNPG", "B_ACMXIG", "B_ACMXPG", "B_DCIG", "B_DCPG", "B_GMPSBT",
    "B_GMPSFF", "B_IMAXXG", "B_IMAXXO", "B_IMINST", "B_IMINXG", "B_IMINXO", "B_IPHSTC", "B_VIMAX",
    "B_VIMIN", "B_VINHBT", "B_VIPHAS", "I:IB", "I:MDAT40", "I:MXIB",
]  # fmt: skip
"""The published file's, in its order."""


def regulated_run(rng: np.random.Generator, lanes: int, cycles: int) -> np.ndarray:
    """Twins under the published regulator: [variables and setting, lanes, cycles], as set and read."""
    now = kernel.begin(np, rng, (lanes,))
    deviation, integral = np.zeros(lanes), kernel.balance(now.line)
    seen = []
    for _ in range(cycles):
        iminer = kernel.error_signal(np, deviation)
        integral = integral + kernel.GAMMA * iminer
        vimin = kernel.regulated(now.setting, iminer, integral)
        seen.append(np.stack([vimin, iminer, *kernel.readings(np, now), now.setting]))
        then = kernel.advance(np, rng, now)
        injector = kernel.injector_current(np, then.phase)
        force = kernel.disturbance(np, rng, now.line, injector, now.slow)
        deviation = kernel.respond(deviation, vimin - now.setting, force)
        now = then
    return np.stack(seen, -1)


def write_csv(path: Path, rows: int, seed: int = 0, without: str | None = None) -> np.ndarray:
    """A made-up recording with all 45 columns; what was set and read, [variables and setting, rows]."""
    run = regulated_run(np.random.default_rng(seed), 1, rows)[:, 0]
    shown = dict(zip((*kernel.VARIABLES, "B_VIMIN"), run, strict=True))
    shown["B:VIMIN"] = np.concatenate([run[0, :1], run[0, :-1]])  # read a cycle after it was set
    names = [name for name in COLUMNS if name != without]
    lines = [",".join(names)]
    for t in range(rows):
        words = {"time": f"2020-03-10 05:00:{t % 60:02d}.048", "file": "made_up.h5"}
        words |= {name: repr(float(values[t])) for name, values in shown.items()}
        lines.append(",".join(words.get(name, "1.0") for name in names))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run


def write_keras(
    path: Path,
    rng: np.random.Generator,
    units: tuple[int, ...] = (6, 4),
    look_back: int = 9,
    outputs: int = 3,
    cell: str = "lstm_cell/",
    kind: str = "LSTM",
) -> list[dict[str, np.ndarray]]:
    """A sequential model as Keras stores it, with random weights; the arrays of each layer."""
    import h5py

    sizes = [look_back, *units]
    arrays: list[dict[str, np.ndarray]] = []
    layers: list[dict[str, Any]] = [{"class_name": "InputLayer", "config": {"name": "input_1"}}]
    with h5py.File(path, "w") as file:
        group = file.create_group("model_weights")
        for n, width in enumerate(units):
            name = f"lstm_{n}" if n else "lstm"
            inner = f"{name}/{cell}"
            made = {
                "kernel": rng.normal(size=(sizes[n], 4 * width)) / np.sqrt(sizes[n]),
                "recurrent_kernel": rng.normal(size=(width, 4 * width)) / np.sqrt(width),
                "bias": rng.normal(size=4 * width),
            }
            for key, array in made.items():
                group.create_dataset(f"{name}/{inner}{key}:0", data=array.astype("f4"))
            config = {"name": name, "units": width, "return_sequences": n < len(units) - 1}
            config |= {"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True}
            layers += [{"class_name": kind, "config": config}]
            layers += [{"class_name": "Dropout", "config": {"name": f"dropout_{n}", "rate": 0.1}}]
            arrays.append(made)
        made = {"kernel": rng.normal(size=(sizes[-1], outputs)), "bias": rng.normal(size=outputs)}
        for key, array in made.items():
            group.create_dataset(f"dense/dense/{key}:0", data=array.astype("f4"))
        arrays.append(made)
        dense = {"name": "dense", "units": outputs, "activation": "linear"}
        layers.append({"class_name": "Dense", "config": dense})
        model = {"class_name": "Sequential", "config": {"name": "sequential", "layers": layers}}
        file.attrs["model_config"] = json.dumps(model)
        file.attrs["keras_version"] = "2.4.0"
    return arrays
