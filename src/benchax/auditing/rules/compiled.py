"""Rules about the compiled program: its constants, donated arguments, copies, loops, pages of memory, and devices."""

from __future__ import annotations

import linecache
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Any

import jax
import numpy as np

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.log import NO_ARRAY, CallLine, Event
from benchax.auditing.rule import (
    Gain,
    Match,
    NotApplicable,
    list_some,
    name_leaves,
    rule,
    try_variant,
    with_bytes,
)
from benchax.auditing.rules.transfers import OFTEN, puts_by_place
from benchax.auditing.syntax import jitted_at, made_at
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.variants import VARIANTS
from benchax.experiments.variants.changes import donate
from benchax.grouping import group_by
from benchax.inspecting.inspect import inspect_case
from benchax.program.hlo import Instruction, Module, attributes, parse
from benchax.program.index import Value
from benchax.results.inspection import Buffers, Collectives, Constants, Cost, Counts, Donation, Memory
from benchax.units import count, number, percent, plural, seconds, size
from benchax.watching.signatures import describe_placement

LARGE_BYTES = 1 << 20
"""Smaller arrays come from the allocator's own stock and cost almost nothing."""
DEAR_BYTES = 1 << 23
"""Below `LARGE_BYTES`, a constant has no measurable cost; below this it is an info. Each MiB takes 5 to 10 ms of
compiling (a random f32[n,32] that is gathered from, jaxlib 0.10.2, CPU)."""


@rule(
    "captured-constants",
    "does it close over large arrays?",
    "warning",
    advice=(
        "Pass them as arguments. Each lowering copies a captured array into the program. Each compiled program "
        "keeps its own copy, and XLA computes with it while compiling."
    ),
)
def captured_constants(e: Evidence) -> Iterable[Match]:
    """Finds large arrays that a function closes over: they become constants of the program."""
    constants: Constants = e.inspected("constants")
    captured = constants.captured
    if captured is None:
        raise NotMeasured(e.inspection.why_absent("constants.captured") or "the jaxpr cannot be reached")
    large = [c for c in captured if c.size_bytes >= LARGE_BYTES]
    if not large:
        return
    total = sum(c.size_bytes for c in large)
    used = [f"{c.spec}, {size(c.size_bytes)}{f', first used at {c.where}' if c.where else ''}" for c in large]
    seen = list_some(used)
    if e.inspection.stablehlo is not None:
        seen.append(f"the program's text for XLA is {size(len(e.inspection.stablehlo))} long")
    if constants.baked_in_bytes is not None:
        seen.append(f"the compiled program holds {size(constants.baked_in_bytes)} of constants")
    yield Match(
        f"closes over {plural(len(large), 'array')} of {size(total)}",
        seen,
        severity="info" if total < DEAR_BYTES else None,
    )


LARGE_COPY = 8 << 20
"""The size of the results that come back at each call. Copying this much takes a tenth of a millisecond or more, in
calls that can take less."""
UPDATES = {"scatter": 2, "scatter-add": 2, "dynamic_update_slice": 1}
"""Operations that change a part of their first operand, and the position of that part."""
PART_OF_WHOLE = 16
"""The part is at most so small a share of the whole. With half or twice of it, rules find the same in the clean
programs and the programs of vmapped-cond and donation-possible."""


def _refuse_little(donatable_bytes: int) -> None:
    if donatable_bytes < LARGE_BYTES:
        raise NotApplicable(f"{size(donatable_bytes)} could be donated, too little to matter")


@rule("donation-possible", "could outputs reuse the memory of arguments?", "info")
def donation_possible(e: Evidence) -> Iterable[Match]:
    """Finds arguments that could be donated: an output has their shape, dtype and sharding."""
    asked = e.inspection.donation
    if asked is not None and asked.arguments:
        raise NotApplicable("it already donates arguments")
    if e.case.donate:  # equinox.filter_jit marks an argument for what it is told to donate, which can be nothing
        raise NotMeasured("the arguments that it is to donate hold no array, and others are not looked at")
    plan = e.inspection.memory
    if plan is not None and plan.argument_bytes is not None and plan.output_bytes is not None:
        _refuse_little(min(plan.argument_bytes, plan.output_bytes))  # without another build
    held = e.recorded.arguments_of(e.use.held) if e.recorded else frozenset[int | str]()
    try:
        chosen = replace(VARIANTS["donate"], changes=partial(donate, held=held))
        variant = chosen.change(e.case, seed=e.seed).case
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    donation = inspect_case(variant).donation
    if donation is None or donation.aliased_bytes is None:
        raise NotMeasured("the compiler doesn't report which donated arguments it would use")
    taken = sorted((a for a in donation.arguments if a.is_aliased), key=lambda a: -a.size_bytes)
    saved = sum(a.size_bytes for a in taken)
    _refuse_little(saved)
    seen = list_some([f"{a.path} {a.spec} → {a.output or 'an output'}, {size(a.size_bytes)}" for a in taken])
    result = try_variant(e, "donated", variant)
    # This does occur: donating saved 2 MiB in an FFT, and its calls were slower (docs/about/field-notes.md).
    if result.comparison is not None and result.comparison.verdict == "slower":
        raise NotApplicable(f"no argument is donated, and donating {size(saved)} would not pay: {result.sentence}")
    named = ", ".join(str(argument) for argument in variant.donate)
    copied = _copied_bytes(e)
    if copied >= LARGE_COPY:
        seen.append(f"{size(copied)} of them are copied as a whole in each call, to change a part")
    yield Match(
        f"copies {size(copied)} in each call, to change a part of it"
        if copied >= LARGE_COPY
        else f"{size(saved)} of its arguments could be donated",
        [*seen, result.sentence],
        f"If the caller doesn't need them afterwards, donate them (arguments {named}): jax.jit(f, "
        "donate_argnums=...). A donated array cannot be read again.",
        related=[*jitted_at(e.def_where, e.case.id.name), ("defined here", e.def_where)],
        severity="warning" if copied >= LARGE_COPY else None,
        gain=with_bytes(result.gain, saved, f"measured: {size(saved)} less in the compiler's plan"),
    )


def _copied_bytes(e: Evidence) -> int:
    """Bytes of results that its program gives back to it, and that are an argument with a part of it changed."""
    inputs, outputs = e.program.inputs, e.program.outputs
    pairs = [(inputs[at], outputs[result]) for at, result in e.use.carried.positions if result < len(outputs)]
    return sum(given.size_bytes for given, output in pairs if _is_updated(given, output))


def _is_updated(given: Value, output: Value) -> bool:
    value = output
    while (op := value.maker) is not None and op.name in UPDATES:
        if PART_OF_WHOLE * op.reads[UPDATES[op.name]].size_bytes > value.size_bytes:
            return False
        value = op.reads[0]
    return value is given and value is not output


TINY_BYTES = 1 << 10
"""Less than this in vain, such as a key or a counter, is not reported. Less than `LARGE_BYTES` is an info."""


@rule(
    "donation-unused",
    "does an output reuse each donated argument?",
    "warning",
    advice=(
        "Give an output the shape, dtype and sharding of the argument, or don't donate it. The donation saves no "
        "memory, and the caller can lose the array."
    ),
)
def donation_unused(e: Evidence) -> Iterable[Match]:
    """Finds arguments that were donated in vain: no output reuses their memory."""
    donation: Donation = e.inspected("donation")
    if not donation.arguments:
        raise NotApplicable("it donates no argument")
    unknown = [a for a in donation.arguments if a.is_aliased is None]
    unused = [a for a in donation.arguments if a.is_aliased is False]
    if not unused:
        if unknown:
            raise NotMeasured(unknown[0].why_not or "the compiler doesn't report which donated arguments it used")
        return
    lost = sum(a.size_bytes for a in unused)
    if lost < TINY_BYTES:
        return
    seen = list_some([f"{a.path} {a.spec}, {size(a.size_bytes)}: {a.why_not}" for a in unused])
    seen.append(f"{size(lost)} of the {size(donation.asked_bytes)} that are donated")
    yield Match(
        f"{len(unused)} of {len(donation.arguments)} donated arrays are not reused",
        seen,
        severity="info" if lost < LARGE_BYTES else None,
    )


@rule("materialised-broadcast", "does an argument hold copies of one array?", "info")
def materialised_broadcast(e: Evidence) -> Iterable[Match]:
    """Finds arrays that hold the same numbers many times over: inputs, and broadcasts that the compiler keeps."""
    yield from _repeated_inputs(e)
    yield from _kept_broadcasts(e)


def _repeated_inputs(e: Evidence) -> Iterable[Match]:
    for place, leaf in name_leaves(*e.given):
        if not _is_large(leaf) or not _rows_are_equal(np.asarray(leaf)):
            continue
        n = leaf.shape[0]
        saved = leaf.nbytes - leaf.nbytes // n
        yield Match(
            f"{place} holds one array {n} times",
            [f"{place} is {leaf.dtype}{list(leaf.shape)}, {size(leaf.nbytes)}, and all {n} rows are equal"],
            "Pass it once, and let vmap repeat it (in_axes=None), or rely on broadcasting. If the rows are equal by "
            "chance, ignore this.",
            gain=Gain(f"estimated: {size(saved)}", bytes=saved),
        )


def _kept_broadcasts(e: Evidence) -> Iterable[Match]:
    buffers: Buffers = e.inspected("buffers")
    module = parse(e.inspected("hlo"))
    instructions = (one for computation in module.computations.values() for one in computation.instructions)
    copying = {one.name for one in instructions if _copies_array(module, one)}
    values = [v for b in buffers.buffers if b.kind in ("temporary", "output") for v in b.values]
    held = [v for v in values if v.size_bytes >= LARGE_BYTES and v.name in copying]
    if not held:
        return
    held.sort(key=lambda value: -value.size_bytes)
    seen = [
        f"{value.name} {value.spec}, {size(value.size_bytes)}{f', at {value.source}' if value.source else ''}"
        for value in held
    ]
    yield Match(
        f"the compiler keeps a broadcast of {size(held[0].size_bytes)} in memory",
        list_some(seen),
        "Its reader can't be fused with it: a sort, a scatter, a library call, an output. Pass the smaller array if "
        "the reader takes it, or return the small array and broadcast it later.",
        where=held[0].source,
    )


def _is_large(leaf: Any) -> bool:
    is_array = isinstance(leaf, np.ndarray) or (isinstance(leaf, jax.Array) and leaf.is_fully_addressable)
    is_data = is_array and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return is_data and leaf.nbytes >= LARGE_BYTES and leaf.ndim >= 2 and leaf.shape[0] > 1


def _rows_are_equal(array: np.ndarray) -> bool:
    """All rows equal the first, and a row is no constant: zeros and ones are no copies of anything."""
    first = array[0]
    # Compare the second row first. In most arrays it differs, which saves a pass over the whole array.
    return bool((array[1] == first).all() and (first != first.flat[0]).any() and (array == first).all())


def _copies_array(module: Module, instruction: Instruction) -> bool:
    """Does it only broadcast an array? To broadcast a number, such as zeros, is no copying."""
    if instruction.opcode == "fusion":
        inside = [c for key, c in module.called_computations(instruction) if key == "calls"]
        parts = [i for c in inside for i in c.instructions if i.opcode not in ("parameter", "bitcast", "copy")]
        return len(parts) == 1 and _copies_array(module, parts[0])
    return instruction.opcode == "broadcast" and attributes(instruction).get("dimensions", "{}") != "{}"


LEAST_FLOP_RATIO = 1.1
"""In 23 programs without loops, both counts agree within 1 % (docs/about/decisions.md): more has another cause."""


@rule(
    "scan-flops",
    "does XLA's FLOP count leave out iterations of loops?",
    "info",
    advice=(
        "Take FLOP counts and utilisation from benchax inspect: compiled.cost_analysis() counts the body of a loop "
        "once."
    ),
)
def scan_flops(e: Evidence) -> Iterable[Match]:
    """Finds loops, whose bodies XLA's own cost analysis counts once."""
    lines = linecache.getlines(e.def_where[0]) if e.def_where is not None else []
    if e.why_not_called and not any("cost_analysis" in line for line in lines):
        raise NotApplicable("the program's file doesn't call cost_analysis()")
    counts: Counts = e.inspected("counts")
    cost: Cost = e.inspected("xla_cost")
    if not counts.loops:
        raise NotApplicable("the compiled program has no loop")
    if counts.flops is None or not cost.flops:
        raise NotMeasured("there is no FLOP count to compare with")
    if counts.flops < LEAST_FLOP_RATIO * cost.flops:
        return
    trips = ["an unknown number of" if loop.trips is None else count(loop.trips) for loop in counts.loops]
    about = "" if counts.is_exact else "about "
    loops = [
        f"{loop.name}: {n} iterations{f' ({loop.op_name})' if loop.op_name else ''}"
        for loop, n in zip(counts.loops, trips, strict=True)
    ]
    yield Match(
        f"XLA counts {count(cost.flops, 'FLOP')}, and {about}{count(counts.flops, 'FLOP')} are done",
        [
            *list_some(loops, what="loops"),
            f"{about}{number(counts.flops / cost.flops)} times as many as cost_analysis() reports",
        ],
    )


try:
    import resource
except ImportError:  # Windows, which does not tell
    resource = None

FRESH_BYTES = 32 << 20
"""glibc maps larger blocks again each time (its M_MMAP_THRESHOLD grows up to this)."""
FAULTING_CALLS = 3
"""Counted together, since a fault of something else may fall into one of them."""
FAULTED_SHARE = 0.5
"""The share of the pages of the outputs that must have been faulted in. Outputs of 64 MiB faulted in all of theirs, and
none with the argument donated (docs/about/decisions.md)."""

OF_OUTPUTS = (
    "Donate an argument of the same shape, so that the output reuses its pages (rule donation-possible). Or return "
    "less: a sum, a slice, a narrower dtype."
)
OF_TEMPORARIES = (
    "Its outputs are small; the large arrays are temporaries. Work in parts, so that temporaries stay below "
    f"{size(FRESH_BYTES)}: jax.lax.map(f, xs, batch_size=...), or a scan over parts. benchax inspect names the lines "
    "that make them."
)


@rule("page-faulting-output", "do its outputs need new pages in each call?", "info")
def page_faulting_output(e: Evidence) -> Iterable[Match]:
    """Finds outputs so large that each call gets new pages from the system, and pays for each page (CPU)."""
    if e.platform != "cpu":
        raise NotApplicable(f"memory of {e.platform} comes from a pool that JAX keeps")
    memory: Memory = e.inspected("memory")
    if memory.output_bytes is None:
        raise NotMeasured("the compiler doesn't report the size of the outputs")
    # Temporaries are new memory, like outputs. An output that reuses a donated argument already has its pages.
    fresh = memory.output_bytes - (memory.alias_bytes or 0) + (memory.temp_bytes or 0)
    if fresh < FRESH_BYTES:
        return
    faults = _faults_per_call(e)
    expected = fresh / mmap.PAGESIZE
    # The size alone proves nothing, because the allocator's threshold moves. Counted page faults do.
    if faults < FAULTED_SHARE * expected:
        return
    # Measured from one thread, while XLA may touch the pages from several. So the gain is an estimate, "up to".
    touching = _touching_s(fresh)
    run = e.measurement.find_summary()
    # The gain cannot exceed the time of the call, however long one thread takes to touch the pages.
    gained = touching if run is None else min(touching, run.median_s)
    returned = memory.output_bytes - (memory.alias_bytes or 0)
    is_returned = returned >= FAULTED_SHARE * fresh
    what = "outputs and temporaries" if returned >= FRESH_BYTES else "temporaries"
    whole = "" if run is None else f", of {seconds(run.median_s)} that a call takes"
    yield Match(
        f"{size(fresh)} of {what} are new pages in each call",
        [
            f"{count(faults)} page faults per call; {size(fresh)} are {count(expected)} pages",
            f"touching as many new pages takes {seconds(touching)} here{whole}",
            f"that is {percent(min(1.0, faults / expected))} of its pages",
        ],
        OF_OUTPUTS if is_returned else OF_TEMPORARIES,
        gain=Gain(f"estimated: up to {seconds(gained)} per call", gained),
    )


def _faults_per_call(e: Evidence) -> float:
    """Minor page faults of this process, of warm calls. Results are dropped before the next call."""
    if resource is None:
        raise NotMeasured("this system doesn't report page faults")
    call = e.prepared.program.call
    # Make all inputs before the first count: making them also faults pages in.
    calls = [e.fresh_inputs() for _ in range(FAULTING_CALLS + 1)]
    before = 0
    for i, (args, kwargs) in enumerate(calls):
        if i == 1:  # the first one warms up
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        jax.block_until_ready(call(*args, **kwargs))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / FAULTING_CALLS


def _touching_s(size_bytes: int) -> float:
    """Writes a byte into each page of this much new memory, in Python's own fastest way, and returns the quickest of
    three times."""
    best = float("inf")
    for _ in range(3):
        # Mapped afresh each time, as glibc maps such an output. Memory from Python's allocator would already have its
        # pages.
        with mmap.mmap(-1, size_bytes) as pages:
            begun = perf_counter()
            pages[:: mmap.PAGESIZE] = bytes(-(-size_bytes // mmap.PAGESIZE))
            best = min(best, perf_counter() - begun)
    return best


# ---- places of arrays ------------------------------------------------------------------------------------------------
#
# Finds arrays that are moved in each step, that use too few devices, or that each device holds in full.


SPREAD_BYTES = 1 << 16
"""Copying 1 KiB to four devices takes 0.1 ms, 64 KiB 0.4 ms, and 1 MiB 1.4 ms (fake devices, jaxlib 0.12.0, two busy
cores)."""


# ---- resharding -------------------------------------------------------------------------------------------------


@rule("resharding", "do arrays stay where they are from step to step?", "warning", of="program")
def resharding(e: ProgramEvidence) -> Iterable[Match]:
    """Finds arrays that are moved between devices or layouts in each step."""
    lines = e.lines
    puts = ((event, event.note) for event in e.log.of("put") if event.note.given is not None)
    moved = (event for event, note in puts if not note.made.is_equivalent_to(note.given, 1 << 6))
    for (where, by), events in group_by(moved, lambda event: (event.where, event.by)).items():
        if len(events) >= OFTEN:
            yield _put_again(where, by, events)
    for line in lines if jax.device_count() > 1 else ():
        moved = Counter(move for event in line.events for move in _moves(line, event))
        moved.update(move for old, new in pairwise(line.events) for move in _spreads(line, old, new))
        often = [(move, n) for move, n in moved.most_common() if n >= OFTEN]
        if often:
            yield Match(
                f"{line.name} gets arguments with another sharding than it expects",
                list_some([f"{name}: from {old} to {new}, {count(n)} times" for (name, old, new), n in often]),
                PLACE_ONCE,
                where=line.where,
                related=[place for (name, *_), _ in often for place in made_at(line.where, line.name, name)],
            )


def _put_again(where: str, by: str, events: list[Event]) -> Match:
    last, spent_s = events[-1], sum(event.elapsed_s for event in events)
    old, new = describe_placement(last.note.given), describe_placement(last.note.made)
    return Match(
        f"{by} places {last.note.what} again in each step",
        [
            f"{count(len(events))} times, {size(sum(event.size for event in events))} together",
            f"from {old} to {new}",
            f"the host spent {seconds(spent_s)} in these calls; the copies may take longer",
        ],
        PLACE_ONCE,
        where=where,
        gain=Gain(f"estimated: at least {seconds(spent_s)} of this run"),
        # If each step makes a new array on one device, it has to be distributed each time.
        severity="info" if " over " not in old else None,
    )


def _moves(line: CallLine, event: Event) -> Iterator[tuple[str, str, str]]:
    """(argument, from, to) of arguments whose sharding is not the one of `in_shardings`."""
    facts = line.log.functions[line.function]
    wanted = facts.shardings
    if len(wanted) not in (1, len(event.reads)):
        return
    for i, serial in enumerate(event.reads):
        to, given = wanted[i if len(wanted) > 1 else 0], line.log.arrays.get(serial, NO_ARRAY).sharding
        if given is None or not isinstance(to, jax.sharding.Sharding) or i >= len(facts.names):
            continue
        # Pad to enough axes for both specs, because the log has no shapes.
        n_axes = max(len(getattr(one, "spec", ())) for one in (given, to)) or 1
        if not given.is_equivalent_to(to, n_axes):
            yield facts.names[i], describe_placement(given), describe_placement(to)


def _spreads(line: CallLine, old: Event, new: Event) -> Iterator[tuple[str, str, str]]:
    """Large arguments that stay on one device, and are copied to all devices of another argument in each call."""
    facts = line.log.functions[line.function]
    if any(isinstance(one, jax.sharding.Sharding) for one in facts.shardings) or len(old.reads) != len(new.reads):
        return
    arrays = [line.log.arrays.get(serial, NO_ARRAY) for serial in new.reads]
    devices = [len(one.sharding.device_set) if one.sharding is not None else 0 for one in arrays]
    most = max(devices, default=0)
    if most < 2 or len(facts.names) != len(arrays):
        return
    to = f"the {most} devices of {facts.names[devices.index(most)]}"
    for i, (a, b) in enumerate(zip(old.reads, new.reads, strict=True)):
        if a == b and devices[i] == 1 and arrays[i].size_bytes >= SPREAD_BYTES:
            yield facts.names[i], describe_placement(arrays[i].sharding), to


# ---- mesh-mismatch ----------------------------------------------------------------------------------------------


@rule("mesh-mismatch", "does its sharding fit the devices?", "info")
def mesh_mismatch(e: Evidence) -> Iterable[Match]:
    """Finds devices that have nothing to do, or that all do the same."""
    if len(e.devices) == 1:
        raise NotApplicable("there is one device")
    # It is a plain ValueError, so only its message identifies it.
    if e.failure is not None and "incompatible devices" in e.failure.message:
        yield Match(
            "its arguments are on different sets of devices",
            [e.failure.message],
            "Place them on one mesh: jax.device_put(x, NamedSharding(mesh, PartitionSpec(...))).",
            severity="error",
        )
        return
    collectives: Collectives = e.inspected("collectives")
    if collectives.partitions < len(e.devices):
        n = len(e.devices)
        yield Match(
            f"it runs on {collectives.partitions} of {n} devices",
            [f"there are {n} {e.devices[0].device_kind} devices; the program is split over {collectives.partitions}"],
            "If one call is to use them all, shard its large arguments over a mesh of all devices. CPU devices made by "
            "jax_num_cpu_devices share the same cores: they are for tests and gain no time.",
        )
    if collectives.partitions > 1:
        yield from _copies(e)


@mesh_mismatch.in_program
def _puts_everywhere(e: ProgramEvidence) -> Iterable[Match]:
    large = [event for event in e.log.of("put") if event.size >= LARGE_BYTES and len(event.note.made.device_set) > 1]
    groups = puts_by_place(event for event in large if event.note.made.is_fully_replicated)
    often = {key: events for key, events in groups.items() if len(events) >= OFTEN}
    if not often:
        raise NotApplicable("the program doesn't put a large array on every device repeatedly")
    for (where, by, *_), events in often.items():
        yield Match(
            f"{by} puts all of {events[0].note.what} on each of {len(events[-1].note.made.device_set)} devices",
            [f"{len(events)} times: each device then computes with all of it"],
            'Shard a batch along its first axis: jax.device_put(x, NamedSharding(mesh, PartitionSpec("data"))). '
            "Data-parallel training needs its weights on every device, but not its batches.",
            where=where,
        )


def _copies(e: Evidence) -> Iterable[Match]:
    for place, leaf in name_leaves(e.inputs.args, e.inputs.kwargs):
        # How many devices hold the whole of a large array.
        is_large = isinstance(leaf, jax.Array) and leaf.nbytes >= LARGE_BYTES and leaf.size > 1
        devices = len(leaf.sharding.device_set) if is_large and leaf.sharding.is_fully_replicated else 0
        if devices < 2:
            continue
        whole = leaf.nbytes * (devices - 1)
        fits = [n for n in leaf.shape if n % devices == 0]
        yield Match(
            f"{place} is held in full by {devices} devices",
            [
                f"{place} {leaf.dtype}{list(leaf.shape)}, {size(leaf.nbytes)} on each of {devices} devices",
                f"an axis of {fits[0]} divides by {devices}" if fits else f"no axis divides by {devices}",
            ],
            "Shard it along an axis that divides, unless every device needs it. Data-parallel training needs its "
            "weights everywhere, unless it gathers them for each use.",
            gain=Gain(f"estimated: {size(whole)} over all devices", bytes=whole) if fits else None,
        )


# ---- texts ------------------------------------------------------------------------------------------------------

PLACE_ONCE = (
    "Place the array once, before the loop: jax.device_put(x, sharding). Or give out_shardings (or a "
    "jax.lax.with_sharding_constraint) to the function that makes it."
)
SENT_SHARE = 0.25
"""The share of the bytes that the program reads and writes on each device. By its data sheet, an H100 has 900 GB/s of
NVLink and 3.35 TB/s of memory: at a quarter, both take about as long."""


@rule(
    "collectives-dominate",
    "do its devices exchange much data?",
    "warning",
    advice=(
        "Shard along axes that are not summed over, so that less has to be exchanged; or give each device more work "
        "between two collectives."
    ),
)
def collectives_dominate(e: Evidence) -> Iterable[Match]:
    """Finds programs on several devices that send more than they compute with."""
    if len(e.devices) == 1:
        raise NotApplicable("there is one device")
    collectives: Collectives = e.inspected("collectives")
    if not collectives.calls:
        if collectives.partitions == 1:
            raise NotApplicable("the program runs on one device")
        return
    sent = collectives.bytes_per_call
    if sent is None:
        raise NotMeasured("some are in a loop of unknown length")
    touched = e.inspected("counts").bytes_accessed
    if not touched:
        raise NotMeasured("the bytes that the program reads and writes are not known")
    if sent < SENT_SHARE * touched:
        return
    yield Match(
        f"{size(sent)} per call come from other devices, {percent(sent / touched)} of the bytes read and written",
        [
            *list_some(list(_describe_collectives(collectives))),
            "time in them was not measured: benchax profile shows it",
        ],
    )


def _describe_collectives(collectives: Collectives) -> Iterable[str]:
    """By kind, those that move most first."""
    moved: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for call in collectives.calls:
        moved[call.opcode] += call.size_bytes * (call.trips or 1)
        times[call.opcode] += call.trips or 1
    for opcode, total in moved.most_common():
        yield f"{times[opcode]} × {opcode}: {size(total)} on each of {collectives.partitions} devices"
