"""The tutorials are run from their first block to their last, as a reader would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import ELSEWHERE, ROOT, Snippet, snippets

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
COMPILERS = ("cc", "gfortran")
SECONDS = 280


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_block_runs_in_order(page: Path, tmp_path: Path) -> None:
    blocks = all_blocks(page)
    shell = [block.code for block in blocks if block.language == "sh"]
    for name in COMPILERS:
        if re.search(rf"^{name} ", "".join(shell), re.M) and shutil.which(name) is None:
            pytest.skip(f"no {name} here")
    if "exarl sweep" in "".join(shell):
        pytest.importorskip("optuna")
        pytest.importorskip("plotly")
    program = "import subprocess\nfrom pathlib import Path\n" + "".join(map(statement, blocks))
    (tmp_path / "page.py").write_text(program)
    binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PATH": binaries},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}\n{done.stdout}\n{done.stderr}"


def test_there_are_five() -> None:
    assert [page.stem for page in TUTORIALS] == [
        "actors", "cartpole", "crashing", "fortran", "sweep"
    ]  # fmt: skip


def all_blocks(page: Path) -> list[Snippet]:
    """The blocks that are run, and those that are files, in the order of the page."""
    found = [block for language in ("sh", "python", "c", "fortran")
             for block in snippets(page, language)]  # fmt: skip
    here = [block for block in found if block.mark not in ELSEWHERE]
    return sorted(here, key=lambda block: block.line)


def statement(block: Snippet) -> str:
    """What runs a block, in a program; line numbers in a traceback are those of the page."""
    if block.file is not None:
        return f"Path({block.file!r}).write_text({block.code!r})\n"
    if block.language == "sh":
        return f"subprocess.run(['sh', '-e', '-c', {block.code!r}], check=True)\n"
    assert block.language == "python", f"line {block.line}: what is to be done with it?"
    return f"exec(compile({chr(10) * block.line + block.code!r}, 'page', 'exec'))\n"
