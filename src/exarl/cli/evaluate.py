"""``exarl evaluate``: play a stored policy without exploration; print a table, record a video."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exarl.acting.evaluation import Played, play
from exarl.cli import words as line
from exarl.cli.targets import check_target
from exarl.envs.episode import Episode
from exarl.envs.pictures import check_pictures, picture
from exarl.errors import CheckpointError, ConfigError, install
from exarl.learning.exploration import EVALUATION
from exarl.records.checkpoint import (
    check_made_for,
    fitting,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    made_for,
    weights_of,
)
from exarl.records.directory import RunDirectory, open_run
from exarl.run.build import build_agent, build_episode, build_guard
from exarl.run.configure import configure_again

HELP = """\
usage: exarl evaluate RUN [--episodes N] [--seed S] [--checkpoint STEP | --best] [--video FILE]
                           [--trust]

Plays the policy of a run without exploration and prints each episode and the mean and spread of the
rewards.

  --episodes N        number of episodes (default 10)
  --seed S            seed of the episodes (default: the run's seed); training episodes never recur
  --checkpoint STEP   step of the checkpoint to play (default: the newest intact one)
  --best              play the policy with the best evaluation during training (eval_interval)
  --video FILE        record the first episode as .gif, or as .mp4 with the extra 'exarl[video]'
  --trust             allow code named by a run that you did not make here (docs/runs.md)
"""
FRAMES_PER_SECOND = 30
MAX_FRAMES = 1500


def evaluate(words: list[str]) -> int:
    run = open_run(line.take_path(words, "run directory"))
    count = line.take_count(words, "episodes", 10)
    step = line.take_count(words, "checkpoint")
    best, trust = line.take_flag(words, "best"), line.take_flag(words, "trust")
    video = line.take(words, "video")
    seed = line.take(words, "seed")
    line.nothing_left(words)
    check_video(video)
    configuration = configure_again(run, ["--seed", seed] if seed else [], trust)
    options: dict[str, Any] = {"render_mode": "rgb_array"} if video else {}
    if video:
        check_pictures(configuration.learner.env)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # a video needs no screen
    env, adapter, limit = build_episode(configuration, **options)
    guard = build_guard(configuration, **options)
    seeded = configuration.learner.seed
    episode = Episode(env, adapter, limit, seeded, 0, kind=EVALUATION, guard=guard)
    agent = build_agent(configuration, adapter.spec)
    wanted = made_for(configuration.learner, configuration.values["model"], adapter.spec)
    steps, weights = stored_weights(run, wanted, step, best)
    try:
        agent.set_weights(weights)
    except ValueError as error:
        raise CheckpointError(f"weights and config.json of {run.path} differ: {error}") from error
    frames: list[np.ndarray] = []
    film = (lambda env: record(env, frames)) if video else None
    results = []
    for number in range(count):
        results.append(play(agent, episode, film if number == 0 else None))
        if number == 0:  # if no video can be made, that is known by now
            head = f"{configuration.learner.env}: policy after {steps:,} steps, greedy\n"
            sys.stdout.write(f"{head}episode        reward   steps  ended by\n")
        sys.stdout.write(row(number, results[-1]))
    episode.close()
    sys.stdout.write(totals(results))
    if video:
        write_video(Path(video), frames)
        sys.stdout.write(f"video {video} ({len(frames)} frames)\n")
    return 0


def stored_weights(
    run: RunDirectory, wanted: Mapping[str, str], step: int | None, best: bool = False
) -> tuple[int, np.ndarray]:
    """The weights of a checkpoint and the step they are from.

    CheckpointError when it was not made for the agent and environment in ``wanted``.
    """
    if best and step is not None:
        raise ConfigError("--best and --checkpoint exclude each other")
    if best and not run.best.is_dir():
        raise ConfigError(f"{run.path} has no best policy: it was trained without eval_interval")
    if step is None:
        found = load_newest(run.best if best else run.checkpoints)
        if found is None:
            raise CheckpointError(f"no usable checkpoint in {run.path}")
    else:
        paths = {int(path.name): path for path in list_checkpoints(run.checkpoints)}
        if step not in paths:
            kept = ", ".join(str(s) for s in sorted(paths)) or "none"
            raise ConfigError(f"no checkpoint of step {step} in {run.path} (kept: {kept})")
        found = load_checkpoint(paths[step])
    with fitting(run, found):
        check_made_for(found, wanted)
        return int(found.numbers["counters"]["steps"]), weights_of(found)


def row(number: int, played: Played) -> str:
    cause = "failure" if played.failed else "termination" if played.terminated else "truncation"
    return f"{number + 1:7d}  {played.total_reward:12.3f}  {played.length:6d}  {cause}\n"


def totals(results: list[Played]) -> str:
    rewards = [played.total_reward for played in results]
    spread = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
    return (
        f"reward {statistics.fmean(rewards):.3f} +- {spread:.3f}"
        f" (min {min(rewards):.3f}, max {max(rewards):.3f}), "
        f"length {statistics.fmean([played.length for played in results]):.1f},"
        f" {len(results)} episodes\n"
    )


def check_video(video: str | None) -> None:
    """ConfigError if the video cannot be written; checked before anything is played."""
    if video is None:
        return
    if Path(video).suffix.lower() not in (".gif", ".mp4"):
        raise ConfigError(f"--video takes a .gif or an .mp4 file, not '{video}'")
    check_target(Path(video))
    if video.lower().endswith(".mp4"):
        try:
            import imageio_ffmpeg  # noqa: F401
        except ImportError as error:
            raise ConfigError(f"an .mp4 needs {install('video')}; a .gif does not") from error


def record(env: Any, frames: list[np.ndarray]) -> None:
    """Append the environment's picture to ``frames``, up to a limit."""
    if len(frames) < MAX_FRAMES:
        frames.append(picture(env))


def write_video(path: Path, frames: list[np.ndarray]) -> None:
    if path.suffix.lower() == ".gif":
        from PIL import Image

        pictures = [Image.fromarray(frame) for frame in frames]
        pictures[0].save(
            path,
            save_all=True,
            append_images=pictures[1:],
            duration=1000 // FRAMES_PER_SECOND,
            loop=0,
            optimize=False,
        )
        return
    import imageio_ffmpeg

    height, width = frames[0].shape[:2]
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (width, height),
        fps=FRAMES_PER_SECOND,
        macro_block_size=2,
        ffmpeg_log_level="error",
    )
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()
