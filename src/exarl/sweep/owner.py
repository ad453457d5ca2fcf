"""The workers of a study, and whether each is alive."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from exarl.records.alive import Heartbeat, is_alive, own_card


class Owner:
    """This process as a worker of a study, with a heartbeat while the context is open.

    The heartbeat is the time of a file in ``folder``, by the clock of the disk that all workers share.
    """

    def __init__(self, folder: Path) -> None:
        card = own_card()
        name = f"{card['host']}_{card['pid']}_{secrets.token_hex(2)}"
        self.card: dict[str, object] = {"name": name, **card}
        self._folder = folder

    def __enter__(self) -> Owner:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file().touch()
        self._heartbeat = Heartbeat(self._file())
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeat.close()
        self._file().unlink(missing_ok=True)

    def sees(self, card: Mapping[str, object] | None) -> bool:
        """Whether the worker that ``card`` names is alive, as far as this process can see."""
        if card is None:
            return False
        self._file().touch()
        return is_alive(card, self._folder / str(card["name"]), self._file().stat().st_mtime)

    def _file(self) -> Path:
        return self._folder / str(self.card["name"])
