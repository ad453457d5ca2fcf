"""``exarl export``: the policy of a run as a file for other programs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from exarl.cli import words as line
from exarl.envs.spaces import action_values
from exarl.errors import CheckpointError, ConfigError, StorageError, did_you_mean
from exarl.export.c_header import to_c
from exarl.export.npz import to_npz
from exarl.export.onnx_graph import load_onnx, to_onnx
from exarl.export.policy import Choose, Policy
from exarl.records.checkpoint import load_newest, weights_of
from exarl.records.directory import RunDirectory, expand, open_run, reason
from exarl.run.components import build_agent, build_episode, configure_again

HELP = """\
usage: exarl export RUN --format npz|onnx|c [--output FILE] [--best] [--force] [--trust]

Writes the greedy policy of a run to a file that needs neither EXARL nor the environment.

  --format npz     arrays for NumPy
  --format onnx    a graph for ONNX runtimes; needs the extra 'exarl[export]'
  --format c       a C99 header without dependencies, also for C++ and Fortran
  --output FILE    where to (default: policy.npz, policy.onnx or policy.h in RUN)
  --best           the policy with the best evaluation (default: the newest checkpoint's)
  --force          replace FILE if it is there
  --trust          it may run what it names, though you have not made it here (docs/runs.md)
"""
SUFFIXES = {"npz": ".npz", "onnx": ".onnx", "c": ".h"}


def export(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(HELP)
        return 0
    run = open_run(line.take_path(words, "run directory"))
    form, output = line.take(words, "format"), line.take(words, "output")
    best, force = line.take_flag(words, "best"), line.take_flag(words, "force")
    trust = line.take_flag(words, "trust")
    line.nothing_left(words)
    if form not in SUFFIXES:
        hint = did_you_mean(form or "", SUFFIXES) or " (npz, onnx or c)"
        raise ConfigError(f"no format '{form}'{hint}" if form else f"which --format?{hint}")
    path = expand(output) if output else run.path / f"policy{SUFFIXES[form]}"
    check_target(path, force)
    if form == "onnx":
        load_onnx()  # its absence is better known before anything is built
    steps, policy = stored_policy(run, best, trust)
    write(policy, form, path)
    sys.stdout.write(f"policy after {steps:,} steps\n")
    sys.stdout.write(f"{path}: {policy.inputs} inputs, {policy.outputs} outputs\n")
    return 0


def check_target(path: Path, force: bool) -> None:
    """ConfigError when ``path`` cannot be written, or is there and not to be replaced."""
    try:
        is_folder, in_folder = path.is_dir(), path.parent.is_dir()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write {path}: {reason(error)}") from error
    if is_folder:
        raise ConfigError(f"cannot write {path}: it is a folder")
    if not in_folder or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"cannot write {path}: {path.parent} is no folder that can be written to")
    if os.path.lexists(path) and not force:
        raise ConfigError(f"{path} is there already; --force replaces it")


def stored_policy(run: RunDirectory, best: bool, trust: bool = False) -> tuple[int, Policy]:
    """What the agent of a run would do greedily, and after how many steps of training."""
    folder = run.best if best else run.checkpoints
    if best and not folder.is_dir():
        raise ConfigError(f"{run.path} keeps no best policy; leave --best out for the newest")
    configuration = configure_again(run, trust=trust)
    env, adapter, _ = build_episode(configuration)
    env.close()
    agent = build_agent(configuration, adapter.spec)
    describe = getattr(agent, "exported", None)
    if describe is None:
        raise ConfigError(f"agent '{configuration.learner.agent}' cannot be exported")
    found = load_newest(folder)
    if found is None:
        raise CheckpointError(f"no usable checkpoint in {folder}")
    try:
        agent.set_weights(weights_of(found))
        policy: Policy = describe()
        if (values := action_values(adapter, env.action_space)) is not None:
            policy = Policy((*policy.layers, Choose(values)), policy.inputs, values.shape[1])
    except ValueError as error:
        raise CheckpointError(f"the policy of {run.path} cannot be exported: {error}") from error
    return int(found.numbers["counters"]["steps"]), policy


def write(policy: Policy, form: str, path: Path) -> None:
    """Write aside, then rename: the file is whole or as before."""
    aside = path.with_name(f".export.{os.getpid()}.tmp")
    try:
        match form:
            case "npz":
                to_npz(policy, aside)
            case "onnx":
                to_onnx(policy, aside)
            case _:
                aside.write_text(to_c(policy, identifier(path.stem)), encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error
    finally:
        aside.unlink(missing_ok=True)


def identifier(stem: str) -> str:
    """A C name out of a file's: ``my-policy 2`` -> ``my_policy_2``."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    return name if name[:1].isalpha() else f"policy_{name}"
