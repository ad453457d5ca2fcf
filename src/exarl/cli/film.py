"""The video of ``exarl evaluate``: the pictures of an episode, each with its step and return."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from exarl.acting.joint_episode import JointEpisode
from exarl.cli.targets import check_target
from exarl.envs.episode import Episode
from exarl.envs.pictures import captioned, picture
from exarl.errors import ConfigError, install

FRAMES_PER_SECOND = 30
MAX_FRAMES = 1500


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


def record(frames: list[np.ndarray], episode: Episode | JointEpisode) -> None:
    """Append the picture of the environment, with step and return, to ``frames``, up to a limit."""
    if len(frames) < MAX_FRAMES:
        text = f"step {episode.length}   return {episode.total_reward:.6g}"
        frames.append(captioned(picture(episode.env), text))


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
