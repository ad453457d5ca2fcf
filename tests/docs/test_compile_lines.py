"""The documented lines that compile environments in C and Fortran are run as they stand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.docs import ROOT, snippets
from support.programs import CC, FORTRAN, MPICC

from exarl.envs import make_env

COMPILERS = {"cc": CC, "gfortran": FORTRAN, "mpicc": MPICC}
PAGES = {"docs/external.md": {"decay", "oscillator"},
         "examples/client/README.md": {"pendulum", "heater"},
         "examples/external/README.md": {"cartpole", "oscillator", "rod_mpi"}}  # fmt: skip
"""Page -> the programs that its lines make."""


def compile_lines(page: Path) -> list[str]:
    """The lines of a page's shell blocks that compile something, or are needed for it."""
    lines = [line for block in snippets(page, "sh") for line in block.code.splitlines()]
    return [line for line in lines if line.split(" ")[0] in COMPILERS]


@pytest.mark.parametrize("page", PAGES)
def test_the_documented_lines_compile_the_examples(page: str, tmp_path: Path) -> None:
    lines = compile_lines(ROOT / page)
    used = {line.split(" ")[0] for line in lines}
    missing = [name for name in used if COMPILERS[name] is None]
    if "cc" in missing:
        pytest.skip("no C compiler")
    name = "client" if "client" in page else "external"
    folder = Path(shutil.copytree(ROOT / "examples" / name, tmp_path / name))
    for block in snippets(ROOT / page, "c"):
        if block.file:
            (folder / block.file).write_text(block.code)
    runnable = [line for line in lines if line.split(" ")[0] not in missing]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(runnable)],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    needs = {"oscillator": "gfortran", "heater": "gfortran", "rod_mpi": "mpicc"}
    for name in PAGES[page]:
        if needs.get(name) in missing:
            continue
        assert os.access(folder / name, os.X_OK), f"no line of {page} makes {name}"
        if name != "rod_mpi":
            id = "ExaClient-v0" if "client" in page else "ExaExternal-v0"
            env, _ = make_env(id, {"command": str(folder / name)})
            assert np.shape(env.reset(seed=1)[0])
            assert len(env.step(env.action_space.sample())) == 5
            env.close()
