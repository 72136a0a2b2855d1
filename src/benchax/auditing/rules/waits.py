"""Rules about host and device that work alternately: waits in each step, clocks without a wait, work between calls."""

from __future__ import annotations

import ast
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.recorder.log import grouped
from benchax.auditing.recorder.views import CallLine, HostLine, WaitLine, host_lines, wait_lines
from benchax.auditing.rule import Gain, Match, NotApplicable, list_some, rule
from benchax.auditing.rules.transfers import is_costly
from benchax.auditing.syntax import (
    Function,
    callee_name,
    holds,
    last_name,
    loops_around,
    nodes_of_scope,
    tree_of,
    where_of,
)
from benchax.errors import NotMeasured
from benchax.source_files import without_folders
from benchax.units import count, percent, seconds

CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "default_timer")
WAITS = frozenset(
    {
        "block_until_ready", "device_get", "item", "tolist", "float", "int", "bool", "complex", "print", "asarray",
        "array", "effects_barrier", "save", "append_to", "allclose", "assert_allclose", "result", "join", "str",
        "format", "repr", "info", "debug", "write", "log",
    }
)  # fmt: skip
"""Calls that wait, or may: one of them between two readings of the clock is enough."""
TIMEIT = ("timeit", "repeat", "autorange", "Timer")
"""Names that `timeit` gives what calls a function over and over between two readings of a clock."""
MANY = 20
WAIT_SHARE = 0.05
"""The share of a step that its waits could save."""
SEVERAL_CALLS, LEAST_S = 10, 0.25
"""Calls of a line, and seconds of work between them: fewer samples of the host say little."""
COMMON = 0.6
"""A line that this share of the host's time is below."""


# ---- wait-per-step ----------------------------------------------------------------------------------------------


@rule("wait-per-step", "does the host work on while the device computes?", "warning", of="program")
def wait_per_step(e: ProgramEvidence) -> Iterable[Match]:
    for line in wait_lines(e.log, "wait"):
        where = where_of(line.where)
        tree = tree_of(where[0]) if where else None
        if line.count < MANY or not is_costly(line, WAIT_SHARE):
            continue
        if where is None or tree is None:
            yield _wait(e, line, is_timed=False)
        elif not any(each.holds(where[1]) for each in timeit_calls(tree)):
            loop = max((one.lineno for one in loops_around(tree, where[1])), default=0)
            # An interval around all of the loop needs a single wait, after the loop.
            yield _wait(e, line, is_timed=any(one.holds(where[1]) and one.first > loop for one in intervals(tree)))
    if not e.sees_methods:
        raise NotMeasured("waits by methods of arrays cannot be seen in this JAX")


def _wait(e: ProgramEvidence, line: WaitLine, *, is_timed: bool) -> Match:
    step_s, saved_s = (s / line.steps for s in (line.stepped_s, min(line.gain_s, line.stepped_s)))
    is_read = line.by == ".item" or line.by.startswith("np.")
    return Match(
        f"waits by {line.by} in each step",
        [
            f"{count(line.count)} waits of {seconds(line.waited_s)} together, in the whole run",
            f"after them, the host worked for {seconds(line.between_s)} until the next wait, with an idle device",
            *(["it is between two readings of a clock, which need it: time fewer steps"] if is_timed else []),
        ],
        READ_LATER if is_read else WAIT_ONCE,
        where=where_of(line.where),
        gain=Gain(
            f"estimated: at most {seconds(saved_s)} of {seconds(step_s)} a step ({percent(saved_s / step_s)}), if the "
            "host and the device can work at the same time",
            saved_s,
        ),
        lost=(line.gain_s, e.watch.wall_s),
        severity="info" if is_timed else None,
    )


# ---- unawaited-timing -------------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """From one reading of the clock to the one that it is subtracted from, or what something else times."""

    first: int
    last: int
    end: ast.AST | None = None
    """The second reading."""
    loop: ast.AST | None = None
    """A loop whose iterations hand the reading on: what waits anywhere in it waits in each interval."""
    timed: ast.AST | None = None
    """The function that `timeit` calls, the block of a `with`."""
    by: str = "timeit"
    """What times it."""

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last

    @property
    def clock(self) -> str:
        if self.timed is not None:
            return f"{self.by} reads a clock around line {self.first}; in it"
        return f"line {self.first} and line {self.last} read a clock; between them"


@rule(
    "unawaited-timing",
    "does a clock wait for what it times?",
    "warning",
    of="program",
    advice=(
        "Wait for the result before the clock is read again: jax.block_until_ready(result). Call the function once "
        "before, so that no compilation is timed; or use benchax.bench, which does both."
    ),
)
def unawaited_timing(e: ProgramEvidence) -> Iterable[Match]:
    # What a package calls in a loop of its own, as a sampler does, it may wait for by itself.
    lines = [(where, line) for line in e.lines if line.by_package < line.count and (where := where_of(line.where))]
    for file, called in grouped(lines, lambda one: one[0][0]).items():
        tree = tree_of(file)
        for interval in (*intervals(tree), *timeit_calls(tree), *timed_blocks(tree)) if tree is not None else ():
            timed = [(at, line) for (_, at), line in called if interval.holds(at)]
            if timed and tree is not None and not _waits(tree, interval, but=timed[-1][1].name):
                yield _unawaited(file, interval, *timed[-1])


def _unawaited(file: str, interval: Interval, called: int, line: CallLine) -> Match:
    return Match(
        f"the clock is read before {line.name} is done",
        [
            f"{interval.clock} {line.name} is called ({count(line.count)} calls were seen), and no line waits for it",
            "a call returns as soon as the work is handed to the device: what is timed is the start of it",
        ],
        # The wait belongs before the second reading, or into what is timed.
        where=(file, interval.last if interval.timed is None else called),
        related=[("called here", (file, called))],
    )


def intervals(tree: ast.AST) -> Iterator[Interval]:
    """Each `begun = clock()` and the next `clock() - begun`, or `ended - begun` with `ended = clock()`."""
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, Function))):
        nodes = list(nodes_of_scope(scope))
        begun: dict[str, list[int]] = {}
        given = (node for node in nodes if isinstance(node, ast.Assign | ast.NamedExpr))
        read = (node for node in given if isinstance(node.value, ast.Call) and callee_name(node.value) in CLOCKS)
        for node in read:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                begun.setdefault(getattr(target, "id", ""), []).append(node.lineno)
        for node in nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Name):
                readings = begun.get(node.right.id, [])
                first = max((n for n in readings if n <= node.lineno), default=None)
                last = _read_at(node.left, begun, node.lineno)
                if first is not None and last is not None and first < last:
                    yield Interval(first, last, node.left, _loop_of(nodes, first, last, readings))


def _loop_of(nodes: Sequence[ast.AST], first: int, last: int, readings: Sequence[int]) -> ast.AST | None:
    """The loop around the second reading, but not the first, that reads the clock again for its next iteration."""
    around = (node for node in nodes if isinstance(node, ast.For | ast.While) and holds(node, last))
    again = (loop for loop in around if any(holds(loop, n) for n in readings if n >= last))
    return next((loop for loop in again if not holds(loop, first)), None)


def _read_at(left: ast.expr, begun: dict[str, list[int]], line: int) -> int | None:
    if isinstance(left, ast.Call) and callee_name(left) in CLOCKS:
        return left.lineno
    if isinstance(left, ast.Name):
        return max((n for n in begun.get(left.id, ()) if n <= line), default=None)
    return None


def timed_blocks(tree: ast.AST) -> Iterator[Interval]:
    """Each block of a `with stopwatch(...):` of this file that waits for nothing by itself."""
    names = {*_timing_generators(tree), *_timing_classes(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            called = [callee_name(one.context_expr) for one in node.items if isinstance(one.context_expr, ast.Call)]
            last = node.end_lineno or node.lineno
            yield from (Interval(node.lineno, last, timed=node, by=one) for one in called if one in names)


def _timing_generators(tree: ast.AST) -> Iterator[str]:
    """Those that read a clock before and after their one `yield`."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef) and "contextmanager" in map(last_name, scope.decorator_list):
            yields = [node.lineno for node in nodes_of_scope(scope) if isinstance(node, ast.Yield)]
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
    """The argument of `timeit`: a lambda, or a function of this file."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and callee_name(node) in TIMEIT and node.args:
            given = node.args[0]
            called = functions.get(given.id) if isinstance(given, ast.Name) else given
            if isinstance(called, ast.FunctionDef | ast.Lambda):
                yield Interval(called.lineno, called.end_lineno or called.lineno, timed=called)


def _waits(tree: ast.AST, interval: Interval, but: str = "") -> bool:
    """`but`: the function that is timed, whatever its name."""
    waits = [
        node
        for node in ast.walk(interval.timed or tree)
        if isinstance(node, ast.Call) and callee_name(node) in WAITS - {but}
    ]
    loop = interval.loop
    if any(loop is not None and holds(loop, node.lineno) for node in waits):
        return True
    return any(interval.holds(node.lineno) and _is_before(node, interval.end) for node in waits)


def _is_before(node: ast.Call, end: ast.AST | None) -> bool:
    """Does a call return before the second reading? `print(clock() - begun)` does not."""
    last = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return end is None or last <= (getattr(end, "lineno", 0), getattr(end, "col_offset", 0))


# ---- host-between-calls -----------------------------------------------------------------------------------------


@rule(
    "host-between-calls",
    "does a loop spend its time in compiled functions?",
    "warning",
    of="program",
    advice=(
        "Let the host do it while the device computes. Prepare the next batch in a thread or in other processes, "
        "before you read the result of this one. Or do it once, before the loop; for all rows at once in NumPy "
        "instead of one by one in Python; or inside the compiled function, in jax.numpy. Instead of an optimizer or "
        "solver of SciPy, use one written in JAX (optax.lbfgs, optimistix, diffrax)."
    ),
)
def host_between_calls(e: ProgramEvidence) -> Iterable[Match]:
    found = host_lines(e.log, threading.main_thread().ident) if e.lines is not None else []
    lines = [line for line in found if line.count >= SEVERAL_CALLS]
    if not lines:
        raise NotApplicable(f"no line was seen to call compiled functions {SEVERAL_CALLS} times")
    elapsed_s, host_s = sum(line.elapsed_s for line in found), sum(line.host_s for line in lines)
    # The host may well have its share of the work, as one that simulates data: a quarter is no fault.
    if host_s >= max(LEAST_S, elapsed_s / 4):
        yield _host_work(lines, host_s, elapsed_s)


def _host_work(lines: Sequence[HostLine], host_s: float, elapsed_s: float) -> Match:
    stacks = Counter[tuple[str, ...]]()
    for line in lines:
        stacks.update(line.stacks)
    path, share = _common_path(stacks), percent(host_s / elapsed_s)
    inner = _spent(stacks, -1)
    return Match(
        f"the host works for {share} of the time between calls",
        [
            f"{seconds(host_s)} of {seconds(elapsed_s)} before {count(sum(line.count for line in lines))} calls",
            "by samples of the main thread in which JAX was not on its stack",
            *list_some([f"{seconds(s)} at {without_folders(place)}" for place, s in inner.most_common()], what="lines"),
        ],
        where=where_of(path[-1]),
        related=[("called here", where_of(line)) for line in reversed(path[:-1])],
        gain=Gain(f"estimated: at most {share} of the loop, {seconds(host_s)} while calls were watched", host_s),
        severity="info" if host_s < elapsed_s / 2 else None,
    )


def _common_path(stacks: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """From the outermost line inward, as long as most of the time is spent below one line."""
    least, path = COMMON * stacks.total(), tuple[str, ...]()
    while True:
        n = len(path)
        below = _spent(Counter({k: s for k, s in stacks.items() if k[:n] == path and len(k) > n}), n)
        if not below or (path and below.most_common(1)[0][1] < least):
            return path
        path = (*path, below.most_common(1)[0][0])


def _spent(stacks: Counter[tuple[str, ...]], at: int) -> Counter[str]:
    """Seconds by the line at one place of the stacks."""
    found = Counter[str]()
    for stack, s in stacks.items():
        found[stack[at]] += s
    return found


# ---- texts ------------------------------------------------------------------------------------------------------

READ_LATER = (
    "Keep what it reads in a list, as arrays, and read it every hundredth step, or all at once at the end, with "
    "jax.device_get."
)
WAIT_ONCE = (
    "Remove the wait: the next call waits for what it needs. Wait once, after the loop or before reading a clock."
)
