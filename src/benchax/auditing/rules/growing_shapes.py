"""Finds functions and operations that are compiled for one size after the other, each larger than the last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.sizes import sized_at
from benchax.auditing.syntax import where_of
from benchax.results.audit import Finding
from benchax.results.watch import Compile
from benchax.units import count, seconds

OFTEN = 4
"""Sizes in a row, each larger than the one before."""
DOUBLING = 1.5
"""From each size to the next: then there are few."""
_SPEC = re.compile(r"(\S+): \w+\[([\d,]*)\]")
ADVICE = (
    "Every size is a program of its own. Make the array as large as it will be, before the loop, and write into it "
    "(x.at[i].set(value), or jax.lax.dynamic_update_slice) with a mask or a length for what is in use; or double its "
    "size when it is full, so that there are few sizes; or collect in a Python list, and stack once at the end."
)


@rule("growing-shapes", "do arrays keep their size from step to step?", "warning", of="program")
def growing_shapes(e: ProgramEvidence) -> Iterable[Finding]:
    by_function: dict[tuple[str, str | None], list[Compile]] = {}
    for c in e.watch.compiles:
        # An operation is known by its name alone: one that is called from two lines is two.
        by_function.setdefault((c.function, c.where if c.is_eager else c.defined), []).append(c)
    eager: list[tuple[list[Compile], tuple[str, list[int]]]] = []
    for compiles in by_function.values():
        grown = growth(compiles)
        if grown is None:
            continue
        if compiles[0].is_eager:
            eager.append((compiles, grown))
        else:
            yield _finding(compiles, *grown)
    # A line sends several operations for one that its user wrote, and each of them grows.
    by_line = {compiles[0].where: (compiles, grown) for compiles, grown in reversed(eager)}
    for compiles, grown in by_line.values():
        yield _finding(compiles, *grown)


def growth(compiles: Sequence[Compile]) -> tuple[str, list[int]] | None:
    """(an argument's axis, its sizes) that has grown from program to program; None where none has, often enough."""
    series: dict[tuple[str, int], list[int]] = {}
    for c in compiles:
        for path, text in _SPEC.findall(c.arguments):
            for axis, n in enumerate(text.split(",")):
                if n:
                    series.setdefault((path, axis), []).append(int(n))
    for (path, axis), sizes in series.items():
        grows = all(b > a for a, b in pairwise(sizes))
        # Sizes that double, or end after a few, are what the advice makes of it.
        if len(sizes) > OFTEN and grows and not all(b >= DOUBLING * a for a, b in pairwise(sizes)):
            return f"axis {axis} of {path}", sizes
    return None


def _finding(compiles: Sequence[Compile], axis: str, sizes: list[int]) -> Finding:
    first, lost_s = compiles[0], sum(c.total_s for c in compiles[1:])
    shown = ", ".join(map(str, [*sizes[:3], "…", sizes[-1]]))
    lines = dict.fromkeys(c.where for c in compiles if c.where)
    return growing_shapes.finding(
        f"{first.function} was compiled for {count(len(sizes))} sizes, each larger than the one before",
        [
            f"{axis}: {shown}",
            f"all but the first took {seconds(lost_s)}, by JAX's own clock",
            *list_some([f"called at {line}" for line in lines]),
        ],
        ADVICE,
        where=sized_at(compiles[1:]) or where_of(first.where) or where_of(first.defined),
        gain=Gain(f"estimated: {seconds(lost_s)} of this run, if one program serves all sizes"),
    )
