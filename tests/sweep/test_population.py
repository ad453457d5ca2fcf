"""A batch of trials as one program: the same numbers as one by one, and a child well looked after."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from support.matrix import SMALL_FUSED

from exarl import ExaLearner
from exarl.errors import ConfigError, ExarlError
from exarl.records.signals import StopSignals
from exarl.sweep import population
from exarl.sweep.population import run_population

WORDS = {**SMALL_FUSED, "workflow": "fused"}


def flags(**others: object) -> list[str]:
    return [
        word for name, value in {**WORDS, **others}.items() for word in (f"--{name}", f"{value}")
    ]


@pytest.mark.slow
def test_a_batch_is_what_its_trials_would_be_alone(tmp_path: Path) -> None:
    """Stopped half-way and continued; the point that diverges harms no other."""
    pytest.importorskip("jax")
    points = [{"learning_rate": rate, "gamma": 0.97} for rate in (1e30, 3e-2)]
    seeds, run = [9, 4], tmp_path / "run"
    run_population(flags(total_steps=256), points, seeds, run)
    diverged, found = run_population(flags(), points, seeds, run)
    assert "continuing at step 256" in (run / "logs" / "train.log").read_text()
    assert all(map(math.isnan, diverged))
    words = {**WORDS, **points[1], "seed": seeds[0], "run_dir": str(tmp_path / "alone")}
    alone = ExaLearner(argv=[], serial=True, progress=False, **words).run()
    assert alone is not None
    assert found[0] == pytest.approx(alone.summary["last_reward_mean"], rel=1e-3)
    assert found[1] > 0 and found[1] != found[0]


@pytest.mark.parametrize(
    ("points", "seeds", "reason"),
    [
        ([{"gama": 0.9}], [0], "^sweep: 'gama' is no number .* did you mean 'gamma'.$"),
        ([], [0], "a population needs points"),
        ([{"gamma": 0.9}], [], "a population needs points"),
        ([{"gamma": 0.9}, {"clip": 0.2}], [0], "a population needs points"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    points: list[dict[str, float]], seeds: list[int], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reason):
        run_population(flags(), points, seeds, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def fake_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """A Python that runs ``program`` whatever it is asked to."""
    python = tmp_path / "python"
    (tmp_path / "program.py").write_text(program)
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'program.py'}\n")
    python.chmod(0o755)
    real = population.child.tied
    monkeypatch.setattr(population.child, "tied", lambda words: real([str(python), *words[1:]]))


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; print('one'); print('exarl: two', file=sys.stderr); sys.exit(1)", "^two$"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("", "cannot read .*population.csv"),
    ],
)
def test_a_training_that_fails_says_why(
    program: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_train(tmp_path, monkeypatch, program)
    with pytest.raises(ExarlError, match=reason):
        run_population([], [{"gamma": 0.9}], [0], tmp_path / "run")


def test_a_stop_signal_is_passed_on_and_told_to_who_listened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    fake_train(
        tmp_path,
        monkeypatch,
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)\n",
    )

    def stop() -> None:
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    with StopSignals() as signals, pytest.raises(population.PopulationStopped) as stopped:
        run_population([], [{"gamma": 0.9}], [0], tmp_path / "run")
    assert signals.received == signal.SIGTERM
    assert stopped.value.exit_code == 143
