"""Names of environments: Gymnasium's registry, EXARL's own entries, and their parameters."""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from importlib.metadata import distributions, entry_points
from importlib.util import find_spec as find_module
from pathlib import Path
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymSpec
from gymnasium.envs.registration import load_env_creator

from exarl.config import Schema, schema_of_signature
from exarl.envs.base import Env, ExaEnv
from exarl.envs.context import EnvContext, temporary_context
from exarl.envs.dropped import Dropped
from exarl.envs.guard import FAILING, close_quietly, in_words
from exarl.envs.joint import Joint, is_parallel
from exarl.envs.masks import KEY, with_masks
from exarl.envs.weighted import Weighted
from exarl.errors import MIN_PART, ConfigError, did_you_mean, install
from exarl.registry import comes_from, import_named, what_registers

BUILTIN: dict[str, tuple[str, int | None]] = {
    "ExaCartPole-v1": ("exarl.envs.cartpole:ExaCartPole", 500),
    "ExaClient-v0": ("exarl.envs.external.loop_env:LoopEnv", None),
    "ExaExternal-v0": ("exarl.envs.external.env:ExternalEnv", None),
    "ExaFaulty-v0": ("exarl.envs.faulty:ExaFaulty", None),
    "ExaLatency-v0": ("exarl.envs.latency:ExaLatency", None),
    "ExaMaskedCartPole-v0": ("exarl.envs.memory:ExaMaskedCartPole", 500),
    "ExaRecall-v0": ("exarl.envs.memory:ExaRecall", None),
    "ExaRemote-v0": ("exarl.envs.external.remote:RemoteEnv", None),
    "ExaSurrogate-v0": ("exarl.envs.surrogate:ExaSurrogate", None),
}
"""id -> (entry point, limit on an episode's steps), of the environments in this room"""

SCIENCE = "exarl.science"
"""The package of EXARL's science cases, which registers its environments as anybody's package does."""

EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "pygame": "video"}
"""Packages that Gymnasium's environments need, and EXARL's extras that have them."""

OTHERS = {
    "minigrid": "minigrid",
    "babyai": "minigrid",
    "ale": "ale_py",
    "fetchreach": "gymnasium_robotics",
    "antmaze": "gymnasium_robotics",
    "highway": "highway_env",
    "pandareach": "panda_gym",
    "dm_control": "shimmy",
}
"""How ids of well-known packages begin, and the module that registers them."""


def register_all() -> None:
    """Enter EXARL's environments into Gymnasium's registry."""
    for id, (entry_point, limit) in BUILTIN.items():
        if id not in gymnasium.registry:
            gymnasium.register(id=id, entry_point=entry_point, max_episode_steps=limit)
    import_module(SCIENCE)


def packaged_ids() -> list[str]:
    """The ids of all environments that come with EXARL, sorted."""
    register_all()
    known = gymnasium.registry.items()
    return sorted({*BUILTIN, *(id for id, spec in known if comes_from(SCIENCE, spec.entry_point))})


def register(id: str, entry_point: str | Callable[..., Any], **options: Any) -> None:
    """Register an environment with Gymnasium; the options are Gymnasium's."""
    gymnasium.register(id=id, entry_point=entry_point, **options)


def plugins() -> dict[str, str]:
    """Ids that installed packages offer, and the module that registers each: the entry points of
    the group ``exarl.envs``, as in ``"MyEnv-v0" = "my_env"``."""
    return {point.name: point.value for point in entry_points(group="exarl.envs")}


def env_ids() -> list[str]:
    """Every registered environment id, EXARL's first."""
    own = packaged_ids()
    return [*own, *sorted({*gymnasium.registry, *plugins()} - {*own})]


def find_spec(id: str) -> GymSpec:
    """Gymnasium's entry for ``id``; ConfigError with the nearest id when there is none."""
    register_all()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # a warning about outdated versions is not an error here
            module, _, name = id.rpartition(":")
            if not module and name not in gymnasium.registry:
                module = plugins().get(name, "")
            if module:
                import_named(module)  # which registers what it has
            return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        if isinstance(error, ImportError) and (module.endswith(".py") or "/" in module):
            dotted = ".".join(Path(module.removesuffix(".py")).parts)
            message = f"environment '{id}': a module is named as for import, {dotted}:{name}"
        elif isinstance(error, ImportError):
            message = f"environment '{id}' needs a package that is missing: {error}"
        elif module:
            own = [
                i for i, spec in gymnasium.registry.items() if comes_from(module, spec.entry_point)
            ]
            message = f"unknown environment '{name}': {what_registers(module, 'environment', own)}"
        else:
            message = f"unknown environment '{id}'{_where_else(id)}"
        raise ConfigError(message) from error


def _where_else(id: str) -> str:
    """A hint for an id that nothing here registers: the module that may, or the nearest id."""
    first = re.split("[-/]", id.lower())[0]
    module = OTHERS.get(first) or next((m for m in _installed() if m.startswith(first)), None)
    if module is not None and len(first) >= MIN_PART:
        return f"; if it is of the package {module}, write {module}:{id}"
    near = did_you_mean(id, env_ids())
    return near or "; see 'exarl list envs', or write MODULE:ID for one that a package registers"


def _installed() -> set[str]:
    """Packages installed beside Gymnasium that have it in their name or depend on it."""
    names = (
        point.metadata["Name"].lower().replace("-", "_")
        for point in distributions()
        if any(re.match("gymnasium\\b", need) for need in point.requires or ())
    )
    return {name for name in names if find_module(name) is not None}


def extra_for(error: BaseException) -> str:
    """How to install what ``error`` misses, if an extra of EXARL's has it."""
    if not isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled):
        return ""
    extras = [extra for package, extra in EXTRAS.items() if package in str(error).lower()]
    return f"; or {install(extras[0])}" if extras else ""


def creator_of(spec: GymSpec) -> Callable[..., Any]:
    """What Gymnasium will call to make this environment; ConfigError when it cannot be imported."""
    creator: Any = spec.entry_point
    try:
        if isinstance(creator, str):
            creator = load_env_creator(creator)
    except (ImportError, AttributeError, gymnasium.error.Error) as error:
        raise ConfigError(
            f"environment '{spec.id}' cannot be imported: {error}{extra_for(error)}"
        ) from error
    if creator is None:
        raise ConfigError(f"environment '{spec.id}' has no entry point")
    return cast("Callable[..., Any]", creator)


def describe_env(id: str) -> tuple[Schema, bool]:
    """The parameters of the environment's constructor, and whether it takes others as well."""
    spec = find_spec(id)
    return schema_of_signature(
        creator_of(spec), dict(spec.kwargs), leave_out=("self", "comm", "context", "render_mode")
    )


def asks_for(id: str, name: str) -> bool:
    """Whether the environment's constructor has a parameter of this name."""
    return name in inspect.signature(creator_of(find_spec(id))).parameters


def make_env(
    id: str,
    kwargs: Mapping[str, object],
    *,
    comm: Any = None,
    context: EnvContext | None = None,
    render_mode: str | None = None,
    drop: Sequence[str] = (),
    weights: Sequence[float] = (),
    preferences: bool = False,
    common_reward: bool = False,
    policies: Mapping[str, str] | None = None,
) -> tuple[Env, int | None]:
    """The environment without a time limit, and the limit that its registration asks for, or else an
    ExaEnv itself. ``drop`` names parts of its observations that are left out. A simulation of several
    agents is a ``Joint``.

    The rollout cuts episodes itself, so that a limit can be changed and an episode be restored.
    With ``weights`` or ``preferences`` its rewards are several and become one, as by ``Weighted``;
    with ``common_reward`` each of its agents is paid the mean over them. ``policies`` are the patterns
    of the names of the agents that share one.
    ``comm`` and ``context`` are handed on when the constructor asks for them; without a context
    given, it is a temporary one, whose folder goes with the environment.
    """
    # Episodes are always reset before they are stepped: no need for a wrapper that looks.
    spec = dataclasses.replace(find_spec(id), order_enforce=False)
    making = _also_parallel(spec)
    extra: dict[str, Any] = {}
    if render_mode is not None:
        extra["render_mode"] = render_mode
    if asks_for(id, "comm"):
        extra["comm"] = comm
    own = None
    if asks_for(id, "context"):
        extra["context"] = context or (own := temporary_context())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", message=".*out of date.*")
            env = gymnasium.make(
                making, max_episode_steps=-1, disable_env_checker=True, **dict(kwargs), **extra
            )
    except FAILING as error:  # anything that a constructor raises for its arguments
        if own is not None:
            own.remove()
        cause = f"{in_words(error)}{extra_for(error)}"
        raise ConfigError(f"environment '{id}' cannot be made: {cause}") from error
    if own is not None:
        own.remove_with(env)
    if making is not spec and env.unwrapped.spec is not None:
        env.unwrapped.spec.entry_point = spec.entry_point
    try:
        if isinstance(joint := env.unwrapped, Joint):
            joint.share(policies or {})
            joint.common_reward = common_reward
            joint.see_through(lambda member: _learned_from(member, drop, weights, preferences))
            return env, spec.max_episode_steps
        bare = env.unwrapped
        limit = bare.max_episode_steps if isinstance(bare, ExaEnv) else None
        return (
            _learned_from(env, drop, weights, preferences),
            spec.max_episode_steps or limit,
        )
    except ConfigError as error:
        close_quietly(env)
        raise ConfigError(f"environment '{id}': {error}") from error


def _also_parallel(spec: GymSpec) -> GymSpec:
    """``spec``, of which ``gymnasium.make`` accepts that it gives a simulation of several agents."""
    creator = creator_of(spec)
    if isinstance(creator, type) and issubclass(creator, gymnasium.Env):
        return spec

    def create(**kwargs: Any) -> Any:
        made = creator(**kwargs)
        return Joint(made) if is_parallel(made) else made

    if hasattr(creator, "metadata"):
        create.metadata = creator.metadata  # type: ignore[attr-defined]
    return dataclasses.replace(spec, entry_point=create)


def _learned_from(
    env: Env, drop: Sequence[str], weights: Sequence[float], preferences: bool
) -> Env:
    """``env`` with what is learned from it: fewer parts, one reward, masks where it has some."""
    names = [name for name in drop if name != KEY or KEY in _parts(env)]
    env = Dropped(env, names) if names else env
    env = Weighted(env, weights, preferences) if weights or preferences else env
    return env if KEY in drop else with_masks(env)


def _parts(env: Env) -> Collection[str]:
    """The names of the parts of a Dict of observations."""
    space = env.observation_space
    return space.spaces if isinstance(space, gymnasium.spaces.Dict) else ()
