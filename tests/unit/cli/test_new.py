"""``exarl new``: skeletons that work as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

KINDS = ("env", "agent", "workflow")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["which kind"]),
        (["enw", "x_env"], ["cannot create 'enw'", "did you mean 'env'?"]),
        (["env"], ["which name?", "exarl new env my_env"]),
        (["env", "My_env"], ["'My_env' is not a module name"]),
        (["env", "2nd"], ["is not a module name"]),
        (["env", "a-b"], ["is not a module name"]),
        (["env", "../up"], ["is not a module name"]),
        (["env", ""], ["is not a module name"]),
        (["agent", "class"], ["Python's own"]),
        (["agent", "random"], ["Python's own"]),
        (["workflow", "numpy"], ["a module 'numpy' already exists"]),
        (["env", "x_env", "--dir", "nowhere"], ["no folder nowhere"]),
        (["env", "x_env", "more"], ["unexpected 'more'"]),
        (["env", "x_env", "--force"], ["unexpected '--force'"]),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    exarl: Any, words: list[str], parts: list[str]
) -> None:
    exarl("new", *words).refused(*parts)
    assert list(Path.cwd().iterdir()) == []


def test_nothing_is_overwritten(exarl: Any) -> None:
    Path("x_env").mkdir()
    Path("x_env/mine.txt").write_text("mine")
    exarl("new", "env", "x_env").refused("x_env already exists")
    assert [path.name for path in Path.cwd().rglob("*")] == ["x_env", "mine.txt"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_of_the_template_is_left(exarl: Any, kind: str) -> None:
    Path("sub").mkdir()
    answer = exarl("new", kind, "salt_2", "--dir", "sub")
    assert answer.code == 0, answer
    made = [path for path in Path("sub/salt_2").rglob("*") if path.is_file()]
    assert len(made) == 5
    for path in made:
        text = str(path) + path.read_text()
        assert f"my_{kind}" not in text
        assert f"My{kind.capitalize()}" not in text
        assert str(path.relative_to("sub/salt_2")) in answer.out
    project = tomllib.loads(Path("sub/salt_2/pyproject.toml").read_text())["project"]
    assert project["name"] == "salt_2"
    assert list(project["entry-points"][f"exarl.{kind}s"]) == ["Salt2-v0"]


@pytest.mark.slow
def test_the_skeletons_own_tests_pass(exarl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three in one process, which has JAX to start."""
    for kind in KINDS:
        assert exarl("new", kind, f"fresh_{kind}").code == 0
    paths = [str(Path.cwd() / f"fresh_{kind}" / "src") for kind in KINDS]
    known = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*paths, known]))
    all_pass(Path.cwd(), *(f"fresh_{kind}/tests" for kind in KINDS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_they_pass_in_the_skeletons_folder(exarl: Any, kind: str) -> None:
    assert exarl("new", kind, f"fresh_{kind}").code == 0
    all_pass(Path.cwd() / f"fresh_{kind}")


def all_pass(folder: Path, *words: str) -> None:
    """Run pytest in ``folder``; all must pass."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_installed_skeletons_train_together(exarl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by ids alone, as an installation leaves them."""
    for kind in KINDS:
        assert exarl("new", kind, f"own_{kind}").code == 0
        as_installed(Path(f"own_{kind}"))
    paths = [str(Path.cwd() / f"own_{kind}" / "src") for kind in KINDS]
    known = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*paths, known]))
    ids = ["--agent", "OwnAgent-v0", "--env", "OwnEnv-v0", "--workflow", "OwnWorkflow-v0"]
    out = called("train", *ids, "--stiffness", "2", "--total_steps", "400", "--run_dir", "run")
    assert "total_steps" in Path("run/summary.json").read_text()
    assert "run directory" in out
    assert "fit to train" in called("check-env", "OwnEnv-v0")
    listed = called("list")
    assert all(f"  Own{kind.capitalize()}-v0" in listed for kind in KINDS)


def called(*words: str) -> str:
    """What ``exarl WORDS`` says in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "exarl", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_installed(folder: Path) -> None:
    """What pip leaves of a package beside its code, as far as entry points go."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / "src" / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{id} = {value}" for id, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
