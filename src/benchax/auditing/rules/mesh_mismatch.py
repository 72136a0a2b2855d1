"""Finds devices that are there and not used, and large arguments that every device holds in full."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import Gain, NotApplicable, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import size

LARGE_BYTES = 1 << 20
OFTEN = 5
"""Times that a program puts an array on each device: what it puts there once are weights."""


@rule("mesh-mismatch", "does its sharding fit the devices?", "info", of="both")
def mesh_mismatch(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    yield from _of_program(e) if isinstance(e, ProgramEvidence) else _of_function(e)


def _of_program(e: ProgramEvidence) -> Iterable[Finding]:
    puts = [line for line in e.facts.get("host", {}).get("puts", ()) if line["copies"] >= OFTEN]
    if not puts:
        raise NotApplicable("a program is audited, and puts no large array on each of several devices again and again")
    for line in puts:
        yield mesh_mismatch.finding(
            f"{line['by']} gives all of {line['what']} to each of {line['devices']} devices",
            [f"{line['copies']} of {line['count']} times: each device then computes with all of it"],
            'Shard a batch along its first axis, jax.device_put(x, NamedSharding(mesh, PartitionSpec("data"))): '
            "weights of data-parallel training have to be everywhere, batches have not.",
            where=where_of(line["where"]),
        )


def _of_function(e: Evidence) -> Iterable[Finding]:
    if len(e.devices) == 1:
        raise NotApplicable("there is one device")
    # A ValueError like many others: only its words tell it apart.
    if e.failure is not None and "incompatible devices" in e.failure.message:
        yield mesh_mismatch.finding(
            "its arguments are on different sets of devices",
            [e.failure.message],
            "Place them on one mesh: jax.device_put(x, NamedSharding(mesh, PartitionSpec(...))).",
            where=e.def_where,
            severity="error",
        )
        return
    collectives = e.inspection.collectives
    if collectives is None:
        raise NotMeasured(e.inspection.why_absent("collectives") or "the compiled program cannot be read")
    if collectives.partitions < len(e.devices):
        yield _idle(e, collectives.partitions)
    if collectives.partitions > 1:
        yield from _copies(e)


def _idle(e: Evidence, used: int) -> Finding:
    return mesh_mismatch.finding(
        f"it runs on {used} of {len(e.devices)} devices",
        [f"{len(e.devices)} {e.devices[0].device_kind} devices are there; the program is split over {used}"],
        "If one call is to use them all, shard its large arguments over a mesh of all devices. CPU devices made by "
        "jax_num_cpu_devices share the same cores: they are for tests and gain no time.",
        where=e.def_where,
    )


def _copies(e: Evidence) -> Iterable[Finding]:
    leaves = jax.tree_util.tree_leaves_with_path((e.inputs.args, e.inputs.kwargs))
    for path, leaf in leaves:
        devices = _copied_to(leaf)
        if devices < 2:
            continue
        whole = leaf.nbytes * (devices - 1)
        place = f"{('args', 'kwargs')[path[0].idx]}{jax.tree_util.keystr(path[1:])}"
        fits = [n for n in leaf.shape if n % devices == 0]
        seen = [
            f"{place} {leaf.dtype}{list(leaf.shape)}, {size(leaf.nbytes)} on each of {devices} devices",
            f"an axis of {fits[0]} divides by {devices}" if fits else f"no axis divides by {devices}",
        ]
        yield mesh_mismatch.finding(
            f"{place} is held in full by {devices} devices",
            seen,
            "Shard it along an axis that divides, if it does not have to be everywhere: weights of data-parallel "
            "training have to, unless they are gathered when used.",
            where=e.def_where,
            gain=Gain(f"estimated: {size(whole)} of all devices together", bytes=whole) if fits else None,
        )


def _copied_to(leaf: Any) -> int:
    """How many devices hold the whole of a large array; 0 for others."""
    if not isinstance(leaf, jax.Array) or leaf.nbytes < LARGE_BYTES or not leaf.sharding.is_fully_replicated:
        return 0
    return len(leaf.sharding.device_set) if math.prod(leaf.shape) > 1 else 0
