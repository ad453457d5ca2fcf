"""What the documentation shows does run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.docs import ALL_PAGES, PAGES, ROOT, snippets


@pytest.mark.parametrize("page", [p for p in PAGES if snippets(p, "python")], ids=lambda p: p.stem)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    blocks = [block for block in snippets(page, "python") if block.runs]
    # One namespace for the page; line numbers in a traceback are those of the page.
    texts = ["\n" * block.line + block.code for block in blocks]
    program = "".join(f"exec(compile({text!r}, {str(page)!r}, 'exec'))\n" for text in texts)
    (tmp_path / "page.py").write_text(program)
    run([sys.executable, "page.py"], tmp_path)


def test_a_script_of_ones_own_runs_on_three_ranks(tmp_path: Path) -> None:
    write_files(ROOT / "docs/extending.md", tmp_path)
    flags = ["--agent", "ExaFooAgent-v0", "--workflow", "Seldom-v0", "--total_steps", "1000"]
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    run([mpiexec, "-n", "3", sys.executable, "foo.py", *flags], tmp_path)
    (directory,) = (tmp_path / "results_dir").iterdir()
    assert (directory / "summary.json").is_file()


def test_an_installed_package_plugs_in(tmp_path: Path) -> None:
    page = ROOT / "docs/extending.md"
    write_files(page, tmp_path)
    (block,) = snippets(page, "toml")
    project = tomllib.loads(block.code)["project"]
    as_installed(tmp_path, project["name"], project["version"], project["entry-points"])
    environment = {"PYTHONPATH": str(tmp_path)}
    listed = run([sys.executable, "-m", "exarl", "list"], tmp_path, environment)
    for id in ("ExaFooAgent-v0", "Seldom-v0", "ExaFooEnv-v0"):
        assert id in listed
        described = run([sys.executable, "-m", "exarl", "describe", id], tmp_path, environment)
        assert "parameters:" in described


def test_every_link_leads_somewhere() -> None:
    for page in ALL_PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def write_files(page: Path, folder: Path) -> None:
    for block in snippets(page, "python"):
        if block.file is not None:
            (folder / block.file).write_text(block.code)


def as_installed(
    folder: Path, name: str, version: str, groups: Mapping[str, Mapping[str, str]]
) -> None:
    """What pip leaves of a package, as far as entry points go."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{id} = {value}" for id, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """The output of a command in ``folder``; its errors are the test's when it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
