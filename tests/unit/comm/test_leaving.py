"""The end of a process whose threads do not end."""

from __future__ import annotations

import threading
from typing import NoReturn

import pytest

from exarl.comm.leaving import leave


class Ended(Exception):
    """In place of the end of this process."""


def test_a_thread_that_does_not_end_is_left_behind_after_the_clean_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def end(code: int) -> NoReturn:
        done.append(f"exit {code}")
        raise Ended

    monkeypatch.setattr("atexit._run_exitfuncs", lambda: done.append("atexit"))
    monkeypatch.setattr("exarl.comm.channel.finalize", lambda: done.append("finalize"))
    monkeypatch.setattr("os._exit", end)
    # Should it be waited for, it ends after all, and ``leave`` raises SystemExit instead.
    released = threading.Event()
    thread = threading.Thread(target=released.wait, args=(5,), name="solver")
    thread.start()
    try:
        with pytest.raises(Ended):
            leave(3, patience_s=0.01)
    finally:
        released.set()
        thread.join()
    assert done == ["atexit", "finalize", "exit 3"]
    assert "left behind: solver" in capsys.readouterr().err
