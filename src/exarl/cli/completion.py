"""``exarl completion``: a script that completes commands, options, parameters and ids in a shell.

It is derived from the help texts of the commands and from the parameters' schemas.
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

HELP = """\
usage: exarl completion bash|zsh|fish

Prints a script that completes commands, options, parameters and ids. To install it:

  bash   exarl completion bash > ~/.local/share/bash-completion/completions/exarl
  zsh    exarl completion zsh > ~/.exarl-completion.zsh; echo '. ~/.exarl-completion.zsh' >> ~/.zshrc
  fish   exarl completion fish > ~/.config/fish/completions/exarl.fish

The script knows the packages that are installed now; print it again after installing another one.
"""
_SELECTORS = {
    "--agent": "agents",
    "--env": "envs",
    "--workflow": "workflows",
    "--model_type": "models",
}

_BASH = """\
# Completion for exarl, printed by 'exarl completion {shell}'.
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
class Completions:
    """What can follow ``exarl COMMAND``: the possible first words, and the options."""

    first: tuple[str, ...]
    options: tuple[str, ...]


def completion(words: list[str]) -> int:
    shell = line.take_path(words, "shell (bash, zsh or fish)")
    line.nothing_left(words)
    line.check_choice(shell, SCRIPTS, f"no completion for '{shell}'")
    sys.stdout.write(SCRIPTS[shell]())
    return 0


def known_commands(parts: list[Component]) -> dict[str, Completions]:
    """The completions of each command, from its help: its options, and parameters if it takes any."""
    found = {}
    for name in COMMANDS:
        text = help_text(name)
        usage, flags = text.splitlines()[0], [option.name for option in options(text)]
        if "--key" in usage:  # parameters of an environment alone, or of the run and its parts
            env_only = " ENV " in usage or "a parameter of the environment" in text
            whose = [part for part in parts if part.kind == "env" or not env_only]
            flags += [f"--{name}" for part in whose for name in part.schema]
        found[name] = Completions(tuple(_first(text)), tuple(dict.fromkeys([*flags, "--help"])))
    return found


def values(parts: list[Component]) -> dict[str, list[str]]:
    """The possible values of each flag whose type or help text lists them."""
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
    """The possible first words after a command, from the placeholder in its usage line."""
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
    lines = ["# Completion for exarl, printed by 'exarl completion fish'."]
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
