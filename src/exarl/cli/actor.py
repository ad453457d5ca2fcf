"""``exarl actor``: a simulation that joins a run over a socket."""

from __future__ import annotations

import os
import sys

from exarl.cli import words as line
from exarl.comm.exchange import parse_address
from exarl.comm.join_key import VARIABLE, key_of
from exarl.errors import ConfigError
from exarl.records.directory import absolute, expand

HELP = f"""\
usage: exarl actor --join HOST:PORT [--key-file FILE] [--retry SECONDS] [--ranks K] [--dir FOLDER]

Acts for a learner that listens there ('exarl train --workflow elastic --listen PORT', which prints this
command) until the run ends. The learner sends the run's parameters; your modules must be importable
here. Any number of simulations may join, also later, and any may be lost.

  --join HOST:PORT   where the learner listens
  --key-file FILE    the run's join.key, or a copy only you can read (default: the variable
                     {VARIABLE})
  --retry SECONDS    how long to try while no learner answers, at the start and after it is lost
                     (default 60)
  --ranks K          under mpiexec or srun: K ranks make up a simulation, so that a job of N ranks
                     brings N / K of them (default: one simulation of all ranks)
  --dir FOLDER       for logs and environments' files, if the run's directory is not on a disk of this
                     machine (default: a temporary folder)

An actor runs what the learner names, and the learner trains on what the actor sends: both prove that
they have the key. The connection is not encrypted (docs/elastic.md).
"""
RETRY_S = 60


def actor(words: list[str]) -> int:
    from exarl.run.call import Invitation
    from exarl.run.join import join_run

    address, file = line.take(words, "join"), line.take(words, "key-file")
    retry = line.take_count(words, "retry", RETRY_S, least=0)
    ranks, folder = line.take_count(words, "ranks"), line.take(words, "dir")
    line.nothing_left(words)
    if address is None:
        raise ConfigError("--join HOST:PORT is missing: where does the learner listen?")
    place = parse_address(address, "--join")
    key = key_of(os.environ, expand(file) if file is not None else None)
    invitation = Invitation(place, key, retry, absolute(folder) if folder is not None else None)
    return join_run(invitation, ranks, say)


def say(text: str) -> None:
    sys.stdout.write(f"exarl: {text}\n")
    sys.stdout.flush()
