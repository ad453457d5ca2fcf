"""The rooms: who may import whom, and which room may use which package."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

ROWS: tuple[tuple[str, ...], ...] = (
    ("errors", "version"),
    ("types", "registry"),
    ("config", "export"),
    ("networks", "learning", "replay", "comm", "records"),
    ("agents", "envs", "data", "display", "plan"),
    ("acting", "science"),
    ("training",),
    ("workflows",),
    ("run",),
    ("report",),
    ("sweep", "dashboard"),
    ("cli",),
    ("__init__", "__main__"),
)
"""Rooms by row, lowest first: a room imports only from the rows before its own."""

NARROWER = {"agents": {"networks", "learning", "replay"}}
"""Rooms that may use only these of the row above them."""


@dataclass(frozen=True)
class Permit:
    """Where a package may be imported: rooms or files, and whether only inside a function."""

    places: tuple[str, ...]
    lazy: bool = False


EVERYWHERE = ("",)
PERMITS = {
    "numpy": Permit(EVERYWHERE),
    "msgspec": Permit(("config", "comm", "envs/external")),
    "mpi4py": Permit(("comm",), lazy=True),
    "jax": Permit(
        (
            "agents/compiled.py",
            "envs/functional.py",
            "envs/device.py",
            "networks/adapters.py",
            "networks/batch_norm.py",
        )
    ),
    "optax": Permit(("agents/compiled.py",)),
    "gymnasium": Permit(("envs", "science")),
    "safetensors": Permit(("records", "agents", "comm"), lazy=True),
    "matplotlib": Permit(("display", "report", "envs", "science", "plan"), lazy=True),
    "scipy": Permit(("science", "sweep"), lazy=True),
    "h5py": Permit(("science", "data"), lazy=True),
    "rich": Permit(("display", "cli", "sweep"), lazy=True),
    "IPython": Permit(("display/notebook.py",), lazy=True),
    "wandb": Permit(("records",), lazy=True),
    "mlflow": Permit(("records",), lazy=True),
    "tensorboard": Permit(("records",), lazy=True),
    "onnx": Permit(("export",), lazy=True),
    "PIL": Permit(("cli", "envs"), lazy=True),
    "imageio_ffmpeg": Permit(("cli",), lazy=True),
    "zmq": Permit(("envs",), lazy=True),
    "ray": Permit(("comm/cluster.py",), lazy=True),
    "optuna": Permit(("sweep", "learning/search.py"), lazy=True),
    "cmaes": Permit(("learning/search.py",), lazy=True),
    "plotly": Permit(("report",), lazy=True),
}

ROW_OF = {room: row for row, rooms in enumerate(ROWS) for room in rooms}


def room_of(module: str) -> str:
    """``exarl.agents.dqn`` -> ``agents``; the package itself is the room of the public names."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def may_import(importer: str, imported: str) -> bool:
    """Whether one room may import another."""
    if importer == imported:
        return True
    above, below = ROW_OF[imported], ROW_OF[importer]
    if above == below - 1 and importer in NARROWER:
        return imported in NARROWER[importer]
    return above < below


def test_every_room_has_its_row(sources: list[Any]) -> None:
    assert {source.room for source in sources} <= ROW_OF.keys()


def test_a_room_imports_only_from_rows_above(sources: list[Any]) -> None:
    broken = [
        f"src/exarl/{source.name}:{found.line}: {source.room} (row {ROW_OF[source.room]}) imports"
        f" {found.module} (row {ROW_OF[room_of(found.module)]})"
        for source in sources
        for found in source.imports
        if found.package == "exarl" and found.module != "exarl.__version__"
        if not may_import(source.room, room_of(found.module))
    ]
    assert not broken, "\n".join(broken)


def test_a_package_is_used_only_where_the_table_allows(sources: list[Any]) -> None:
    broken = []
    for source in sources:
        for found in source.imports:
            if found.package == "exarl" or stdlib(found) or found.typing_only:
                continue
            place = f"src/exarl/{source.name}:{found.line}: {found.module}"
            permit = PERMITS.get(found.package)
            if permit is None:
                broken.append(f"{place} is not in the table")
            elif not source.name.startswith(permit.places):
                broken.append(f"{place} belongs in {' or '.join(permit.places)}")
            elif permit.lazy and not found.lazy:
                broken.append(f"{place} belongs inside a function")
    assert not broken, "\n".join(broken)


def test_the_public_module_imports_nothing_of_its_own(sources: list[Any]) -> None:
    package = next(source for source in sources if source.name == "__init__.py")
    assert not [found for found in package.imports if not found.typing_only and not stdlib(found)]


def stdlib(found: Any) -> bool:
    return found.package in sys.stdlib_module_names


def test_jax_comes_only_when_it_is_asked_for(sources: list[Any]) -> None:
    """Agents import the compiling module inside ``set_learner``, users the adapters themselves; the
    modules made of compiled functions are imported like it."""
    heavy = (
        "exarl.agents.cloning",
        "exarl.agents.compiled",
        "exarl.agents.device_experience",
        "exarl.agents.device_replay",
        "exarl.agents.dreams",
        "exarl.agents.engine",
        "exarl.agents.experiences",
        "exarl.agents.updates",
        "exarl.agents.world_model",
        "exarl.envs.device",
        "exarl.networks.adapters",
        "exarl.workflows.fused_program",
    )
    files = tuple(name.removeprefix("exarl.").replace(".", "/") + ".py" for name in heavy)
    early = [
        f"src/exarl/{source.name}:{found.line}"
        for source in sources
        if source.name not in files
        for found in source.imports
        if found.module.startswith(heavy) and not found.lazy and not found.typing_only
    ]
    assert not early, "\n".join(early)


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("agents", "networks", True),
        ("agents", "comm", False),
        ("agents", "envs", False),
        ("envs", "comm", True),
        ("workflows", "agents", True),
        ("records", "comm", False),
        ("config", "registry", True),
        ("config", "networks", False),
        ("networks", "export", True),
        ("agents", "export", True),
        ("export", "networks", False),
        ("cli", "run", True),
        ("training", "acting", True),
        ("acting", "training", False),
        ("envs", "science", False),
        ("workflows", "run", False),
    ],
)
def test_the_rule_itself(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) is allowed
