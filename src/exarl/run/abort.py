"""The end of a job in which one rank failed."""

from __future__ import annotations

import sys
import time
import traceback
from typing import TYPE_CHECKING

from exarl.errors import EnvironmentFailure, ExarlError
from exarl.records.notes import note_error

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def abort(comm: Intracomm, who: str, error: BaseException) -> None:
    """Show the error of ``who``, or have the launcher show it at the end; then end every rank."""
    if isinstance(error, EnvironmentFailure):
        message = f"exarl: {who}: {error}"
    elif isinstance(error, ExarlError):
        message = f"exarl: {error}"
    else:
        message = f"{who} failed:\n" + "".join(traceback.format_exception(error))
    if not note_error(message):
        sys.stderr.write(message.rstrip() + "\n")
        sys.stderr.flush()
    time.sleep(0.2)  # lets the launcher forward the message before it reports the abort
    comm.Abort(error.exit_code if isinstance(error, ExarlError) else 1)
