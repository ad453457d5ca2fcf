"""Recording the episodes of a run along its learning loop; nothing is done without a recorder."""

from __future__ import annotations

from typing import Any

from exarl.data.recorder import Recorder
from exarl.records.checkpoint import Checkpoint
from exarl.records.clock import Clock
from exarl.records.directory import writing
from exarl.types import Arrays, Block


class EpisodeRecording:
    """What the loop does with the recorder of a run, if there is one."""

    def __init__(self, recorder: Recorder | None, clock: Clock) -> None:
        self._recorder, self._clock = recorder, clock

    def add(self, block: Block | None) -> None:
        """Keep the steps of a block that is trained."""
        if self._recorder is not None and block is not None:
            with self._clock.phase("record"), writing(self._recorder.folder):
                self._recorder.add(block)

    def draft(self, groups: dict[str, Arrays], numbers: dict[str, Any]) -> None:
        """Add to a checkpoint what recording needs to go on from here."""
        if self._recorder is not None:
            with writing(self._recorder.folder):
                groups["record"], numbers["record"] = self._recorder.state()

    def checkpointed(self) -> None:
        """A checkpoint has been written: what is beyond the limit may go."""
        if self._recorder is not None:
            self._recorder.drop()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over what ``draft`` added; what came later is removed."""
        if self._recorder is not None:
            with writing(self._recorder.folder):
                arrays = checkpoint.arrays.get("record", {})
                self._recorder.restore(arrays, checkpoint.numbers["record"])

    def begin(self) -> None:
        """A run begins without a checkpoint: nothing is recorded yet."""
        if self._recorder is not None:
            self._recorder.clear()

    def close(self) -> None:
        """Bring everything to disk."""
        if self._recorder is not None:
            self._recorder.flush()
