"""Figures of the code itself: how much there is to read, how it is typed, how it is named.

    python -m benchmarks.house [--list]

Run it from the root of the repository. ``--list`` names what is behind each figure.
tests/architecture/test_house.py holds the figures to ``LIMITS``.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.source import SourceFile, read_sources

LIMITS = {
    "any_share": 0.08,
    "any_share_of_a_room": 0.15,
    "double_names": 0,
    "agent_depth": 2,
    "module_arguments": 0,
    "aliases_of_any": 1,
}
"""What no figure may exceed; the one alias of ``Any`` is ``PyTree``."""

FEW_SLOTS = 30
"""A room with fewer slots is part of the overall share but has none of its own."""

ENGINES = ("exarl.agents.engine", "exarl.agents.compiled")
LONG_FILE, LONG_FUNCTION = 400, 60
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Slot:
    """One annotated parameter or result of a function."""

    source: SourceFile
    function: Function
    name: str  # "return" for the result
    annotation: str

    @property
    def has_any(self) -> bool:
        return bool(re.search(r"\bAny\b", self.annotation))

    def __str__(self) -> str:
        return f"{self.source.at(self.function)} {self.function.name}: {self.name}"


@dataclass(frozen=True)
class Figure:
    """One row of the table: what was counted, the result, and what is behind it."""

    name: str
    value: str
    found: Sequence[str] = ()


def slots(sources: Sequence[SourceFile]) -> list[Slot]:
    """All annotated parameters and results; ``self``, ``*args`` and ``**kwargs`` do not count."""
    found = []
    for source, function in functions(sources):
        arguments = function.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None and argument.arg not in ("self", "cls"):
                found.append(Slot(source, function, argument.arg, ast.unparse(argument.annotation)))
        if function.returns is not None:
            found.append(Slot(source, function, "return", ast.unparse(function.returns)))
    return found


def functions(sources: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, Function]]:
    """Every function and method, nested ones included."""
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, FUNCTIONS):
                yield source, node


def classes(sources: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, ast.ClassDef]]:
    """Every class, nested ones included."""
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                yield source, node


def any_share(found: Sequence[Slot]) -> float:
    """The share of slots whose annotation contains ``Any``."""
    return sum(slot.has_any for slot in found) / max(len(found), 1)


def any_shares(sources: Sequence[SourceFile]) -> dict[str, float]:
    """``any_share`` of each room that has more than ``FEW_SLOTS``, largest first."""
    rooms = defaultdict(list)
    for slot in slots(sources):
        rooms[slot.source.room].append(slot)
    shares = {room: any_share(found) for room, found in rooms.items() if len(found) > FEW_SLOTS}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def aliases_of_any(sources: Sequence[SourceFile]) -> list[str]:
    """Names at the top of a module that mean ``Any`` and nothing else."""
    return [
        f"{source.at(node)} {ast.unparse(node)}"
        for source in sources
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        if ast.unparse(node.value) in ("Any", "'Any'")
    ]


def module_arguments(sources: Sequence[SourceFile]) -> list[str]:
    """Calls that pass a module of EXARL, and parameters that take one.

    An array namespace (``xp``) is not counted: it is what mathematics is written over.
    """
    passed = [(name, place) for source in sources for name, place in _modules_passed(source)]
    names = {name for name, _ in passed}
    taken = [
        f"{slot}: {slot.annotation}"
        for slot in slots(sources)
        if slot.name in names
        or (slot.annotation == "ModuleType" and slot.name not in ("xp", "return"))
    ]
    return taken + [place for _, place in passed]


def _modules_passed(source: SourceFile) -> Iterator[tuple[str, str]]:
    modules = {found.module for found in source.imports}
    bound = {
        alias.asname or alias.name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("exarl")
        for alias in node.names
        if f"{node.module}.{alias.name}" in modules
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                if isinstance(argument, ast.Name) and argument.id in bound:
                    place = f"{source.at(node)} {ast.unparse(node.func)}({argument.id})"
                    yield argument.id, place


def double_names(sources: Sequence[SourceFile]) -> dict[str, list[str]]:
    """Public class names that stand for two or more classes, with where those are."""
    places = defaultdict(list)
    for source, node in classes(sources):
        if not node.name.startswith("_"):
            places[node.name].append(source.at(node))
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def agent_depths(sources: Sequence[SourceFile]) -> dict[str, int]:
    """How many classes of EXARL each class of ``agents`` has above it.

    Parameters (``...Config``) are left out: they inherit fields, not behaviour.
    """
    bases = {
        node.name: [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        for _, node in classes(sources)
    }

    def depth(name: str, below: tuple[str, ...] = ()) -> int:
        if name not in bases or name in below:
            return 0
        return 1 + max((depth(base, (*below, name)) for base in bases[name]), default=0)

    return {
        node.name: depth(node.name) - 1
        for source, node in classes(sources)
        if source.room == "agents" and not node.name.endswith("Config")
    }


def files_of_update(
    sources: Sequence[SourceFile], start: str = "exarl.agents.dqn"
) -> list[SourceFile]:
    """What must be read to follow an update: modules of ``agents``, imported from ``start`` onwards.

    The engine is the last of them: what it imports itself is not counted.
    """
    modules = {source.module: source for source in sources}
    engine = next(name for name in ENGINES if name in modules)
    seen, waiting = {engine}, [start]
    while waiting:
        module = waiting.pop()
        if module in modules and module not in seen and module.startswith("exarl.agents."):
            seen.add(module)
            imports = modules[module].imports
            waiting += [i.module for i in imports if not (i.lazy or i.typing_only)]
    return [modules[name] for name in sorted(seen)]


def packed_headers(sources: Sequence[SourceFile]) -> list[str]:
    """Arrays of 64-bit integers made of a literal list, outside ``comm``: messages packed by hand."""
    return [
        f"{source.at(node)} {ast.unparse(node)}"
        for source in sources
        if source.room != "comm"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.array", "np.asarray")
        if node.args and isinstance(node.args[0], ast.List | ast.Tuple)
        if re.search(r"\bint64\b", ast.unparse(node))
    ]


def attributes(node: ast.ClassDef) -> set[str]:
    """The attributes that a class declares or assigns to ``self``."""
    declared = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        if "ClassVar" not in ast.unparse(item.annotation)
    }
    assigned = {
        item.attr
        for item in ast.walk(node)
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)
        if isinstance(item.value, ast.Name) and item.value.id == "self"
    }
    return declared | assigned


def is_data(node: ast.ClassDef) -> bool:
    """Whether a class is frozen: a dataclass that says so, a named tuple, a struct, a protocol."""
    marks = " ".join(ast.unparse(part) for part in (*node.decorator_list, *node.bases))
    return any(mark in marks for mark in ("frozen=True", "NamedTuple", "Protocol", "Struct"))


def renames(sources: Sequence[SourceFile]) -> list[str]:
    """Functions that rename a file over another, which is how a file is written aside first."""
    found = []
    for source, function in functions(sources):
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        if any(_renames(call) for call in calls):
            found.append(f"{source.at(function)} {function.name}")
    return found


def _renames(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name in ("os.replace", "os.rename"):
        return True
    method = isinstance(call.func, ast.Attribute) and call.func.attr in ("replace", "rename")
    return method and len(call.args) == 1 and not call.keywords


def figures(sources: Sequence[SourceFile]) -> list[Figure]:
    """The rows of the table."""
    update = files_of_update(sources)
    found = slots(sources)
    shares = any_shares(sources)
    depths = agent_depths(sources)
    biggest = sorted(
        ((len(attributes(n)), n.name, s.at(n)) for s, n in classes(sources) if not is_data(n)),
        reverse=True,
    )
    doubles = double_names(sources)
    long_files = [f"src/exarl/{s.name}: {s.lines}" for s in sources if s.lines > LONG_FILE]
    long_functions = [
        f"{s.at(f)} {f.name}: {length}"
        for s, f in functions(sources)
        if (length := (f.end_lineno or f.lineno) - f.lineno + 1) > LONG_FUNCTION
    ]
    read = sum(source.lines for source in update)
    deepest = max(depths.values(), default=0)
    return [
        Figure("lines of src", f"{sum(source.lines for source in sources):,}"),
        Figure(
            "to read for DQN's update",
            f"{len(update)} files, {read:,} lines",
            [f"src/exarl/{source.name}: {source.lines}" for source in update],
        ),
        counted("modules passed as arguments", module_arguments(sources)),
        Figure(
            "signature slots that contain Any",
            f"{any_share(found):.1%} of {len(found):,}",
            [f"{room}: {share:.1%}" for room, share in shares.items()],
        ),
        Figure("the same, worst room", next((f"{r} {x:.1%}" for r, x in shares.items()), "none")),
        counted("names that mean Any", aliases_of_any(sources)),
        counted("class names used twice", [f"{n}: {', '.join(at)}" for n, at in doubles.items()]),
        Figure(
            "inheritance of agents",
            f"{deepest} deep",
            [name for name, depth in depths.items() if depth == deepest],
        ),
        counted("int64 headers packed by hand outside comm", packed_headers(sources)),
        Figure(
            "attributes of the biggest object that is not frozen",
            f"{biggest[0][0]} ({biggest[0][1]})",
            [f"{at} {name}: {count}" for count, name, at in biggest[:10]],
        ),
        counted("functions that rename a file into place", renames(sources)),
        counted(f"files over {LONG_FILE} lines", long_files),
        counted(f"functions over {LONG_FUNCTION} lines", long_functions),
    ]


def counted(name: str, found: Sequence[str]) -> Figure:
    return Figure(name, str(len(found)), found)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.house",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="name what is behind each figure")
    options = parser.parse_args()
    for figure in figures(read_sources()):
        print(f"{figure.name:<52} {figure.value}")
        for line in figure.found if options.list else ():
            print(f"    {line}")


if __name__ == "__main__":
    main()
