"""Starting a program where it should run: in the present folder, another one, or one of its own."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from exarl.envs.context import EnvContext
from exarl.envs.external.program import Program, Transport
from exarl.errors import EnvironmentFailure


@dataclass(frozen=True)
class Launch:
    """What is started, and where: ``folder``, or with ``inputs`` a new folder in it at each start.

    ``inputs`` are files and folders; the files, and what the folders hold, are copied. The new folder
    is removed when the program is closed, unless it is to be kept.
    """

    command: list[str]
    transport: Transport = "socket"
    folder: Path | None = None
    inputs: tuple[Path, ...] | None = None
    keep: bool = False

    def start(self) -> Program:
        """The program, started; EnvironmentFailure when that is impossible."""
        if self.inputs is None:
            return Program(self.command, transport=self.transport, work_dir=self.folder)
        try:
            own = self._seeded()
        except (OSError, shutil.Error) as error:
            raise EnvironmentFailure(f"input_files cannot be copied: {error}") from error
        return Program(
            self.command, transport=self.transport, work_dir=own, temporary=not self.keep
        )

    def _seeded(self) -> Path:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="program-", dir=self.folder))
        for path in self.inputs or ():
            if path.is_dir():
                shutil.copytree(path, own, dirs_exist_ok=True)
            else:
                shutil.copy2(path, own)
        return own


def launch(
    command: list[str],
    transport: Transport,
    work_dir: str | None,
    input_files: str | None,
    keep_folders: bool,
    context: EnvContext | None,
) -> Launch:
    """A ``Launch`` of what an environment is configured with; ValueError for what is no input file."""
    folder = Path(work_dir).expanduser().absolute() if work_dir else None
    if input_files is None:
        if keep_folders:
            raise ValueError("keep_folders is for the folders that input_files makes")
        return Launch(command, transport, folder)
    inputs = [Path(name.strip()).expanduser().absolute() for name in input_files.split(",")]
    for path in inputs:
        if not path.exists():
            raise ValueError(f"input_files: there is no '{path}'")
    own = context.work_dir if folder is None and context is not None else folder
    return Launch(command, transport, own, tuple(inputs), keep_folders)
