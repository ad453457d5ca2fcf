"""Recorded episodes: reading, checking, writing and recording them.

``read`` opens a recorded run, a Minari dataset, an .npz or a .csv file as a ``Dataset`` of episodes.
"""

from exarl.data.dataset import check, checksum, read, write
from exarl.data.episodes import Dataset, RecordedEpisode

__all__ = ["Dataset", "RecordedEpisode", "check", "checksum", "read", "write"]
