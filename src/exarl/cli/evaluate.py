"""``exarl evaluate``: play policies without exploration; print a table, record a video."""

from __future__ import annotations

import math
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from exarl.acting.evaluation import Played
from exarl.cli import words as line
from exarl.cli.film import check_video, record, write_video
from exarl.comm.channel import launched_ranks, launched_world
from exarl.envs.pictures import check_pictures
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory
from exarl.run.configure import configure, configure_again
from exarl.run.episode_log import EpisodeLog
from exarl.run.evaluation import Contestant, EvaluationResult, Spectator, compare, source_of

HELP = """\
usage: exarl evaluate [RUN ...] [--agent POLICY ...] [--episodes N] [--key value ...]
                      [--seed S] [--checkpoint STEP | --best] [--procs N] [--video FILE] [--trust]

Plays the policies of runs, and others, without exploration and prints each episode and the mean and
spread of the rewards. Several policies play the same episodes of the first run's environment; with
--env ID no run is needed.

  --agent POLICY      a controller of your own as MODULE:NAME (a class or an object with
                      act(observation) and perhaps reset(), or a function), or the id of an agent
                      that acts untrained
  --episodes N        number of episodes (default 10)
  --seed S            seed of the episodes (default: the run's seed); training episodes never recur
  --checkpoint STEP   step of the checkpoint to play (default: the newest intact one)
  --best              play the policy with the best evaluation during training (eval_interval)
  --procs N           share the episodes out over N MPI ranks, in groups of process_per_env
  --video FILE        record the first episode, with step and return below the picture, as .gif, or as
                      .mp4 with the extra 'exarl[video]'
  --record OUT        keep the episodes of the policy as a Minari dataset (a new folder), .npz or .csv
  --trust             allow code named by a run that you did not make here (docs/runs.md)
  --key value         a parameter of the environment, or one of the run such as n_steps
"""


def evaluate(words: list[str]) -> int:
    given = list(words)
    policies = [*positional(words), *line.take_all(words, "agent")]
    count, procs = line.take_count(words, "episodes", 10), line.take_count(words, "procs")
    step = line.take_count(words, "checkpoint")
    best, trust = line.take_flag(words, "best"), line.take_flag(words, "trust")
    video, record_to = line.take(words, "video"), line.take(words, "record")
    if not policies:
        raise ConfigError("which policy? a run directory, or --agent MODULE:NAME with --env ID")
    if procs is not None and procs > 1 and launched_ranks() is None:
        from exarl.cli.mpiexec import launch

        line.take(given, "procs")
        return launch(procs, ["evaluate", *given])
    check_video(video)
    log = EpisodeLog(record_to) if record_to else None
    if log is not None and len(policies) > 1:
        raise ConfigError("--record keeps the episodes of one policy")
    if video:
        check_pictures(env_of(policies, words, trust))
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # a video needs no screen
    frames: list[np.ndarray] = []
    options: dict[str, Any] = {"render_mode": "rgb_array"} if video else {}
    film = partial(record, frames) if video else None
    results = compare(
        policies,
        {},
        count,
        flags=words,
        best=best,
        checkpoint=step,
        comm=launched_world(),
        trust=trust,
        spectator=Spectator(show, film) if log is None else log.watching(show, film),
        **options,
    )
    sys.stdout.write(table(results))
    if log is not None and results:
        kept = log.write()
        sys.stdout.write(f"recorded {record_to} ({len(kept)} episodes, {kept.steps:,} steps)\n")
    if video and results:
        write_video(Path(video), frames)
        sys.stdout.write(f"video {video} ({len(frames)} frames)\n")
    return 0


def positional(words: list[str]) -> list[str]:
    """Remove and return the words before the first option."""
    count = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    found, words[:] = words[:count], words[count:]
    return found


def env_of(policies: list[str], words: list[str], trust: bool) -> str:
    """The id of the environment that these policies play."""
    for policy in policies:
        if isinstance(run := source_of(policy), RunDirectory):
            return configure_again(run, words, trust).learner.env
    return configure(None, words).learner.env


def show(contestant: Contestant, number: int, played: Played) -> None:
    """Print an episode, the first with the head of the table: by then a video is known to work."""
    if number == 0:
        steps = contestant.steps
        what = contestant.name if steps is None else f"policy after {steps:,} steps, greedy"
        sys.stdout.write(f"{contestant.env}: {what}\nepisode        reward   steps  ended by\n")
    sys.stdout.write(
        f"{number + 1:7d}  {played.total_reward:12.3f}  {played.length:6d}  {played.ended_by}\n"
    )


def table(results: list[EvaluationResult]) -> str:
    """The means: of one policy a line, of several a line for each with its name; then, with log_info,
    the numbers of info by column."""
    if len(results) < 2:
        text = "".join(f"{result}\n" for result in results)
    else:
        width = max(len(result.policy) for result in results)
        text = "\n" + "".join(f"{result.policy:{width}}  {result}\n" for result in results)
    columns = dict.fromkeys(column for result in results for column in result.info)
    for column in columns:
        values = (f"{result.info.get(column, math.nan):14.6g}" for result in results)
        text += f"{column:28}{''.join(values)}\n"
    return text
