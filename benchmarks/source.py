"""The source files of EXARL, parsed, for programs and tests that are about the code itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "exarl"


@dataclass(frozen=True)
class Import:
    """One imported module, with where and how it is imported."""

    module: str
    line: int
    lazy: bool  # inside a function
    typing_only: bool  # under ``if TYPE_CHECKING``

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]


@dataclass(frozen=True)
class SourceFile:
    """A file below ``src/exarl``."""

    path: Path

    @property
    def name(self) -> str:
        """The path below ``src/exarl``, e.g. ``agents/dqn.py``."""
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def module(self) -> str:
        """``exarl.agents.dqn``"""
        parts = ["exarl", *self.path.relative_to(SOURCE).with_suffix("").parts]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self) -> str:
        """The folder below ``src/exarl``, or the module's own name at the top."""
        first = self.path.relative_to(SOURCE).parts[0]
        return first.removesuffix(".py")

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @cached_property
    def imports(self) -> list[Import]:
        return list(_imports(self.tree, self.path, lazy=False, typing_only=False))

    def at(self, node: ast.AST) -> str:
        """``src/exarl/room/file.py:line``"""
        return f"src/exarl/{self.name}:{getattr(node, 'lineno', 1)}"


def read_sources() -> list[SourceFile]:
    """Every source file of EXARL, in the order of their paths."""
    return [SourceFile(path) for path in sorted(SOURCE.rglob("*.py"))]


def _imports(node: ast.AST, path: Path, *, lazy: bool, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, lazy, typing_only)
        elif isinstance(child, ast.ImportFrom):
            for module in _modules(child, path):
                yield Import(module, child.lineno, lazy, typing_only)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _imports(
                child, path, lazy=lazy or function, typing_only=typing_only or checking
            )


def _modules(node: ast.ImportFrom, path: Path) -> list[str]:
    """The modules that a ``from`` names; ``from exarl.agents import dqn`` is ``exarl.agents.dqn``.

    Relative ones are spelt out. Everything that is imported from ``exarl`` itself counts as a module.
    """
    module = node.module or ""
    if node.level:
        parents = path.relative_to(SOURCE.parent).parts[: -node.level]
        module = ".".join([*parents, *filter(None, [module])])
    if module == "exarl":
        return [f"exarl.{alias.name}" for alias in node.names]
    folder = SOURCE.parent.joinpath(*module.split("."))
    below = {
        alias.name: (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir()
        for alias in node.names
    }
    inside = [f"{module}.{name}" for name, exists in below.items() if exists]
    return inside + ([module] if len(inside) < len(below) else [])
