"""Finds arrays that hold the same numbers many times over: inputs, and broadcasts that the compiler keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Module, attributes, parse
from benchax.results.audit import Finding
from benchax.units import size

LARGE_BYTES = 1 << 20


@rule("materialised-broadcast", "does it keep copies of one array side by side?", "info")
def materialised_broadcast(e: Evidence) -> Iterable[Finding]:
    yield from _inputs(e)
    yield from _findings(e)


def _inputs(e: Evidence) -> Iterable[Finding]:
    args, kwargs = e.given
    leaves = [
        *jax.tree_util.tree_leaves_with_path(dict(enumerate(args))),
        *jax.tree_util.tree_leaves_with_path(dict(kwargs)),
    ]
    for i, (path, leaf) in enumerate(leaves):
        if not _is_large(leaf) or not _repeats(np.asarray(leaf)):
            continue
        n = leaf.shape[0]
        place = f"{'args' if i < len(jax.tree.leaves(args)) else 'kwargs'}{jax.tree_util.keystr(path)}"
        saved = leaf.nbytes - leaf.nbytes // n
        yield materialised_broadcast.finding(
            f"{place} holds one array {n} times",
            [f"{place} is {leaf.dtype}{list(leaf.shape)}, {size(leaf.nbytes)}, and all {n} rows are equal"],
            "Give it once, and let vmap repeat it: in_axes=None for this argument; or rely on broadcasting. "
            "If it is equal by chance, ignore this.",
            where=e.def_where,
            gain=Gain(f"estimated: {size(saved)}", bytes=saved),
        )


def _findings(e: Evidence) -> Iterable[Finding]:
    buffers = e.inspection.buffers
    if buffers is None or e.inspection.hlo is None:
        raise NotMeasured(e.inspection.why_absent("buffers") or "the compiled program cannot be read")
    copying = _broadcasts(parse(e.inspection.hlo))
    values = [v for b in buffers.buffers if b.kind in ("temporary", "output") for v in b.values]
    held = [v for v in values if v.size_bytes >= LARGE_BYTES and v.name in copying]
    if not held:
        return
    held.sort(key=lambda value: -value.size_bytes)
    seen = [
        f"{value.name} {value.spec}, {size(value.size_bytes)}{f', at {value.source}' if value.source else ''}"
        for value in held
    ]
    yield materialised_broadcast.finding(
        f"the compiler keeps a broadcast of {size(held[0].size_bytes)} in memory",
        list_some(seen),
        "What reads it cannot be fused with it: a sort, a scatter, a call of a library, an output. Give that the "
        "smaller array where it can take one, or return the small array and broadcast where it is used.",
        where=where_of(held[0].source) or e.def_where,
    )


def _is_large(leaf: Any) -> bool:
    is_array = isinstance(leaf, np.ndarray) or (isinstance(leaf, jax.Array) and leaf.is_fully_addressable)
    is_data = is_array and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return is_data and leaf.nbytes >= LARGE_BYTES and leaf.ndim >= 2 and leaf.shape[0] > 1


def _repeats(array: np.ndarray) -> bool:
    """All rows equal the first, and a row is no constant: zeros and ones are no copies of anything."""
    first = array[0]
    # The second row is looked at first: in most arrays it differs, and the rest, a pass over all of it, is spared.
    return bool((array[1] == first).all() and (first != first.flat[0]).any() and (array == first).all())


def _broadcasts(module: Module) -> set[str]:
    """Names of instructions that do nothing but broadcast an array; of a number, such as zeros, is no copying."""
    return {
        instruction.name
        for computation in module.computations.values()
        for instruction in computation.instructions
        if _copies_array(module, instruction)
    }


def _copies_array(module: Module, instruction: Instruction) -> bool:
    if instruction.opcode == "fusion":
        inside = [c for key, c in module.called_computations(instruction) if key == "calls"]
        parts = [i for c in inside for i in c.instructions if i.opcode not in ("parameter", "bitcast", "copy")]
        return len(parts) == 1 and _copies_array(module, parts[0])
    return instruction.opcode == "broadcast" and attributes(instruction).get("dimensions", "{}") != "{}"
