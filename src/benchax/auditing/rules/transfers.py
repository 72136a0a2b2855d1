"""Rules about data that crosses between host and device more often than it must, or in a costly form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.log import Event, grouped
from benchax.auditing.recorder.rounded import LostDigits, find_lost_digits
from benchax.auditing.recorder.views import WaitLine, wait_lines
from benchax.auditing.rule import Gain, Match, NotApplicable, grade, list_some, rule, try_variant
from benchax.auditing.syntax import callers_of, made_at, where_of
from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import fit, make_inputs, static_arguments
from benchax.measuring.program import program_of
from benchax.results.audit import Where
from benchax.results.watch import ObservedTransfer, Transfers
from benchax.specs import short_dtype, spec_of
from benchax.static_leaves import reveal
from benchax.units import count, percent, seconds, size
from benchax.watching.transfers import watch_transfers

OFTEN = 5
"""A program has to send its data once, and may do so in pieces."""
RATE, EACH_S = 1e9, 5e-6
"""Bytes a second, and seconds for each array. An H100 took 1.4 to 8 GB a second from NumPy (docs/verified), and a core
of a CPU converts float64 at about this rate. Python spends 2 µs on each array on a core of a cloud machine."""
CONVERSIONS = ("stage", "asarray", "array", "_array_copy", "copy", "convert_element_type")
"""The program asks for the transfers of jnp.asarray and jnp.array; repeated-device-put finds those that repeat."""
MANY_READS, READS_PER_CALL = 20, 0.2
"""A program may read a result at its end, after each epoch, or every tenth step, as the advice says."""
READ_SHARE = 0.1
"""The share of a step that reads could save. Watching slows the host down, so that smaller shares are not known."""
LONG = 1024
"""Python numbers of a list: a shorter list costs about as much as any call."""


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
    args, kwargs = e.given
    static = static_arguments(e.case, args, kwargs)
    dynamic = {f"args[{i}]": v for i, v in enumerate(args) if i not in static}
    dynamic |= {f"kwargs[{k!r}]": v for k, v in kwargs.items() if k not in static}
    leaves = [
        (n + jax.tree_util.keystr(p), leaf) for n, v in dynamic.items() for p, leaf in jax.tree.leaves_with_path(v)
    ]
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
    # A CPU takes over an array that begins at a multiple of 64 bytes without a copy: then nothing is to be gained.
    is_free = result is not None and result.comparison is not None and result.comparison.verdict == "same"
    yield Match(
        f"{count(len(arrays), 'NumPy array')} of {size(sum(a.nbytes for a in arrays.values()))} among its inputs",
        seen,
        gain=result.gain if result else None,
        severity="info" if is_free else None,
    )


@numpy_inputs.in_program
def _numpy_of_program(e: ProgramEvidence) -> Iterable[Match]:
    if e.transfers is None or "host to device" not in e.transfers.sees:
        raise NotMeasured("transfers to the device could not be seen")
    called = {(line.name, line.where): line for line in e.lines}
    # JAX itself makes single numbers of NumPy's, as in `jnp.ones` and `grad`. Operations of one line go together.
    arrays = [t for t in e.transfers.of("host to device") if t.what.startswith("NumPy ") and "[]" not in t.what]
    groups = grouped(
        (t for t in arrays if t.count >= OFTEN and t.by not in CONVERSIONS),
        lambda t: (t.by if (t.by, t.where) in called or not called else "", t.where or ""),
    )
    for (by, where), sent in groups.items():
        total = sum(t.size_bytes for t in sent)
        lost_s = total / RATE + sum(t.count for t in sent) * EACH_S
        line = called.get((by, where))
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
                *(place for name in same for place in made_at(where_of(where), by, name)),
                ("called here", where_of(where)),
            ][::-1],
            lost=(lost_s, e.log.seen_s or e.watch.wall_s),
        )


def _hold_inputs(e: Evidence) -> tuple[Case, Case]:
    """(on the device, as they were given): calls without arguments, which make theirs before the first."""
    # Inputs of a case are on the device before any clock starts; what the function holds itself crosses in each call.
    device, host = (
        replace(e.case, fn=_Held(e.case, e.seed, on_device), inputs=_nothing, static=(), donate=(), jit=False)
        for on_device in (True, False)
    )
    return device, host


def _nothing() -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return (), {}


class _Held:
    def __init__(self, case: Case, seed: int, on_device: bool) -> None:
        self.case, self.seed, self.on_device = case, seed, on_device
        self.made: Any = None

    def __call__(self) -> Any:
        if self.made is None:
            self.made = (program_of(self.case).call, *self._inputs())
        call, args, kwargs = self.made
        return call(*args, **kwargs)

    def _inputs(self) -> tuple[Any, Any]:
        placed = make_inputs(self.case, self.seed)
        if self.on_device:
            return placed.args, placed.kwargs
        given = jax.tree.map(_as_given, self.case.inputs(), reveal((placed.args, placed.kwargs)))
        return fit(self.case, given, placed.static)


def _as_given(given: Any, placed: Any) -> Any:
    return given if isinstance(given, np.ndarray) else placed


# ---- implicit-transfers -----------------------------------------------------------------------------------------


@rule("implicit-transfers", "does data go to and fro without being asked?", "warning")
def implicit_transfers(e: Evidence) -> Iterable[Match]:
    transfers = _watch_call(e)
    if "device to host" not in transfers.sees:
        raise NotMeasured("transfers to the host cannot be seen in this JAX")
    for t in transfers.of("device to host")[:5]:
        yield _transferred(t, f"reads {t.what} back by {t.by}", READ_LESS, is_call=True)
    sent = [t for t in transfers.of("host to device") if t.what.startswith("NumPy ") and not t.what.endswith("[]")]
    for t in sent[:5]:
        yield _transferred(t, f"sends {t.what} to the device for {t.by}", MAKE_ONCE, is_call=True)


@implicit_transfers.in_program
def _reads_of_program(e: ProgramEvidence) -> Iterable[Match]:
    if e.transfers is None or "device to host" not in e.transfers.sees:
        raise NotMeasured("transfers to the host cannot be seen in this JAX")
    lines = {(line.where, line.by): line for line in wait_lines(e.log, "read")}
    least = max(MANY_READS, READS_PER_CALL * e.log.counts["call"])
    for t in e.transfers.of("device to host"):
        line = lines.get((t.where or "", t.by))
        # Reads one after another, as of all results at the end, wait once.
        if t.count - t.in_a_row >= least and (line is None or is_costly(line, READ_SHARE)):
            yield _transferred(t, f"reads {t.what} back by {t.by}", READ_LESS, is_package=_is_package(e, t))


def is_costly(line: WaitLine, share: float) -> bool:
    """Could the steps of a line be shorter without its waits, by this share?"""
    return line.steps > 0 and line.gain_s >= share * line.stepped_s


def _is_package(e: ProgramEvidence, t: ObservedTransfer) -> bool:
    """Does a package, which a line of yours calls, read the value and make all calls of jitted functions there?"""
    calls = [line for line in e.lines if line.where == t.where]
    return bool(calls) and all(line.by_package == line.count for line in calls)


def _watch_call(e: Evidence) -> Transfers:
    # What compiles is called so, for then constants are part of the program.
    call = e.prepared.program.call if e.failure is None else e.fn
    try:
        _call_once(call, e)  # transfers while it compiles are no part of a call
        with watch_transfers() as transfers:
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
        title, seen, OF_PACKAGE if is_package else advice, where=where_of(t.where), gain=gain,
        severity="info" if is_package else None,
    )  # fmt: skip


# ---- puts -------------------------------------------------------------------------------------------------------


@rule(
    "repeated-device-put",
    "is data that stays the same put on the device once?",
    "warning",
    of="program",
    advice="Put it there once, before the loop, and keep what that returns: every call can take the array on the "
    "device.",
)
def repeated_device_put(e: ProgramEvidence) -> Iterable[Match]:
    # The first time it has to be put there; an array that is overwritten in place is other data.
    repeats = puts_by_place(event for event in e.log.of("put") if event.note.is_repeat).values()
    often = (events for events in repeats if len(events) >= OFTEN)
    by_line = grouped(often, lambda events: (events[0].where, events[0].by))
    for (where, by), groups in sorted(by_line.items(), key=lambda one: -sum(_elapsed(g) for g in one[1])):
        groups.sort(key=lambda events: -_bytes(events))
        what, lost_s = groups[0][0].note.place.what, sum(map(_elapsed, groups))
        more = f" and {len(groups) - 1} more" if len(groups) > 1 else ""
        wall_s = e.watch.wall_s
        of_run = f" of {seconds(wall_s)} ({percent(lost_s / wall_s)})" if wall_s else ""
        # Python hands the copy over and goes on, so that its own time is a lower bound.
        lost_s = max(lost_s, sum(map(_bytes, groups)) / RATE)
        yield Match(
            f"{by} puts the same {what}{more} on the device {count(len(groups[0]) + 1)} times",
            [*list_some([_repeated(g) for g in groups]), f"the host spent {seconds(lost_s)}{of_run} in these"],
            where=where_of(where),
            related=callers_of(where_of(where)),
            gain=Gain(f"estimated: {seconds(lost_s)} of this run, which the host spent in them"),
            severity="warning" if grade(lost_s, wall_s) == "warning" else "info",
        )


def puts_by_place(events: Iterable[Event]) -> dict[tuple[str, str, Any], list[Event]]:
    return grouped(events, lambda event: (event.where, event.by, event.note.place))


def _elapsed(events: Iterable[Event]) -> float:
    return sum(event.elapsed_s for event in events)


def _bytes(events: Iterable[Event]) -> int:
    return sum(event.size for event in events)


def _repeated(events: list[Event]) -> str:
    copies = sum(event.note.is_new_object for event in events)
    new = f", {count(copies)} times in a new array" if copies else ""
    what = events[0].note.place.what
    same = f"{count(len(events))} times {what} had the contents of the time before, by a sample of it"
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
    groups = grouped(e.log.of("list"), lambda event: (event.where, event.by))
    for (where, by), events in sorted(groups.items(), key=lambda one: -_elapsed(one[1])):
        n, lost_s, elements = len(events), _elapsed(events), sum(event.size for event in events)
        if n >= OFTEN and elements >= LONG * n:
            yield Match(
                f"{by} makes arrays of lists of {count(elements // n)} Python numbers",
                [f"{count(n)} times, in which the host spent {seconds(lost_s)}: it looks at each number"],
                where=where_of(where),
                gain=Gain(f"estimated: at most {seconds(lost_s)} of this run, which the host spent in them"),
                lost=(lost_s, e.watch.wall_s),
            )


@rule(
    "rounded-inputs",
    "are numbers that differ still different on the device?",
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
    yield from (_rounded(one) for one in lost if one)


@rounded_inputs.in_program
def _rounded_in_program(e: ProgramEvidence) -> Iterable[Match]:
    for event in {event.where: event for event in e.log.of("rounded")}.values():
        yield _rounded(event.note, where_of(event.where))


def _rounded(lost: LostDigits, where: Where | None = None) -> Match:
    before, after = short_dtype(lost.from_dtype), short_dtype(lost.to_dtype)
    if lost.to_dtype.startswith("int"):
        title = f"numbers in {before} wrap around in {after}"
    else:
        title = f"{lost.distinct} different numbers in {before} are {lost.left} in {after}"
    return Match(title, lost.sentences, where=where)


# ---- texts ------------------------------------------------------------------------------------------------------


READ_LESS = (
    "The host waits there for the device. Keep the value on the device (jnp.where, jax.lax.cond), or read it less "
    "often: every hundredth step, or once at the end with jax.device_get."
)
OF_PACKAGE = (
    "Ask the package not to, or less often: mostly it shows progress, as by progress_bar=True, or calls what you gave "
    "it after each step."
)
MAKE_ONCE = "Make the array once and on the device, outside of the calls: jnp.asarray(...), or jax.device_put."
