"""Makes the remarks on the numbers: facts that a reader must know before believing or quoting them.

Each looks at the record of one measurement. Codes are stable. A remark states measured facts, and never guesses about
the user's code.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import jax

from benchax.environment import count_cores, jax_config
from benchax.machine.noise import BUSY_SHARE, STEAL_SHARE
from benchax.measuring.prepare import Prepared
from benchax.measuring.record import Record
from benchax.measuring.state import CallOutcome, label
from benchax.measuring.timers.base import FRESH_COPIES, Subject
from benchax.model import CallFloor, Measurement, Noise, Remark, Severity
from benchax.printable import list_some
from benchax.program.compiled import INLINE_FLOPS
from benchax.program.hlo import aliased_parameters, entry_uses_parameters, opaque_calls
from benchax.program.index import index
from benchax.program.jaxpr import every_equation, nested_in, user_line
from benchax.program.work import least_operations
from benchax.static_leaves import find_hidden
from benchax.stats.summary import Summary
from benchax.units import count, percent, plural, seconds, size

FOLDED_SHARE = 0.01
CALLBACKS = {
    "debug_print": "jax.debug.print",
    "debug_callback": "jax.debug.callback",
    "pure_callback": "jax.pure_callback",
    "io_callback": "io_callback",
}
"""By the name of the primitive. Before JAX 0.8, jax.debug.print is a jax.debug.callback."""
MAPPED_BYTES = 32 * 2**20
"""From here up glibc maps every allocation afresh: 20-44 GB/s became 1.6-2.7 GB/s for `x + 1` on CPU."""
COARSE_SHARE = 0.01
HANDOVER_LIMIT_S = 200e-6
UNEVEN = 1.5
"""The mean of calls in a row over the shortest call, above which the remark appears. If every third call has to wake a
thread, calls of 14 and 57 µs have a mean of 28."""


def remarks(record: Record, prepared: Prepared, subject: Subject, examines: bool = True) -> tuple[Remark, ...]:
    """All that apply, errors first.

    Args:
        examines: is the function looked at more closely (`CaseSampler.examines`)?
    """
    times = CallTimes({s.timer: s.summary for s in record.samples}, record.stages.call_floor)
    return _sort(
        [
            *_of_result(record, subject),
            *_of_devices(record, prepared),
            describe_recompiling(record.compiles, "the function"),
            *_of_inputs(record, subject),
            folded(record, prepared, subject, examines),
            *_of_purity(record, subject),
            *_of_program(record, prepared, subject),
            describe_busy(record.noise or Noise()),
            *_of_times(record, prepared, times),
            *compare(times),
        ]
    )


def renew(m: Measurement) -> Measurement:
    """The row with the remarks that compare its times made again: further processes have changed the times."""
    times = CallTimes({samples.timer: m.summary(samples.timer) for samples in m.samples}, m.stages.call_floor)
    redundant = CODES + (("inline-limit",) if call_overhead(times) else ())
    kept = (remark for remark in m.remarks if remark.code not in redundant)
    return replace(m, remarks=_sort([*kept, *compare(times)]))


def _sort(found: Iterable[Remark | None]) -> tuple[Remark, ...]:
    order: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted((remark for remark in found if remark), key=lambda remark: order[remark.severity]))


# ---- the function: what it was given, what it computes and changes, and is it right? ---------------------------------


def _of_result(record: Record, subject: Subject) -> Iterator[Remark | None]:
    numerics, notes = record.numerics, record.notes
    if numerics is not None and not numerics.agrees:
        text = f"the compiled result differs from the {numerics.reference} one: {numerics.why}"
        yield Remark("wrong-result", "error", text)
    if notes.undecided:
        yield Remark("not-verified", "warning", f"the result was not verified: {notes.undecided}")
    yield describe_nonfinite_result(notes.nonfinite, "the result")
    if notes.returns_nothing and subject.program.kind != "eager":
        yield Remark(
            "no-outputs",
            "warning",
            "The function returns nothing, so there is nothing to check, and XLA removes all work without side "
            "effects. Return the result.",
        )
    if notes.dropped:
        yield Remark(
            "state-dropped",
            "error",
            f"called eagerly, it changes {_listed(notes.dropped)} in place; compiled, it neither changes it nor does "
            "the work for it. jax.jit treats objects of Flax NNX as trees of arrays: use flax.nnx.jit, or return the "
            "new state",
        )
    if notes.undetermined:
        yield Remark(
            "undetermined-state",
            "warning",
            f"{_listed(notes.undetermined)} cannot be verified: the compiled and the eager run differ by as much as "
            "rounding alone changes it. An optimizer that divides a gradient of zero by its own size does this",
        )


def describe_nonfinite_result(nonfinite: str, what: str) -> Remark | None:
    """None if all of it is finite.

    Args:
        nonfinite: as `numerics.describe_nonfinite` says it.
        what: whose values these are.
    """
    if not nonfinite:
        return None
    text = f"Not all values of {what} are finite ({nonfinite}); equal ones count as agreement. Check the inputs."
    return Remark("nonfinite-result", "warning", text)


def _of_devices(record: Record, prepared: Prepared) -> Iterator[Remark]:
    traced = prepared.traced
    found = [] if traced is None else list(every_equation(traced.jaxpr))
    called = [each for each in found if each.primitive.name in CALLBACKS]
    # A check of equinox or checkify calls Python in the branch of its error only.
    optional = {
        id(inside)
        for each in found
        if called and each.primitive.name in ("cond", "while")
        for program in nested_in(each)
        for inside in every_equation(program)
    }
    for is_optional, runs in (
        (False, "Each call runs Python on the host, and its time includes that"),
        (True, "A call that takes a certain branch or loop runs Python on the host, and its time includes that"),
    ):
        listed = [
            f"{CALLBACKS[e.primitive.name]} at {user_line(e)}" for e in called if (id(e) in optional) == is_optional
        ]
        if listed:
            yield Remark("host-callbacks", "warning", f"{runs}: {_listed(list(dict.fromkeys(listed)))}.")
    if record.devices is not None and record.devices.is_fake:
        cores = plural(count_cores(), "core")
        yield Remark(
            "fake-devices",
            "warning",
            f"{record.devices.count} fake devices share {cores} of this CPU. Counts, bytes, and results match real "
            "devices. Times don't.",
        )


def _of_inputs(record: Record, subject: Subject) -> Iterator[Remark]:
    inputs, program, transfer = subject.inputs, subject.program, record.stages.transfer_in
    if inputs.numpy_bytes:
        moved = f", {seconds(transfer.median_s)} here," if transfer else ""
        verb = "hands them over without a copy" if transfer and transfer.is_zero_copy else "transfers them"
        yield Remark(
            "numpy-inputs",
            "warning",
            f"inputs of {size(inputs.numpy_bytes)} came as NumPy arrays and were put on the device once, before "
            f"timing; a call with NumPy arrays {verb}{moved} every time",
        )
    if inputs.narrowed:
        text = f"inputs were narrowed from {', '.join(inputs.narrowed)}: JAX's 64-bit mode (jax_enable_x64) is off"
        yield Remark("narrowed", "warning", text)
    if program.kind == "eager":
        return
    if not subject.dynamic_leaves:
        yield Remark(
            "no-inputs",
            "warning",
            "the function takes no arrays, so XLA can compute its result while compiling: pass the data as arguments",
        )
    if not program.was_jitted:
        hidden = [label(path, inputs.labels) for path in find_hidden((inputs.args, inputs.kwargs))]
        static = f" with static {_listed(hidden)}" if hidden else ""
        yield Remark(
            "not-jitted",
            "info",
            f"You passed an unjitted function, so benchax measured {program.jitted_by}(f){static}. To measure it "
            "without jit, use --no-jit (jit=False).",
        )


def folded(record: Record, prepared: Prepared, subject: Subject, examines: bool) -> Remark | None:
    """The compiled program does almost none of the written work: XLA folded it into constants, or it is unused.

    A first look compares XLA's count of the compiled program with the work of the trace. The remark counts both texts
    in the same way.
    """
    hlo, cost = prepared.hlo, record.cost
    if not subject.dynamic_leaves or not hlo or record.notes.returns_nothing or (cost and cost.has_loops):
        return None
    if entry_uses_parameters(hlo) is False:
        return Remark(
            "folded",
            "warning",
            "the compiled program does not depend on its inputs: it was folded into a constant, or computes the same "
            "in every call",
        )
    if not examines or prepared.lowered is None:
        return None
    written = index(prepared.traced.jaxpr).body.work if prepared.traced else math.inf
    is_done = cost and cost.flops and cost.flops >= FOLDED_SHARE * written
    # Library calls are opaque.
    if written < INLINE_FLOPS or is_done or opaque_calls(hlo):
        return None
    # To print the program as written, and to count its operations, takes 3 ms and more.
    before, after = least_operations(prepared.lowered.as_text(dialect="hlo")), least_operations(hlo)
    if before is None or after is None or before < INLINE_FLOPS or after >= FOLDED_SHARE * before:
        return None
    return Remark(
        "folded",
        "warning",
        f"of {count(before, 'FLOP')} written, {count(after, 'FLOP')} are left in the compiled program: the rest was "
        "computed when it was compiled, or its results are not used",
    )


def _of_purity(record: Record, subject: Subject) -> Iterator[Remark]:
    purity = record.purity
    if purity.difference:
        yield Remark(
            "impure",
            "error",
            f"Two traces of the function differ: {purity.difference}. It reads a value that changes on its own (random "
            "numbers of Python or NumPy, the time, a counter), and a compiled program keeps the first value. Pass such "
            "values as arguments.",
        )
    if purity.clock_reads:
        yield Remark(
            "reads-clock",
            "warning",
            f"it reads the clock while it is traced ({_listed(purity.clock_reads)}), and the program keeps the first "
            "reading. Pass the time as an argument; to time a part of it, use benchax.clock",
        )
    if purity.changed:
        listed = _listed([f"{name!r} ({change})" for name, change in purity.changed.items()])
        yield Remark(
            "changed-by-tracing",
            "info",
            f"each trace changes {listed}, and a compiled call does not: Python does this only when the program is "
            "built",
        )
    if isinstance(subject.outputs, CallOutcome) and subject.outputs.state:
        yield Remark(
            "stateful",
            "info",
            f"each call changes {_listed([*subject.outputs.state])} in place: every timer times these changes with the "
            "outputs, and every call starts from the same values",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(list_some(names, 3))


def _of_program(record: Record, prepared: Prepared, subject: Subject) -> Iterator[Remark]:
    biggest = max(subject.output_bytes, record.memory.temp_bytes or 0)
    if biggest >= MAPPED_BYTES and jax.default_backend() == "cpu" and platform.libc_ver()[0] == "glibc":
        is_output = biggest == subject.output_bytes
        what = "outputs" if is_output else "temporaries"
        advice = "; donating an input of that size avoids it" if is_output else ""
        yield Remark(
            "page-faults",
            "warning",
            f"{what} of {size(biggest)}: arrays from {size(MAPPED_BYTES)} up are mapped and page-faulted in every "
            f"call on CPU, which can be most of the time{advice}",
        )
    if prepared.donated and prepared.hlo and not aliased_parameters(prepared.hlo):
        yield Remark(
            "donation-unused",
            "warning",
            "a donated argument was not used: no output has its shape, dtype and layout, so nothing was saved",
        )
    if record.cost and record.cost.has_loops and record.cost.flops is not None:
        yield Remark(
            "loop-counted-once",
            "info",
            "operations and bytes count the body of each scan, fori_loop or while_loop once, however often it runs",
        )


# ---- what is in the times besides the function, and what disturbed them ----------------------------------------------


def describe_recompiling(programs: int, what: str) -> Remark | None:
    """None if no program was compiled while `what` was being timed."""
    if not programs:
        return None
    return Remark(
        "recompiled",
        "error",
        f"{programs} program{'s were' if programs > 1 else ' was'} compiled while {what} was being timed: the times "
        "contain compiling. The usual reason: a shape, dtype, static value or function object changes from call to "
        "call.",
    )


def describe_busy(noise: Noise) -> Remark | None:
    """None if the machine was idle, or its load is not known."""
    others, steal = noise.others_share or 0.0, noise.steal_share or 0.0
    parts = [f"other processes used {percent(others)} of the CPU"] if others > BUSY_SHARE else []
    parts += [f"the hypervisor took {percent(steal)}"] if steal > STEAL_SHARE else []
    if not parts:
        return None
    return Remark("busy", "warning", f"the machine was busy: {' and '.join(parts)}. benchax doctor says more.")


def _of_times(record: Record, prepared: Prepared, times: CallTimes) -> Iterator[Remark]:
    warmup, wall = record.warmup, times.summaries.get("wall")
    if not warmup.is_steady and len(warmup.windows_s) >= 2:
        yield Remark(
            "not-steady",
            "warning",
            f"still changing after {warmup.calls} warm-up calls ({warmup.compiles} of them compiled): the first "
            "samples may be slower than the last",
        )
    inline_flops = prepared.inline_flops or 0.0
    is_async = jax_config(jax.config).get("jax_cpu_enable_async_dispatch", True) is not False
    is_handed_over = inline_flops >= INLINE_FLOPS and is_async and jax.default_backend() == "cpu"
    if wall is not None and wall.median_s <= HANDOVER_LIMIT_S and is_handed_over:
        yield from _of_handing_over(record, times, wall, inline_flops)
    coarse = [(s, s.summary.median_s * s.iterations) for s in record.samples]
    for s, sample_s in coarse:
        if s.resolution_s and 0 < sample_s < s.resolution_s / COARSE_SHARE:
            text = f"the clock steps by {seconds(s.resolution_s)}, more than 1 % of a sample of {s.timer} "
            yield Remark("coarse-clock", "warning", f"{text}({seconds(sample_s)})")
            break
    if timers := [s.timer for s in record.samples if s.regime == FRESH_COPIES]:
        yield Remark(
            "fresh-copies",
            "info",
            f"{' and '.join(timers)} gave each call fresh copies of the arguments that it donates, which no cache "
            "holds. The outputs can't be fed back: they don't fit, don't stay finite, or change how long the next call "
            "takes (a sort, a branch, an open loop). A loop that keeps its data in a cache takes less.",
        )


def _of_handing_over(record: Record, times: CallTimes, wall: Summary, inline_flops: float) -> Iterator[Remark]:
    if not call_overhead(times):  # which says already what a call costs
        yield Remark(
            "inline-limit",
            "info",
            f"XLA:CPU runs this program in its thread pool: it has {count(inline_flops, 'FLOP')}. Below {INLINE_FLOPS} "
            "FLOP, it runs on the calling thread, and a call costs less.",
        )
    # The evidence is the shortest single call among those before and between the samples.
    floor = times.floor
    shortest_s = min([record.warmup.least_s or wall.median_s, *(floor.call_s if floor else ())])
    if wall.median_s >= UNEVEN * shortest_s:
        yield Remark(
            "uneven-calls",
            "info",
            f"The shortest call took {seconds(shortest_s)}, wall ({seconds(wall.median_s)}) is a mean of calls. "
            "XLA:CPU dispatches each call to a thread pool, where some calls wait until a thread wakes.",
        )


# ---- the times of one row: what a call costs besides its work, and where they contradict -----------------------------
#
# They use the numbers in the row, so they are computed again when further processes have changed these (`renew`).


CODES = (
    "dispatch-bound", "resident-far-below-wall", "more-than-a-call", "one-at-a-time", "timers-apart", "no-interval",
)  # fmt: skip
"""The codes of the remarks that are made here."""
DISPATCH_SHARE = 0.5
CONTRADICTION = 1.1
PARTS_APART = 1.1
"""A call over its known parts, from where the rest is worth a word: the 1,338 operations of `blackjax.nuts` take
24 µs to start, of a call of 77."""
PARTS_APART_WITHOUT_FLOOR = 1.5
LARGEST_FLOOR_S = 100e-6
"""The floor of most calls is below this; used if it was not measured."""
PARTS_FAR_APART = 3
APART = 1.05
APART_REASONS = {
    "loop": "a reading of loop is a difference of two, which holds every preemption",
    "device": "threads that share the work sleep between the calls that device records, and are awake in a repetition",
}
"""Timer → why it may disagree with another one."""


@dataclass(frozen=True)
class CallTimes:
    """The times that a row shows."""

    summaries: Mapping[str, Summary]
    """Seconds per call, by timer."""
    floor: CallFloor | None

    def first_of(self, *timers: str) -> tuple[str, Summary] | None:
        """The first of these timers that there is, with its summary."""
        return next(((name, self.summaries[name]) for name in timers if name in self.summaries), None)


def compare(t: CallTimes) -> tuple[Remark | None, ...]:
    """All of these remarks; None for each that doesn't apply. Two that say the same never come together."""
    return call_overhead(t), more_than_a_call(t) or one_at_a_time(t), timers_apart(t), no_interval(t)


def call_overhead(t: CallTimes) -> Remark | None:
    return dispatch_bound(t) or resident_far_below_wall(t)


def dispatch_bound(t: CallTimes) -> Remark | None:
    """The evidence is the floor, measured alternately with calls of the function: medians taken one after the other
    differ by what the machine did."""
    wall, floor = t.summaries.get("wall"), t.floor
    if not wall or not floor or min(floor.share, floor.median_s / wall.median_s) < DISPATCH_SHARE:
        return None
    cost = f"an empty call takes {seconds(floor.median_s)} here (call floor), yours {seconds(wall.median_s)}"
    if floor.median_s >= wall.median_s:  # the two medians come from different moments
        each = f"call floor {seconds(floor.median_s)}, wall {seconds(wall.median_s)}"
        cost = f"an empty call takes as long as yours ({each})"
    return Remark(
        "dispatch-bound",
        "warning",
        f"Most of wall is the cost of a call: {cost}. Inside a bigger program, you don't pay that on each call.",
    )


def resident_far_below_wall(t: CallTimes) -> Remark | None:
    """The evidence is the least of the calls, which load does not raise."""
    wall, resident, floor = t.summaries.get("wall"), t.first_of("in_graph", "loop", "device"), t.floor
    if not wall or not resident:
        return None
    name, part = resident
    least_floor_s, floor_s = (min(floor.elapsed_s), floor.median_s) if floor else (LARGEST_FLOOR_S, LARGEST_FLOOR_S)
    excess = wall.median_s / (part.median_s + floor_s)
    least = min(excess, (wall.min_s or wall.median_s) / (part.median_s + least_floor_s))
    if least < (PARTS_APART if floor else PARTS_APART_WITHOUT_FLOOR):
        return None
    cost = f"the call floor ({seconds(floor_s)})" if floor else "the cost of a call"
    return Remark(
        "resident-far-below-wall",
        "warning" if excess > PARTS_FAR_APART else "info",
        f"wall ({seconds(wall.median_s)}) exceeds {name} ({seconds(part.median_s)}) plus {cost}. Known causes: Python "
        "in a wrapper, starting a program of many operations, allocating outputs, and waiting for worker threads. For "
        "call latency, use wall.",
    )


def more_than_a_call(t: CallTimes) -> Remark | None:
    """Part of a call cannot take longer than the call: then it was another machine, or another program."""
    wall = t.summaries.get("wall")
    above = [
        f"{name} ({seconds(part.median_s)})"
        for name, part in t.summaries.items()
        if name in ("device", "in_graph", "loop")
        and wall
        and (part.low_s or part.median_s) > CONTRADICTION * (wall.high_s or wall.median_s)
    ]
    if not wall or not above:
        return None
    return Remark(
        "more-than-a-call",
        "warning",
        f"wall ({seconds(wall.median_s)}) is shorter than {' and '.join(above)}, which a call contains. Either the "
        "machine changed its speed between the timers, or XLA compiles the function differently in their programs. "
        "Measure again.",
    )


def one_at_a_time(t: CallTimes) -> Remark | None:
    """Recorded runs are calls with Python in between; repetitions of the other timers follow without a pause."""
    device, resident = t.summaries.get("device"), t.first_of("in_graph", "loop")
    if not device or not resident or (device.low_s or device.median_s) < APART * resident[1].median_s:
        return None
    name, part = resident
    return Remark(
        "one-at-a-time",
        "info",
        f"device ({seconds(device.median_s)}) records runs one at a time, with Python in between. Without a pause, a "
        f"run takes {seconds(part.median_s)} ({name}).",
    )


def timers_apart(t: CallTimes) -> Remark | None:
    """Timers of the same work whose intervals don't meet. If `device` reads more, `one_at_a_time` says so."""
    found = [(name, t.summaries[name]) for name in ("in_graph", "loop", "device") if name in t.summaries]
    apart = [
        ((low, high), f"{low} ({seconds(below.median_s)}) reads less than {high} ({seconds(above.median_s)})")
        for (low, below), (high, above) in permutations(found, 2)
        if high != "device" and APART * (below.high_s or below.median_s) < (above.low_s or above.median_s)
    ]
    if not apart:
        return None
    timers = {timer for pair, _ in apart for timer in pair}
    reasons = [why for timer, why in APART_REASONS.items() if timer in timers]
    return Remark(
        "timers-apart",
        "warning",
        f"{' and '.join(text for _, text in apart)} for the same work. Known reasons: the machine changes its pace "
        f"between timers; {'; '.join(reasons)}. Measure again, and trust what repeats.",
    )


def no_interval(t: CallTimes) -> Remark | None:
    # The line of the pipelined timer says so itself, and people rarely quote it.
    timers = [name for name, summary in t.summaries.items() if summary.low_s is None and name != "pipelined"]
    if not timers:
        return None
    return Remark(
        "no-interval",
        "warning",
        f"The median of {' and '.join(timers)} has no interval: the readings are too few, or the machine kept changing "
        "its pace. Take more readings: --max-time, --processes 5, or more trials of a grid.",
    )
