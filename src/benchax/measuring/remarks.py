"""The sentences that belong beside the numbers: what a reader must know before believing or quoting them.

Each rule looks at the evidence of one measurement and says one thing or nothing. A new one is one function, listed in
RULES. Codes are stable. What each says is measured, never a guess about the user's code.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchax.measuring.inputs import Inputs
from benchax.measuring.noise import BUSY_SHARE, STEAL_SHARE
from benchax.measuring.program import CallableProgram
from benchax.measuring.purity import Purity
from benchax.measuring.sampling import Warmup
from benchax.measuring.stages import BuiltProgram
from benchax.measuring.verification import Notes
from benchax.model import Cost, Memory, Noise, Numerics, Remark, Samples, Severity, Stages
from benchax.program.cost import INLINE_FLOPS
from benchax.program.counts import least_operations
from benchax.program.hlo import aliased_parameters, entry_uses_parameters, opaque_calls
from benchax.stats.summary import Summary
from benchax.units import count, percent, seconds, size

MAPPED_BYTES = 32 * 2**20
"""From here up glibc maps every allocation afresh: 20-44 GB/s became 1.6-2.7 GB/s for `x + 1` on CPU."""
UNUSED_INPUTS = (
    "the compiled program does not depend on its inputs: it was folded into a constant, or computes the same in "
    "every call"
)
DISPATCH_SHARE = 0.5
SHARE_APART = 0.05
"""Shares by medians and by least readings that differ by less are one."""
COARSE_SHARE = 0.01
FOLDED_SHARE = 0.01
HANDOVER_LIMIT_S = 200e-6
SLOPE_LIMIT_S = 1e-3
CONTRADICTION = 1.1
PARTS_APART = 1.1
"""A call over its known parts, from where the rest is worth a word: the 1,338 operations of `blackjax.nuts` take
24 µs to start, of a call of 77."""
PARTS_APART_WITHOUT_FLOOR = 1.5
"""Where the cost of calling, some 10 µs, is in the rest."""
PARTS_FAR_APART = 3
APART = 1.05


@dataclass(frozen=True)
class RowEvidence:
    """Everything that was learnt about one case."""

    platform: str
    program: CallableProgram
    inputs: Inputs
    built: BuiltProgram
    stages: Stages
    samples: tuple[Samples, ...]
    warmup: Warmup
    compiles_while_timed: int
    has_data: bool
    """Is the compiled program given anything at run time?"""
    output_bytes: int
    memory: Memory
    cost: Cost | None
    count_written_flops: Callable[[], float | None]
    """XLA's count of the program as it was lowered: 2.4 ms, where a rule asks for it."""
    inline_flops: float | None
    hlo: str
    numerics: Numerics | None
    noise: Noise
    mutated: tuple[str, ...] = ()
    """What each call changes in place, by name."""
    notes: Notes = field(default_factory=Notes)
    """What verification saw of it."""
    purity: Purity = field(default_factory=Purity)
    undecided: str = ""
    """Why it cannot be told whether the compiled result is right; empty where it can."""
    is_dispatch_async: bool = True
    """Does JAX hand big programs to another thread on CPU (jax_cpu_enable_async_dispatch)?"""
    has_glibc: bool = True

    def written_hlo(self) -> str:
        """The program before XLA optimised it; empty where it cannot be had."""
        return self.built.lowered.as_text(dialect="hlo") if self.built.lowered is not None else ""

    def summary(self, timer: str) -> Summary | None:
        return next((s.summary for s in self.samples if s.timer == timer), None)


def remarks(evidence: RowEvidence) -> tuple[Remark, ...]:
    """All that apply, errors first."""
    found = [remark for rule in RULES if (remark := rule(evidence))]
    order: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda remark: order[remark.severity]))


def wrong_result(e: RowEvidence) -> Remark | None:
    if e.numerics is None or e.numerics.agrees:
        return None
    reference = {"eager": "eager", "float64": "float64"}[e.numerics.reference]
    return Remark("wrong-result", "error", f"the compiled result differs from the {reference} one: {e.numerics.why}")


def not_verified(e: RowEvidence) -> Remark | None:
    return Remark("not-verified", "warning", f"the result was not verified: {e.undecided}") if e.undecided else None


def recompiled(e: RowEvidence) -> Remark | None:
    n = e.compiles_while_timed
    if not n:
        return None
    return Remark(
        "recompiled",
        "error",
        f"{n} program{'s were' if n > 1 else ' was'} compiled while the function was being timed: the times contain "
        "compiling. The usual reason: a shape, dtype, static value or function object changes from call to call.",
    )


def not_steady(e: RowEvidence) -> Remark | None:
    if e.warmup.is_steady or len(e.warmup.windows_s) < 2:
        return None
    return Remark(
        "not-steady",
        "warning",
        f"still changing after {e.warmup.calls} warm-up calls ({e.warmup.compiles} of them compiled): the first "
        "samples may be slower than the last",
    )


def numpy_inputs(e: RowEvidence) -> Remark | None:
    if not e.inputs.numpy_bytes:
        return None
    transfer = e.stages.transfer_in
    moved = f", {seconds(transfer.median_s)} here," if transfer else ""
    verb = "hands them over without a copy" if transfer and transfer.is_zero_copy else "transfers them"
    return Remark(
        "numpy-inputs",
        "warning",
        f"inputs of {size(e.inputs.numpy_bytes)} came as NumPy arrays and were put on the device once, before "
        f"timing; a call with NumPy arrays {verb}{moved} every time",
    )


def narrowed(e: RowEvidence) -> Remark | None:
    if not e.inputs.narrowed:
        return None
    what = ", ".join(e.inputs.narrowed)
    return Remark("narrowed", "warning", f"inputs were narrowed from {what}: JAX's 64-bit mode (jax_enable_x64) is off")


def no_inputs(e: RowEvidence) -> Remark | None:
    if e.has_data or e.program.kind == "eager":
        return None
    return Remark(
        "no-inputs",
        "warning",
        "the function takes no arrays, so all that it computes is known when it is compiled and XLA may fold it "
        "into a constant: pass the data as arguments",
    )


def folded(e: RowEvidence) -> Remark | None:
    """The compiled program does next to nothing of what was written: folded into constants, or unused.

    XLA's counts are a first look: they take a cumulative sum of n for n² operations as it is written, and for n as it
    is compiled. What is said rests on one count of ours, of both texts.
    """
    if not e.has_data or not e.hlo or (e.cost and e.cost.has_loops):
        return None
    if entry_uses_parameters(e.hlo) is False:
        return Remark("folded", "warning", UNUSED_INPUTS)
    written, left = e.count_written_flops(), e.cost.flops if e.cost else None
    # Nobody can look into the calls of libraries; a program of transcendentals alone has no FLOPs by XLA's count.
    if not written or written < INLINE_FLOPS or (left or 0.0) >= FOLDED_SHARE * written or opaque_calls(e.hlo):
        return None
    before, after = least_operations(e.written_hlo()), least_operations(e.hlo)
    if before is None or after is None or before < INLINE_FLOPS or after >= FOLDED_SHARE * before:
        return None
    return Remark(
        "folded",
        "warning",
        f"of {count(before, 'FLOP')} written, {count(after, 'FLOP')} are left in the compiled program: the rest was "
        "computed when it was compiled, or its results are not used",
    )


def not_jitted(e: RowEvidence) -> Remark | None:
    if e.program.was_jitted or e.program.kind == "eager":
        return None
    return Remark(
        "not-jitted",
        "info",
        f"given without jit and measured as {e.program.jitted_by}(f); --no-jit (jit=False) measures the call as it "
        "stands and says from how many calls on compiling pays",
    )


def impure(e: RowEvidence) -> Remark | None:
    if not e.purity.difference:
        return None
    return Remark(
        "impure",
        "error",
        f"two traces of it differ: {e.purity.difference}. It reads something that changes by itself (random numbers of "
        "Python or NumPy, the time, a counter), of which each compiled program keeps what it read first: pass such "
        "values as arguments",
    )


def reads_clock(e: RowEvidence) -> Remark | None:
    if not e.purity.clock_reads:
        return None
    return Remark(
        "reads-clock",
        "warning",
        f"it reads the clock while it is traced ({_listed(e.purity.clock_reads)}), and a compiled call does not: the "
        "program keeps what was read first. Pass the time as an argument; to time a part of it, use benchax.clock",
    )


def changed_by_tracing(e: RowEvidence) -> Remark | None:
    if not e.purity.changed:
        return None
    listed = _listed([f"{name!r} ({change})" for name, change in e.purity.changed.items()])
    return Remark(
        "changed-by-tracing",
        "info",
        f"each trace changes {listed}, and a compiled call does not: what Python does there is done when it is built",
    )


def stateful(e: RowEvidence) -> Remark | None:
    if not e.mutated:
        return None
    return Remark(
        "stateful",
        "info",
        f"each call changes {_listed(e.mutated)} in place: every timer times these changes with the outputs, and every "
        "call starts from the same values",
    )


def state_dropped(e: RowEvidence) -> Remark | None:
    if not e.notes.dropped:
        return None
    return Remark(
        "state-dropped",
        "error",
        f"called eagerly, it changes {_listed(e.notes.dropped)} in place; compiled, it does not, and neither does it "
        "do the work that leads there. jax.jit takes objects of Flax NNX for trees of arrays: use flax.nnx.jit, or "
        "return the new state",
    )


def undetermined_state(e: RowEvidence) -> Remark | None:
    if not e.notes.undetermined:
        return None
    return Remark(
        "undetermined-state",
        "warning",
        f"{_listed(e.notes.undetermined)} cannot be verified: the compiled and the eager run differ, and by as "
        "much as rounding alone changes it. So it is where an optimizer divides a gradient of zero by its own size",
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def dispatch_bound(e: RowEvidence) -> Remark | None:
    """By the floor, in turns with calls of the function: medians taken apart differ by what the machine did."""
    floor = e.stages.call_floor
    if not floor or floor.share < DISPATCH_SHARE:
        return None
    each, call, of = floor.median_s, floor.median_call_s, "your"
    if floor.share < each / call - SHARE_APART:  # then the share is that of the least readings
        each, call, of = min(floor.elapsed_s), min(floor.call_s), "your shortest,"
    shown = seconds(call, 2)
    share = f"{percent(floor.share)} of {of} {shown}" if floor.share < 1 else f"as long as yours ({shown})"
    return Remark(
        "dispatch-bound",
        "warning",
        f"a call that does next to nothing takes {seconds(each, 2)} here; that is {share}. Inside a bigger program, or "
        "with more work in each call, this is not paid each time",
    )


def resident_far_below_wall(e: RowEvidence) -> Remark | None:
    """By the least of the calls, which load does not raise; of short ones only where it is known what calling costs,
    or that a wrapper's Python is part of it."""
    wall = e.summary("wall")
    name, resident = next(((n, s) for n in ("in_graph", "loop", "device") if (s := e.summary(n))), ("", None))
    floor = e.stages.call_floor
    least_s = (wall.min_s or wall.median_s) if wall else 0.0
    if not wall or not resident or (least_s < SLOPE_LIMIT_S and not floor and not _has_wrapper(e)):
        return None
    floor_s = min(floor.elapsed_s) if floor else 0.0
    parts = least_s / (resident.median_s + floor_s)
    if parts < (PARTS_APART if floor else PARTS_APART_WITHOUT_FLOOR):
        return None
    where = "the device runs it for" if name == "device" else "repeated inside one program it takes"
    nothing = f", and a call that does next to nothing at least {seconds(floor_s, 2)}" if floor else ""
    return Remark(
        "resident-far-below-wall",
        "warning" if parts > PARTS_FAR_APART else "info",
        f"{where} {seconds(resident.median_s)} ({name}){nothing}; no call took less than "
        f"{seconds(least_s)}. Reasons that are known: {_wrapper(e)}the start of a program of many operations, "
        "outputs, which only a call allocates anew, and work that a call shares among threads and waits for. A call "
        "costs what wall says",
    )


def _wrapper(e: RowEvidence) -> str:
    """A wrapper's own Python can be most of a call: flax.nnx.jit takes 0.2 to 3 ms for a small model and Adam, and
    equinox.filter_jit 30 µs for a layer of 15."""
    return "the Python of the wrapper around it, " if _has_wrapper(e) else ""


def _has_wrapper(e: RowEvidence) -> bool:
    return e.inputs.is_stateful or e.program.kind == "wrapper"


def more_than_a_call(e: RowEvidence) -> Remark | None:
    """Part of a call cannot take longer than the call: then it was another machine, or another program."""
    wall = e.summary("wall")
    if not wall:
        return None
    parts = [(s.timer, s.summary) for s in e.samples if s.timer in ("device", "in_graph", "loop")]
    above = [
        (name, part)
        for name, part in parts
        if (part.low_s or part.median_s) > CONTRADICTION * (wall.high_s or wall.median_s)
    ]
    if not above:
        return None
    listed = " and ".join(f"{name} reads {seconds(part.median_s)}" for name, part in above)
    return Remark(
        "more-than-a-call",
        "warning",
        f"{listed}, which is a part of the {seconds(wall.median_s)} of a whole call. Either the machine changed its "
        "speed between the timers (threads that share a core at times, or a neighbour), or XLA compiles the function "
        "in another way inside their programs; these readings do not tell which. Measure again",
    )


def one_at_a_time(e: RowEvidence) -> Remark | None:
    """Recorded runs are calls with Python in between; repetitions of the other timers follow without a pause."""
    device = e.summary("device")
    name, resident = next(((n, s) for n in ("in_graph", "loop") if (s := e.summary(n))), ("", None))
    if not device or not resident or (device.low_s or device.median_s) < APART * resident.median_s:
        return None
    return Remark(
        "one-at-a-time",
        "info",
        f"device reads {seconds(device.median_s)}, of runs that are recorded one at a time, with Python in between; "
        f"repeated without a pause the function takes {seconds(resident.median_s)} ({name})",
    )


def inline_limit(e: RowEvidence) -> Remark | None:
    wall = e.summary("wall")
    if e.platform != "cpu" or e.inline_flops is None or wall is None or wall.median_s > HANDOVER_LIMIT_S:
        return None
    if e.inline_flops < INLINE_FLOPS or not e.is_dispatch_async:
        return None
    floor = e.stages.call_floor
    cost = f": a call that does next to nothing there takes {seconds(floor.median_s, 2)} here" if floor else ""
    return Remark(
        "inline-limit",
        "info",
        f"{count(e.inline_flops, 'FLOP')} is at or above XLA:CPU's limit of {INLINE_FLOPS}, so each call is "
        f"dispatched to the thread pool{cost}; below the limit it would run on the calling thread",
    )


def page_faults(e: RowEvidence) -> Remark | None:
    biggest = max(e.output_bytes, e.memory.temp_bytes or 0)
    if e.platform != "cpu" or biggest < MAPPED_BYTES or not e.has_glibc:
        return None
    is_output = biggest == e.output_bytes
    what = "outputs" if is_output else "temporaries"
    advice = "; donating an input of that size avoids it" if is_output else ""
    return Remark(
        "page-faults",
        "warning",
        f"{what} of {size(biggest)}: arrays from {size(MAPPED_BYTES)} up are mapped and page-faulted anew in every "
        f"call on CPU, which can be most of the time{advice}",
    )


def donation_unused(e: RowEvidence) -> Remark | None:
    if not e.built.donates or not e.hlo or aliased_parameters(e.hlo):
        return None
    return Remark(
        "donation-unused",
        "warning",
        "a donated argument was not used: no output has its shape, dtype and layout, so nothing was saved",
    )


def loops_counted_once(e: RowEvidence) -> Remark | None:
    if not e.cost or not e.cost.has_loops or e.cost.flops is None:
        return None
    return Remark(
        "loop-counted-once",
        "info",
        "operations and bytes count the body of each scan, fori_loop or while_loop once, however often it runs",
    )


def busy(e: RowEvidence) -> Remark | None:
    others, steal = e.noise.others_share or 0.0, e.noise.steal_share or 0.0
    parts = [f"other processes used {percent(others)} of the CPU"] if others > BUSY_SHARE else []
    parts += [f"the hypervisor took {percent(steal)}"] if steal > STEAL_SHARE else []
    if not parts:
        return None
    return Remark(
        "busy", "warning", f"the machine was busy meanwhile: {' and '.join(parts)}. benchax doctor says more."
    )


def coarse_clock(e: RowEvidence) -> Remark | None:
    for s in e.samples:
        sample = s.summary.median_s * s.iterations
        if s.resolution_s and 0 < sample < s.resolution_s / COARSE_SHARE:
            return Remark(
                "coarse-clock",
                "warning",
                f"the clock steps by {seconds(s.resolution_s)}, more than 1 % of a sample of {s.timer} "
                f"({seconds(sample)})",
            )
    return None


RULES: tuple[Callable[[RowEvidence], Remark | None], ...] = (
    wrong_result,
    not_verified,
    recompiled,
    not_steady,
    numpy_inputs,
    narrowed,
    no_inputs,
    folded,
    not_jitted,
    impure,
    reads_clock,
    changed_by_tracing,
    stateful,
    state_dropped,
    undetermined_state,
    dispatch_bound,
    resident_far_below_wall,
    more_than_a_call,
    one_at_a_time,
    inline_limit,
    page_faults,
    donation_unused,
    loops_counted_once,
    busy,
    coarse_clock,
)
