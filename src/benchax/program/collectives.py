"""Communication of a partitioned program: its collectives, their bytes, and their devices.

It comes from the text of the optimised program, whose shapes are for one device. An asynchronous pair
(`all-gather-start`, `all-gather-done`) is one communication; its size is the result of `done`. No JAX.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from benchax.program import hlo
from benchax.program.hlo import Computation, Instruction, Module
from benchax.results.inspection import Collective, Collectives

OPCODES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)
_START = "-start"
_PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")
_REPLICAS = re.compile(r"\breplica_count=(\d+)")
_LISTED = re.compile(r"\{([\d,\s]+)\}")
_IOTA = re.compile(r"\[\d+,(\d+)\]<=")
_MESH = re.compile(r"mesh\[(?P<sizes>[^\]]*)\]\s*\{(?P<axes>[^}]*)\}")
_AXIS = re.compile(r"'([^']*)'(?:\s*=\s*(\d+))?")


def collectives(module: Module, shardings: Mapping[str, str] = MappingProxyType({})) -> Collectives:
    """Every communication that the entry computation reaches, largest first.

    Args:
        shardings: of inputs and outputs, by path; told of programs on several devices.
    """
    partitions = _number(_PARTITIONS, module.header)
    devices = partitions * _number(_REPLICAS, module.header)
    found = _find_collectives(module, module.entry, 1, devices) if module.entry else iter(())
    told = tuple(shardings.items()) if devices > 1 else ()
    return Collectives(tuple(sorted(found, key=lambda c: -c.size_bytes)), partitions, told)


def count_devices(text: str) -> int:
    """On how many devices the optimised program runs, as its first line says; 1 where that does not say."""
    header = text.partition("\n")[0]
    return _number(_PARTITIONS, header) * _number(_REPLICAS, header)


def _number(pattern: re.Pattern[str], header: str) -> int:
    found = pattern.search(header)
    return int(found[1]) if found else 1


def _find_collectives(
    module: Module, computation: Computation, trips: int | None, devices: int
) -> Iterator[Collective]:
    for each in computation.instructions:
        kind = each.opcode.removesuffix(_START)
        if kind in OPCODES:
            yield _collective(computation, each, kind, trips, devices)
            continue  # what it applies is its arithmetic
        for _, called, n in module.runs(each):
            times = None if trips is None or n is None else trips * n
            yield from _find_collectives(module, called, times, devices)


def _collective(
    computation: Computation, instruction: Instruction, kind: str, trips: int | None, devices: int
) -> Collective:
    attributes = hlo.attributes(instruction)
    groups = attributes.get("replica_groups") or attributes.get("source_target_pairs") or ""
    return Collective(
        opcode=kind,
        name=instruction.name,
        size_bytes=hlo.shape_bytes(_result(computation, instruction).shape),
        groups=groups,
        group_size=_group_size(attributes.get("replica_groups"), devices),
        trips=trips,
        op_name=hlo.op_name(instruction),
    )


def _result(computation: Computation, instruction: Instruction) -> Instruction:
    """Finds the result of a collective. A start also returns its operands; only the -done returns the result alone."""
    if not instruction.opcode.endswith(_START):
        return instruction
    done = (
        each
        for each in computation.instructions
        if each.opcode.endswith("-done") and instruction.name in hlo.operand_names(each)
    )
    return next(done, instruction)


def _group_size(groups: str | None, devices: int) -> int | None:
    """Reads `{{0,1},{2,3}}`, `[2,4]<=[8]`, `mesh['x'=4,'y'=2] {'x'}`; `{}` means all of them. None: groups that
    differ."""
    if groups is None:
        return None
    if mesh := _MESH.match(groups):
        sizes = {name: int(size) for name, size in _AXIS.findall(mesh["sizes"]) if size}
        axes = [name for name, _ in _AXIS.findall(mesh["axes"])]
        return math.prod(sizes[a] for a in axes) if all(a in sizes for a in axes) else None
    if iota := _IOTA.match(groups):
        return int(iota[1])
    if groups.replace(" ", "") in ("{}", "{{}}"):
        return devices
    listed = {len(group.split(",")) for group in _LISTED.findall(groups)}
    return listed.pop() if len(listed) == 1 else None
