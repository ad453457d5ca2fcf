"""``exarl check-env``."""

from __future__ import annotations

import os
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from exarl.cli import words as line
from exarl.config import Parameter, Source, parse_flags
from exarl.config.schema import check
from exarl.envs import describe_env
from exarl.errors import ConfigError, as_one, did_you_mean

if TYPE_CHECKING:
    from exarl.envs.measured import Measured

HELP = """\
usage: exarl check-env ENV [--steps N] [--seconds S] [--key value ...]

Creates the environment (the keys are passed to its constructor), runs Gymnasium's checker and EXARL's
own checks (seeds, numbers, snapshots, isolation in a process, files, speed), and suggests what to
change. The exit code is 1 if a check fails; else it proposes a command that trains in it, with settings
for its speed, its episodes and the size of its rewards, which 'exarl train --auto' chooses as well.

  --steps N      maximum number of steps per check (default 200)
  --seconds S    approximate time for all checks together; slow environments make fewer steps
                 (default 60)

If the environment itself has a parameter 'steps' or 'seconds', write --env.steps or --env.seconds.
"""
MARKS = {True: "ok  ", False: "FAIL", None: "note"}


def check_env(words: list[str]) -> int:
    from exarl.envs.check import SECONDS, STEPS, findings

    id = line.take_path(words, "environment id")
    steps = line.take_count(words, "steps", STEPS, least=2)
    seconds = line.take_seconds(words, "seconds", SECONDS)
    progress = StatusLine(sys.stderr)
    failed, measured = 0, None
    for found in findings(
        id, env_parameters(id, words), steps=steps, seconds=seconds, tell=progress.show
    ):
        measured = found.measured or measured
        progress.clear()
        detail = f": {found.detail}" if found.detail else ""
        sys.stdout.write(f"{MARKS[found.passed]}  {found.check}{detail}\n")
        if found.hint:
            sys.stdout.write(f"      -> {found.hint}\n")
        sys.stdout.flush()
        failed += found.passed is False
    sys.stdout.write(f"{id}: {'fit to train' if not failed else f'{failed} checks failed'}\n")
    if measured is not None and not failed:
        sys.stdout.write(proposal(id, words, measured))
    return 1 if failed else 0


def proposal(id: str, words: list[str], found: Measured) -> str:
    """The line that trains in this environment with settings that suit it, and why these."""
    from exarl.envs.registration import find_spec
    from exarl.run.configure import configure
    from exarl.run.proposals import propose

    chosen = ["--env", id, *words, "--agent", "SAC-v0" if found.continuous else "DQN-v0"]
    limit, cores = find_spec(id).max_episode_steps, len(os.sched_getaffinity(0))
    proposed = propose(found, configure(None, chosen), limit, cores)
    reasons = "".join(f"      {reason}\n" for reason in proposed.reasons)
    return f"to train: {shlex.join(['exarl', 'train', *chosen, *proposed.words()])}\n{reasons}"


class StatusLine:
    """A line on a terminal that names the current check; nothing is written without a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._shown = 0.0
        self._check = ""

    def show(self, check: str, steps: int, seconds: float) -> None:
        """Write the line: at once when the check changes, otherwise at most ten times per second."""
        now = time.monotonic()
        if self._terminal and (check != self._check or now - self._shown > 0.1):
            self._shown, self._check = now, check
            text = f"...   {check} ({steps} steps in {seconds:.1f} s)"
            self._stream.write(f"\r{text[:78]:<79}")
            self._stream.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._terminal and self._shown:
            self._shown = 0.0
            self._stream.write(f"\r{'':79}\r")
            self._stream.flush()


def env_parameters(id: str, words: list[str]) -> dict[str, object]:
    """Return the flags as checked arguments of the environment's constructor; ConfigError if one
    does not fit."""
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
