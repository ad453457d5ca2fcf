"""The display of a run, in both forms."""

from __future__ import annotations

import io
import math
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from exarl.display import progress
from exarl.display.panel import plain_line
from exarl.display.progress import make_progress
from exarl.records.stops import eta_seconds, fraction_done

TITLE = "DQN-v0 · CartPole-v1 · sync"
STOPS = {"total_steps": 60_000, "n_episodes": None, "wall_time": None, "target_reward": 475.0}
ROW: dict[str, Any] = {
    "training_iteration": 47,
    "timesteps_total": 12_032,
    "episodes_total": 310,
    "episode_reward_mean": 187.21,
    "episode_reward_min": 9.0,
    "episode_reward_max": 500.0,
    "episode_len_mean": 187.21,
    "time_total_s": 2.0,
    "steps_per_s": 6120.3,
    "updates_per_s": 6098.0,
    "updates_total": 11_032,
    "policy_lag_mean": 0.0,
    "policy_lag_max": 0,
    "env_restarts": 0,
    "loss": 0.021,
    "epsilon": 0.4,
    "time/env": 0.31,
    "time/inference": 0.2,
    "time/learn": 0.45,
    "time/wait": 0.04,
}
LINE = (
    "12,032 steps  |  310 episodes  |  reward 187.2 (9.0 .. 500.0)  |  6,120 steps/s"
    "  |  6,098 updates/s  |  loss 0.021  |  ETA 0:08"
)
ODD_ROWS = [
    {},
    dict.fromkeys(ROW),
    dict.fromkeys(ROW, math.nan),
    dict.fromkeys(ROW, math.inf),
    dict.fromkeys(ROW, ""),
    dict.fromkeys(ROW, 0),
    dict.fromkeys(ROW, -5.5),
    dict.fromkeys(ROW, 1e-310),
    dict.fromkeys(ROW, 1e300),
    {**ROW, **{f"time/part {i}": 0.3 for i in range(12)}},
]


class Clock:
    """Stands in for ``time`` inside the module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


class Broken(io.StringIO):
    """A stream that fails from the n-th write on."""

    def __init__(self, error: Exception, working: int) -> None:
        super().__init__()
        self.error, self.working = error, working

    def write(self, text: str) -> int:
        self.working -= 1
        if self.working < 0:
            raise self.error
        return super().write(text)


def screen(output: str, columns: int) -> list[str]:
    """The lines that a terminal would show: what cursor movements overwrite is gone."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", output):
        if token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif re.fullmatch(r"\x1b\[\d*A", token):
            row -= int(token[2:-1] or 1)
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token[0] not in "\x1b\r":
            lines[row] += token
    assert all(len(line) <= columns for line in lines)
    return lines


# --- arithmetic


def test_losses_of_actor_and_critic_are_shown() -> None:
    row = {**ROW, "critic_loss": 0.5, "policy_loss": -3.0}
    del row["loss"]
    assert "critic loss 0.5  |  policy loss -3" in plain_line(row, STOPS)
    assert "critic loss 0.5  |  ETA" in plain_line({**row, "policy_loss": math.nan}, STOPS)
    out = io.StringIO()
    shown = make_progress(TITLE, STOPS, out, live=True)
    shown.update(row)
    shown.close()
    assert re.search(r"critic loss +0\.5", re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()))


def test_episodes_to_come_are_as_long_as_those_before_and_nothing_is_compiled() -> None:
    row = {
        "timesteps_total": 1000,
        "episodes_total": 10,
        "steps_per_s": 50.0,
        "time_total_s": 900.0,
    }
    assert eta_seconds(row, {"n_episodes": 30}) == pytest.approx(2000 / 50)
    del row["steps_per_s"]
    assert eta_seconds(row, {"n_episodes": 30}) == pytest.approx(1800)


@pytest.mark.parametrize(
    ("row", "stops", "fraction", "eta"),
    [
        ({"timesteps_total": 25, "steps_per_s": 5}, {"total_steps": 100}, 0.25, 15.0),
        ({"timesteps_total": 25, "time_total_s": 10}, {"total_steps": 100}, 0.25, 30.0),
        ({"timesteps_total": 25, "time_total_s": 10, "steps_per_s": 0}, {"total_steps": 100}, 0.25, 30),
        ({"timesteps_total": 25}, {"total_steps": 100}, 0.25, None),
        ({"episodes_total": 10, "time_total_s": 4}, {"n_episodes": 40}, 0.25, 12.0),
        ({"time_total_s": 30}, {"wall_time": 120}, 0.25, 90.0),
        ({"timesteps_total": 130, "steps_per_s": 5}, {"total_steps": 100}, 1.0, 0.0),
        ({"timesteps_total": 0, "time_total_s": 1}, {"total_steps": 100}, 0.0, None),
        ({"timesteps_total": 1}, {"total_steps": None, "target_reward": 5.0}, None, None),
        ({"timesteps_total": 1}, {"total_steps": 0}, None, None),
        ({"timesteps_total": math.nan}, {"total_steps": 100}, None, None),
        ({}, {"total_steps": 100}, None, None),
        ({"timesteps_total": 1, "steps_per_s": 1e-310}, {"total_steps": 100}, 0.01, None),
    ],
)  # fmt: skip
def test_fraction_and_eta(
    row: dict[str, Any], stops: dict[str, Any], fraction: float | None, eta: float | None
) -> None:
    assert fraction_done(row, stops) == fraction
    assert eta_seconds(row, stops) == (eta if eta is None else pytest.approx(eta))


def test_the_criterion_that_ends_the_run_first_counts() -> None:
    row = {"timesteps_total": 50, "episodes_total": 1, "time_total_s": 10.0, "steps_per_s": 5.0}
    stops = {"total_steps": 100, "n_episodes": 1000, "wall_time": 40.0}
    assert fraction_done(row, stops) == 0.5
    assert eta_seconds(row, stops) == 10.0
    assert eta_seconds(row, {**stops, "wall_time": 12.0}) == pytest.approx(2.0)


# --- plain lines


def test_plain_line() -> None:
    assert plain_line(ROW, STOPS) == LINE
    assert plain_line(ROW, STOPS, last=True) == LINE.replace("ETA 0:08", "elapsed 0:02")
    assert plain_line({"timesteps_total": 5, "loss": math.nan}, STOPS) == "5 steps"
    late = {**ROW, "policy_lag_mean": 1.5, "env_restarts": 2}
    assert "lag 1.5  |  2 env restarts  |  ETA" in plain_line(late, STOPS)


@pytest.mark.parametrize("row", ODD_ROWS)
def test_odd_rows_make_lines(row: dict[str, Any]) -> None:
    assert "\n" not in plain_line(row, STOPS)
    assert "nan" not in plain_line(row, STOPS, last=True)


def test_first_row_one_an_interval_and_the_last(clock: Clock) -> None:
    stream = io.StringIO()
    shown = make_progress(TITLE, STOPS, stream, interval=10.0)
    for step in range(1, 26):
        shown.update({"timesteps_total": step})
        clock.now += 1
    shown.note("checkpoint written")
    shown.close()
    shown.close()
    shown.update({"timesteps_total": 99})
    shown.note("too late")
    lines = ["1 steps", "11 steps", "21 steps", "checkpoint written", "25 steps"]
    assert stream.getvalue().splitlines() == [TITLE, *lines]


def test_what_goes_on_meanwhile_is_a_line_when_it_begins() -> None:
    stream = io.StringIO()
    shown = make_progress(TITLE, STOPS, stream)
    shown.busy("compiling ...")
    assert stream.getvalue().splitlines() == [TITLE, "compiling ..."]
    shown.busy("")
    shown.note("compiled")
    assert stream.getvalue().splitlines() == [TITLE, "compiling ...", "compiled"]


def test_a_row_already_shown_is_not_shown_again(clock: Clock) -> None:
    stream = io.StringIO()
    shown = make_progress(TITLE, STOPS, stream)
    shown.update({"timesteps_total": 1})
    shown.close()
    assert stream.getvalue().splitlines() == [TITLE, "1 steps"]


def test_a_stream_of_few_characters() -> None:
    raw = io.BytesIO()
    shown = make_progress(TITLE, STOPS, io.TextIOWrapper(raw, encoding="ascii"))
    shown.note("µ")
    assert raw.getvalue().decode() == "DQN-v0 ? CartPole-v1 ? sync\n?\n"


# --- the live panel


def draw(monkeypatch: pytest.MonkeyPatch, columns: int, row: dict[str, Any], **stops: Any) -> str:
    """What a terminal of ``columns`` shows after one row."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "40")
    stream = io.StringIO()
    shown = make_progress(TITLE, {**STOPS, **stops}, stream, live=True)
    shown.update(row)  # too soon after the first drawing: kept for the end
    shown.close()
    return "\n".join(screen(stream.getvalue(), columns)).rstrip()


def test_panel_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    text = draw(monkeypatch, 80, ROW, n_episodes=500, wall_time=3700)
    assert text.splitlines() == [
        "╭─ DQN-v0 · CartPole-v1 · sync ────────────────────────────────────────────────╮",
        "│ ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━─────────────────────  62 %                 │",
        "│ reward       187.2 (9.0 .. 500.0)  target 475                                │",
        "│ steps        12,032 / 60,000          steps/s      6,120                     │",
        "│ episodes     310 / 500                episode len  187.2                     │",
        "│ updates      11,032                   updates/s    6,098                     │",
        "│ elapsed      0:02 / 1:01:40           loss         0.021                     │",
        "│ epsilon      0.4                                                             │",
        "│ time         ███████████████  env 31 %  inference 20 %  learn 45 %  wait 4 % │",
        "╰──────────────────────────────────────────────────────────────────────────────╯",
    ]


@pytest.mark.parametrize("columns", [30, 50, 64, 80, 120, 200])
@pytest.mark.parametrize("row", [ROW, *ODD_ROWS])
def test_panel_fits_any_width(
    columns: int, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = draw(monkeypatch, columns, row)  # screen() checks that no line is too long
    assert text.startswith("╭─ DQN")
    assert text.endswith("╯")
    assert "nan" not in text


def test_what_matters_only_sometimes(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = draw(monkeypatch, 80, ROW)
    assert "policy lag" not in calm
    assert "restarts" not in calm
    stormy = {**ROW, "policy_lag_mean": 1.25, "policy_lag_max": 4, "env_restarts": 2}
    text = draw(monkeypatch, 80, stormy)
    assert "policy lag   1.25 (max 4)" in text
    assert "env restarts 2" in text
    assert "%" not in draw(monkeypatch, 80, {"timesteps_total": 5}, total_steps=None)


def test_live_draws_at_most_four_times_a_second(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    panel = progress.panel

    def count(title: str, row: Any, *rest: Any, **how: Any) -> Any:
        drawn.append(row.get("timesteps_total"))
        return panel(title, row, *rest, **how)

    monkeypatch.setattr(progress, "panel", count)
    shown = make_progress(TITLE, STOPS, io.StringIO(), live=True)
    for step in range(100):
        clock.now += 0.01
        shown.update({"timesteps_total": step})
    shown.close()
    assert drawn[0] is None
    assert drawn[-1] == 99
    assert 3 <= len(drawn) - 2 <= 4  # one second of updates


def test_notes_stand_above_the_panel_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    shown = make_progress("[red]" + TITLE, STOPS, stream, live=True)
    shown.update(ROW)
    shown.note("[bold]checkpoint[/] written :smile: 12")
    shown.note("a path that is longer than the terminal: " + "x" * 60)
    shown.close()
    shown.note("too late")
    lines = screen(stream.getvalue(), 200)
    assert lines[0] == "[bold]checkpoint[/] written :smile: 12"
    assert lines[1].endswith("x" * 60)
    assert lines[2].startswith("╭─ [red]DQN-v0")
    assert "too late" not in stream.getvalue()


@pytest.mark.parametrize("row", [{}, ROW])
def test_what_goes_on_meanwhile_is_in_the_panel_until_it_is_over(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    shown = make_progress(TITLE, STOPS, stream, live=True)
    shown.update(row)
    shown.busy("compiling ...")
    *above, last, _ = screen(stream.getvalue(), 80)
    assert last == f"│ {'compiling ...':<77}│"
    assert ("reward" in "".join(above)) == bool(row)
    shown.busy("")
    assert "compiling" not in "".join(screen(stream.getvalue(), 80))
    shown.busy("compiling ...")
    shown.close()
    assert "compiling" not in "".join(screen(stream.getvalue(), 80))


def test_cursor_and_stdout_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.stdout, sys.stderr
    monkeypatch.setattr(progress, "is_terminal", lambda stream: True)
    stream = io.StringIO()
    shown = make_progress(TITLE, STOPS, stream)
    assert sys.stdout is not before[0]
    print("an environment that prints")
    shown.close()
    assert (sys.stdout, sys.stderr) == before
    assert stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("\x1b[?25l")
    assert screen(stream.getvalue(), 120)[0] == "an environment that prints"


def test_a_real_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    main, side = pty.openpty()
    received: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(main, 4096):
                received.append(data)
        except OSError:  # the other side is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(side, "w", encoding="utf-8") as stream:
        shown = make_progress(TITLE, STOPS, stream)
        shown.update(ROW)
        shown.close()
        monkeypatch.setenv("TERM", "dumb")
        make_progress("a dumb terminal", STOPS, stream).close()
    reader.join(10)
    os.close(main)
    text = b"".join(received).decode()
    assert "╭─" in text
    assert "12,032" in text
    assert text.endswith("a dumb terminal\r\n")


# --- lost streams


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("live", [True, False, None])
@pytest.mark.parametrize(
    "make_stream",
    [
        closed,
        lambda: Broken(BrokenPipeError(), 0),
        lambda: Broken(BrokenPipeError(), 1),
        lambda: Broken(BrokenPipeError(), 3),
        lambda: Broken(OSError(5, "Input/output error"), 0),
        lambda: Broken(OSError(5, "Input/output error"), 2),
        lambda: Broken(OSError(28, "No space left on device"), 3),
    ],
)
def test_a_lost_stream_does_not_end_the_run(
    live: bool | None, make_stream: Callable[[], Any], clock: Clock
) -> None:
    before = sys.stdout, sys.stderr
    shown = make_progress(TITLE, STOPS, make_stream(), live=live, interval=0.0)
    for _ in range(4):
        clock.now += 1
        shown.update(ROW)
        shown.note("note")
    shown.close()
    shown.close()
    assert (sys.stdout, sys.stderr) == before


def test_plain_lines_do_not_import_rich() -> None:
    code = (
        "import io, sys; from exarl.display.progress import make_progress\n"
        "shown = make_progress('t', {'total_steps': 5}, io.StringIO())\n"
        "shown.update({'timesteps_total': 1}); shown.close()\n"
        "assert 'rich' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
