"""An environment that several ranks step together.

The actor (member 0) holds a ``GroupEnv``; the other members sit in ``serve``, each with its own copy
of the environment, and receive each call over a channel. The environment's own MPI
traffic goes over the group's communicator and never meets these messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.comm.channel import Channel
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import GroupCall, Payload, Tag, decode, encode
from exarl.envs.base import Env, Info, Space, can_snapshot
from exarl.envs.structured import JoinedActions
from exarl.types import Arrays

Compute = Callable[[np.ndarray, Arrays], Arrays]
"""(weights, rows) -> new arrays for these rows"""


class GroupEnv(gymnasium.Env[Any, Any]):
    """Member 0's environment; every call is announced to the other members first."""

    def __init__(self, env: Env, channel: Channel, slot: int) -> None:
        self.inner = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata, self.render_mode = env.metadata, env.render_mode
        # Not env.spec: Gymnasium would copy it, and a communicator among its keywords cannot be.
        self.spec = env.unwrapped.spec
        self._channel = channel
        self._slot = slot
        self._joined = JoinedActions.of(env.action_space)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[object, Info]:
        self._announce(GroupCall("reset", self._slot, seed))
        return self.inner.reset(seed=seed, options=options)

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        if self._joined is None:
            array = np.asarray(action, self.action_space.dtype)
        else:
            array = self._joined.together(action)
        self._announce(GroupCall("step", self._slot), array.tobytes())
        return self.inner.step(action)

    def render(self) -> Any:
        return self.inner.render()

    def close(self) -> None:
        self._announce(GroupCall("close", self._slot))
        self.inner.close()

    def _announce(self, call: GroupCall, payload: Payload = b"") -> None:
        self._channel.send(encode(call, payload), range(1, self._channel.size), Tag.GROUP_CALL)


class SnapshotGroupEnv(GroupEnv):
    """A group whose environment can give its state; each member's part is kept."""

    def get_state(self) -> Arrays:
        self._announce(GroupCall("get_state", self._slot))
        arrays = _member_state(self.inner, 0)
        for member in range(1, self._channel.size):
            arrays |= decode_arrays(self._channel.receive(member, Tag.GROUP_REPLY)[1])
        return arrays

    def set_state(self, state: Arrays) -> None:
        self._announce(GroupCall("set_state", self._slot), encode_arrays(state))
        _set_member_state(self.inner, state, 0)


def join(env: Env, channel: Channel, slot: int) -> GroupEnv:
    """What member 0 holds of a group environment."""
    kind = SnapshotGroupEnv if can_snapshot(env) else GroupEnv
    return kind(env, channel, slot)


def spread(channel: Channel, weights: np.ndarray, rows: Arrays, compute: Compute) -> Arrays:
    """``compute(weights, rows)`` with the rows shared out over the group; member 0 only."""
    count = len(next(iter(rows.values())))
    edges = np.linspace(0, count, channel.size + 1).astype(int)
    parts = [{n: a[start:stop] for n, a in rows.items()} for start, stop in pairwise(edges)]
    for member in range(1, channel.size):
        payload = encode_arrays({**parts[member], "weights": weights})
        channel.post(encode(GroupCall("compute"), payload), member, Tag.GROUP_CALL)
    made = [compute(weights, parts[0])]
    for member in range(1, channel.size):
        made.append(decode_arrays(channel.receive(member, Tag.GROUP_REPLY)[1]))
    return {name: np.concatenate([part[name] for part in made]) for name in made[0]}


def serve(
    envs: Sequence[Env],
    channel: Channel,
    compute: Compute | None = None,
    moved: Callable[[], None] = lambda: None,
) -> None:
    """Take part in every call that member 0 announces, calling ``moved`` each time, until the end."""
    while True:
        moved()
        message, payload = decode(channel.receive(0, Tag.GROUP_CALL)[1], GroupCall)
        call, env = message.call, envs[message.slot]
        if call == "end":
            return
        if call == "reset":
            env.reset(seed=message.seed)
        elif call == "step":
            env.step(_action(env.action_space, payload))
        elif call == "get_state":
            channel.send(encode_arrays(_member_state(env, channel.rank)), 0, Tag.GROUP_REPLY)
        elif call == "set_state":
            _set_member_state(env, decode_arrays(payload), channel.rank)
        elif call == "close":
            env.close()
        elif call == "compute" and compute is not None:
            rows = decode_arrays(payload)
            made = compute(rows.pop("weights"), rows)
            channel.send(encode_arrays(made), 0, Tag.GROUP_REPLY)


def dismiss(channel: Channel) -> None:
    """End ``serve`` in the other members of a group."""
    channel.send(encode(GroupCall("end")), range(1, channel.size), Tag.GROUP_CALL)


def _action(space: Space, payload: np.ndarray) -> Any:
    if (joined := JoinedActions.of(space)) is not None:
        return joined.apart()(payload.view(np.float64))
    action = payload.view(np.dtype(space.dtype)).reshape(space.shape or ())
    return int(action) if isinstance(space, spaces.Discrete) else action


def _member_state(env: Env, member: int) -> Arrays:
    state = env.unwrapped.get_state()  # type: ignore[attr-defined]
    return {f"{member}/{name}": np.asarray(array) for name, array in state.items()}


def _set_member_state(env: Env, state: Arrays, member: int) -> None:
    prefix = f"{member}/"
    own = {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
    env.unwrapped.set_state(own)  # type: ignore[attr-defined]
