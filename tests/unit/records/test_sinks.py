"""Sinks get what the run's own files get, and can do a run no harm."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from support.runs import make_row, write_run

from exarl.errors import ConfigError
from exarl.records import sinks
from exarl.records.metrics import MetricsLog
from exarl.records.sinks import BackgroundSink, check_sinks, open_sinks
from exarl.run.checks import check_configuration
from exarl.run.configure import configure


class Kept:
    """Keeps what it gets; told to, it fails at a row, at its end, or hangs."""

    def __init__(self, fails: str = "") -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.fails = fails
        self.closed = 0
        self.release = threading.Event()
        if fails == "making":
            raise RuntimeError("no such server")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        if self.fails == "row":
            raise OSError("network\nis down")
        if self.fails == "hang":
            self.release.wait(30)
        self.rows.append((step, dict(values)))

    def close(self) -> None:
        self.closed += 1
        if self.fails == "close":
            raise ValueError("not yet")


def test_every_row_arrives_in_order_before_close_returns() -> None:
    kept = Kept()
    sink = BackgroundSink("kept", lambda: kept)
    for step in range(50):
        sink.scalars(step, {"a": float(step), "nan": float("nan"), "inf": float("inf")})
    sink.close()
    sink.close()
    sink.scalars(51, {"a": 1.0})
    assert kept.rows == [(step, {"a": float(step)}) for step in range(50)]
    assert kept.closed == 1


@pytest.mark.parametrize("fails", ["making", "row", "close"])
def test_one_that_fails_is_given_up_with_one_line(
    fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        sink = BackgroundSink("kept", lambda: Kept(fails))
        for step in range(20):
            sink.scalars(step, {"a": 1.0})
            time.sleep(0.001)
        sink.close()
    assert len(caplog.records) == 1
    assert "log_to kept failed, the run goes on without it" in caplog.text


def test_one_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sinks, "_LAST_WORDS_S", 0.05)
    kept = Kept("hang")
    sink = BackgroundSink("kept", lambda: kept)
    began = time.monotonic()
    for step in range(10_000):
        sink.scalars(step, {"a": 1.0})
    sink.close()
    assert time.monotonic() - began < 2
    assert "did not finish" in caplog.text
    kept.release.set()
    sink._thread.join(5)
    assert len(kept.rows) <= 102  # the backlog has an end


def test_sinks_get_a_row_a_second_the_last_row_and_evaluations(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rows=1)
    kept = Kept()
    log = MetricsLog(run, ["loss"], sinks=[BackgroundSink("kept", lambda: kept)])
    for iteration in range(1, 1001):
        log.write(make_row(iteration, 1.0))
    log.evaluated(25_000, [3.0, 5.0], [1, 1])
    log.close()
    log.abandon()
    steps = [step for step, _ in kept.rows]
    assert steps[-1] == 25_000  # the last row, after the evaluation
    assert (25_000, {"evaluation/reward_mean": 4.0}) in kept.rows
    assert len(steps) <= 10
    assert kept.rows[-1][1]["loss"] == pytest.approx(0.001)


@pytest.mark.parametrize("folder", [False, True])
def test_a_missing_package_is_refused(
    folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "no_such_package"
    monkeypatch.syspath_prepend(tmp_path)
    if folder:  # W&B leaves folders of its own name, which can be imported where one works
        (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=rf"log_to {name} needs.*pip install 'exarl\[{name}\]'"):
        check_sinks([name])


def test_log_to_is_checked_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks.importlib.util, "find_spec", lambda name: None)
    configuration = configure(flags=["--log_to", "wandb,mlflow", "--log_project", "mine"])
    assert configuration.learner.log_to == ("wandb", "mlflow")
    with pytest.raises(ConfigError, match="log_to wandb needs"):
        check_configuration(configuration)
    with pytest.raises(ConfigError, match="log_to is"):
        configure(flags=["--log_to", "wanbd"])


def test_a_server_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    check_sinks(["mlflow"])
    with pytest.raises(ConfigError, match="log_online needs MLFLOW_TRACKING_URI"):
        check_sinks(["mlflow"], online=True)


def log_twice(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    """A run and its continuation, a few rows each."""
    run = write_run(tmp_path / "run", rows=1)
    for part in range(2):
        (sink,) = open_sinks([name], run)
        for step in (10, 20):
            sink.scalars(100 * part + step, {"episode_reward_mean": float(step), "time/env": 0.5})
        sink.close()
    assert not caplog.records
    return run.path


def test_mlflow_keeps_one_run_in_the_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    keep_environment(monkeypatch)
    path = log_twice("mlflow", tmp_path, caplog)

    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("exarl")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["agent.gamma"] == "0.99"
    history = client.get_metric_history(run.info.run_id, "episode_reward_mean")
    assert [(m.step, m.value) for m in history] == [(10, 10), (20, 20), (110, 10), (120, 20)]


def test_wandb_keeps_one_id_in_the_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wandb = pytest.importorskip("wandb")
    keep_environment(monkeypatch)
    monkeypatch.setenv("WANDB_MODE", "online")  # what is offline stays so
    path = log_twice("wandb", tmp_path, caplog)
    wandb.teardown()  # waits until its process has written all, as the end of ours does
    parts = sorted(path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len({part.name for part in parts}) == 1  # one id; two parts unless in one second
    assert all(b"episode_reward_mean" in part.read_bytes() for part in parts)


def test_a_run_of_wandb_is_finished_after_its_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_environment(monkeypatch)
    calls: list[str] = []
    service = SimpleNamespace(
        define_metric=lambda name, step_metric: calls.append("define"),
        log=lambda values: calls.append(f"log {values['timesteps_total']}"),
        finish=lambda: calls.append("finish"),
    )
    package = SimpleNamespace(init=lambda **settings: service, Settings=dict)
    monkeypatch.setitem(sys.modules, "wandb", package)
    (sink,) = open_sinks(["wandb"], write_run(tmp_path / "run", rows=1))
    for step in (10, 20):
        sink.scalars(step, {"loss": 1.0})
    sink.close()
    sink.close()
    assert calls == ["define", "log 10", "log 20", "finish"]


class FakeClient:
    """A client of MLflow that notes whether its package may report home."""

    seen: ClassVar[list[str | None]] = []

    def __init__(self, tracking_uri: str) -> None:
        self.seen.append(os.environ.get("MLFLOW_DISABLE_TELEMETRY"))

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="1")

    def create_run(self, experiment: str, run_name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id="2"))

    def log_batch(self, id: str, **content: Any) -> None:
        pass

    def set_terminated(self, id: str) -> None:
        pass


@pytest.mark.parametrize(
    ("online", "chosen", "expected"),
    [(False, None, "true"), (False, "false", "false"), (True, None, None)],
)
def test_mlflow_offline_reports_nothing_home_unless_the_user_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    online: bool,
    chosen: str | None,
    expected: str | None,
) -> None:
    keep_environment(monkeypatch)
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    if chosen is not None:
        monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", chosen)
    monkeypatch.setattr(FakeClient, "seen", [])
    modules = {
        "entities": SimpleNamespace(Metric=tuple, Param=lambda *pair: pair),
        "tracking": SimpleNamespace(MlflowClient=FakeClient),
        "utils.time": SimpleNamespace(get_current_time_millis=lambda: 0),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"mlflow.{name}", module)
    (sink,) = open_sinks(["mlflow"], write_run(tmp_path / "run", rows=1), online=online)
    sink.close()
    assert FakeClient.seen == [expected]


def keep_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that the sinks set are gone after the test, those of the user during it."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(name)
    for name in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
