"""What is shown of a run when it has ended: rows for the terminal, a table in a notebook."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any


def closing_rows(
    summary: Mapping[str, Any], run: Path, window: int | None = None
) -> dict[str, str]:
    """The main facts of a summary, name -> text; ``window``: the run's ``reward_window``, if known."""
    reward = summary["last_reward_mean"]
    shown = "no finished episode" if reward is None else f"{reward:.2f}"
    last = "" if window is None else f" {min(window, summary['episodes_total'])}"
    return {
        "stopped by": str(summary["reason"]),
        "reward": f"{shown} (mean of the last{last} episodes)",
        "steps": f"{summary['timesteps_total']:,} in {summary['wall_s']:.1f} s"
        f" ({summary['steps_per_s']:,.0f} steps/s, {summary['updates_per_s']:,.0f} updates/s)",
        "bound by": str(summary["bound_by"]),
        "run directory": str(run),
    }


def closing_html(summary: Mapping[str, Any], run: Path, curve: Path) -> str:
    """The rows as a table, and the picture in ``curve``, if there is one, as a part of the text."""
    cell = '<td style="text-align: left; vertical-align: top">'
    rows = "".join(
        f"<tr>{cell}<b>{escape(name)}</b></td>{cell}{escape(text)}</td></tr>"
        for name, text in closing_rows(summary, run).items()
    )
    return f"<table>{rows}</table>{_picture(curve)}"


def _picture(path: Path) -> str:
    try:
        data = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError:  # a run without episodes has no curve; another may have been moved away
        return ""
    style = "width: 100%; max-width: 720px"
    return f'<img alt="learning curve" style="{style}" src="data:image/png;base64,{data}">'
