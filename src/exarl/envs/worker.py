"""The process of an isolated environment; ``isolation.py`` starts it and knows its messages."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as GymSpec

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.leaving import leave
from exarl.envs import wire
from exarl.envs.base import can_snapshot, described
from exarl.envs.context import EnvContext
from exarl.envs.guard import in_words
from exarl.envs.outcome import ContractError, as_number, begin, not_five
from exarl.envs.registration import make_env
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.registry import import_named

_PATIENCE_S = 0.2  # for threads that the environment left, once it is closed


def main(words: Sequence[str]) -> None:
    """Serve the environment that is asked for on the socket, until nobody asks any more.

    ``words``: the numbers of two open files, the socket and the shared memory.
    """
    control, memory = map(int, words)
    # A stop of the run is its rank's affair, which may want to keep this environment's state first.
    # Handlers, unlike SIG_IGN, do not pass on to programs started from here.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    faulthandler.enable()
    faulthandler.register(wire.STACK_SIGNAL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    threading.Thread(target=_end_with_rank, args=(control,), daemon=True).start()
    with contextlib.suppress(wire.Gone):
        Server(wire.Line(socket.socket(fileno=control)), memory).serve()
    leave(0, _PATIENCE_S)


class Server:
    """Holds the environment and does what is asked."""

    def __init__(self, line: wire.Line, memory: int) -> None:
        self._line = line
        self._file = memory

    def serve(self) -> None:
        while True:
            call, payload = self._line.receive()
            try:
                answer = self._do(call, payload)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the rank is told
                self._line.send(wire.FAILED, json.dumps(_words(error, call)).encode())
                if call in (wire.MAKE, wire.CLOSE):
                    return
                continue
            self._line.send(wire.DONE, answer)
            if call == wire.CLOSE:
                return

    def _do(self, call: int, payload: bytes) -> bytes:
        if call == wire.STEP:
            outcome = self._env.step(self._action())
            try:
                raw, reward, terminated, truncated, _ = outcome
            except (TypeError, ValueError):
                raise not_five(outcome) from None
            return self._show(raw, reward, terminated, truncated)
        if call == wire.RESET:
            (seed,) = wire.SEED.unpack(payload)
            raw = begin(self._env, None if seed == wire.NO_SEED else seed)
            return self._show(raw, 0.0, False, False)
        if call == wire.GET_STATE:
            return encode_arrays(self._env.unwrapped.get_state())  # type: ignore[attr-defined]
        if call == wire.SET_STATE:
            self._env.unwrapped.set_state(decode_arrays(payload))  # type: ignore[attr-defined]
            return b""
        if call == wire.RENDER:
            return encode_arrays({"picture": np.asarray(self._env.render())})
        if call == wire.CLOSE:
            self._env.close()
            return b""
        return self._make(json.loads(payload))

    def _make(self, order: dict[str, Any]) -> bytes:
        """Make the environment; how it looks, for the rank."""
        id = enter(order["id"], order["spec"], order["module"])
        context = order["context"] and EnvContext.from_json(order["context"])
        self._env, limit = make_env(
            id, order["kwargs"], context=context, render_mode=order["render_mode"]
        )
        self._space = self._env.observation_space
        shown = wire.observed(self._space)
        self._flat = shown is not self._space
        actions = self._env.action_space
        self._discrete = isinstance(actions, gymnasium.spaces.Discrete)
        spaces = [wire.describe_space(shown), wire.describe_space(actions)]
        size = wire.Memory.size(shown, actions)
        wire.make_room(self._file, size)
        self._memory = wire.Memory.over(mmap.mmap(self._file, size), shown, actions)
        modes = self._env.metadata.get("render_modes", [])
        metadata = {"render_modes": modes, "render_fps": self._env.metadata.get("render_fps")}
        looks = {
            "spaces": spaces,
            "limit": limit,
            "snapshots": can_snapshot(self._env),
            "metadata": metadata,
            "about": described(self._env),
        }
        return json.dumps(looks).encode()

    def _action(self) -> Any:
        action = self._memory.action
        return int(action) if self._discrete else action.copy()

    def _show(self, raw: Any, reward: Any, terminated: Any, truncated: Any) -> bytes:
        shared = self._memory.observation
        try:
            seen = gymnasium.spaces.flatten(self._space, raw) if self._flat else raw
            seen = np.asarray(seen)
            if seen.shape == shared.shape and seen.dtype.kind in "biuf":
                np.copyto(shared, seen, casting="unsafe")
                return wire.OUTCOME.pack(as_number(reward), bool(terminated), bool(truncated))
        except ContractError as error:
            raise ContractError(f"it returned {error}") from error
        except (TypeError, ValueError, LookupError) as error:
            cause = f"what is not of its spaces ({in_words(error)})"
            raise EnvironmentFailure(f"it returned {cause}", "shape") from error
        raise EnvironmentFailure(
            f"it returned an observation of shape {seen.shape} and type {seen.dtype}, its space says"
            f" {shared.shape} and {shared.dtype}",
            "shape",
        )


def enter(id: str, spec: str | None, module: str | None) -> str:
    """See to it that ``id`` means here what it means to the rank; its name in the registry."""
    prefix, _, name = id.rpartition(":")
    for needed in (prefix, module):
        if needed:
            import_named(needed)  # which registers what it has
    if spec is not None:
        gymnasium.registry[name] = GymSpec.from_json(spec)
    return name


def _words(error: BaseException, call: int) -> dict[str, str]:
    if isinstance(error, EnvironmentFailure):
        return {"message": str(error), "kind": error.kind}
    if isinstance(error, ContractError):
        return {"message": str(error), "kind": "shape"}
    if call == wire.MAKE and isinstance(error, ConfigError):
        return {"message": str(error), "kind": "make"}
    traceback.print_exception(error)  # into the environment's own output
    return {"message": in_words(error), "kind": "raise"}


def _end_with_rank(control: int) -> None:
    """Wait until the rank is gone, then end this process and the programs it has started."""
    poll = select.poll()
    poll.register(control, 0)  # nothing but the other end's closing
    poll.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
