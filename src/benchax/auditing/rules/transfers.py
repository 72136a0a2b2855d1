"""Rules about host and device: data that crosses too often, waits, clocks that do not wait, work between calls."""

from __future__ import annotations

import ast
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.hooks import find_lost_digits
from benchax.auditing.recorder.log import Event, HostLine, WaitLine, host_lines, wait_lines
from benchax.auditing.rule import LARGE, Gain, Match, NotApplicable, grade, list_some, name_leaves, rule, try_variant
from benchax.auditing.syntax import (
    NOWHERE,
    Function,
    callee_name,
    callers_of,
    calls,
    holds,
    last_name,
    loops_around,
    made_at,
    nodes_of_scope,
    passed_functions,
    readable,
    where_of,
)
from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.grouping import group_by
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import fit, make_inputs
from benchax.measuring.program import program_of
from benchax.results.watch import ObservedTransfer, Transfers
from benchax.source_files import without_folders
from benchax.specs import spec_of
from benchax.static_leaves import reveal
from benchax.units import count, percent, seconds, size
from benchax.watching.transfers import watch_transfers

OFTEN = 5
"""A program has to send its data once, and may do so in pieces. The 46 clean programs that the tests run send
NumPy arrays 3 times at most from a line, and put the same data 4 times."""
RATE, EACH_S = 1e9, 5e-6
"""Bytes a second, and seconds for each array. An H100 took 1.4 to 8 GB a second from NumPy (docs/verified), and a core
of a CPU converts float64 at about this rate. Python spends 2 µs on each array on a core of a cloud machine."""
CONVERSIONS = ("stage", "asarray", "array", "_array_copy", "copy", "convert_element_type")
"""The program asks for the transfers of jnp.asarray and jnp.array; repeated-device-put finds those that repeat."""
MANY_READS, READS_PER_CALL = 20, 0.2
"""A program may read a result at its end, after each epoch, or every tenth step, as the advice says. The 46
clean programs read 12 times at most at a line."""
LONG = 64
"""Python numbers of a list. An array of 64 takes 1.2 ms, of one 0.05 ms, and of a NumPy array of any of these lengths
0.02 to 0.04 ms (jaxlib 0.12.0, CPU, two busy cores)."""


# ---- numpy-inputs -----------------------------------------------------------------------------------------------


@rule(
    "numpy-inputs",
    "do its inputs come from NumPy in each call?",
    "warning",
    advice=(
        "Place them once, before the calls: x = jax.device_put(x). A loader can place the next batch while the device "
        "works on this one."
    ),
)
def numpy_inputs(e: Evidence) -> Iterable[Match]:
    leaves = name_leaves(*e.given)
    arrays = {path: leaf for path, leaf in leaves if isinstance(leaf, np.ndarray)}
    if not arrays:
        if not any(isinstance(leaf, jax.Array) for _, leaf in leaves):
            raise NotApplicable("no input is an array of the caller's")
        return
    closed_over = e.failure is None and not e.plain_case.donate
    result = try_variant(e, "inputs on the device", *_hold_inputs(e)) if closed_over else None
    seen = list_some([f"{path} is a NumPy {spec_of(a)}, {size(a.nbytes)}" for path, a in arrays.items()])
    wide = [path for path, a in arrays.items() if jax.dtypes.canonicalize_dtype(a.dtype) != a.dtype]
    seen += [f"converted to 32 bits in each call: {', '.join(list_some(wide))}"] if wide else []
    seen += [result.sentence] if result else ["gain not measured: a donated array can be given only once"]
    # On CPU, JAX uses an array that is aligned to 64 bytes without a copy. Then there is nothing to gain.
    is_free = result is not None and result.comparison is not None and result.comparison.verdict == "same"
    yield Match(
        f"{count(len(arrays), 'NumPy array')} of {size(sum(a.nbytes for a in arrays.values()))} among its inputs",
        seen,
        gain=result.gain if result else None,
        severity="info" if is_free else None,
    )


@numpy_inputs.in_program
def _numpy_of_program(e: ProgramEvidence) -> Iterable[Match]:
    seen = e.seen_transfers("host to device")
    sent_by = {(event.by, event.where) for event in e.log.of("operation")}
    # JAX itself creates single NumPy numbers, for example in `jnp.ones` and `grad`. Operations of one line belong
    # together.
    arrays = [t for t in seen.of("host to device") if t.what.startswith("NumPy ") and "[]" not in t.what]
    groups = group_by(
        (t for t in arrays if t.count >= OFTEN and t.by not in CONVERSIONS),
        lambda t: ("" if (t.by, t.where) in sent_by else t.by, t.where or ""),
    )
    for (by, where), sent in groups.items():
        total = sum(t.size_bytes for t in sent)
        lost_s = total / RATE + sum(t.count for t in sent) * EACH_S
        line = next((line for line in e.lines if by and line.where == where), None)
        same = [name for name, n, repeats in line.numpy if repeats + 1 >= n >= OFTEN] if line else []
        operations = ", ".join(dict.fromkeys(t.by for t in sent))
        yield Match(
            f"{f'{by} takes' if by else f'eager {operations} take'} NumPy arrays in each call: {size(total)}",
            [
                *list_some([f"{t.what}: {count(t.count)} times, {size(t.size_bytes)}" for t in sent], what="shapes"),
                *([f"given as {', '.join(same)}, the same each time"] if same else []),
                f"about {seconds(lost_s)} of {seconds(e.log.seen_s)}, at {RATE / 1e9:g} GB a second",
            ],
            related=[
                *(place for name in same for place in made_at(where, by, name)),
                ("called here", where),
            ][::-1],
            lost=(lost_s, e.log.seen_s or e.watch.wall_s),
        )


def _hold_inputs(e: Evidence) -> tuple[Case, Case]:
    """(on the device, as they were given): calls without arguments, which make theirs before the first."""
    # The inputs of a case are on the device before any clock starts. Host arrays that the function holds are
    # transferred in each call.
    unfed = replace(e.case, inputs=lambda: ((), {}), static=(), donate=(), jit=False)
    return replace(unfed, fn=_Held(e.case, e.seed, True)), replace(unfed, fn=_Held(e.case, e.seed, False))


@dataclass(frozen=True)
class _Held:
    case: Case
    seed: int
    on_device: bool

    def __call__(self) -> Any:
        call, args, kwargs = self.made
        return call(*args, **kwargs)

    @cached_property
    def made(self) -> Any:
        """The compiled function and its inputs, which it holds."""
        placed = make_inputs(self.case, self.seed)
        held = placed.args, placed.kwargs
        if not self.on_device:
            pairs = self.case.inputs(), reveal(held)
            given = jax.tree.map(lambda given, made: given if isinstance(given, np.ndarray) else made, *pairs)
            held = fit(self.case, given, placed.static)
        return program_of(self.case).call, *held


# ---- implicit-transfers -----------------------------------------------------------------------------------------


@rule("implicit-transfers", "are there implicit transfers?", "warning")
def implicit_transfers(e: Evidence) -> Iterable[Match]:
    # Only compiled functions count, because constants are then part of the program.
    transfers = watch_call(e, e.prepared.program.call if e.failure is None else e.fn)
    if "device to host" not in transfers.sees:
        raise NotMeasured("transfers to the host cannot be seen in this JAX")
    for t in transfers.of("device to host"):
        yield _transferred(t, f"reads {t.what} back by {t.by}", READ_LESS, is_call=True)
    sent = [t for t in transfers.of("host to device") if t.what.startswith("NumPy ") and not t.what.endswith("[]")]
    for t in sent:
        yield _transferred(t, f"sends {t.what} to the device for {t.by}", MAKE_ONCE, is_call=True)


@implicit_transfers.in_program
def _reads_of_program(e: ProgramEvidence) -> Iterable[Match]:
    seen = e.seen_transfers("device to host")
    lines = {(line.where, line.by): line for line in wait_lines(e.log, "read")}
    least = max(MANY_READS, READS_PER_CALL * e.log.counts["call"])
    for t in seen.of("device to host"):
        line = lines.get((t.where or "", t.by))
        # Consecutive reads, such as all results at the end, wait only once.
        if t.count - t.in_a_row >= least and (line is None or is_costly(line, LARGE)):
            yield _transferred(t, f"reads {t.what} back by {t.by}", READ_LESS, is_package=_is_package(e, t))


def is_costly(line: WaitLine, share: float) -> bool:
    """Could the steps of a line be shorter without its waits, by this share?"""
    return line.steps > 0 and line.gain_s >= share * line.stepped_s


def _is_package(e: ProgramEvidence, t: ObservedTransfer) -> bool:
    """Does a package, which a line of yours calls, read the value and make all calls of jitted functions there?"""
    calls = [line for line in e.lines if line.where == t.where]
    return bool(calls) and all(line.by_package == line.count for line in calls)


def watch_call(
    e: Evidence, call: Callable[..., Any], hear: Callable[[Any, Sequence[Any]], None] | None = None
) -> Transfers:
    """Calls it twice, and returns the transfers of the second call.

    Args:
        hear: told of each call of a jitted function in it.

    Raises:
        NotMeasured: it must not be called, or fails.
    """
    try:
        _call_once(call, e)  # transfers while it compiles are no part of a call
        with watch_transfers(hear) as transfers:
            _call_once(call, e)
    except NotMeasured:  # it must not be called
        raise
    except Exception as error:
        raise NotMeasured(f"calling it fails: {diagnose(error, 'call').message}") from error
    return transfers


def _call_once(call: Callable[..., Any], e: Evidence) -> None:
    args, kwargs = reveal(e.fresh_inputs()) if call is e.fn else e.fresh_inputs()
    jax.block_until_ready(call(*args, **kwargs))


def _transferred(
    t: ObservedTransfer, title: str, advice: str, *, is_call: bool = False, is_package: bool = False
) -> Match:
    seen = [f"{t.count} × {'in one call' if is_call else 'while it was watched'}, {size(t.size_bytes)} together"]
    if is_package:
        seen.append("a package that this line calls reads it, and calls the jitted functions, too")
    gain = None
    if t.elapsed_s is not None:
        seen.append(f"the host spent {seconds(t.elapsed_s)} in them, waiting for results included")
        if t.direction == "device to host" and is_call:
            gain = Gain(f"estimated: at most {seconds(t.elapsed_s)} per call", t.elapsed_s)
    return Match(
        title, seen, OF_PACKAGE if is_package else advice, where=t.where, gain=gain,
        severity="info" if is_package else None,
    )  # fmt: skip


# ---- puts -------------------------------------------------------------------------------------------------------


@rule(
    "repeated-device-put",
    "is data that stays the same put on the device once?",
    "warning",
    of="program",
    advice="Put it there once, before the loop, and pass the array that this returns to every call.",
)
def repeated_device_put(e: ProgramEvidence) -> Iterable[Match]:
    # The first transfer is necessary, and an array that is overwritten in place is new data.
    repeats = puts_by_place(event for event in e.log.of("put") if event.note.is_repeat).values()
    often = (events for events in repeats if len(events) >= OFTEN)
    by_line = group_by(often, lambda events: (events[0].where, events[0].by))
    for (where, by), groups in sorted(by_line.items(), key=lambda one: -sum(_elapsed(g) for g in one[1])):
        groups.sort(key=lambda events: -_bytes(events))
        what, lost_s = groups[0][0].note.what, sum(map(_elapsed, groups))
        more = f" and {len(groups) - 1} more" if len(groups) > 1 else ""
        wall_s = e.watch.wall_s
        of_run = f" of {seconds(wall_s)} ({percent(lost_s / wall_s)})" if wall_s else ""
        # The copy is asynchronous, so the time in Python is a lower bound.
        lost_s = max(lost_s, sum(map(_bytes, groups)) / RATE)
        yield Match(
            f"{by} puts the same {what}{more} on the device {count(len(groups[0]) + 1)} times",
            [*list_some([_repeated(g) for g in groups]), f"the host spent {seconds(lost_s)}{of_run} in these"],
            where=where,
            related=callers_of(where),
            gain=Gain(f"estimated: {seconds(lost_s)} of this run, which the host spent in them"),
            severity="warning" if grade(lost_s, wall_s) == "warning" else "info",
        )


def puts_by_place(events: Iterable[Event]) -> dict[Any, list[Event]]:
    return group_by(events, lambda event: (event.where, event.by, event.note.what, event.note.place))


def _elapsed(events: Iterable[Event]) -> float:
    return sum(event.elapsed_s for event in events)


def _bytes(events: Iterable[Event]) -> int:
    return sum(event.size for event in events)


def _repeated(events: list[Event]) -> str:
    copies = sum(event.note.is_new_object for event in events)
    new = f", {count(copies)} times in a new array" if copies else ""
    same = f"{count(len(events))} times {events[0].note.what} had the same contents as before, by a sample of it"
    return f"{same}{new}: {size(_bytes(events))}"


@rule(
    "python-lists",
    "are arrays made of arrays, not of lists of numbers?",
    "warning",
    of="program",
    advice=(
        "Make one NumPy array of all of them before the loop (np.asarray(rows, np.float32)), choose by "
        "indexing it, and convert that: jnp.asarray(rows[chosen])."
    ),
)
def python_lists(e: ProgramEvidence) -> Iterable[Match]:
    groups = group_by(e.log.of("list"), lambda event: (event.where, event.by))
    for (where, by), events in sorted(groups.items(), key=lambda one: -_elapsed(one[1])):
        n, lost_s, elements = len(events), _elapsed(events), sum(event.size for event in events)
        if n >= OFTEN and elements >= LONG * n:
            yield Match(
                f"{by} makes arrays of lists of {count(elements // n)} Python numbers",
                [f"{count(n)} times, for which the host spent {seconds(lost_s)}: it reads each number"],
                where=where,
                gain=Gain(f"estimated: at most {seconds(lost_s)} of this run, which the host spent in them"),
                lost=(lost_s, e.watch.wall_s),
            )


@rule(
    "rounded-inputs",
    "do different numbers stay different on the device?",
    "warning",
    pack="numerics",
    advice=(
        "Subtract their origin before they become JAX arrays, in NumPy, which has 64 bits: jnp.asarray(t - t[0]). "
        "Pass the origin, as a Python number, to where it is needed. Or turn jax_enable_x64 on, which makes "
        "everything 64 bits."
    ),
)
def rounded_inputs(e: Evidence) -> Iterable[Match]:
    arrays = [leaf for leaf in jax.tree.leaves(e.given) if isinstance(leaf, np.ndarray)]
    if not arrays:
        raise NotApplicable("no input is a NumPy array")
    lost = (find_lost_digits(array, jax.dtypes.canonicalize_dtype(array.dtype)) for array in arrays)
    yield from (Match(one.title, one.sentences, lost=one.share) for one in lost if one)


@rounded_inputs.in_program
def _rounded_in_program(e: ProgramEvidence) -> Iterable[Match]:
    for event in {event.where: event for event in e.log.of("rounded")}.values():
        yield Match(event.note.title, event.note.sentences, where=event.where, lost=event.note.share)


# ---- texts ------------------------------------------------------------------------------------------------------


READ_LESS = (
    "The host waits there for the device. Keep the value on the device (jnp.where, jax.lax.cond), or read it less "
    "often: every hundredth step, or once at the end with jax.device_get."
)
OF_PACKAGE = (
    "Look for an option of the package to do this less often. It usually shows progress (progress_bar=True), or "
    "calls your callback after each step."
)
MAKE_ONCE = "Make the array once and on the device, outside of the calls: jnp.asarray(...), or jax.device_put."

# ---- waits -----------------------------------------------------------------------------------------------------------
#
# Finds hosts and devices that work alternately: a wait in each step, a clock without a wait, work between calls.


CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "default_timer")
UNSEEN_WAITS = ("effects_barrier", "result", "join", "save", "append_to", "allclose", "assert_allclose")
"""Calls that can wait without a trace in the log: for callbacks, for another thread, or in NumPy's own code. One of
them between two readings of the clock is enough."""
TIMEIT = ("timeit", "repeat", "autorange", "Timer")
"""Names that `timeit` gives what calls a function over and over between two readings of a clock."""
MANY = 20
"""A program may wait at its end, after each epoch, or to time a part of it. Clean programs
that time nothing in a loop wait 5 times at most at a line."""
SEVERAL_CALLS, LEAST_S = 10, 0.25
"""Calls of a line, and seconds of work between them: fewer samples of the host say little. With half or twice of both,
rules find the same in the clean programs and the programs of host-between-calls."""


# ---- wait-per-step ----------------------------------------------------------------------------------------------


@rule("wait-per-step", "does the host keep working while the device computes?", "warning", of="program")
def wait_per_step(e: ProgramEvidence) -> Iterable[Match]:
    for line in wait_lines(e.log, "wait"):
        file, at = where_of(line.where) or NOWHERE
        tree = readable(file)
        is_many = line.count >= MANY and is_costly(line, LARGE)
        if is_many and not any(each.holds(at) for each in timeit_calls(tree)):
            loop = max((one.lineno for one in loops_around(tree, at)), default=0)
            # An interval around the whole loop needs only one wait, after the loop.
            yield _wait(e, line, is_timed=any(one.holds(at) and one.first > loop for one in intervals(tree)))
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
        where=line.where,
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
    waits: tuple[range, ...]
    """Lines at which a wait belongs to it."""
    clock: str
    is_block: bool = False
    """Is it the function that `timeit` calls, or the block of a `with`?"""

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


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
    e.seen_transfers("device to host")
    # A package with its own loop, such as a sampler, may wait for its calls itself.
    lines = [(where, line) for line in e.lines if line.by_package < line.count and (where := where_of(line.where))]
    waits = [where for line in e.log.lines_of("wait", "read") if (where := where_of(line))]
    for file, called in group_by(lines, lambda one: one[0][0]).items():
        tree = readable(file)
        waiting = {at for name, at in waits if name == file} | {call.lineno for call in calls(tree, *UNSEEN_WAITS)}
        for interval in (*intervals(tree), *timeit_calls(tree), *timed_blocks(tree)):
            timed = [(at, line) for (_, at), line in called if interval.holds(at)]
            if not timed or any(waiting.intersection(lines) for lines in interval.waits):
                continue
            at, line = timed[-1]
            called_here = f"{line.name} is called ({count(line.count)} calls were seen)"
            yield Match(
                f"the clock is read before {line.name} is done",
                [
                    f"{interval.clock} {called_here}, and no line waits for it",
                    "a call returns as soon as the device has the work, so only its start is timed",
                ],
                # Wait before the second reading of the clock, or inside the timed function.
                where=(file, at if interval.is_block else interval.last),
                related=[("called here", (file, at))],
            )


def intervals(tree: ast.AST) -> Iterator[Interval]:
    """Each `begun = clock()` and the next `clock() - begun`, or `ended - begun` with `ended = clock()`."""
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, Function))):
        nodes = list(nodes_of_scope(scope))
        read: dict[str, list[int]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign | ast.NamedExpr) and _reads_clock(node.value):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    read.setdefault(getattr(target, "id", ""), []).append(node.lineno)
        for node in nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Name):
                begun, end = read.get(node.right.id, []), node.left
                ended = [end.lineno] if _reads_clock(end) else read.get(getattr(end, "id", ""), [])
                first, last = (max((n for n in lines if n <= node.lineno), default=0) for lines in (begun, ended))
                if 0 < first < last:
                    waits = tuple(_wait_lines(nodes, first, last, end, begun))
                    yield Interval(first, last, waits, f"line {first} and line {last} read a clock; between them")


def _reads_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and callee_name(node) in CLOCKS


def _wait_lines(
    nodes: Sequence[ast.AST], first: int, last: int, end: ast.expr, begun: Sequence[int]
) -> Iterator[range]:
    """Lines whose waits come before the second reading: those between, and its own if something there is computed
    before it, as in `print(float(loss), clock() - begun)`."""
    made = (node for node in nodes if isinstance(node, ast.Call | ast.FormattedValue) and node.lineno == end.lineno)
    yield range(first, last + any((node.end_col_offset or 0) <= end.col_offset for node in made))
    for loop in (node for node in nodes if isinstance(node, ast.For | ast.While) and holds(node, last)):
        # It reads the clock again for its next iteration: what waits anywhere in it waits in each interval.
        if not holds(loop, first) and any(n >= last and holds(loop, n) for n in begun):
            yield range(last + 1, (loop.end_lineno or 0) + 1)


def timed_blocks(tree: ast.AST) -> Iterator[Interval]:
    """Each block of a `with stopwatch(...):`, of a function or class of this file that reads a clock around it."""
    names = {
        scope.name for scope in ast.walk(tree) if isinstance(scope, ast.FunctionDef | ast.ClassDef) and _times(scope)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            called = [callee_name(one.context_expr) for one in node.items if isinstance(one.context_expr, ast.Call)]
            yield from (_block(node, name) for name in called if name in names)


def _times(scope: ast.FunctionDef | ast.ClassDef) -> bool:
    """Does it read a clock before and after its one `yield`, or when it is entered and left?"""
    if isinstance(scope, ast.ClassDef):
        ends = [node for node in scope.body if getattr(node, "name", "") in ("__enter__", "__exit__")]
        return len(ends) == 2 and all(any(calls(end, *CLOCKS)) for end in ends)
    yields = [node.lineno for node in nodes_of_scope(scope) if isinstance(node, ast.Yield)]
    is_manager = "contextmanager" in map(last_name, scope.decorator_list)
    return is_manager and any(one.first < at <= one.last for one in intervals(scope) for at in yields)


def timeit_calls(tree: ast.AST) -> Iterator[Interval]:
    """The argument of `timeit`: a lambda, or a function of this file."""
    for call in calls(tree, *TIMEIT):
        yield from (_block(called, "timeit") for called in passed_functions(tree, call.args[:1]))


def _block(node: ast.With | ast.FunctionDef | ast.Lambda, by: str) -> Interval:
    first, last = node.lineno, node.end_lineno or node.lineno
    return Interval(first, last, (range(first, last + 1),), f"{by} reads a clock around line {first}; in it", True)


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
        raise NotApplicable(f"no line called compiled functions {SEVERAL_CALLS} times")
    elapsed_s, host_s = sum(line.elapsed_s for line in found), sum(line.host_s for line in lines)
    # The host can have other work, such as a simulation. It took 13 % of the time at most in 20 clean programs by
    # others.
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
        where=path[-1],
        related=[("called here", line) for line in reversed(path[:-1])],
        gain=Gain(f"estimated: at most {share} of the loop, {seconds(host_s)} while calls were watched", host_s),
        severity="info" if host_s < elapsed_s / 2 else None,
    )


def _common_path(stacks: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """From the outermost line inward, as long as most of the time is spent below one line."""
    least, path = stacks.total() / 2, tuple[str, ...]()
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
    "Collect the arrays in a list, and read them every hundredth step, or all at once at the end, with jax.device_get."
)
WAIT_ONCE = (
    "Remove the wait: the next call waits for what it needs. Wait once, after the loop or before reading a clock."
)
