"""An environment that several ranks step together.

The actor (member 0) holds a ``GroupEnv``; the other members sit in ``serve``, each with its own copy
of the environment, and are told over a channel which call comes next. The environment's own MPI
traffic goes over the group's communicator and never meets these messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.mpi import Channel
from exarl.envs.base import can_snapshot
from exarl.types import Arrays

Compute = Callable[[np.ndarray, Arrays], Arrays]
"""(weights, rows) -> new arrays for these rows"""

CALL_TAG, REPLY_TAG = 11, 12
RESET, STEP, CLOSE, GET_STATE, SET_STATE, LEAVE, COMPUTE = range(7)


class GroupEnv(gymnasium.Env[Any, Any]):
    """Member 0's environment; every call is announced to the other members first."""

    def __init__(self, env: gymnasium.Env[Any, Any], channel: Channel, slot: int) -> None:
        self.inner = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata, self.render_mode = env.metadata, env.render_mode
        # Not env.spec: Gymnasium would copy it, and a communicator among its keywords cannot be.
        self.spec = env.unwrapped.spec
        self._channel = channel
        self._slot = slot

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._announce(RESET, seed=-1 if seed is None else seed)
        return self.inner.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._announce(STEP, np.asarray(action, self.action_space.dtype).tobytes())
        return self.inner.step(action)

    def render(self) -> Any:
        return self.inner.render()

    def close(self) -> None:
        self._announce(CLOSE)
        self.inner.close()

    def _announce(self, call: int, payload: bytes = b"", seed: int = 0) -> None:
        header = np.array([call, self._slot, seed], np.int64).tobytes()
        self._channel.send(header + payload, range(1, self._channel.size), CALL_TAG)


class SnapshotGroupEnv(GroupEnv):
    """A group whose environment can give its state; each member's part is kept."""

    def get_state(self) -> Arrays:
        self._announce(GET_STATE)
        arrays = _member_state(self.inner, 0)
        for member in range(1, self._channel.size):
            arrays |= decode_arrays(self._channel.receive(member, REPLY_TAG)[1])
        return arrays

    def set_state(self, state: Arrays) -> None:
        self._announce(SET_STATE, encode_arrays(state))
        _set_member_state(self.inner, state, 0)


def join(env: gymnasium.Env[Any, Any], channel: Channel, slot: int) -> GroupEnv:
    """Member 0's face of a group environment."""
    kind = SnapshotGroupEnv if can_snapshot(env) else GroupEnv
    return kind(env, channel, slot)


def spread(channel: Channel, weights: np.ndarray, rows: Arrays, compute: Compute) -> Arrays:
    """``compute(weights, rows)`` with the rows shared out over the group; member 0 only."""
    count = len(next(iter(rows.values())))
    edges = np.linspace(0, count, channel.size + 1).astype(int)
    parts = [{n: a[start:stop] for n, a in rows.items()} for start, stop in pairwise(edges)]
    header = np.array([COMPUTE, 0, 0], np.int64).tobytes()
    for member in range(1, channel.size):
        payload = encode_arrays({**parts[member], "weights": weights})
        channel.post(header + payload, member, CALL_TAG)
    made = [compute(weights, parts[0])]
    for member in range(1, channel.size):
        made.append(decode_arrays(channel.receive(member, REPLY_TAG)[1]))
    return {name: np.concatenate([part[name] for part in made]) for name in made[0]}


def serve(
    envs: Sequence[gymnasium.Env[Any, Any]],
    channel: Channel,
    compute: Compute | None = None,
    moved: Callable[[], None] = lambda: None,
) -> None:
    """Take part in every call that member 0 announces, and say ``moved``, until told to leave."""
    while True:
        moved()
        _, message = channel.receive(0, CALL_TAG)
        call, slot, seed = message[:24].view(np.int64).tolist()
        payload = message[24:]
        env = envs[slot]
        if call == LEAVE:
            return
        if call == RESET:
            env.reset(seed=None if seed < 0 else seed)
        elif call == STEP:
            env.step(_action(env.action_space, payload))
        elif call == GET_STATE:
            channel.send(encode_arrays(_member_state(env, channel.rank)), 0, REPLY_TAG)
        elif call == SET_STATE:
            _set_member_state(env, decode_arrays(payload), channel.rank)
        elif call == CLOSE:
            env.close()
        elif call == COMPUTE and compute is not None:
            rows = decode_arrays(payload)
            made = compute(rows.pop("weights"), rows)
            channel.send(encode_arrays(made), 0, REPLY_TAG)


def dismiss(channel: Channel) -> None:
    """Let the members of a group leave ``serve``."""
    header = np.array([LEAVE, 0, 0], np.int64).tobytes()
    channel.send(header, range(1, channel.size), CALL_TAG)


def _action(space: spaces.Space[Any], payload: np.ndarray) -> Any:
    action = payload.view(np.dtype(space.dtype)).reshape(space.shape or ())
    return int(action) if isinstance(space, spaces.Discrete) else action


def _member_state(env: gymnasium.Env[Any, Any], member: int) -> Arrays:
    state = env.unwrapped.get_state()  # type: ignore[attr-defined]
    return {f"{member}/{name}": np.asarray(array) for name, array in state.items()}


def _set_member_state(env: gymnasium.Env[Any, Any], state: Arrays, member: int) -> None:
    prefix = f"{member}/"
    own = {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
    env.unwrapped.set_state(own)  # type: ignore[attr-defined]
