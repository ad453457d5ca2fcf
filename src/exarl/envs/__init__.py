"""Environments: making them, adapting their spaces, stepping them alone or as a group of ranks."""

from __future__ import annotations

from exarl.envs.base import ExaEnv
from exarl.envs.registration import describe_env, env_ids, make_env, register, register_all

__all__ = ["ExaEnv", "describe_env", "env_ids", "make_env", "register", "register_all"]
