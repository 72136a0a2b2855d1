"""Finds large arrays that a function closes over: they become constants of the program."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import list_some, rule
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import plural, size

LARGE_BYTES, DEAR_BYTES = 1 << 20, 1 << 23
"""Below the first size, a constant has no measurable cost; below the second it is an info. Each MiB takes 5 to 10 ms of
compiling (a random f32[n,32] that is gathered from, jaxlib 0.10.2, CPU)."""


@rule("captured-constants", "does it close over large arrays?", "warning")
def captured_constants(e: Evidence) -> Iterable[Finding]:
    constants = e.inspection.constants
    captured = constants.captured if constants else None
    if captured is None:
        raise NotMeasured(e.inspection.why_absent("constants.captured") or "the jaxpr cannot be reached")
    large = [c for c in captured if c.size_bytes >= LARGE_BYTES]
    if not large:
        return
    total = sum(c.size_bytes for c in large)
    used = [f"{c.spec}, {size(c.size_bytes)}{f', first used at {c.where}' if c.where else ''}" for c in large]
    seen = list_some(used)
    if e.inspection.stablehlo is not None:
        seen.append(f"the text that XLA is given is {size(len(e.inspection.stablehlo))} long")
    kept = constants.baked_in_bytes if constants else None
    if kept is not None:
        seen.append(f"the compiled program holds {size(kept)} of constants")
    yield captured_constants.finding(
        f"closes over {plural(len(large), 'array')} of {size(total)}",
        seen,
        "Pass them as arguments. What is closed over is written into the program each time it is lowered, held "
        "by each compiled program apart from the array itself, and computed with while compiling.",
        where=e.def_where,
        severity="info" if total < DEAR_BYTES else None,
    )
