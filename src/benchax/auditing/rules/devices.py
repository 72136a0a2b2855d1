"""Rules about the places of arrays: moved in each step, on too few devices, or in full on all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import jax

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.log import NO_ARRAY, Event, grouped
from benchax.auditing.recorder.views import CallLine
from benchax.auditing.rule import MOST_LISTED, Gain, Match, NotApplicable, list_some, rule
from benchax.auditing.rules.transfers import puts_by_place
from benchax.auditing.syntax import made_at, where_of
from benchax.errors import NotMeasured
from benchax.results.inspection import Collectives
from benchax.units import count, percent, seconds, size
from benchax.watching.signatures import describe_placement

OFTEN = 5
LARGE_BYTES = 1 << 20
"""Smaller arrays can be on every device."""
SPREAD_BYTES = 1 << 16
"""Smaller arrays are copied to other devices in no time."""


# ---- resharding -------------------------------------------------------------------------------------------------


@rule("resharding", "do arrays stay where they are from step to step?", "warning", of="program")
def resharding(e: ProgramEvidence) -> Iterable[Match]:
    """Finds arrays that are moved between devices or layouts in each step."""
    lines = e.lines
    puts = ((event, event.note) for event in e.log.of("put") if event.note.given is not None)
    moved = (event for event, note in puts if not note.made.is_equivalent_to(note.given, 1 << 6))
    for (where, by), events in grouped(moved, lambda event: (event.where, event.by)).items():
        if len(events) >= OFTEN:
            yield _put_again(where, by, events)
    for line in lines if jax.device_count() > 1 else ():
        moved = Counter(move for event in line.events for move in _moves(line, event))
        moved.update(move for old, new in pairwise(line.events) for move in _spreads(line, old, new))
        often = [(move, n) for move, n in moved.most_common(5) if n >= OFTEN]
        if often:
            yield _lies_otherwise(line, often)


def _put_again(where: str, by: str, events: list[Event]) -> Match:
    last, spent_s = events[-1], sum(event.elapsed_s for event in events)
    old, new = describe_placement(last.note.given), describe_placement(last.note.made)
    return Match(
        f"{by} places {last.note.place.what} again in each step",
        [
            f"{count(len(events))} times, {size(sum(event.size for event in events))} together",
            f"from {old} to {new}",
            f"the host spent {seconds(spent_s)} in these calls; the copies may take longer",
        ],
        PLACE_ONCE,
        where=where_of(where),
        gain=Gain(f"estimated: at least {seconds(spent_s)} of this run"),
        # An array that is new in each step, made on one device, has to be distributed.
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
        # Enough axes for both specs: the log keeps no shapes.
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


def _lies_otherwise(line: CallLine, moved: list[tuple[tuple[str, str, str], int]]) -> Match:
    called = where_of(line.where)
    return Match(
        f"{line.name} gets arguments with another sharding than it expects",
        list_some([f"{name}: from {old} to {new}, {count(n)} times" for (name, old, new), n in moved]),
        PLACE_ONCE,
        where=called,
        related=[place for (name, *_), _ in moved for place in made_at(called, line.name, name)],
    )


# ---- mesh-mismatch ----------------------------------------------------------------------------------------------


@rule("mesh-mismatch", "does its sharding fit the devices?", "info")
def mesh_mismatch(e: Evidence) -> Iterable[Match]:
    """Finds devices that have nothing to do, or that all do the same."""
    if len(e.devices) == 1:
        raise NotApplicable("there is one device")
    # A ValueError like many others: only its words tell it apart.
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
            [f"{n} {e.devices[0].device_kind} devices are there; the program is split over {collectives.partitions}"],
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
        raise NotApplicable("a program is audited, and puts no large array on each of several devices again and again")
    for (where, by, place), events in often.items():
        yield Match(
            f"{by} gives all of {place.what} to each of {len(events[-1].note.made.device_set)} devices",
            [f"{len(events)} times: each device then computes with all of it"],
            'Shard a batch along its first axis, jax.device_put(x, NamedSharding(mesh, PartitionSpec("data"))): '
            "weights of data-parallel training have to be everywhere, batches do not.",
            where=where_of(where),
        )


def _copies(e: Evidence) -> Iterable[Match]:
    for path, leaf in jax.tree_util.tree_leaves_with_path((e.inputs.args, e.inputs.kwargs)):
        # How many devices hold the whole of a large array.
        is_large = isinstance(leaf, jax.Array) and leaf.nbytes >= LARGE_BYTES and leaf.size > 1
        devices = len(leaf.sharding.device_set) if is_large and leaf.sharding.is_fully_replicated else 0
        if devices < 2:
            continue
        whole = leaf.nbytes * (devices - 1)
        place = f"{('args', 'kwargs')[path[0].idx]}{jax.tree_util.keystr(path[1:])}"
        fits = [n for n in leaf.shape if n % devices == 0]
        yield Match(
            f"{place} is held in full by {devices} devices",
            [
                f"{place} {leaf.dtype}{list(leaf.shape)}, {size(leaf.nbytes)} on each of {devices} devices",
                f"an axis of {fits[0]} divides by {devices}" if fits else f"no axis divides by {devices}",
            ],
            "Shard it along an axis that divides, unless every device needs it. Data-parallel training needs its "
            "weights everywhere, unless it gathers them for each use.",
            gain=Gain(f"estimated: {size(whole)} of all devices together", bytes=whole) if fits else None,
        )


# ---- texts ------------------------------------------------------------------------------------------------------

PLACE_ONCE = (
    "Place the array once, before the loop: jax.device_put(x, sharding). Or give out_shardings (or a "
    "jax.lax.with_sharding_constraint) to the function that makes it."
)
SENT_SHARE = 0.25
"""The share of the bytes that the program reads and writes on each device."""


@rule(
    "collectives-dominate",
    "do its devices mostly talk to one another?",
    "warning",
    advice=(
        "Shard along axes that are not summed over, so that less has to be collected; or give each device more "
        "work between two collectives."
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
        [*_describe_collectives(collectives), "time in them was not measured: benchax profile shows it"],
    )


def _describe_collectives(collectives: Collectives) -> Iterable[str]:
    """By kind, those that move most first."""
    moved: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for call in collectives.calls:
        moved[call.opcode] += call.size_bytes * (call.trips or 1)
        times[call.opcode] += call.trips or 1
    for opcode, total in moved.most_common(MOST_LISTED):
        yield f"{times[opcode]} × {opcode}: {size(total)} on each of {collectives.partitions} devices"
