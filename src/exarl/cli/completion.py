"""``exarl completion``: a script that completes commands, options, parameters and ids in a shell.

It is made of what the commands' help lists and of the parameters' tables, so it knows what they know.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass

from exarl.cli import words as line
from exarl.cli.commands import COMMANDS
from exarl.cli.describe import KINDS, Component, ids
from exarl.cli.search import components, help_text, options
from exarl.cli.tables import choices
from exarl.errors import ConfigError, did_you_mean

HELP = """\
usage: exarl completion bash|zsh|fish

Prints a script that completes commands, options, parameters and ids. To have it in every shell:

  bash   exarl completion bash > ~/.local/share/bash-completion/completions/exarl
  zsh    exarl completion zsh > ~/.exarl-completion.zsh; echo '. ~/.exarl-completion.zsh' >> ~/.zshrc
  fish   exarl completion fish > ~/.config/fish/completions/exarl.fish

It knows what is installed now: make it again after installing a package of environments.
"""
_SELECTORS = {
    "--agent": "agents",
    "--env": "envs",
    "--workflow": "workflows",
    "--model_type": "models",
}

_BASH = """\
# Completion of exarl; made by 'exarl completion {shell}'.
{before}_exarl() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} known=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {commands} -- "$current"))
        return
    fi
    case "$before" in
{values}    esac
    if [ -z "$known" ]; then
        case "${{COMP_WORDS[1]}}:$current" in
{options}        esac
    fi
    COMPREPLY=($(compgen -W "$known" -- "$current"))
}}
complete -o default -F _exarl exarl
"""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True)
class Known:
    """What can be typed after ``exarl COMMAND``: the words that may come first, and its options."""

    first: tuple[str, ...]
    options: tuple[str, ...]


def completion(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(HELP)
        return 0
    shell = line.take_path(words, "shell (bash, zsh or fish)")
    line.nothing_left(words)
    if shell not in SCRIPTS:
        raise ConfigError(
            f"no completion for '{shell}'{did_you_mean(shell, SCRIPTS)} (bash, zsh, fish)"
        )
    sys.stdout.write(SCRIPTS[shell]())
    return 0


def known_commands(parts: list[Component]) -> dict[str, Known]:
    """What each command takes, by its help: its own options, and parameters where it takes any."""
    found = {}
    for name in COMMANDS:
        text = help_text(name)
        usage, flags = text.splitlines()[0], [option.name for option in options(text)]
        if "--key" in usage:  # parameters of an environment alone, or of the run and its parts
            whose = [part for part in parts if part.kind == "env" or " ENV " not in usage]
            flags += [f"--{name}" for part in whose for name in part.schema]
        found[name] = Known(tuple(_first(text)), tuple(dict.fromkeys([*flags, "--help"])))
    return found


def values(parts: list[Component]) -> dict[str, list[str]]:
    """The words that a flag can be, where its type or a command's help names them."""
    found = {flag: ids(kind) for flag, kind in _SELECTORS.items()}
    for part in parts:
        for parameter in part.schema.values():
            if words := choices(parameter):
                known = found.setdefault(f"--{parameter.name}", [])
                known += [word for word in words if word not in known]
    for name in COMMANDS:
        for option in options(help_text(name)):
            if re.fullmatch(r"[\w-]+(\|[\w-]+)+", option.value):
                found.setdefault(option.name, option.value.split("|"))
    return found


def _first(text: str) -> list[str]:
    """What may come right after the command, by the word that its usage has there."""
    place = text.split()[3].strip("[].") if len(text.split()) > 3 else ""
    if place == "COMMAND":
        return list(COMMANDS)
    if place == "ENV":
        return ids("envs")
    if place == "ID":
        return [id for kind in (*KINDS, "envs") for id in ids(kind)]
    return place.split("|") if "|" in place else []


def _as_bash(shell: str = "bash", before: str = "") -> str:
    parts = list(components())
    cases = "".join(
        f"        {flag}) known={shlex.quote(' '.join(words))} ;;\n"
        for flag, words in values(parts).items()
    )
    rows = []
    for name, known in known_commands(parts).items():
        rows.append(f"            {name}:-*) known={shlex.quote(' '.join(known.options))} ;;\n")
        if known.first:
            only = '[ "$COMP_CWORD" -eq 2 ] && '
            rows.append(
                f"            {name}:*) {only}known={shlex.quote(' '.join(known.first))} ;;\n"
            )
    return _BASH.format(
        shell=shell,
        before=before,
        commands=shlex.quote(" ".join(COMMANDS)),
        values=cases,
        options="".join(rows),
    )


def _as_fish() -> str:
    parts = list(components())
    words = values(parts)
    lines = ["# Completion of exarl; made by 'exarl completion fish'."]
    for name, command in COMMANDS.items():
        about = shlex.quote(command.about)
        lines.append(f"complete -c exarl -n __fish_use_subcommand -f -a {name} -d {about}")
    for name, known in known_commands(parts).items():
        seen = f"complete -c exarl -n '__fish_seen_subcommand_from {name}'"
        if known.first:
            lines.append(f"{seen} -a {shlex.quote(' '.join(known.first))}")
        for option in known.options:
            after = f" -x -a {shlex.quote(' '.join(words[option]))}" if option in words else ""
            lines.append(f"{seen} -l {option.removeprefix('--')}{after}")
    return "\n".join(lines) + "\n"


SCRIPTS = {"bash": _as_bash, "zsh": lambda: _as_bash("zsh", _ZSH), "fish": _as_fish}
