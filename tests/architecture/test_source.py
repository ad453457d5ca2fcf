"""Rules that every source file keeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
MAY_EXIT = (
    "cli/",
    "__main__.py",
    "comm/leaving.py",
    "envs/keeper.py",
)  # the last two end processes
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def nodes(sources: list[Any], *kinds: type[ast.AST]) -> Iterator[tuple[Any, Any]]:
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, kinds):
                yield source, node


def called(node: ast.Call) -> str:
    """``sys.exit`` of ``sys.exit(2)``."""
    return ast.unparse(node.func)


def test_nothing_is_printed(sources: list[Any]) -> None:
    found = [s.at(n) for s, n in nodes(sources, ast.Call) if called(n) == "print"]
    assert not found, "\n".join(found)


def test_no_exception_is_caught_unnamed(sources: list[Any]) -> None:
    found = [s.at(n) for s, n in nodes(sources, ast.ExceptHandler) if n.type is None]
    assert not found, "\n".join(found)


def test_no_exception_is_swallowed(sources: list[Any]) -> None:
    """Code that catches everything does something about it."""
    found = [
        s.at(n)
        for s, n in nodes(sources, ast.ExceptHandler)
        if n.type is not None and ast.unparse(n.type) in ("Exception", "BaseException")
        if all(isinstance(step, ast.Pass | ast.Continue) for step in n.body)
    ]
    assert not found, "\n".join(found)


def test_no_star_is_imported(sources: list[Any]) -> None:
    found = [
        s.at(n) for s, n in nodes(sources, ast.ImportFrom) if any(a.name == "*" for a in n.names)
    ]
    assert not found, "\n".join(found)


def test_only_the_command_line_exits(sources: list[Any]) -> None:
    ways = ("sys.exit", "exit", "quit", "SystemExit", "os._exit")
    found = [
        s.at(n)
        for s, n in nodes(sources, ast.Call)
        if called(n) in ways and not s.name.startswith(MAY_EXIT)
    ]
    assert not found, "\n".join(found)


def test_nothing_is_pickled(sources: list[Any]) -> None:
    """Neither by name nor through a library that would."""
    modules = ("pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib")
    imported = [
        f"src/exarl/{source.name}:{found.line}"
        for source in sources
        for found in source.imports
        if found.package in modules
    ]
    loading = [
        s.at(n)
        for s, n in nodes(sources, ast.keyword)
        if n.arg == "allow_pickle" and ast.unparse(n.value) != "False"
    ]
    assert not imported + loading, "\n".join(imported + loading)


def test_arrays_cross_ranks_objects_do_not(sources: list[Any]) -> None:
    """mpi4py's lower-case calls pickle what they are given."""
    pickling = {
        "bcast",
        "gather",
        "scatter",
        "allgather",
        "allreduce",
        "isend",
        "irecv",
        "sendrecv",
    }
    found = [
        s.at(n)
        for s, n in nodes(sources, ast.Call)
        if isinstance(n.func, ast.Attribute)
        if n.func.attr in pickling and "comm" in ast.unparse(n.func.value).lower()
    ]
    assert not found, "\n".join(found)


def test_nothing_of_a_stranger_is_executed(sources: list[Any]) -> None:
    found = [s.at(n) for s, n in nodes(sources, ast.Call) if called(n) in ("eval", "exec")]
    assert not found, "\n".join(found)


def test_no_state_is_global(sources: list[Any]) -> None:
    found = [s.at(n) for s, n in nodes(sources, ast.Global)]
    assert not found, "\n".join(found)


def test_no_file_is_too_long(sources: list[Any]) -> None:
    lengths = {source.name: len(source.text.splitlines()) for source in sources}
    found = [f"src/exarl/{name}: {n} lines" for name, n in lengths.items() if n > MAX_FILE_LINES]
    assert not found, "\n".join(found)


def test_no_function_is_too_long(sources: list[Any]) -> None:
    found = [
        f"{s.at(n)}: {n.name} has {n.end_lineno - n.lineno + 1} lines"
        for s, n in nodes(sources, *FUNCTIONS)
        if n.end_lineno - n.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not found, "\n".join(found)


def test_every_module_says_what_it_is(sources: list[Any]) -> None:
    found = [s.at(s.tree) for s in sources if s.text.strip() and not ast.get_docstring(s.tree)]
    assert not found, "\n".join(found)
