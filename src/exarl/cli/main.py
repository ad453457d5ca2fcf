"""The command line. Only here do errors become exit codes and words go to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from exarl.cli.commands import COMMANDS, usage
from exarl.errors import ConfigError, ExarlError, did_you_mean


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0 done, 1 failed, 2 bad input, 3 diverged, 128 + n stopped by
    signal n."""
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
    except SystemExit as error:  # of an environment or a plug-in, which must not pass for success
        return complain(f"something called sys.exit({error.code!r})", 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # a closed pager is no error
        return 0


def entry() -> None:
    """The installed ``exarl`` command."""
    run_and_leave()


def run_and_leave() -> NoReturn:
    """Run the command and end this process with its exit code; 1 and a traceback when it raises."""
    from exarl.comm.leaving import leave

    try:
        code = main()
    except BaseException:  # noqa: BLE001 - shown as Python shows what nothing catches
        sys.excepthook(*sys.exc_info())
        code = 1
    leave(code)


def dispatch(words: list[str]) -> int:
    """Hand the words after the command to it."""
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(usage())
        return 0
    if words[0] in ("-V", "--version"):
        from exarl import __version__

        sys.stdout.write(f"exarl {__version__}\n")
        return 0
    if words[0] not in COMMANDS:
        known = ", ".join(COMMANDS)
        hint = did_you_mean(words[0], COMMANDS) or f" (commands: {known})"
        raise ConfigError(f"unknown command '{words[0]}'{hint}")
    command = COMMANDS[words[0]]
    if not command.on_ranks and not first_of_job():
        return 0
    return command(words[1:])


def first_of_job() -> bool:
    """Whether this process is the first, or the only one, of those that were started together.

    It then forgets that there are others: an environment that starts MPI would wait for them.
    """
    from exarl.comm.mpi import launched_ranks

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
    """One line on standard error, from one rank of a job."""
    from exarl.comm.mpi import launched_ranks

    launched = launched_ranks()
    if launched is None or launched[0] == 0:
        words = (c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(message.split()))
        sys.stderr.write(f"exarl: {''.join(words)}\n")
    return code
