"""Files for the Booster environments: the recording, surrogates in two formats, the command."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.booster import COLUMNS, write_csv, write_keras

from exarl.cli.main import main
from exarl.science.booster.data import moves_of, read_recording
from exarl.science.booster.env import ExaBooster, ExaBoosterDiscrete, regulate
from exarl.science.booster.surrogate import (
    PUBLISHED_RANGE,
    Dense,
    Flatten,
    Surrogate,
    forward,
    load_surrogate,
    predict,
    save_surrogate,
)

# -- the recording -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "BOOSTR.csv"
    write_csv(path, 4000)
    return path


def test_a_recording_is_read_with_its_lag(csv: Path) -> None:
    assert len(COLUMNS) == 45
    written = write_csv(csv.with_name("again.csv"), 400, seed=5)
    recording = read_recording(str(csv.with_name("again.csv")))
    np.testing.assert_allclose(recording.samples, written[:5, :-1])
    np.testing.assert_allclose(recording.setting, written[5, :-1])
    assert read_recording(str(csv), rows=100).samples.shape == (5, 100)
    moves = moves_of(recording, 15)
    assert len(moves) == 15
    assert (np.diff(moves) >= 0).all()
    assert moves[7] == 0


def test_an_environment_on_a_recording_follows_it(csv: Path) -> None:
    env = ExaBoosterDiscrete(data=str(csv))
    recording = read_recording(str(csv))
    rows = []
    for seed in range(5):
        _, info = env.reset(seed=seed)
        rows.append(int(env.state.row))
        assert info["data"] == "BOOSTR.csv"
        assert info["plant"] == "synthetic"
        row = rows[-1]
        np.testing.assert_allclose(env.state.window[1:, -1], recording.samples[1:, row])
        assert env.state.window[0, -1] == recording.samples[0, row - 1]
        assert regulate(info) == pytest.approx(recording.samples[0, row] - info["vimin"])
        env.step(env.action_for(regulate(info)))
        np.testing.assert_allclose(env.state.window[2:, -1], recording.samples[2:, row + 1])
        assert env.step(15)[4]["setting"] == recording.setting[row + 2]
    assert len(set(rows)) == 5


def test_a_recording_never_runs_out(csv: Path) -> None:
    env = ExaBoosterDiscrete(data=str(csv), rows=150, max_steps=100)
    _, info = env.reset(seed=0)
    for _ in range(130):
        _, reward, *_, info = env.step(env.action_for(regulate(info)))
        assert math.isfinite(reward)


def test_what_is_no_recording_is_refused(tmp_path: Path, csv: Path) -> None:
    write_csv(tmp_path / "narrow.csv", 5, without="B:LINFRQ")
    write_csv(tmp_path / "short.csv", 100)
    for name, part in (
        ("narrow.csv", "no column B:LINFRQ"),
        ("absent.csv", "cannot be read"),
        ("short.csv", "too few rows"),
    ):
        with pytest.raises(ValueError, match=part):
            ExaBooster(data=str(tmp_path / name))
    broken = csv.read_text().splitlines()[:50]
    fields = broken[20].split(",")
    fields[COLUMNS.index("B:IMINER")] = "off"
    broken[20] = ",".join(fields)
    (tmp_path / "broken.csv").write_text("\n".join(broken))
    with pytest.raises(ValueError, match="off"):
        ExaBooster(data=str(tmp_path / "broken.csv"))


# -- surrogates --------------------------------------------------------------------------------------


def cell_by_cell(layers: list[dict[str, np.ndarray]], window: np.ndarray) -> list[float]:
    """Keras's LSTM and dense layers, number by number."""

    def gate(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    sequence = [list(row) for row in window]
    for layer in layers[:-1]:
        units = layer["recurrent_kernel"].shape[0]
        h, c, shown = [0.0] * units, [0.0] * units, []
        for x in sequence:
            z = [
                layer["bias"][j]
                + sum(x[i] * layer["kernel"][i, j] for i in range(len(x)))
                + sum(h[i] * layer["recurrent_kernel"][i, j] for i in range(units))
                for j in range(4 * units)
            ]
            i, f, g, o = (z[k * units : (k + 1) * units] for k in range(4))
            c = [gate(f[u]) * c[u] + gate(i[u]) * math.tanh(g[u]) for u in range(units)]
            h = [gate(o[u]) * math.tanh(c[u]) for u in range(units)]
            shown.append(h)
        sequence = shown
    kernel_, bias = layers[-1]["kernel"], layers[-1]["bias"]
    last = sequence[-1]
    return [
        float(bias[j] + sum(last[i] * kernel_[i, j] for i in range(len(last))))
        for j in range(len(bias))
    ]


@pytest.mark.parametrize("cell", ["lstm_cell/", "lstm_cell_7/", ""])
def test_a_keras_model_computes_what_its_equations_say(tmp_path: Path, cell: str) -> None:
    pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    arrays = write_keras(tmp_path / "model.h5", rng, cell=cell)
    surrogate = load_surrogate(str(tmp_path / "model.h5"))
    assert surrogate.look_back == 9
    for _ in range(3):
        window = rng.normal(size=(5, 9)).astype(np.float32)
        out = forward(np, surrogate.layers, window)
        np.testing.assert_allclose(out, cell_by_cell(arrays, window), atol=2e-5)
        low, high = PUBLISHED_RANGE
        raw = low[:, None] + (high - low)[:, None] * window.astype(float)
        expected = low[:3] + (high - low)[:3] * np.array(cell_by_cell(arrays, window))
        np.testing.assert_allclose(predict(np, surrogate, raw), expected, rtol=1e-3, atol=1e-3)


def test_the_published_models_size_and_its_use(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    path = tmp_path / "published.h5"
    write_keras(path, np.random.default_rng(1), units=(256, 256, 256), look_back=150)
    assert load_surrogate(str(path)).weights == 1_468_163
    env = ExaBoosterDiscrete(surrogate=str(path))
    _, info = env.reset(seed=0)
    assert info["plant"] == "published.h5"
    assert info["data"] == "synthetic"
    window = env.state.window.copy()
    window[0, -1] += env.functions.increments[20]
    expected = predict(np, load_surrogate(str(path)), window)[1]
    info = env.step(20)[4]
    assert info["iminer"] == pytest.approx(float(expected), abs=0.0026)


def test_what_is_no_surrogate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("nothing")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    narrow = Surrogate(
        (Flatten(), Dense("linear", np.zeros((50, 1)), np.zeros(1))), 10, np.zeros((2, 5))
    )
    save_surrogate(narrow, tmp_path / "narrow.npz")
    for name, part in (
        ("absent.h5", "does not exist"),
        ("text.npz", "no surrogate"),
        ("other.npz", "no surrogate"),
        ("narrow.npz", "not the next sample"),
    ):
        with pytest.raises(ValueError, match=part):
            ExaBooster(surrogate=str(tmp_path / name))
    pytest.importorskip("h5py")
    (tmp_path / "text.h5").write_text("nothing")
    write_keras(tmp_path / "gru.h5", np.random.default_rng(0), kind="GRU")
    for name, part in (("text.h5", "no Keras model"), ("gru.h5", "GRU")):
        with pytest.raises(ValueError, match=part):
            ExaBooster(surrogate=str(tmp_path / name))


def test_a_surrogate_is_trained_from_a_recording_and_used(csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "plant.npz"
    words = ["--look_back", "4", "--hidden", "32", "--epochs", "40", "--learning_rate", "0.005"]
    command = ["surrogate", "--data", str(csv), "--out", str(out), *words]
    assert main(command) == 0
    assert main(command) == 2  # it is there already
    surrogate = load_surrogate(str(out))
    recording = read_recording(str(csv))
    # On rows it was not trained on it foresees the error better than "as it was" and than "none".
    rows = np.arange(3000, 3900)
    seen = [predict(np, surrogate, recording.samples[:, t - 3 : t + 1])[1] for t in rows]
    truth = recording.samples[1, rows + 1]
    missed = np.square(seen - truth).mean()
    assert missed < 0.85 * np.square(recording.samples[1, rows] - truth).mean()
    assert missed < 0.75 * truth.var()
    env = ExaBoosterDiscrete(data=str(csv), surrogate=str(out))
    assert env.describe() == {"data": "BOOSTR.csv", "plant": "plant.npz"}
    for seed in range(3):
        _, info = env.reset(seed=seed)
        row = int(env.state.row)
        for _ in range(20):
            *_, info = env.step(env.action_for(regulate(info)))
        assert info["regulator_iminer"] == pytest.approx(recording.samples[1, row + 20])
        assert abs(info["iminer"]) < 2


def test_the_command_refuses_what_it_cannot_do(
    csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"--data": str(csv), "--out": str(tmp_path / "a.npz")}
    for change, part in (
        ({"--data": str(tmp_path / "no.csv")}, "cannot be read"),
        ({"--out": str(tmp_path / "a.txt")}, "FILE.npz"),
        ({"--look_back": "4000"}, "too few"),
        ({"--hidden": "4,x"}, "hidden"),
        ({"--learning_rate": "fast"}, "learning_rate"),
        ({"--nonsense": "1"}, "nonsense"),
    ):
        words = [word for pair in {**good, **change}.items() for word in pair]
        assert main(["surrogate", *words]) == 2
        assert part in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_recording_and_surrogate_compile_for_a_device(csv: Path, tmp_path: Path) -> None:
    """With a surrogate on a recording nothing is random: both forms take the same course."""
    import jax

    rng = np.random.default_rng(0)
    kernels = [rng.normal(size=shape).astype(np.float32) / 5 for shape in ((20, 8), (8, 3))]
    layers = (
        Flatten(),
        Dense("tanh", kernels[0], np.zeros(8)),
        Dense("linear", kernels[1], np.full(3, 0.5)),
    )
    save_surrogate(Surrogate(layers, 4, PUBLISHED_RANGE), tmp_path / "plant.npz")
    env = ExaBoosterDiscrete(data=str(csv), surrogate=str(tmp_path / "plant.npz"), history=2)
    env.reset(seed=0)
    with jax.enable_x64(True):
        device = env.make(xp=jax.numpy)
        cycle = jax.jit(device.transition)
        state, key = env.state, jax.random.key(0)
        for action in rng.integers(10, 21, 15):
            state = cycle(state, action, key)
            env.step(int(action))
            np.testing.assert_allclose(state.window, env.state.window, rtol=1e-6, atol=0.0051)
            assert int(state.row) == int(env.state.row)
        start = jax.jit(device.initial)(key)
        assert start.window.shape == (5, 40)
