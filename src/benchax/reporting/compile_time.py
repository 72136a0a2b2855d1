"""Compile time by function, and why it is long: how large each program is, and which line it repeats."""

from __future__ import annotations

from collections.abc import Iterator

from benchax.reporting.document import Block, Heading, Table, TableColumn, list_lines, tabulate
from benchax.reporting.profile_groups import LONGEST_NAME, shorten_path
from benchax.reporting.tables import WHERE, truncate
from benchax.results.profile import CompileCost, Profile, ProgramSize
from benchax.units import count, plural, seconds, size

MOST_ROWS, LONGEST_PASS = 5, 24
MANY, MANY_SHARE = 20, 0.3
"""A line gets a remark if this many instructions, and this share of all instructions, come from it."""
LARGE_CONSTANTS = 1 << 20


def blocks(p: Profile, details: bool = False) -> list[Block]:
    """Returns no blocks if the profile has no compile times."""
    if not p.compile_costs:
        return []
    listed = p.compile_costs if details else p.compile_costs[:MOST_ROWS]
    passes = [f"longest passes of {one.name}: {_list_passes(one)}" for one in listed if one.passes]
    reasons = [f"{one.name}: {why}" for one in listed if one.size for why in _explain(one.size, details)]
    return [Heading("compile time"), tabulate_costs(p, listed, details), *list_lines([*reasons, *passes])]


def _list_passes(cost: CompileCost) -> str:
    return ", ".join(f"{truncate(name, LONGEST_PASS)} {seconds(time_s)}" for name, time_s in cost.passes)


def tabulate_costs(p: Profile, listed: tuple[CompileCost, ...], details: bool) -> Table:
    """Lists functions by trace, lower and compile. XLA's longest passes follow below, because a window has no room for
    them."""
    rows = [
        (
            truncate(one.name, None if details else LONGEST_NAME),
            count(one.programs),
            seconds(one.trace_s),
            seconds(one.lower_s),
            seconds(one.compile_s),
            shorten_path(one.source, details),
        )
        for one in listed
    ]
    rest = p.compile_costs[len(listed) :]
    more = f"and {plural(len(rest), 'more function')}: {seconds(sum(one.total_s for one in rest))}; " if rest else ""
    columns = (TableColumn("function", "names", 16, breaks_words=True), "programs", "trace", "lower", "compile", WHERE)
    return tabulate(columns, rows, note=more + "by JAX's own clock, from the import of jax on").without_empty_columns()


def _explain(found: ProgramSize, details: bool) -> Iterator[str]:
    """Explains which part of a program makes compiling long, and what would shorten it."""
    if found.repeated >= MANY and found.repeated >= MANY_SHARE * found.instructions:
        line = shorten_path(found.line, details)
        many = f"{count(found.repeated)} of {plural(found.instructions, 'instruction')} are from {line}"
        if found.stacks > 1:
            yield f"{many}, reached from {found.stacks} places and inlined at each"
        elif found.loop:
            loop = shorten_path(found.loop, details)
            yield f"{many}, unrolled by the loop at {loop}; where its rounds are alike, jax.lax.scan compiles one"
        else:
            yield f"{many}"
    if found.constant_bytes >= LARGE_CONSTANTS:
        yield f"{size(found.constant_bytes)} of constants are in the program; as arguments they would not be compiled"
