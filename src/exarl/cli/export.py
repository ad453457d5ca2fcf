"""``exarl export``: the policy of a run as a file for other programs."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

from exarl.cli import words as line
from exarl.cli.targets import check_target
from exarl.envs.spaces import action_values, factor_values, mixed_values
from exarl.errors import CheckpointError, ConfigError, StorageError
from exarl.export.c_header import to_c
from exarl.export.npz import to_npz
from exarl.export.onnx_graph import load_onnx, to_onnx
from exarl.export.policy import Choose, ChooseEach, Mixed, Policy
from exarl.records.directory import RunDirectory, expand, open_run, reason
from exarl.records.replacing import replacing
from exarl.run.configure import stored_id
from exarl.run.policy import load

HELP = """\
usage: exarl export RUN --format npz|onnx|c [--output FILE] [--best] [--force] [--trust]

Writes the greedy policy of a run to a file that can be used without EXARL and without the environment.

  --format npz     arrays for NumPy
  --format onnx    a graph for ONNX runtimes; needs the extra 'exarl[export]'
  --format c       a C99 header without dependencies, also for C++ and Fortran
  --output FILE    output file (default: policy.npz, policy.onnx or policy.h in RUN)
  --policy NAME    which of several policies (train --policies)
  --best           the policy with the best evaluation (default: the newest checkpoint's)
  --force          replace FILE if it exists
  --trust          allow code named by a run that you did not make here (docs/runs.md)
"""
SUFFIXES = {"npz": ".npz", "onnx": ".onnx", "c": ".h"}


def export(words: list[str]) -> int:
    run = open_run(line.take_path(words, "run directory"))
    form, output = line.take(words, "format"), line.take(words, "output")
    name = line.take(words, "policy")
    best, force = line.take_flag(words, "best"), line.take_flag(words, "force")
    trust = line.take_flag(words, "trust")
    line.nothing_left(words)
    if form is None:
        raise ConfigError("which --format? (npz, onnx or c)")
    line.check_choice(form, SUFFIXES, f"no format '{form}'")
    path = expand(output) if output else run.path / f"policy{SUFFIXES[form]}"
    check_target(path, force)
    if form == "onnx":
        load_onnx()  # fails early if it is not installed
    steps, policy = stored_policy(run, best, trust, name)
    write(policy, form, path)
    sys.stdout.write(f"policy after {steps:,} steps\n")
    sys.stdout.write(f"{path}: {policy.inputs} inputs, {policy.outputs} outputs\n")
    return 0


def stored_policy(
    run: RunDirectory, best: bool, trust: bool = False, name: str | None = None
) -> tuple[int, Policy]:
    """Return the number of training steps and the greedy policy of a run, of several the one with this
    name."""
    trained = load(run.path, best=best, trust=trust, policy=name)
    if trained.residual is not None:
        raise ConfigError(
            f"{run.path} cannot be exported: its policy corrects a controller (residual)"
        )
    describe = getattr(trained.agent, "exported", None)
    if describe is None:
        raise ConfigError(f"agent '{stored_id(run, 'agent')}' cannot be exported")
    try:
        policy: Policy = describe()
    except ValueError as error:
        raise CheckpointError(f"the policy of {run.path} cannot be exported: {error}") from error
    if (values := action_values(trained.adapter, trained.action_space)) is not None:
        policy = Policy((*policy.layers, Choose(values)), policy.inputs, values.shape[1])
    *before, last = policy.layers
    values_of_mixed = mixed_values(trained.adapter, trained.action_space)
    if isinstance(last, Mixed) and values_of_mixed is not None:
        whole, first = values_of_mixed
        ended = replace(last, whole=whole, first=first)
        policy = replace(policy, layers=(*before, ended))
    elif (table := factor_values(trained.adapter, trained.action_space)) is not None:
        policy = Policy((*policy.layers, ChooseEach(table)), policy.inputs, len(table))
    assert trained.steps is not None
    return trained.steps, policy


def write(policy: Policy, form: str, path: Path) -> None:
    """Write the file whole, or leave it as it was; StorageError in one line."""
    try:
        with replacing(path) as aside:
            match form:
                case "npz":
                    to_npz(policy, aside)
                case "onnx":
                    to_onnx(policy, aside)
                case _:
                    aside.write_text(to_c(policy, identifier(path.stem)), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error


def identifier(stem: str) -> str:
    """A C identifier made from a file name: ``my-policy 2`` -> ``my_policy_2``."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    return name if name[:1].isalpha() else f"policy_{name}"
