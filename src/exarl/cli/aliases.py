"""The flags of a common RLlib training script, translated into EXARL's."""

from __future__ import annotations

from collections.abc import Mapping

from exarl.cli import words as line


def modern(words: list[str], environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return ``words`` with that script's flags replaced by EXARL's, and a note on each replacement.

    The flags are ``--run PPO --name-env E --num-cpus N --num-gpus G --local-mode --redis-password P``;
    one of the N CPUs is the learner's, as in RLlib. Words without such flags are returned unchanged.
    """
    kept, notes = list(words), []
    agent, env = line.take(kept, "run"), line.take(kept, "name_env")
    cpus, gpus = line.take_count(kept, "num_cpus", least=0), line.take(kept, "num_gpus")
    local = line.take_flag(kept, "local_mode")
    password = line.take(kept, "redis_password")
    if kept == words:
        return words, []
    if agent is not None:
        kept += ["--agent", agent if "-v" in agent else f"{agent}-v0"]
    if env is not None:
        kept += ["--env", env]
    if not has(kept, "workflow"):
        kept += ["--workflow", "elastic"]
    if local:
        return [*kept, "--serial"], ["--local-mode: everything in this process (--serial)"]
    if cpus is not None and not has(kept, "n_actors"):
        kept += ["--n_actors", str(max(1, cpus - 1))]
        notes.append(f"--num-cpus {cpus}: 1 learner and {max(1, cpus - 1)} actors (--n_actors)")
    if gpus is not None:
        kept += ["--learner_gpus", gpus]
    if password is not None:
        notes.append(
            "--redis-password: ignored, Ray no longer needs one; --address names a cluster"
        )
        named = has(kept, "address") or has(kept, "workflow.address")
        if (head := environ.get("ip_head")) and not named:
            kept += ["--workflow.address", head]
            notes.append(f"ip_head: the cluster at {head} (--address)")
    return kept, notes


def has(words: list[str], name: str) -> bool:
    return line.take(list(words), name) is not None
