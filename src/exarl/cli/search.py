"""``exarl help``: search the commands' help texts, the parameters and the components."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from exarl.cli.commands import COMMANDS, usage
from exarl.cli.describe import Component, catalogue, ids
from exarl.config import LearnerConfig, schema_of
from exarl.config.resolve import ELSEWHERE
from exarl.errors import ConfigError, did_you_mean

HELP = """\
usage: exarl help [COMMAND]
       exarl help WORD...

Searches for the words in commands, their options, the parameters of runs and of components, and in
agents, workflows, networks and environments. The name of a command prints its help.
"""
MAX_LINES = 12
"""Matching lines of help that are printed per command."""

_ANY = ("--key", "--option")  # placeholders
_HEAD = re.compile(r"^  (--\w.*?)(?:  .*)?$", re.M)
_OPTION = re.compile(r"(--[\w-]+)(?: ([^\s,-][^\s,]*))?")


@dataclass(frozen=True)
class HelpOption:
    """An option of a command as its help text lists it: ``--name`` and the placeholder of its value."""

    name: str
    value: str


def help_on(words: list[str]) -> int:
    if not words:
        sys.stdout.write(usage())
        return 0
    if len(words) == 1 and words[0] in COMMANDS:
        return COMMANDS[words[0]](["--help"])
    plain = [word.lstrip("-").lower() for word in words]
    sys.stdout.write(found_about([ELSEWHERE.get(word, word) for word in plain]))
    return 0


def help_text(command: str) -> str:
    """The text that ``exarl COMMAND --help`` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        COMMANDS[command](["--help"])
    return printed.getvalue()


def options(text: str) -> list[HelpOption]:
    """The options that a help text lists, each once."""
    heads = [
        *_HEAD.findall(text),
        text.partition("\n\n")[0],
    ]  # and those that only the usage line names
    found: dict[str, str] = {}
    for name, value in (option for head in heads for option in _OPTION.findall(head)):
        if name not in _ANY:
            found.setdefault(name, value.rstrip("]"))
    return [HelpOption(name, value) for name, value in found.items()]


def components() -> Iterator[Component]:
    """The run itself, then every component."""
    yield Component("run", "exarl train", "", schema_of(LearnerConfig))
    yield from catalogue()


def found_about(words: list[str]) -> str:
    """All entries that contain all of ``words`` (lower case); ConfigError if there are none."""
    known = list(components())
    text = "\n".join(
        part
        for part in (_in_parameters(words, known), _in_ids(words, known), _in_commands(words))
        if part
    )
    if not text:
        names = [name for part in known for name in part.schema]
        hint = did_you_mean(words[0], [*names, *COMMANDS]) or "; 'exarl help' lists the commands"
        raise ConfigError(f"no help on '{' '.join(words)}'{hint}")
    return text


def _holds(words: list[str], text: str) -> bool:
    return all(word in text.lower() or word.replace("-", "_") in text.lower() for word in words)


def _in_parameters(words: list[str], known: list[Component]) -> str:
    owners: dict[tuple[str, str], list[str]] = {}
    for part in known:
        for parameter in part.schema.values():
            if _holds(words, f"{parameter.name} {parameter.help}"):
                owners.setdefault((parameter.name, parameter.help), []).append(part.id)
    entries = sorted(owners, key=lambda entry: (not _holds(words, entry[0]), entry))
    return _section(
        "parameters",
        [
            f"  --{name} ({', '.join(owners[name, about])})\n" + _indented(about)
            for name, about in entries
        ],
    )


def _in_ids(words: list[str], known: list[Component]) -> str:
    described = {part.id: part for part in known if part.kind != "run"}
    found = []
    for id in (*described, *(id for id in ids("envs") if id not in described)):
        part = described.get(id)
        about = " ".join(part.doc.split("\n\n")[0].split()) if part else ""
        if _holds(words, f"{id} {about}"):
            kind = part.kind if part else "env"
            found.append(f"  {id} ({kind}): exarl describe {id}\n" + _indented(about))
    return _section("agents, workflows, models, envs", found)


def _in_commands(words: list[str]) -> str:
    found = []
    for name, command in COMMANDS.items():
        text = help_text(name)
        lines = [f"      {at.strip()}\n" for at in text.splitlines()[1:] if _holds(words, at)]
        if lines or _holds(words, f"{name} {command.about}"):
            found.append(f"  {name}: {command.about}\n{''.join(lines[:MAX_LINES])}")
    return _section("commands", found)


def _section(heading: str, entries: list[str]) -> str:
    return f"{heading}:\n{''.join(entries)}" if entries else ""


def _indented(text: str) -> str:
    lines = textwrap.wrap(text, 92, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "".join(f"{one}\n" for one in lines)
