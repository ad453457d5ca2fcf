"""The optional base class for environments that want more than Gymnasium offers."""

from __future__ import annotations

from typing import Any

import gymnasium

from exarl.types import Arrays

Env = gymnasium.Env[object, object]
"""Any environment."""

Space = gymnasium.Space[object]
"""Any space."""

Info = dict[str, object]
"""What Gymnasium calls ``info``, and the options of ``reset``."""


class ExaEnv(gymnasium.Env[Any, Any]):
    """A Gymnasium environment that may span several MPI ranks and may be saved while it runs.

    Whatever subclass asks for ``comm`` in its constructor receives the communicator of its
    environment group (None without MPI): every rank of the group makes the environment and takes
    part in each ``reset`` and ``step`` with the same arguments; what rank 0 returns is used. Whatever
    asks for ``context`` receives its ``EnvContext``: number, seed, work folder, port, devices.

    ``get_state`` and ``set_state`` let a checkpoint keep a running episode. Without them EXARL plays
    the episode again from its seed and actions, which a slow simulation will want to avoid.
    """

    @property
    def max_episode_steps(self) -> int | None:
        """The limit on an episode's steps where the environment was registered without one."""
        return None

    def describe(self) -> dict[str, str]:
        """What a reader of the run's ``manifest.json`` should know, such as where data came from."""
        return {}

    @property
    def has_state(self) -> bool:
        """Whether ``get_state`` and ``set_state`` work; by default, whether a subclass has them."""
        own = type(self).get_state, type(self).set_state
        return own != (ExaEnv.get_state, ExaEnv.set_state)

    def get_state(self) -> Arrays:
        """All that ``set_state`` needs to continue this episode, as named arrays."""
        raise NotImplementedError

    def set_state(self, state: Arrays) -> None:
        """Continue the episode that ``get_state`` described; called after a ``reset``."""
        raise NotImplementedError


FUNCTIONS = ("reward_function", "termination_function")
"""Attributes by which an environment may name its reward and its terminations, as functions of arrays:
``"module:function"``. An agent that learns a model of the environment need not learn these."""


def described(env: Env) -> dict[str, str]:
    """What an environment says of itself, and the functions that it names; nothing, if it does not."""
    bare = env.unwrapped
    said = bare.describe() if isinstance(bare, ExaEnv) else {}
    named = {name: getattr(bare, name, None) for name in FUNCTIONS}
    return {**said, **{name: text for name, text in named.items() if isinstance(text, str)}}


def can_snapshot(env: Env) -> bool:
    """Whether this environment offers ``get_state``/``set_state`` of its own."""
    bare = env.unwrapped
    if isinstance(bare, ExaEnv):
        return bare.has_state
    return hasattr(type(bare), "get_state") and hasattr(type(bare), "set_state")
