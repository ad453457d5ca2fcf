"""The last words of a program are its own, not those of whatever started it."""

from __future__ import annotations

import pytest

from exarl.envs.external.last_words import LONGEST, last_words

MPICH = """
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 28463 RUNNING AT vm
=   EXIT CODE: 6
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Aborted (signal 6)
This typically refers to a problem with your application.
"""
OPEN_MPI = """
--------------------------------------------------------------------------
prterun noticed that process rank 0 with PID 7 on node vm exited on signal 6 (Aborted).
--------------------------------------------------------------------------
"""
PYTHON = """Traceback (most recent call last):
  File "/opt/exarl/envs/external/host.py", line 114, in _step
    observation, reward = self._env.step(action)
                          ^^^^^^^^^^^^^^^^^^^^^^
  File "solver.py", line 16, in step
    raise RuntimeError("no mesh")
RuntimeError: no mesh
"""
TABLE = "step  residual\n--------------------------------\n  1   3.0\n  2   1e9\ndiverged\n"


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", ""),
        (
            "reading case.cfg\n\n  diverged: residual 1e9\n",
            "reading case.cfg diverged: residual 1e9",
        ),
        ("residual 1e9\n" + MPICH, "residual 1e9"),
        ("residual 1e9\n" + OPEN_MPI, "residual 1e9"),
        ("residual 1e9\n" + PYTHON, "residual 1e9 RuntimeError: no mesh"),
        ("residual 1e9\nexarl: threads are left behind\n", "residual 1e9"),
        (
            "residual 1e9\nexarl_env: a reset without a seed\n",
            "residual 1e9 exarl_env: a reset without a seed",
        ),
        ("exarl: unknown environment\n", "exarl: unknown environment"),
        (TABLE, " ".join(TABLE.split())),
        ("x" * 600 + "\nlast line\n", "last line"),
        ("x" * 600, "x" * LONGEST),
    ],
)
def test_whose_words(output: str, words: str) -> None:
    assert last_words(output) == words


def test_a_launcher_that_speaks_alone_is_heard() -> None:
    assert "Aborted (signal 6)" in last_words(MPICH)
