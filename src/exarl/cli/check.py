"""``exarl check-env``."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from exarl.cli import words as line
from exarl.config import Parameter, Source, parse_flags
from exarl.config.schema import check
from exarl.envs import describe_env
from exarl.errors import ConfigError, as_one, did_you_mean

HELP = """\
usage: exarl check-env ENV [--steps N] [--seconds S] [--key value ...]

Makes the environment (the keys go to its constructor), runs Gymnasium's checker and EXARL's own
checks on it (seeds, numbers, snapshots, a process of its own, files, speed), and says what to change.
Exit code 1 when a check fails.

  --steps N      steps that a check makes at the most (default 200)
  --seconds S    about how long all checks together may take; where steps are slow, fewer are made
                 (default 60)

Where the environment has a parameter 'steps' or 'seconds' itself: --env.steps.
"""
MARKS = {True: "ok  ", False: "FAIL", None: "note"}


def check_env(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(HELP)
        return 0
    from exarl.envs.check import SECONDS, STEPS, findings

    id = line.take_path(words, "environment id")
    steps = line.take_count(words, "steps", STEPS, least=2) or STEPS
    seconds = line.take_seconds(words, "seconds", SECONDS)
    progress = Line(sys.stderr)
    failed = 0
    for found in findings(
        id, env_parameters(id, words), steps=steps, seconds=seconds, tell=progress.show
    ):
        progress.clear()
        detail = f": {found.detail}" if found.detail else ""
        sys.stdout.write(f"{MARKS[found.passed]}  {found.check}{detail}\n")
        if found.hint:
            sys.stdout.write(f"      -> {found.hint}\n")
        sys.stdout.flush()
        failed += found.passed is False
    sys.stdout.write(f"{id}: {'fit to train' if not failed else f'{failed} checks failed'}\n")
    return 1 if failed else 0


class Line:
    """One line of a terminal that says what is being done; silent where there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._shown = 0.0
        self._check = ""

    def show(self, check: str, steps: int, seconds: float) -> None:
        """At once for the next check, then at most ten times per second."""
        now = time.monotonic()
        if self._terminal and (check != self._check or now - self._shown > 0.1):
            self._shown, self._check = now, check
            text = f"...   {check} ({steps} steps in {seconds:.1f} s)"
            self._stream.write(f"\r{text[:78]:<79}")
            self._stream.flush()

    def clear(self) -> None:
        """Leave the line empty, for what comes on it next."""
        if self._terminal and self._shown:
            self._shown = 0.0
            self._stream.write(f"\r{'':79}\r")
            self._stream.flush()


def env_parameters(id: str, words: list[str]) -> dict[str, object]:
    """The flags as checked keywords of the environment's constructor."""
    schema, open_ended = describe_env(id)
    source = Source(parse_flags(words), "command line", text=True)
    values, mistakes = {}, []
    for key, value in source.values.items():
        name = key.removeprefix("env.")
        parameter = schema.get(name) or (Parameter(name, Any, None) if open_ended else None)
        if parameter is None:
            hint = did_you_mean(name, schema)
            mistakes.append(ConfigError(f"unknown parameter '{key}' ({source.origin}){hint}"))
            continue
        try:
            values[name] = check(parameter, value, source.origin, text=True)
        except ConfigError as error:
            mistakes.append(error)
    if mistakes:
        raise as_one(mistakes)
    return values
