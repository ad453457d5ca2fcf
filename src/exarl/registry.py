"""Registries: an id names a lazily imported factory.

Three kinds are EXARL's own (agents, workflows, networks); environments live in Gymnasium's registry.
Built-in ids stand in the tables below, users add theirs with ``register``, and installed packages
plug in through entry points (groups ``exarl.agents``, ``exarl.workflows``, ``exarl.networks``).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint as Installed
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from exarl.errors import ConfigError, did_you_mean

EntryPoint = str | Callable[..., Any]
MAX_LISTED = 20
"""Ids of a module that a message names."""


def import_named(module: str) -> ModuleType:
    """Import a module that the user has named and that may lie in the folder they work in.

    That folder joins the import path here and not before, and as its last entry: a file in it takes
    the place of no other module, and none of its files is imported in a run that names none.
    """
    with contextlib.suppress(FileNotFoundError):  # the folder is gone
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)
    return importlib.import_module(module)


class Registry:
    """Maps ids of one kind to factories; a factory given as ``"module:name"`` is imported on use."""

    def __init__(
        self, kind: str, builtin: Mapping[str, str], planned: tuple[str, ...] = ()
    ) -> None:
        self.kind = kind
        self._entries: dict[str, EntryPoint] = dict(builtin)
        self._planned = planned
        self._plugins_read = False

    def register(self, id: str, entry_point: EntryPoint, *, force: bool = False) -> None:
        """Add ``id``. Raises ConfigError when it exists already as something else, unless ``force``."""
        if not isinstance(id, str) or not id:
            raise ConfigError(f"a {self.kind} id is a non-empty string, not {id!r}")
        if isinstance(entry_point, str) and not all(entry_point.partition(":")):
            raise ConfigError(
                f"entry_point of {self.kind} '{id}' is 'module:name', not '{entry_point}'"
            )
        if self._entries.get(id, entry_point) != entry_point and not force:
            raise ConfigError(
                f"{self.kind} '{id}' is registered already; pass force=True to replace it"
            )
        self._entries[id] = entry_point

    def ids(self) -> list[str]:
        """Every id that can be loaded, sorted."""
        self._read_plugins()
        return sorted(self._entries)

    def __contains__(self, id: str) -> bool:
        return id in self._entries or id in self.ids()

    def load(self, id: str) -> Any:
        """The factory behind ``id``; ConfigError with the nearest id when there is none."""
        module, id = self._import(id)
        if id not in self:
            raise ConfigError(self._unknown(id, module))
        entry = self._entries[id]
        if not isinstance(entry, str):
            return entry
        try:
            return Installed(id, entry, f"exarl.{self.kind}s").load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{self.kind} '{id}' cannot be imported: {error}") from error

    def _import(self, id: str) -> tuple[str, str]:
        """``module:id`` imports the module, which registers what it has; the two apart."""
        module, colon, name = id.partition(":")
        if not colon or id in self:
            return "", id
        try:
            import_named(module)
        except (ImportError, ValueError, TypeError) as error:
            raise ConfigError(f"{self.kind} '{id}' cannot be imported: {error}") from error
        return module, name

    def planned(self, id: str) -> bool:
        """Whether ``id`` is promised but not there."""
        return id in self._planned and id not in self

    def _read_plugins(self) -> None:
        if self._plugins_read:
            return
        self._plugins_read = True
        for point in entry_points(group=f"exarl.{self.kind}s"):
            self._entries.setdefault(point.name, point.value)

    def _unknown(self, id: str, module: str = "") -> str:
        known = self.ids()
        if module:
            own = [id for id in known if comes_from(module, self._entries[id])]
            return f"unknown {self.kind} '{id}': {what_registers(module, self.kind, own)}"
        if id in self._planned:
            return (
                f"{self.kind} '{id}' is planned but not in this version of EXARL"
                f" (available: {', '.join(known)})"
            )
        hint = did_you_mean(id, known) or f" (available: {', '.join(known)})"
        return f"unknown {self.kind} '{id}'{hint}"


def comes_from(module: str, entry: object) -> bool:
    """Whether an entry point, a function or "module:name", belongs to ``module`` or is in it."""
    home = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    return f"{home}.".startswith(f"{module}.")


def what_registers(module: str, kind: str, ids: Sequence[str]) -> str:
    """In words, the ``ids`` that a module registers; for a message about one that it does not."""
    shown = ", ".join(sorted(ids)[:MAX_LISTED]) + (", ..." if len(ids) > MAX_LISTED else "")
    return f"{module} registers {shown or f'no {kind}'}"


agents = Registry(
    "agent",
    {
        "DQN-v0": "exarl.agents.dqn:DQN",
        "DDPG-v0": "exarl.agents.ddpg:DDPG",
        "TD3-v0": "exarl.agents.td3:TD3",
        "SAC-v0": "exarl.agents.sac:SAC",
        "TQC-v0": "exarl.agents.tqc:TQC",
        "QRDQN-v0": "exarl.agents.qrdqn:QRDQN",
        "CrossQ-v0": "exarl.agents.crossq:CrossQ",
        "XQC-v0": "exarl.agents.xqc:XQC",
        "PQN-v0": "exarl.agents.pqn:PQN",
        "MBPO-v0": "exarl.agents.mbpo:MBPO",
        "A2C-v0": "exarl.agents.a2c:A2C",
        "A3C-v0": "exarl.agents.a2c:A3C",
        "PPO-v0": "exarl.agents.ppo:PPO",
        "Random-v0": "exarl.agents.random:Random",
        "Search-v0": "exarl.agents.search:SearchAgent",
    },
)
workflows = Registry(
    "workflow",
    {
        "sync": "exarl.workflows.sync:Sync",
        "async": "exarl.workflows.async_workflow:Async",
        "rma": "exarl.workflows.rma:Rma",
        "seed": "exarl.workflows.seed:Seed",
        "fused": "exarl.workflows.fused:Fused",
        "elastic": "exarl.workflows.elastic:Elastic",
    },
)
networks = Registry(
    "network",
    {
        "MLP": "exarl.networks.mlp:MLP",
        "LSTM": "exarl.networks.lstm:LSTM",
        "CNN": "exarl.networks.cnn:CNN",
    },
)
