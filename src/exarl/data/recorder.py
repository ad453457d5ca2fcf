"""Keeps the episodes of a run in its directory, from the blocks that are trained.

They are written to files ``part_NNNNNN.hdf5``, each complete before it gets its name, to which
``main_data.hdf5`` links. So what is on disk can be read at any time, also after a kill. A checkpoint
says which episodes there were; a resumed run removes those that came later.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from exarl.data.episodes import RecordedEpisode, SpaceForm
from exarl.data.minari import MAIN, hdf5, store_episode, stored_episode, write_metadata
from exarl.errors import ConfigError
from exarl.records.replacing import replacing
from exarl.types import PLACE, Arrays, Block

log = logging.getLogger(__name__)

PART_BYTES = 8_000_000
"""A part is closed when its episodes have this many bytes."""
_PIECES = ("observations", "actions", "rewards", "terminated", "truncated")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class RecordLimit:
    """The most that is kept, in one of two units; without both, everything."""

    bytes: int | None = None
    episodes: int | None = None

    @classmethod
    def read(cls, text: str | None) -> RecordLimit:
        """That of ``"2GB"`` or ``"500 episodes"``. ConfigError for anything else."""
        if text is None:
            return cls()
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", text)
        number, unit = (float(found[1]), found[2]) if found else (0.0, "")
        if unit.upper() in _UNITS and number * _UNITS[unit.upper()] >= 1:
            return cls(bytes=int(number * _UNITS[unit.upper()]))
        if unit.lower() in ("episode", "episodes") and number >= 1 and number == int(number):
            return cls(episodes=int(number))
        raise ConfigError(f"record_limit: '{text}' is no amount such as 2GB, 500MB or 1000episodes")


@dataclass(frozen=True)
class Form:
    """What episodes look like: the spaces, and how actions of the agent become the environment's."""

    env_id: str
    observation: SpaceForm
    action: SpaceForm
    units: Callable[[np.ndarray], np.ndarray]


@dataclass
class RecordedPart:
    """A file of episodes: its number, and the steps of each."""

    number: int
    lengths: list[int] = field(default_factory=list)
    bytes: int = 0


class Recorder:
    """Owns the folder with the episodes of a run. ``add`` is called with each block that is trained."""

    def __init__(self, folder: Path, form: Form, limit: RecordLimit = RecordLimit()) -> None:  # noqa: B008 - frozen
        self._h5py = hdf5()
        self.folder, self._form, self._limit = folder, form, limit
        self._begun: dict[int, list[Arrays]] = {}  # by environment, pieces of unfinished episodes
        self._closed: list[RecordedPart] = []
        self._open = RecordedPart(1)
        self._episodes: list[RecordedEpisode] = []  # of the open part
        self._most = min(PART_BYTES, (limit.bytes or 8 * PART_BYTES) // 8)
        self._written = -1  # episodes of the open part that are on disk

    # -- what blocks bring --------------------------------------------------------------------------

    def add(self, block: Block) -> None:
        """Take over the steps of a block, whose recorded array ``PLACE`` says where they belong."""
        following, ended = block.next_observations(), block.ended
        places = block.recorded[PLACE]  # [T, B, 2]: the environment, and the step of its episode
        for slot in range(ended.shape[1]):
            steps = places[:, slot, 1]
            begins = np.flatnonzero((steps == 0) | np.r_[True, ended[:-1, slot]])
            for start, end in zip(begins, [*begins[1:], len(steps)], strict=True):
                own = slice(start, end)
                piece = {
                    "observations": block.observations[own, slot],
                    "actions": block.actions[own, slot],
                    "rewards": block.rewards[own, slot],
                    "terminated": block.terminated[own, slot],
                    "truncated": block.truncated[own, slot],
                    "last": following[end - 1 : end, slot],
                }
                self._add_piece(int(places[start, slot, 0]), int(steps[start]), piece)
        if self._open.bytes >= self._most:
            self._write_part()
            self._close_part()

    def _add_piece(self, env: int, first: int, piece: Arrays) -> None:
        """Go on with an environment's episode from its step ``first``."""
        known = sum(len(each["rewards"]) for each in self._begun.get(env, ()))
        if known != first:
            # A failure has ended the episode before this step, or blocks of it were lost. What is
            # known of it ends there; of an episode whose beginning is missing nothing is kept.
            if known:
                self._finish(env)
            if first:
                return
        self._begun.setdefault(env, []).append({n: np.array(a) for n, a in piece.items()})
        if piece["terminated"][-1] or piece["truncated"][-1]:
            self._finish(env)

    def _finish(self, env: int) -> None:
        """An environment's episode is over."""
        pieces = self._begun.pop(env)
        whole = {name: np.concatenate([p[name] for p in pieces]) for name in _PIECES}
        if not whole["terminated"][-1]:
            whole["truncated"][-1] = True
        episode = RecordedEpisode(
            np.concatenate([whole["observations"], pieces[-1]["last"]]),
            self._form.units(whole["actions"]),
            whole["rewards"].astype(np.float64),
            whole["terminated"],
            whole["truncated"],
        )
        self.append(episode)

    def append(self, episode: RecordedEpisode) -> None:
        """Keep a whole episode."""
        arrays = [
            episode.rewards,
            *(np.asarray(a) for a in (episode.observations, episode.actions)),
        ]
        self._episodes.append(episode)
        self._open.lengths.append(episode.steps)
        self._open.bytes += sum(array.nbytes for array in arrays) + 2 * episode.steps

    # -- files --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Bring all whole episodes to disk."""
        if self._written != len(self._episodes):
            self._write_part()
            self._write_index()

    def drop(self) -> None:
        """Remove the oldest files beyond the limit. A checkpoint that needs them must not be the newest
        any more: this is called after one is written."""
        while self._closed and self._over(self._closed[0]):
            self._path(self._closed.pop(0)).unlink(missing_ok=True)

    def _over(self, oldest: RecordedPart) -> bool:
        """Whether what is kept is enough without this part."""
        parts = [*self._closed, self._open]
        if self._limit.bytes is not None:
            return sum(part.bytes for part in parts) > self._limit.bytes
        if self._limit.episodes is not None:
            return self.episodes - len(oldest.lengths) >= self._limit.episodes
        return False

    @property
    def episodes(self) -> int:
        """How many whole episodes are in the files."""
        return sum(len(part.lengths) for part in (*self._closed, self._open))

    def _path(self, part: RecordedPart) -> Path:
        return self.folder / f"part_{part.number:06d}.hdf5"

    def _write_part(self) -> None:
        self.folder.mkdir(exist_ok=True)
        with (
            replacing(self._path(self._open), sync=True) as aside,
            self._h5py.File(aside, "w", libver="latest") as file,
        ):
            for number, episode in enumerate(self._episodes):
                store_episode(file, number, episode)
        self._written = len(self._episodes)

    def _close_part(self) -> None:
        self._closed.append(self._open)
        self._open, self._episodes, self._written = RecordedPart(self._open.number + 1), [], -1

    def _write_index(self) -> None:
        """Write ``main_data.hdf5``, in which the newest episodes have the numbers from 0 on."""
        parts = [part for part in (*self._closed, self._open) if part.lengths]
        listed = [(self._path(p).name, i, n) for p in parts for i, n in enumerate(p.lengths)]
        listed = listed[-self._limit.episodes :] if self._limit.episodes else listed
        with (
            replacing(self.folder / MAIN, sync=True) as aside,
            self._h5py.File(aside, "w", libver="latest") as file,
        ):
            for number, (name, place, _) in enumerate(listed):
                file[f"episode_{number}"] = self._h5py.ExternalLink(name, f"episode_{place}")
        form, lengths = self._form, tuple(steps for *_, steps in listed)
        write_metadata(self.folder, form.observation, form.action, lengths, form.env_id)

    # -- checkpoints --------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """The unfinished episodes, and which files hold the others, all of which are on disk."""
        self.flush()
        arrays = {
            f"{env}/{name}": np.concatenate([piece[name] for piece in pieces])
            for env, pieces in self._begun.items()
            for name in _PIECES
        }
        arrays |= {f"{env}/last": pieces[-1]["last"] for env, pieces in self._begun.items()}
        closed = [[part.number, part.lengths, part.bytes] for part in self._closed]
        return arrays, {"parts": closed, "open": [self._open.number, len(self._episodes)]}

    def restore(self, arrays: Arrays, numbers: Mapping[str, Any]) -> None:
        """Take over what ``state`` gave, and remove the episodes that came after it."""
        self._begun = {}
        for name in arrays:
            env, _, what = name.partition("/")
            self._begun.setdefault(int(env), [{}])[0][what] = arrays[name]
        known = [
            RecordedPart(int(n), [int(s) for s in lengths], int(b))
            for n, lengths, b in numbers["parts"]
        ]
        self._closed = [part for part in known if self._is_there(part)]
        number, count = (int(each) for each in numbers["open"])
        self._open, self._episodes = RecordedPart(number), []
        if count and self._is_there(self._open):
            with self._h5py.File(self._path(self._open), "r") as file:
                for i in range(count):
                    self.append(stored_episode(file[f"episode_{i}"]))
        self.clear(number)
        self._write_part()
        self._write_index()

    def clear(self, after: int = 0) -> None:
        """Remove the files of parts with numbers above ``after``: those of a future that is lost."""
        for path in self.folder.glob("part_*.hdf5"):
            with contextlib.suppress(ValueError):
                if int(path.stem.removeprefix("part_")) > after:
                    path.unlink(missing_ok=True)

    def _is_there(self, part: RecordedPart) -> bool:
        there = self._path(part).is_file()
        if not there:
            log.warning("%s is missing: its episodes are lost", self._path(part))
        return there
