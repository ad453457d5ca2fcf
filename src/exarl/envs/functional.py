"""Environments as pure functions over ``xp``, and the Gymnasium form of them.

A science environment is written once, as a ``Functions``: Gymnasium's ``FuncEnv`` whose arrays come
from ``xp``. With NumPy it serves an actor (``FunctionalEnv`` below); with ``jax.numpy`` the same code
compiles for a device. A state is a NamedTuple of arrays, which JAX can map over. The
helpers here are the few things the two namespaces do differently: random numbers and loops.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from gymnasium.experimental.functional import FuncEnv

from exarl.envs.base import ExaEnv, Info
from exarl.envs.masks import METHOD
from exarl.types import Arrays

Carry = TypeVar("Carry")


def uniform(rng: Any, shape: tuple[int, ...] = (), low: float = 0.0, high: float = 1.0) -> Any:
    """Uniform numbers from a NumPy generator or a JAX key."""
    if isinstance(rng, np.random.Generator):
        return rng.uniform(low, high, shape)
    from jax import random

    return random.uniform(rng, shape, minval=low, maxval=high)


def normal(rng: Any, shape: tuple[int, ...] = ()) -> Any:
    """Standard normal numbers from a NumPy generator or a JAX key."""
    if isinstance(rng, np.random.Generator):
        return rng.standard_normal(shape)
    from jax import random

    return random.normal(rng, shape)


def integers(rng: Any, high: int, shape: tuple[int, ...] = ()) -> Any:
    """Whole numbers 0 .. ``high`` - 1 from a NumPy generator or a JAX key."""
    if isinstance(rng, np.random.Generator):
        return rng.integers(0, high, shape)
    from jax import random

    return random.randint(rng, shape, 0, high)


def split(rng: Any, n: int) -> list[Any]:
    """``n`` sources of random numbers; a NumPy generator serves for all."""
    if isinstance(rng, np.random.Generator):
        return [rng] * n
    from jax import random

    return list(random.split(rng, n))


def repeat(xp: ModuleType, n: Any, body: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """``body`` applied ``n`` times; one compiled loop on a device."""
    if xp is np:
        for _ in range(int(n)):
            carry = body(carry)
        return carry
    from jax import lax

    return lax.fori_loop(0, n, lambda _, c: body(c), carry)  # type: ignore[no-any-return]


def until(
    xp: ModuleType, done: Callable[[Carry], Any], body: Callable[[Carry], Carry], carry: Carry
) -> Carry:
    """``body`` applied until ``done``; one compiled loop on a device."""
    if xp is np:
        while not done(carry):
            carry = body(carry)
        return carry
    from jax import lax

    return lax.while_loop(lambda c: ~done(c), body, carry)  # type: ignore[no-any-return]


def when(xp: ModuleType, condition: Any, body: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """``body`` applied if ``condition`` holds: for work that is rarely due."""
    if xp is np:
        return body(carry) if condition else carry
    from jax import lax

    return lax.cond(condition, body, lambda c: c, carry)  # type: ignore[no-any-return]


class Functions(FuncEnv[Any, Any, Any, Any, Any, Any, Any]):
    """The functions of an environment over ``xp`` (numpy or jax.numpy).

    ``initial(rng)``, ``transition(state, action, rng)``, ``observation(state, rng)``,
    ``reward(state, action, next_state, rng)``, ``terminal(state, rng)`` are pure; ``rng`` is a NumPy
    generator or a JAX key, used through the helpers above. ``transition`` has no side effects and no
    Python branch on array values, so that it can be compiled and mapped. ``state_info(state)`` and
    ``transition_info(state, action, next_state)`` may add ``info``; ``picture(state)`` draws, in NumPy,
    an RGB image. A method
    ``action_masks(state)``, if there is one, says which actions are allowed.
    """

    costly_reset = False
    """Whether ``initial`` costs as much as a step: on a device it is then left out of steps at which
    no episode ends, rather than computed and thrown away."""

    def __init__(self, xp: ModuleType = np) -> None:
        super().__init__()
        self.xp = xp

    def picture(self, state: Any) -> np.ndarray:
        """The state as an RGB image."""
        raise NotImplementedError


def number(xp: ModuleType, value: Any) -> Any:
    """A number for ``info``: a float with NumPy, the value itself where it is being compiled."""
    return float(value) if xp is np else value


def step_info(functions: Any, state: Any, action: Any, following: Any) -> Info:
    """The ``info`` of a step: that of the state it led to, and its own."""
    own = functions.transition_info(state, action, following)
    return {**functions.state_info(following), **own}


class FunctionalEnv(ExaEnv):
    """The Gymnasium form of ``Functions``, in NumPy; a checkpoint keeps its running episode.

    ``make(xp=...)`` gives the functions; a workflow on a device calls it with ``jax.numpy``.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, make: Callable[..., Functions], render_mode: str | None = None) -> None:
        self.make = make
        self.functions = make(xp=np)
        self.observation_space = self.functions.observation_space
        self.action_space = self.functions.action_space
        self.render_mode = render_mode
        self.state: Any = None
        if (masks := getattr(self.functions, METHOD, None)) is not None:
            self.action_masks = lambda: masks(self.state)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.state = self.functions.initial(self.np_random)
        return self._observe(), self.functions.state_info(self.state)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        functions, rng, before = self.functions, self.np_random, self.state
        self.state = functions.transition(before, action, rng)
        reward = float(functions.reward(before, action, self.state, rng))
        terminated = bool(functions.terminal(self.state, rng))
        info = step_info(functions, before, action, self.state)
        return self._observe(), reward, terminated, False, info

    def render(self) -> Any:
        return self.functions.picture(self.state) if self.render_mode == "rgb_array" else None

    def get_state(self) -> Arrays:
        """The state's arrays and the place in the random stream."""
        arrays = {f"state/{k}": np.array(v) for k, v in self.state._asdict().items()}
        return arrays | {"random": _generator_words(self.np_random)}

    def set_state(self, state: Arrays) -> None:
        kept = {name: state[f"state/{name}"] for name in self.state._fields}
        self.state = type(self.state)(**kept)
        _set_generator(self.np_random, state["random"])

    def _observe(self) -> Any:
        return self.functions.observation(self.state, self.np_random)


def _generator_words(generator: np.random.Generator) -> np.ndarray:
    """A PCG64 generator's state as six 64-bit words."""
    state = generator.bit_generator.state
    words = []
    for number in (state["state"]["state"], state["state"]["inc"]):
        words += [number >> 64, number & (2**64 - 1)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _set_generator(generator: np.random.Generator, words: np.ndarray) -> None:
    high, low, inc_high, inc_low, has, kept = (int(word) for word in words)
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        "has_uint32": has,
        "uinteger": kept,
    }
