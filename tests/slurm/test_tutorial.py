"""The tutorial about crashing simulations, on a cluster."""

from __future__ import annotations

import shlex
from typing import Any

from support.docs import ROOT, snippets
from support.jobs import summary_of

PAGE = ROOT / "docs/tutorials/crashing.md"


def test_the_job_of_the_tutorial_survives_its_simulation(site: Any) -> None:
    (module,) = (block for block in snippets(PAGE, "python") if block.file)
    (site.folder / str(module.file)).write_text(module.code)
    (block,) = (block for block in snippets(PAGE, "sh") if block.mark == "needs Slurm")
    (command,) = block.commands()
    words = shlex.split(command)
    assert words[:2] == ["exarl", "slurm"] and "--submit" in words
    id = site.submit(*(word for word in words[2:] if word != "--submit"))
    job = site.end(id)
    assert job["JobState"] == "COMPLETED", site.log()
    (run,) = site.runs()
    assert run.name == f"fragile-{id}"
    summary = summary_of(run)
    assert summary["timesteps_total"] >= 4000 and summary["env_failures"]["crash"] > 0
