"""Environments: making them, adapting their spaces, stepping them alone or as a group of ranks."""

from __future__ import annotations

from exarl.envs.base import ExaEnv
from exarl.envs.context import EnvContext
from exarl.envs.registration import describe_env, env_ids, make_env, register, register_all

register_all()  # Gymnasium knows an id when the module that has it is imported

__all__ = [
    "EnvContext",
    "ExaEnv",
    "describe_env",
    "env_ids",
    "make_env",
    "register",
    "register_all",
]
