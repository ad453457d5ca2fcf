"""Registries: ids, lazy factories, plug-ins of other packages, and good advice."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exarl import registry
from exarl.errors import ConfigError
from exarl.registry import Registry

OWN = (registry.agents, registry.workflows, registry.networks)


@pytest.fixture
def animals() -> Registry:
    return Registry("animal", {"Cat-v0": "fractions:Fraction"}, planned=("Yeti-v0",))


def add_package(folder: Path, name: str, entry_points: str, source: str = "") -> None:
    """A package as pip would leave it: its module and the metadata that announces plug-ins."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    (folder / f"{name}.py").write_text(source)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path in which packages can be put."""
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


# -- register and load -------------------------------------------------------------------------------


def test_a_factory_is_imported_when_it_is_loaded(animals: Registry, site: Path) -> None:
    (site / "lazy_animal.py").write_text("class Dog: pass\n")
    animals.register("Dog-v0", "lazy_animal:Dog")
    assert "Dog-v0" in animals
    assert "lazy_animal" not in sys.modules
    assert animals.load("Dog-v0").__name__ == "Dog"
    assert sys.modules.pop("lazy_animal")


def test_a_factory_may_be_the_object_itself(animals: Registry) -> None:
    animals.register("Dict-v0", dict)
    assert animals.load("Dict-v0") is dict


def test_keywords_are_the_predecessors(animals: Registry) -> None:
    animals.register(id="Dict-v0", entry_point=dict)
    assert animals.ids() == ["Cat-v0", "Dict-v0"]


def test_an_id_is_taken_once_unless_forced(animals: Registry) -> None:
    with pytest.raises(ConfigError, match=r"'Cat-v0' is registered already; .*force=True"):
        animals.register("Cat-v0", dict)
    animals.register("Cat-v0", dict, force=True)
    assert animals.load("Cat-v0") is dict
    animals.register("Cat-v0", dict)  # the same again, as an installed package's module may do


@pytest.mark.parametrize("id", ["", None, 5, ["x"]])
def test_an_id_is_a_word(animals: Registry, id: object) -> None:
    with pytest.raises(ConfigError, match="a animal id is a non-empty string"):
        animals.register(id, dict)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "entry_point", ["module", "package.module.Name", "", "module:", ":Name", ":"]
)
def test_an_entry_point_names_a_module_and_an_object(animals: Registry, entry_point: str) -> None:
    with pytest.raises(ConfigError, match="'module:name'"):
        animals.register("Dog-v0", entry_point)


@pytest.mark.parametrize("entry_point", ["no_such_module:Dog", "fractions:NoSuchName"])
def test_what_cannot_be_imported_is_named(animals: Registry, entry_point: str) -> None:
    animals.register("Dog-v0", entry_point)
    with pytest.raises(ConfigError, match="animal 'Dog-v0' cannot be imported") as caught:
        animals.load("Dog-v0")
    assert "\n" not in str(caught.value)


def test_two_registries_do_not_share(animals: Registry) -> None:
    other = Registry("animal", {})
    animals.register("Dog-v0", dict)
    assert "Dog-v0" not in other


# -- advice ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("Cat-v1", "unknown animal 'Cat-v1'; did you mean 'Cat-v0'"),
        ("Zebra", r"unknown animal 'Zebra' \(available: Cat-v0\)"),
        ("", r"unknown animal '' \(available: Cat-v0\)"),
        ("Yeti-v0", "animal 'Yeti-v0' is planned but not in this version of EXARL"),
    ],
)
def test_an_unknown_id_gets_advice(animals: Registry, id: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        animals.load(id)


def test_a_planned_id_may_be_registered_by_a_user(animals: Registry) -> None:
    animals.register("Yeti-v0", dict)
    assert animals.load("Yeti-v0") is dict


def test_every_built_in_id_loads() -> None:
    """In a process of its own: other tests register what is not built in."""
    program = (
        "from exarl import registry\n"
        "for known in (registry.agents, registry.workflows, registry.networks):\n"
        "    assert known.ids()\n"
        "    for id in known.ids():\n"
        "        assert known.load(id).__doc__, id\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("known", OWN, ids=lambda known: known.kind)
def test_no_id_is_both_planned_and_there(known: Registry) -> None:
    assert not set(known.ids()) & set(known._planned)


def test_every_id_of_the_design_is_there_or_planned() -> None:
    ids = {
        "agent": "DQN-v0 DDPG-v0 TD3-v0 SAC-v0 A2C-v0 A3C-v0 PPO-v0 Random-v0",
        "workflow": "sync async rma seed fused elastic",
    }
    for known in (registry.agents, registry.workflows):
        assert set(ids[known.kind].split()) <= {*known.ids(), *known._planned}


# -- other packages ----------------------------------------------------------------------------------


def test_an_installed_package_plugs_in(animals: Registry, site: Path) -> None:
    add_package(site, "zoo", "[exarl.animals]\nLion-v0 = zoo:Lion\n", "class Lion: pass\n")
    assert "Lion-v0" in animals
    assert animals.ids() == ["Cat-v0", "Lion-v0"]
    assert "zoo" not in sys.modules
    assert animals.load("Lion-v0").__name__ == "Lion"
    assert sys.modules.pop("zoo")


@pytest.mark.parametrize("value", ["zoo2:Lion [extra]", "zoo2:Den.Lion"])
def test_every_legal_entry_point_is_understood(animals: Registry, site: Path, value: str) -> None:
    source = "class Lion: pass\nclass Den:\n    class Lion: pass\n"
    add_package(site, "zoo2", f"[exarl.animals]\nLion-v0 = {value}\n", source)
    assert animals.load("Lion-v0").__name__ == "Lion"
    assert sys.modules.pop("zoo2")


def test_a_plug_in_does_not_replace_what_is_there(animals: Registry, site: Path) -> None:
    points = "[exarl.animals]\nCat-v0 = zoo3:Cat\nDog-v0 = zoo3:Dog\n"
    add_package(site, "zoo3", points)
    animals.register("Dog-v0", dict)
    assert animals.load("Cat-v0").__name__ == "Fraction"
    assert animals.load("Dog-v0") is dict


def test_a_broken_plug_in_harms_nobody_but_itself(animals: Registry, site: Path) -> None:
    add_package(site, "zoo4", "[exarl.animals]\nOwl-v0 = zoo4:Owl\nNo-v0 = missing_zoo:No\n")
    assert animals.ids() == ["Cat-v0", "No-v0", "Owl-v0"]
    assert animals.load("Cat-v0").__name__ == "Fraction"
    for id in ("Owl-v0", "No-v0"):
        with pytest.raises(ConfigError, match=f"animal '{id}' cannot be imported"):
            animals.load(id)
    sys.modules.pop("zoo4", None)


def test_plug_ins_of_every_kind_reach_the_command_line(tmp_path: Path) -> None:
    points = (
        "[exarl.agents]\nFoo-v0 = foo:Foo\n[exarl.workflows]\nfoo = foo:Flow\n"
        "[exarl.networks]\nFooNet = foo:Net\n"
    )
    source = (
        "import gymnasium\nclass Foo:\n    'A foo.'\nclass Flow:\n    'Flows.'\n"
        "class Net:\n    'Nets.'\ngymnasium.register('FooEnv-v0', 'foo:Foo')\n"
    )
    add_package(tmp_path, "foo", points, source)
    listed = _exarl(tmp_path, "list").stdout
    for id in ("Foo-v0", "foo", "FooNet"):
        assert f"  {id}\n" in listed
    assert "A foo." in _exarl(tmp_path, "describe", "Foo-v0").stdout
    assert "A foo." in _exarl(tmp_path, "describe", "foo:FooEnv-v0").stdout


def _exarl(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    places = [str(path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-m", "exarl", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
