"""``exarl relay``: connect a program in C or Fortran on this machine to an EXARL on another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from exarl.cli import words as line
from exarl.comm.exchange import parse_address
from exarl.comm.join_key import VARIABLE, key_of
from exarl.envs.external.caller import Door
from exarl.envs.external.link import ADDRESS
from exarl.envs.external.relay import ProgramRelay
from exarl.envs.external.stream import UNIX
from exarl.errors import ConfigError
from exarl.records.directory import expand

HELP = f"""\
usage: exarl relay --to HOST:PORT [--key-file FILE] [--retry SECONDS] -- PROGRAM [WORD ...]
       exarl relay --to HOST:PORT [--key-file FILE] [--retry SECONDS] --listen unix:PATH

Connects a program that uses exarl_client.h, or the Fortran module of that name, to an ExaClient-v0 that
listens at HOST:PORT ('exarl train --env ExaClient-v0 --address HOST:PORT --key_file FILE'). It starts
PROGRAM, which finds the relay in the variable {ADDRESS}, and ends with it and its exit code; or it
listens at a Unix socket for programs that connect to it one after the other, until Ctrl-C or SIGTERM.

  --to HOST:PORT     where EXARL listens
  --key-file FILE    the key, which only you can read (default: the variable {VARIABLE})
  --listen unix:PATH where programs connect; the folder decides who may
  --retry SECONDS    how long to try while EXARL does not listen (default 60)

EXARL and the relay prove to each other that they have the key. The connection is not encrypted.
"""
RETRY_S = 60


def relay(words: list[str]) -> int:
    program: list[str] = []
    if "--" in words:
        at = words.index("--")
        program, words[at:] = words[at + 1 :], []
    to, file = line.take(words, "to"), line.take(words, "key-file")
    listen = line.take(words, "listen")
    retry = line.take_count(words, "retry", RETRY_S, least=0)
    line.nothing_left(words)
    if to is None:
        raise ConfigError("--to HOST:PORT is missing: where does EXARL listen?")
    address = str(parse_address(to, "--to"))
    if bool(program) == (listen is not None):
        raise ConfigError("give a program to start, behind --, or --listen unix:PATH")
    if listen is not None and not listen.startswith(UNIX):
        raise ConfigError(f"--listen is unix:PATH, a socket on this machine, not '{listen}'")
    key = key_of(os.environ, expand(file) if file is not None else None)
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(
        prefix="exarl-relay-"
    ) as folder:  # which only this user enters
        door = Door(listen or f"{UNIX}{Path(folder) / 'socket'}", None)
        try:
            return _serve(ProgramRelay(door, address, key, retry), door, program)
        finally:
            door.close()


def _serve(relay: ProgramRelay, door: Door, program: list[str]) -> int:
    if not program:
        sys.stdout.write(f"exarl: relaying from {door.address}\n")
        sys.stdout.flush()
        relay.serve()
        return 0
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    try:
        process = subprocess.Popen(program, env={**environ, ADDRESS: door.address})
    except OSError as error:
        raise ConfigError(f"cannot start '{program[0]}': {error.strerror}") from error
    try:
        relay.serve(process)
        return _code_of(process.wait())
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _code_of(ended: int) -> int:
    return 128 - ended if ended < 0 else ended


def _stop(number: int, _: object) -> None:
    raise KeyboardInterrupt
