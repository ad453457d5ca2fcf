"""The command line. Only here do errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from exarl.cli import words as line
from exarl.cli.commands import COMMANDS, usage
from exarl.errors import ExarlError


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done, 1: failed, 2: bad input, 3: diverged, 128 + n: stopped by signal n.
    """
    from exarl.comm.threads import limit_threads

    limit_threads(os.environ)
    words = list(sys.argv[1:] if words is None else words)
    try:
        return dispatch(words)
    except ExarlError as error:
        return complain(str(error), error.exit_code)
    except MemoryError as error:
        return complain(f"not enough memory: {error}", 1)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except SystemExit as error:  # from an environment or a plug-in: it must not look like success
        return complain(f"an environment or a plug-in called sys.exit({error.code!r})", 1)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # closing a pager is not an error
        return 0


def entry() -> NoReturn:
    """The installed ``exarl`` command: run it and end this process with its exit code.

    An exception that ``main`` does not handle is printed with its traceback; the exit code is then 1.
    """
    from exarl.comm.leaving import leave

    try:
        code = main()
    except BaseException:  # noqa: BLE001 - printed as Python prints an uncaught exception
        sys.excepthook(*sys.exc_info())
        code = 1
    leave(code)


def dispatch(words: list[str]) -> int:
    """Call the command that the first word names with the other words."""
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(usage())
        return 0
    if words[0] in ("-V", "--version"):
        from exarl.version import __version__

        sys.stdout.write(f"exarl {__version__}\n")
        return 0
    line.check_choice(words[0], COMMANDS, f"unknown command '{words[0]}'")
    command = COMMANDS[words[0]]
    if not command.on_ranks and not first_of_job():
        return 0
    return command(words[1:])


def first_of_job() -> bool:
    """Whether this process is the first, or the only one, of the job that was launched.

    The first removes the launcher's variables from its environment: otherwise an environment that
    starts MPI would wait for the other ranks.
    """
    from exarl.comm.channel import launched_ranks

    launched = launched_ranks()
    if launched is None or launched[1] == 1:
        return True
    if launched[0]:
        return False
    from exarl.envs.child import scrubbed

    for name in os.environ.keys() - scrubbed(os.environ).keys():
        del os.environ[name]
    return True


def complain(message: str, code: int) -> int:
    """One line on standard error, from the first rank of a job. Returns the exit code."""
    from exarl.comm.channel import launched_ranks
    from exarl.comm.openmpi import wait_to_be_ended

    launched = launched_ranks()
    if launched is None or launched[0] == 0:
        words = (c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(message.split()))
        sys.stderr.write(f"exarl: {''.join(words)}\n")
    elif code < 128:  # not after a signal, which is meant for all
        wait_to_be_ended(os.environ)
    return code
