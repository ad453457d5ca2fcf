"""``exarl dashboard`` refuses what it cannot serve in one line."""

from __future__ import annotations

import socket
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("nowhere",), "nowhere is no folder"),
        ((".", "--port", "99999"), "0 to 65535"),
        ((".", "--port", "x"), "whole number"),
        ((".", "--sort", "x"), "--sort"),
    ],
)
def test_bad_words_are_refused(exarl: Any, words: tuple[str, ...], part: str) -> None:
    exarl("dashboard", *words).refused(part)


def test_a_port_in_use_is_refused(exarl: Any) -> None:
    pytest.importorskip("plotly")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        exarl("dashboard", ".", "--port", str(port)).refused(f"cannot use port {port}", "--port")
