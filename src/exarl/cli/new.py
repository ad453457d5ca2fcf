"""``exarl new``: write a small package of an environment, agent or workflow, with tests."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from exarl.cli import words as line
from exarl.errors import ConfigError, StorageError
from exarl.records.directory import expand, reason

HELP = """\
usage: exarl new env|agent|workflow NAME [--dir FOLDER]

Writes a package NAME (lower case, such as my_env) to the folder NAME: code to change, tests that pass,
and a pyproject.toml that registers it with EXARL. Install it with 'pip install -e NAME'.

  --dir FOLDER    write to FOLDER/NAME instead of ./NAME
"""
TEMPLATES = Path(__file__).with_name("templates")
KINDS = ("env", "agent", "workflow")
SUFFIX = ".in"  # keeps templates from being modules of this package


def new(words: list[str]) -> int:
    base = expand(line.take(words, "dir") or ".")
    kind = line.take_path(words, "kind (env, agent or workflow)")
    line.check_choice(kind, KINDS, f"cannot create '{kind}'")
    if not words:
        raise ConfigError(f"which name? for example: exarl new {kind} my_{kind}")
    name = words.pop(0)
    line.nothing_left(words)
    folder = base / name
    check_name(name, folder)
    files = write(kind, name, folder)
    listed = "".join(f"  {file.relative_to(folder)}\n" for file in files)
    sys.stdout.write(f"{folder}:\n{listed}\nREADME.md describes the next steps\n")
    return 0


def check_name(name: str, folder: Path) -> None:
    """ConfigError unless ``name`` is a valid, unused module name and ``folder`` does not exist."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,60}", name):
        raise ConfigError(f"'{name}' is not a module name: use lower-case letters, digits and '_'")
    if keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise ConfigError(f"'{name}' is a name of Python's own; choose another name")
    if os.path.lexists(folder):
        raise ConfigError(f"{folder} already exists")
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        raise ConfigError(f"a module '{name}' already exists; choose another name")


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write the package ``name`` to ``folder``, completely or not at all; return its files, sorted."""
    try:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as aside:
            made = Path(aside) / name
            for template in sorted((TEMPLATES / kind).rglob(f"*{SUFFIX}")):
                path = template.relative_to(TEMPLATES / kind).as_posix().removesuffix(SUFFIX)
                target = made / renamed(path, kind, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                text = template.read_text(encoding="utf-8")
                target.write_text(renamed(text, kind, name), encoding="utf-8")
            shutil.move(made, folder)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no folder {folder.parent}") from error
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot write {folder}: {reason(error)}") from error
    return sorted(path for path in folder.rglob("*") if path.is_file())


def renamed(text: str, kind: str, name: str) -> str:
    """A template with ``my_env`` and ``MyEnv`` replaced by the package's own names."""
    own = "".join(part.capitalize() for part in name.split("_"))
    return text.replace(f"my_{kind}", name).replace(f"My{kind.capitalize()}", own)
