"""Small faults in a source file: where they can be made, and the text of the file with one of them.

A fault changes one operator, comparison, constant or condition of a function, or removes one statement.
What has no behaviour to test is left alone: annotations, docstrings, texts (f-strings, messages of
exceptions, logging), pauses, assertions, settings (constants of modules and classes, defaults). So are
arguments of calls that end processes or remove files, which a fault could aim at others.
"""

from __future__ import annotations

import ast
import copy
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.source import SourceFile

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
UNSEEN = {"debug", "info", "warning", "error", "exception", "critical", "warn", "log", "sleep"}
DANGEROUS = {"kill", "killpg", "rmtree", "unlink", "rmdir", "remove", "_exit"}
WITHOUT_EFFECT = {"daemon", "copy", "strict"}  # keywords whose value no result shows
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One fault: the bytes ``start:end`` of a file become ``after``."""

    file: str  # below src/exarl
    line: int
    function: int  # the first line of the function it is in, decorators included
    start: int
    end: int
    before: str
    after: str

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]

    def apply(self, text: str) -> str:
        """The file's text with the fault in it."""
        whole = text.encode()
        return (whole[: self.start] + self.after.encode() + whole[self.end :]).decode()

    def __str__(self) -> str:
        before, after = (" ".join(part.split())[:70] for part in (self.before, self.after))
        return f"src/exarl/{self.file}:{self.line}: {before}  ->  {after}"


def sample(sources: Sequence[SourceFile], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants, at most one per line, each line as likely as any other."""
    lines = defaultdict(list)
    for source in sources:
        for mutant in mutants(source):
            lines[mutant.file, mutant.line].append(mutant)
    rng = random.Random(seed)
    chosen = rng.sample(sorted(lines), min(count, len(lines)))
    return [rng.choice(lines[place]) for place in chosen]


def mutants(source: SourceFile) -> list[Mutant]:
    """All faults that can be made in a file."""
    starts = [0]
    for line in source.text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for function, node, after in _changes(source.tree, 0):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before = source.text.encode()[start:end].decode()
        found.append(Mutant(source.name, node.lineno, function, start, end, before, after))
    return found


Change = tuple[int, ast.expr | ast.stmt, str]


def _changes(node: ast.AST, function: int) -> Iterator[Change]:
    """Changes of a node and below it; ``function`` is 0 outside functions, where there are none."""
    if isinstance(node, FUNCTIONS):
        if node.name not in ("__repr__", "__str__"):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            for statement in node.body:
                yield from _changes(statement, first)
        return
    if function and not isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        if isinstance(node, ast.expr):
            yield from ((function, node, f"({after})") for after in _expressions(node))
        if isinstance(node, ast.stmt):
            yield from ((function, part, after) for part, after in _statements(node))
    for child in _below(node):
        yield from _changes(child, function)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """The children whose behaviour a test could see."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.AnnAssign):
        yield from filter(None, [node.target, node.value])
        return
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in UNSEEN | DANGEROUS | {"cast", "isinstance"}:
            return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.keyword) and child.arg in WITHOUT_EFFECT):
            yield child


def _expressions(node: ast.expr) -> Iterator[str]:
    """What an expression may become."""
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
        yield _with(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            if type(operator) in COMPARISONS:
                swapped = COMPARISONS[type(operator)]()
                yield _with(node, ops=[*node.ops[:i], swapped, *node.ops[i + 1 :]])
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.IfExp):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield str(not node.value)
        elif isinstance(node.value, int | float):
            yield from (str(node.value + 1), str(node.value - 1))


def _is_text(node: ast.BinOp) -> bool:
    """Whether it joins or formats texts, or names a union of types."""
    for side in (node.left, node.right):
        if isinstance(side, ast.JoinedStr):
            return True
        if isinstance(side, ast.Constant) and isinstance(side.value, str | bytes | None):
            return True
    return False


def _statements(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What of a statement may become what else."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        if ast.unparse(node.value.func).rpartition(".")[2] not in UNSEEN:
            yield node, "pass"
    elif isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            yield node, "pass"
        if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
            yield node, _with(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.If | ast.While) and isinstance(
        node.test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr
    ):
        yield node.test, f"not ({ast.unparse(node.test)})"


def _with(node: ast.expr | ast.stmt, **fields: object) -> str:
    """The text of a node with some fields replaced."""
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)
