"""Finds functions that are compiled twice for the same shapes: an argument begins as something else than it becomes."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.origins import made_by
from benchax.auditing.passed_values import started_at, started_paths
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.sizes import first_of_one_function
from benchax.auditing.syntax import where_of
from benchax.results.audit import Finding
from benchax.results.watch import Compile
from benchax.units import seconds

KINDS = frozenset({"weak type", "committed", "sharding"})
"""What can differ between two arrays of one shape and dtype."""
WITH_A_NUMBER = frozenset({"dtype", "shape"})
"""What differs as well where a Python number becomes an array."""
LONG_S, DEAR_S, LARGE_SHARE = 0.05, 0.5, 0.05
"""Compiling that takes less than the first is not worth a line; less than the second, and than this share of a
program's time, is an info."""
ADVICE = {
    "weak type": "Begin with an array of the dtype that it will have: jnp.float32(0.0) in place of 0.0, "
    "jnp.zeros(shape, dtype) in place of what Python numbers make.",
    "committed": "Place it from the first call on as it will lie later, with jax.device_put.",
    "sharding": "Place it with the sharding that it will have from the first call on, with jax.device_put.",
}


@rule("compiled-twice", "is a function compiled once for the same shapes?", "warning", of="program")
def compiled_twice(e: ProgramEvidence) -> Iterable[Finding]:
    by_function: dict[tuple[str, str | None], list[Compile]] = {}
    for c in e.watch.recompiles:
        if is_second_look(c):
            by_function.setdefault((c.function, c.defined), []).append(c)
    for compiles in by_function.values():
        lost_s = sum(c.total_s for c in compiles)
        if lost_s >= LONG_S:
            yield _finding(compiles, lost_s, e.watch.wall_s)


def is_second_look(c: Compile) -> bool:
    """Is an argument what it was before, but for what tells a beginning from a result?"""
    kinds = {reason.kind for reason in c.reasons}
    return bool(kinds & KINDS) and kinds <= (KINDS | WITH_A_NUMBER if "weak type" in kinds else KINDS)


def _finding(compiles: list[Compile], lost_s: float, wall_s: float | None) -> Finding:
    kinds = dict.fromkeys(reason.kind for c in compiles for reason in c.reasons)
    reasons = [reason.text for c in compiles for reason in c.reasons]
    called, defined, paths = where_of(compiles[0].where), where_of(compiles[0].defined), started_paths(reasons)
    made = first_of_one_function(made_by(called, compiles[0].function, path) for path in paths)
    path = paths[0] if len(paths) == 1 else ""
    return compiled_twice.finding(
        f"{compiles[0].function} was compiled again: an argument is not what it began as",
        [*list_some(reasons), f"that took {seconds(lost_s)}, by JAX's own clock"],
        " ".join(ADVICE[kind] for kind in kinds if kind in ADVICE),
        where=made or started_at(called, path, defined) or called or defined,
        gain=Gain(f"estimated: {seconds(lost_s)} of this run, if it is compiled once"),
        severity="info" if lost_s < DEAR_S and wall_s and lost_s < LARGE_SHARE * wall_s else None,
    )
