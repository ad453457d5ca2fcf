"""Environments that a script has as objects: environments, classes and functions that make them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium

from exarl.envs.base import Env
from exarl.errors import ConfigError

LocalEnv: TypeAlias = "Env | Callable[..., Env]"


class Lent(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that belongs to the script, which closes it."""

    def close(self) -> None:
        pass


def with_local_env(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a run; an environment among them is registered and replaced by its id."""
    env = parameters.get("env", "")
    return dict(parameters) if isinstance(env, str) else {**parameters, "env": register_local(env)}


def register_local(env: LocalEnv, id: str | None = None) -> str:
    """Register ``env`` with Gymnasium, in this process, in place of one of that id; return the id.

    By default it is ``local/NAME-v0``, with the name of the class or the function.
    """
    if isinstance(env, gymnasium.Env):
        name, creator = type(env.unwrapped).__name__, lender(env)
    elif callable(env):
        name, creator = getattr(env, "__name__", type(env).__name__), env
    else:
        raise ConfigError(f"env is an id, an environment or a function that makes one, not {env!r}")
    id = id or f"local/{re.sub('[^A-Za-z0-9_]+', '', name) or 'env'}-v0"
    gymnasium.registry.pop(id, None)
    gymnasium.register(id, creator)  # type: ignore[arg-type]  # Gymnasium calls it
    return id


def lender(env: Env) -> Callable[[], Env]:
    """A function that gives ``env`` once; ConfigError when another is needed."""
    given: list[Env] = []

    def lend() -> Env:
        if given:
            raise ConfigError(
                f"one environment of the class {type(env.unwrapped).__name__} is there, more are"
                " needed: give a function that makes environments, such as env=lambda: MyEnv()"
            )
        given.append(env)
        return Lent(env)

    return lend
