"""``exarl.register`` and ``exarl.make``: components by their ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exarl import envs, registry
from exarl.errors import ConfigError, did_you_mean
from exarl.run.build import build_agent, build_episode, build_workflow
from exarl.run.configure import configure
from exarl.types import EnvSpec

KINDS: dict[str, Callable[..., None]] = {
    "agent": registry.agents.register,
    "workflow": registry.workflows.register,
    "network": registry.networks.register,
    "env": envs.register,
}


def register(kind: str, id: str, entry_point: str | Callable[..., Any], **options: Any) -> None:
    """Register an "agent", "workflow", "network" or "env" under ``id``.

    ``entry_point`` is ``"package.module:name"`` or the object itself; the options of an environment
    are Gymnasium's.
    """
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f" (kinds: {', '.join(KINDS)})"
        raise ConfigError(f"unknown kind '{kind}'{hint}")
    KINDS[kind](id, entry_point, **options)


def make(id: str, spec: EnvSpec | None = None, **parameters: Any) -> Any:
    """Make the component registered under ``id`` with these parameters. ConfigError if there is none.

    An agent is made for an environment: its ``spec``, or ``env="..."`` with the environment's
    parameters among the others. A workflow and an environment need neither.
    """
    if id in registry.agents:
        if spec is None and "env" not in parameters:
            raise ConfigError(
                f"agent '{id}' needs the spec of its environment: make(id, spec), or env='...'"
            )
        configuration = configure(overrides={**parameters, "agent": id})
        if spec is None:
            env, adapter, _ = build_episode(configuration)
            env.close()
            spec = adapter.spec
        return build_agent(configuration, spec)
    if id in registry.workflows:
        return build_workflow(configure(overrides={**parameters, "workflow": id}))
    if ":" in id or id in envs.env_ids():
        return envs.make_env(id, parameters)[0]
    known = [*registry.agents.ids(), *registry.workflows.ids(), *envs.env_ids()]
    raise ConfigError(f"nothing is registered as '{id}'{did_you_mean(id, known)}")
