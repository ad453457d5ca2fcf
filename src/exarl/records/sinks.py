"""Metrics for services beside the run's own files: Weights & Biases and MLflow, offline by default."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import queue
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from exarl.errors import ConfigError, install
from exarl.records.directory import RunDirectory, read_json, write_json

log = logging.getLogger(__name__)

PROJECT = "exarl"
_BACKLOG = 100  # rows that wait for a slow sink; it misses further ones
_LAST_WORDS_S = 10.0  # that a sink has to write its last rows when the run ends


class MetricsSink(Protocol):
    """Receives scalars; ``EventWriter`` for TensorBoard is one."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Store ``values`` as those of ``step``."""

    def close(self) -> None:
        """Release everything; a second call does nothing."""


def check_sinks(names: Sequence[str], online: bool = False) -> None:
    """ConfigError when the package or the address of a sink is missing."""
    for name in names:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # a folder of that name is no package
            raise ConfigError(f"log_to {name} needs its package: {install(name)}")
    if online and "mlflow" in names and not os.environ.get("MLFLOW_TRACKING_URI"):
        raise ConfigError("log_online needs MLFLOW_TRACKING_URI, the address of MLflow's server")


def open_sinks(
    names: Sequence[str], run: RunDirectory, *, online: bool = False, project: str | None = None
) -> list[MetricsSink]:
    """The sinks ``names`` of a run that has begun; a resumed run continues those it had before."""
    makers: dict[str, Callable[[], MetricsSink]] = {
        "wandb": lambda: _Wandb(run, online, project or os.environ.get("WANDB_PROJECT", PROJECT)),
        "mlflow": lambda: _Mlflow(
            run, online, project or os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        ),
    }
    return [BackgroundSink(name, makers[name]) for name in dict.fromkeys(names)]


class BackgroundSink:
    """A sink that is created and called in its own thread: the run never waits for it or fails with it.

    A sink that fails is dropped, with one line in the log.
    """

    def __init__(self, name: str, make: Callable[[], MetricsSink]) -> None:
        self._name = name
        self._make = make
        self._rows: queue.SimpleQueue[tuple[int, dict[str, float]] | None] = queue.SimpleQueue()
        self._closed = self._lost = False
        self._thread = threading.Thread(target=self._work, name=f"log_to {name}", daemon=True)
        self._thread.start()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        if not (self._closed or self._lost) and self._rows.qsize() < _BACKLOG:
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            self._rows.put((step, finite))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._rows.put(None)
        self._thread.join(_LAST_WORDS_S)
        if self._thread.is_alive():
            log.warning("log_to %s did not finish in %g s", self._name, _LAST_WORDS_S)

    def _work(self) -> None:
        try:
            sink = self._make()
            while (row := self._rows.get()) is not None:
                sink.scalars(*row)
            sink.close()
        except Exception as error:  # noqa: BLE001 - the service's package may raise anything
            self._lost = True
            text = " ".join(str(error).split())[:300]
            log.warning(
                "log_to %s failed, the run goes on without it: %s: %s",
                self._name,
                type(error).__name__,
                text,
            )


class _Wandb:
    """A run of Weights & Biases, its files in ``wandb/`` of the run directory."""

    def __init__(self, run: RunDirectory, online: bool, project: str) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "true" if online else "false")
        import wandb

        if online and not wandb.login(prompt=False):
            raise ConfigError("there is no API key: 'wandb login' first")
        known = _stored_id(run, "wandb")
        id = known or secrets.token_hex(4)
        self._run = wandb.init(
            dir=run.path,
            project=project,
            id=id,
            name=run.path.resolve().name,
            config=_stored_config(run),
            resume="allow" if online else None,
            settings=wandb.Settings(
                mode="online" if online else "offline", console="off", silent=True
            ),
        )
        if known is None:
            _store_id(run, "wandb", id)
        # The step of W&B can only grow; that of a run resumed from a checkpoint goes back.
        self._run.define_metric("*", step_metric="timesteps_total")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "timesteps_total": step})

    def close(self) -> None:
        self._run.finish()


class _Mlflow:
    """A run of MLflow, its files in ``mlruns/`` of the run directory or at MLFLOW_TRACKING_URI."""

    def __init__(self, run: RunDirectory, online: bool, project: str) -> None:
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            place = (run.path.resolve() / "mlruns").as_uri()
            # MLflow prefers databases; a file store needs no server and no further package.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        if not online:
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient
        from mlflow.utils.time import get_current_time_millis

        self._metric, self._now = Metric, get_current_time_millis
        self._client = MlflowClient(tracking_uri=place)
        known = _stored_id(run, "mlflow")
        if known is None:
            found = self._client.get_experiment_by_name(project)
            experiment = found.experiment_id if found else self._client.create_experiment(project)
            made = self._client.create_run(experiment, run_name=run.path.resolve().name)
            known = made.info.run_id
            parameters = [Param(key, value[:500]) for key, value in _flat(_stored_config(run))]
            for first in range(0, len(parameters), 100):  # the most that MLflow accepts at once
                self._client.log_batch(known, params=parameters[first : first + 100])
            _store_id(run, "mlflow", known)
        else:
            self._client.update_run(known, status="RUNNING")
        self._id = known

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        now = self._now()
        metrics = [self._metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _stored_config(run: RunDirectory) -> dict[str, Any]:
    """The run's ``config.json`` without its seal."""
    return {name: part for name, part in read_json(run.config).items() if name != "seal"}


def _flat(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    families = {name: part for name, part in config.items() if name != "origins"}
    return [(f"{name}.{key}", str(v)) for name, part in families.items() for key, v in part.items()]


def _stored_id(run: RunDirectory, name: str) -> str | None:
    """The id that an earlier part of this run was logged under."""
    file = run.path / f"{name}.json"
    return str(read_json(file)["id"]) if file.is_file() else None


def _store_id(run: RunDirectory, name: str, id: str) -> None:
    write_json(run.path / f"{name}.json", {"id": id})
