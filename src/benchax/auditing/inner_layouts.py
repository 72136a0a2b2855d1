"""Layouts that a jitted function gives its own arguments: by a constraint inside of it, by the `in_specs` of a
`shard_map`, or by the `in_shardings` of a jitted function that it calls.

An argument that comes in another layout is moved between devices in each call, and no line outside the function shows
it. The module looks only at arguments that nothing else reads, because another reader might want the original layout.
It omits a layout that gives every device all of an array: a program that keeps parts and gathers them for a while saves
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding

from benchax.program.index import TracedOp, Value, index
from benchax.program.jaxpr import own_line, user_line
from benchax.watching.signatures import describe_placement

CONSTRAINTS = ("sharding_constraint", "reshard")
JITS = ("jit", "pjit")


@dataclass
class ArgumentLayouts:
    """How the arguments of one function lay, where they lay on several devices."""

    names: Sequence[str]
    """The names of all leaves."""
    seen: Counter[tuple[int, Any]] = field(default_factory=Counter[tuple[int, Any]])
    """Calls, by leaf and sharding."""


class InnerLayout(NamedTuple):
    """The layout that a function gives to one of its inputs."""

    at: int
    sharding: Any
    line: str


def find_moves(function: str, closed: Any, layouts: ArgumentLayouts | None) -> list[Mapping[str, Any]]:
    """Arguments that came in a layout that the function changes, in plain data."""
    inputs = closed.in_avals if closed is not None else ()
    if layouts is None or len(layouts.names) != len(inputs):
        return []
    return [
        {
            "function": function, "at": inner.at, "name": layouts.names[inner.at], "where": inner.line, "count": n,
            "what": inputs[inner.at].str_short(short_dtypes=True), "size_bytes": _size_bytes(inputs[inner.at]),
            "from": describe_placement(sharding), "to": describe_placement(inner.sharding),
        }
        for inner in inner_layouts(closed)
        for (at, sharding), n in layouts.seen.items()
        if at == inner.at and _moves(sharding, inner.sharding, len(inputs[at].shape))
    ]  # fmt: skip


def inner_layouts(closed: Any) -> Iterator[InnerLayout]:
    """Yields the layouts of inputs that nothing else reads."""
    for i, value in enumerate(index(closed).inputs):
        wanted = [_wanted(op, value) for op in value.readers]
        if wanted and not value.is_output and all(one is not None for one in wanted):
            yield InnerLayout(i, wanted[0], value.readers[0].line)
    yield from _of_inner_jits(closed.jaxpr)


def _wanted(op: TracedOp, value: Value) -> Any:
    """The layout that an equation gives what it reads; None where it does not say, or leaves some of it open."""
    params = op.params
    if op.name in CONSTRAINTS and not params.get("unconstrained_dims"):
        return params.get("sharding", params.get("dst_sharding"))
    # Before jax 0.7 its specs are called otherwise: then it is not seen.
    if op.name == "shard_map" and isinstance(params["mesh"], jax.sharding.Mesh) and "in_specs" in params:
        at = next(i for i, read in enumerate(op.reads) if read is value)
        return NamedSharding(params["mesh"], params["in_specs"][at])
    return None


def _of_inner_jits(jaxpr: Any) -> Iterator[InnerLayout]:
    for i, variable in enumerate(jaxpr.invars):
        readers = [(e, at) for e in jaxpr.eqns for at, atom in enumerate(e.invars) if atom is variable]
        if len(readers) != 1 or any(atom is variable for atom in jaxpr.outvars):
            continue
        ((equation, at),) = readers
        wanted = equation.params.get("in_shardings", ()) if equation.primitive.name in JITS else ()
        if at < len(wanted) and isinstance(wanted[at], NamedSharding):
            yield InnerLayout(i, wanted[at], own_line(equation) or user_line(equation))


def _moves(given: Any, wanted: Any, n_axes: int) -> bool:
    """Is some of the array on another device then? Whoever has all of it takes his part where he is."""
    if not isinstance(wanted, NamedSharding) or given.is_fully_replicated:
        return False
    if not isinstance(wanted.mesh, jax.sharding.Mesh):
        if not isinstance(given, NamedSharding) or given.mesh.abstract_mesh != wanted.mesh:
            return False
        wanted = NamedSharding(given.mesh, wanted.spec)
    # Of another set of devices JAX refuses the call by itself, or it is no question of layouts.
    is_same_set = given.device_set == wanted.device_set
    return is_same_set and not wanted.is_fully_replicated and not given.is_equivalent_to(wanted, n_axes)


def _size_bytes(aval: Any) -> int:
    return aval.size * aval.dtype.itemsize
