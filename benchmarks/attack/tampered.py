"""Files of a run that were tampered with, and every command that reads them.

config.json, manifest.json, summary.json, a checkpoint's state.json, progress.csv, result.jsonl and
evaluations.csv with other types, missing and unknown keys, deep nesting, huge numbers, NaN, bytes that
are no text: each command says one line or works.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from benchmarks.attack.checkpoints import DEEP, FRESH, LATER, SPECIAL, list_sums, listed_sums
from benchmarks.attack.jobs import exarl
from benchmarks.attack.runs import OFTEN, TRAIN, copied, reference, trusted
from benchmarks.attack.tries import Attempt

TRIES = 600
EVALUATED = ("--eval_interval", "200", "--eval_episodes", "2")
FILES = ("config.json", "manifest.json", "summary.json", "state.json")
TABLES = ("progress.csv", "result.jsonl", "evaluations.csv")
READERS = {  # which commands look at a file
    "config.json": ("resume", "evaluate", "export", "report", "watch", "runs"),
    "manifest.json": ("resume", "report", "watch", "runs", "export"),
    "summary.json": ("resume", "report", "watch", "runs"),
    "state.json": ("resume", "resume", "evaluate", "export"),
    "progress.csv": ("resume", "report", "watch", "runs"),
    "result.jsonl": ("resume", "report", "watch", "runs"),
    "evaluations.csv": ("resume", "report", "watch", "runs"),
}
COMMANDS = {
    "resume": ("resume", "run", *LATER),
    "evaluate": ("evaluate", "run", "--episodes", "1"),
    "export": ("export", "run", "--format", "c", "--output", "policy.h", "--force"),
    "report": ("report", "run", "--out", "page.html"),
    "watch": ("watch", "run", "--once"),
    "runs": ("runs", "."),
}


def prepare(folder: Path) -> None:
    """Runs to be tampered with."""
    reference(folder, "tampered-light", *TRAIN, *OFTEN, *EVALUATED)
    reference(folder, "tampered-deep", *DEEP, "--hidden", "[8]", *OFTEN, *EVALUATED)


def attempt(rng: random.Random, references: Path, work: Path) -> Attempt:
    """Tamper with one or two files and run a command that reads them."""
    known = known_commands()
    name = rng.choice([*FILES, *TABLES, *FILES])
    command = rng.choice([each for each in READERS[name] if each in known])
    deep = command == "export" or (command != "resume" and rng.random() < 0.3)
    run = copied(references / f"tampered-{'deep' if deep else 'light'}" / "run", work)
    newest = max((run / "checkpoints").iterdir())
    path = newest / name if name == "state.json" else run / name
    told = tamper(rng, path)
    if name == "state.json" and path.is_file() and not path.is_symlink() and rng.random() < 0.5:
        sums = {**listed_sums(newest), name: hashlib.sha256(path.read_bytes()).hexdigest()}
        list_sums(newest, sums)
        told += ", checksum fits"
    words = trusted(list(COMMANDS[command]), rng)
    ended = exarl(words, work, limit=25, fresh=rng.random() < FRESH)
    what = f"{' '.join(words)} ({'deep' if deep else 'light'}), {name}: {told}"
    return Attempt(what, ended.wrong(0, 1, 2))


def known_commands() -> list[str]:
    """Those that this EXARL has."""
    from exarl.cli import main as cli

    return [command for command in COMMANDS if command in cli.COMMANDS]


def tamper(rng: random.Random, path: Path) -> str:
    """Change the file at ``path``; what was done."""
    way = rng.choices(["values", "text", "special"], [70, 22, 8])[0]
    if way == "special" or not path.exists():
        inside = rng.choice(list(SPECIAL))
        path.unlink(missing_ok=True)
        SPECIAL[inside](path)
        return inside
    if way == "text":
        return tamper_text(rng, path)
    if path.name in TABLES:
        return tamper_rows(rng, path)
    data = json.loads(path.read_text())
    told = [change(rng, data) for _ in range(rng.choice([1, 1, 2, 5]))]
    path.write_text(json.dumps(data))
    return "; ".join(told)


# -- values ------------------------------------------------------------------------------------------


NUMBERS = (0, -1, 1, 0.5, -0.0, 1e308, -(2**63), 2**64, 10**30, 10**400)
NO_NUMBERS = (float("nan"), float("inf"), -float("inf"), None, True, False, "nan", "0")
WORDS = ("", "x", "\0", "\ud800", "é" * 100, "a\nb", "../..", "/etc/passwd", "A" * 100_000)
OTHERS: tuple[Any, ...] = ([], {}, [1, 2], {"a": 1}, {"": ""}, [[]] * 50, list(range(1000)))


def odd_value(rng: random.Random) -> Any:
    """Something that is probably not what stood there."""
    nested: Any = rng.choice([1, "x", None])
    for _ in range(rng.choice([2, 40, 900])):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    names = ("no_such_module:Thing-v0", "<script>")
    return rng.choice([*NUMBERS, *NO_NUMBERS, *WORDS, *OTHERS, *names, nested, nested])


def change(rng: random.Random, data: Any) -> str:
    """Change one place somewhere in ``data``."""
    place, where = data, "$"
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(min(len(place), 5)))
        key = rng.choice(keys)
        where += f".{key}"
        if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.25:
            break
        place = place[key]
    else:
        return "nothing"
    way = rng.choice(["value", "value", "value", "gone", "renamed", "added"])
    value = odd_value(rng)
    shown = repr(value)[:40]
    if way == "gone" or (way == "renamed" and isinstance(place, list)):
        del place[key]
        return f"{where} gone"
    if way == "renamed":
        place[f"{key}x"] = place.pop(key)
        return f"{where} renamed"
    if way == "added" and isinstance(place, dict):
        place[rng.choice(["", "x", "\ud800", "total_steps", "a.b", "A" * 5000])] = value
        return f"{where}: a key more = {shown}"
    place[key] = value
    return f"{where} = {shown}"


# -- text --------------------------------------------------------------------------------------------


def tamper_text(rng: random.Random, path: Path) -> str:
    """Bytes that are not what a program writes."""
    data = path.read_bytes()
    at = rng.randrange(len(data) or 1)
    ways: dict[str, bytes] = {
        "empty": b"",
        "cut": data[:at],
        "no text": data[:at] + b"\xff\xfe\x80" + data[at:],
        "nulls": data[:at] + bytes(20) + data[at:],
        "all nulls": bytes(len(data)),
        "a byte changed": data[:at] + rng.randbytes(1) + data[at + 1 :],
        "byte order mark": b"\xef\xbb\xbf" + data,
        "UTF-16": data.decode(errors="replace").encode("utf-16"),
        "twice": data + data,
        "brackets": b"[" * 100_000,
        "nested": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        "digits": b"9" * 20_000,
        "a list": b"[]",
        "null": b"null",
        "a word": b'"x"',
        "noise": rng.randbytes(500),
        "one line of 8 MB": b"x" * (8 << 20),
        "carriage returns": data.replace(b"\n", b"\r"),
    }
    way = rng.choice(list(ways))
    path.write_bytes(ways[way])
    return way


def tamper_rows(rng: random.Random, path: Path) -> str:
    """A table with rows, columns and values that do not belong there."""
    lines = path.read_text().splitlines()
    at = rng.randrange(len(lines))
    if path.name == "result.jsonl" and rng.random() < 0.6:
        row = json.loads(lines[at])
        told = change(rng, row)
        lines[at] = json.dumps(row)
        path.write_text("\n".join(lines) + "\n")
        return f"row {at}: {told}"
    columns = lines[at].split(",")
    odd = rng.choice(
        ["", "nan", "x", "1e999", "9" * 5000, '"', "\0", "é", "-", "[]", "0x10", '"a\nb']
    )
    column = rng.randrange(len(columns))
    columns[column] = odd
    ways = {
        "value": [*lines[:at], ",".join(columns), *lines[at + 1 :]],
        "short row": [*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]],
        "long row": [*lines[:at], lines[at] + ",1,2,3", *lines[at + 1 :]],
        "row gone": [*lines[:at], *lines[at + 1 :]],
        "rows swapped": [*lines[at:], *lines[:at]],
        "half a row more": [*lines, lines[-1][:7]],
        "rows twice": lines + lines[1:],
        "empty lines": ["", *lines, "", ""],
        "a million columns": [*lines, "1," * 1_000_000],
    }
    way = rng.choice(list(ways))
    path.write_text("\n".join(ways[way]) + "\n", encoding="utf-8", errors="surrogatepass")
    return f"{way} (row {at}, column {column}: {odd[:20]!r})"
