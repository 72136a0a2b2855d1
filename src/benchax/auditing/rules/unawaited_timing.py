"""Finds clocks that are read around a call of a jitted function without waiting for its result."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import Function, callee_name, last_name, tree_of, where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count

CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "default_timer")
WAITS = frozenset(
    {
        "block_until_ready", "device_get", "item", "tolist", "float", "int", "bool", "complex", "print", "asarray",
        "array", "effects_barrier", "save", "append_to", "allclose", "assert_allclose", "result", "join", "str",
        "format", "repr", "info", "debug", "write", "log",
    }
)  # fmt: skip
"""Calls that wait, or may: between two readings of the clock one of them is enough."""
TIMEIT = ("timeit", "repeat", "autorange", "Timer")
"""Names that `timeit` gives what calls a function over and over between two readings of a clock."""


class Interval(NamedTuple):
    """From one reading of the clock to the one that it is subtracted from, or what is timed by something else."""

    first: int
    last: int
    timed: ast.AST | None = None
    """The function that `timeit` calls, the block of a `with`."""
    by: str = "timeit"
    """What times it."""

    @property
    def clock(self) -> str:
        if self.timed is not None:
            return f"{self.by} reads a clock around what stands in line {self.first}; in it"
        return f"line {self.first} and line {self.last} read a clock; between them"


@rule("unawaited-timing", "does a clock wait for what it times?", "warning", of="program")
def unawaited_timing(e: ProgramEvidence) -> Iterable[Finding]:
    if "lines" not in e.facts or not e.facts["calls"]["is_seen"]:
        raise NotMeasured("calls cannot be seen in this JAX")
    by_file: dict[str, list[tuple[int, Any]]] = {}
    for line in e.facts["lines"]:
        # What a package calls in a loop of its own, as a sampler does, it may wait for by itself.
        is_own = line.get("inside", 0) < line["count"]
        if is_own and (where := where_of(line["where"])) is not None:
            by_file.setdefault(where[0], []).append((where[1], line))
    for file, calls in by_file.items():
        tree = tree_of(file)
        for interval in (*intervals(tree), *timeit_calls(tree), *timed_blocks(tree)) if tree is not None else ():
            timed = [(at, line) for at, line in calls if interval.first <= at <= interval.last]
            if timed and tree is not None and not _waits(tree, interval, but=timed[-1][1]["function"]):
                yield _finding(file, interval, *timed[-1])


def _finding(file: str, interval: Interval, called: int, line: Any) -> Finding:
    return unawaited_timing.finding(
        f"the clock is read before {line['function']} is done",
        [
            (
                f"{interval.clock} {line['function']} is called ({count(line['count'])} calls were seen), and nothing "
                "waits for its result"
            ),
            "a call returns as soon as the work is handed to the device: what is timed is the start of it",
        ],
        "Wait for the result before the clock is read again: jax.block_until_ready(result). Call the function once "
        "before, so that no compilation is timed; or use benchax.bench, which does both.",
        # The wait belongs before the second reading, or into what is timed.
        where=(file, interval.last if interval.timed is None else called),
    )


def intervals(tree: ast.AST) -> Iterator[Interval]:
    """Each `begun = clock()` and the nearest `clock() - begun` behind it, or `ended - begun` with `ended = clock()`."""
    for scope in _scopes(tree):
        begun: dict[str, list[int]] = {}
        nodes = list(_own_nodes(scope))
        for node in nodes:
            if isinstance(node, ast.Assign | ast.NamedExpr) and isinstance(node.value, ast.Call):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if callee_name(node.value) in CLOCKS:
                    for target in targets:
                        if isinstance(target, ast.Name):
                            begun.setdefault(target.id, []).append(node.lineno)
        for node in nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Name):
                firsts = [n for n in begun.get(node.right.id, ()) if n <= node.lineno]
                last = _read_at(node.left, begun, node.lineno)
                if firsts and last is not None and max(firsts) < last:
                    yield Interval(max(firsts), last)


def timed_blocks(tree: ast.AST) -> Iterator[Interval]:
    """Each block of a `with stopwatch(...):` of this file that waits for nothing by itself."""
    names = {*_timing_generators(tree), *_timing_classes(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            called = [callee_name(one.context_expr) for one in node.items if isinstance(one.context_expr, ast.Call)]
            yield from (
                Interval(node.lineno, node.end_lineno or node.lineno, node, one) for one in called if one in names
            )


def _timing_generators(tree: ast.AST) -> Iterator[str]:
    """Those that read a clock before and after their one `yield`."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef) and "contextmanager" in map(last_name, scope.decorator_list):
            yields = [node.lineno for node in _own_nodes(scope) if isinstance(node, ast.Yield)]
            around = [one for one in intervals(scope) if any(one.first < at <= one.last for at in yields)]
            if any(not _waits(scope, one) for one in around):
                yield scope.name


def _timing_classes(tree: ast.AST) -> Iterator[str]:
    """Those that read a clock when they are entered and left."""
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef):
            methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
            ends = [set(_called_in(methods[name])) for name in ("__enter__", "__exit__") if name in methods]
            if len(ends) == 2 and all(end & {*CLOCKS} for end in ends) and not ends[1] & WAITS:
                yield owner.name


def _called_in(scope: ast.AST) -> Iterator[str]:
    return (callee_name(node) for node in ast.walk(scope) if isinstance(node, ast.Call))


def timeit_calls(tree: ast.AST) -> Iterator[Interval]:
    """What is given to `timeit`: a lambda, or a function of this file."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and callee_name(node) in TIMEIT and node.args:
            given = node.args[0]
            called = functions.get(given.id) if isinstance(given, ast.Name) else given
            if isinstance(called, ast.FunctionDef | ast.Lambda):
                yield Interval(called.lineno, called.end_lineno or called.lineno, called)


def _read_at(left: ast.expr, begun: dict[str, list[int]], line: int) -> int | None:
    if isinstance(left, ast.Call) and callee_name(left) in CLOCKS:
        return left.lineno
    if isinstance(left, ast.Name):
        return max((n for n in begun.get(left.id, ()) if n <= line), default=None)
    return None


def _waits(tree: ast.AST, interval: Interval, but: str = "") -> bool:
    """`but`: the function that is timed, whatever its name."""
    waits = WAITS - {but}
    return any(
        isinstance(node, ast.Call) and callee_name(node) in waits and interval.first <= node.lineno <= interval.last
        for node in ast.walk(interval.timed or tree)
    )


def _scopes(tree: ast.AST) -> Iterator[ast.AST]:
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, Function))


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Without those of functions inside."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, Function):
            yield from _own_nodes(child)
