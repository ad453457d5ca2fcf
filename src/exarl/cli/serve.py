"""``exarl serve-env``: serve an environment to clients in other processes, hosts and languages."""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys

from exarl.cli import words as line
from exarl.cli.check import env_parameters
from exarl.envs.external.secure import LOCAL, check_address, make_keys, read_keys
from exarl.envs.external.serve import Server
from exarl.envs.external.session import Limits
from exarl.errors import ConfigError
from exarl.records.directory import expand

HELP = f"""\
usage: exarl serve-env ENV [--bind ADDRESS] [--key value ...]
       exarl serve-env --make-keys DIR

Serves the environment over ZeroMQ (extra 'exarl[remote]'). Each client gets its own environment in its
own process; other keys are passed to the environment's constructor. Ctrl-C or SIGTERM ends the server.
'exarl train --env ExaRemote-v0 --address ADDRESS' is a client. docs/external.md describes the messages
for clients in other languages.

  --bind ADDRESS       tcp://HOST:PORT or ipc://FILE (default {LOCAL}; port * picks a free
                       one). Any host but the local one needs keys.
  --make-keys DIR      write server.key and client.key to DIR, readable by you only, and exit
  --keys FILE          accept only clients that have the client.key of this server.key
  --max-sessions N     maximum number of environments at a time (default {Limits.sessions})
  --idle SECONDS       close a session after this time without a message (default {Limits.idle_s:g})
  --max-message BYTES  longest accepted message (default {Limits.max_bytes})
"""


def serve_env(words: list[str]) -> int:
    folder = line.take(words, "make-keys")
    if folder is not None:
        line.nothing_left(words)
        own, client = make_keys(expand(folder))
        sys.stdout.write(f"{own}: for the server, 'exarl serve-env --keys'\n")
        sys.stdout.write(f"{client}: for the clients, 'exarl train ... --keys'\n")
        return 0
    id = line.take_path(words, "environment id")
    key_file, address = line.take(words, "keys"), line.take(words, "bind") or LOCAL
    limits = Limits(
        sessions=line.take_count(words, "max-sessions") or Limits.sessions,
        idle_s=line.take_count(words, "idle") or Limits.idle_s,
        max_bytes=line.take_count(words, "max-message") or Limits.max_bytes,
    )
    keys = read_keys(key_file) if key_file else None
    check_address(address, keys)
    server = Server(program_of(id, words), address, keys=keys, limits=limits)
    return run(server, id)


def program_of(id: str, words: list[str]) -> list[str]:
    """The command of a process that hosts the environment for one client.

    ConfigError if the environment cannot be created or its spaces cannot be served.
    """
    from exarl.envs import make_env
    from exarl.envs.external.spaces import action_port, port
    from exarl.envs.guard import close_at_end

    parameters = env_parameters(id, words)
    env, _ = make_env(id, parameters)
    try:
        port(env.observation_space)
        action_port(env.action_space)
    except ValueError as error:
        raise ConfigError(f"environment '{id}' cannot be served: {error}") from error
    finally:
        close_at_end(0, env)
    return [sys.executable, "-P", "-m", "exarl.envs.external.host", id, json.dumps(parameters)]


def run(server: Server, id: str) -> int:
    """Serve until SIGINT or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    # Connections and sessions need file descriptors; ZeroMQ aborts when there are none left.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: received.append(number))
    try:
        sys.stdout.write(f"serving {id} at {server.address}\n")
        sys.stdout.flush()
        server.run(lambda: bool(received))
    finally:
        server.close()
    sys.stdout.write("stopped\n")
    return 0
