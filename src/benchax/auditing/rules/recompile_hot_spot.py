"""Finds a function that is compiled again and again."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.passed_values import changed_path, made_at
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.rules import compiled_twice, growing_shapes
from benchax.auditing.sizes import sized_at
from benchax.auditing.syntax import where_of
from benchax.results.audit import Finding, Where
from benchax.results.watch import Compile
from benchax.units import percent, plural, seconds

OFTEN = 3
"""Recompiles of one function in a program."""
EACH_CALL = 2
"""So many compilations of one function with the same shapes each time, which is called three times."""
LARGE_SHARE, LONG_S = 0.1, 0.5
"""Fewer count as well, where they take this share of a program's time and so many seconds."""
LITTLE_SHARE = 0.02
"""Of a program's time: an info, however many."""
OTHERS = frozenset({"new function", "static"})
"""Reasons that jit-in-loop and static-churn tell of."""
OF_ARGUMENTS = frozenset({"shape", "dtype", "weak type", "structure", "committed", "sharding"})
"""Reasons that lie with who calls."""


@rule("recompile-hot-spot", "is a function compiled again and again?", "warning", of="both")
def recompile_hot_spot(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    is_program = isinstance(e, ProgramEvidence)
    wall_s = e.watch.wall_s if is_program else None
    by_function: dict[tuple[str, str | None], list[Compile]] = {}
    for c in e.watch.recompiles:
        if not {reason.kind for reason in c.reasons} <= OTHERS:
            by_function.setdefault((c.function, c.defined), []).append(c)
    for (function, defined), compiles in by_function.items():
        if is_program and _is_reported_elsewhere(e, function, defined, compiles):
            continue
        lost_s = sum(c.total_s for c in compiles)
        # Two compilations of a minute each matter more than ten of a millisecond.
        is_long = wall_s is not None and lost_s >= max(LONG_S, LARGE_SHARE * wall_s)
        if len(compiles) >= (OFTEN if is_program else EACH_CALL) or is_long:
            yield _finding(function, defined, compiles, wall_s)


def _is_reported_elsewhere(e: ProgramEvidence, function: str, defined: str | None, compiles: list[Compile]) -> bool:
    """Does a rule with better advice speak of it: growing-shapes, or compiled-twice?"""
    if all(compiled_twice.is_second_look(c) for c in compiles):
        return True
    of_function = [c for c in e.watch.compiles if (c.function, c.defined) == (function, defined)]
    return growing_shapes.growth(of_function) is not None


def _finding(function: str, defined: str | None, compiles: list[Compile], wall_s: float | None) -> Finding:
    lost_s = sum(c.total_s for c in compiles)
    of_run = f" of {seconds(wall_s)} ({percent(lost_s / wall_s)})" if wall_s else ""
    seen = [f"{plural(len(compiles), 'recompile')} took {seconds(lost_s)}{of_run}, by JAX's own clock"]
    seen += list_some([f"{f'{c.where}: ' if c.where else ''}{c.why} ({seconds(c.total_s)})" for c in compiles])
    kinds = dict.fromkeys(reason.kind for c in compiles for reason in c.reasons)
    # Beside arrays an argument holds what JAX takes as static: a learning rate in a field, the functions of optax.
    path = changed_path(reason.text for c in compiles for reason in c.reasons) if set(kinds) == {"structure"} else ""
    because = f": {path} is another one each time" if path else ""
    return recompile_hot_spot.finding(
        f"{function} was compiled again {plural(len(compiles), 'time')}{because}",
        seen,
        STATIC_PART.format(path=path)
        if path
        else " ".join(dict.fromkeys(ADVICE.get(kind, OTHERWISE) for kind in kinds)),
        where=(path and made_at(where_of(compiles[0].where), path))
        or sized_at(compiles)
        or _where(defined, compiles, kinds),
        gain=Gain(f"estimated: {seconds(lost_s)} of this run, if it is compiled once"),
        # A second or third size, as of another batch for evaluation, is often what is wanted, however long it takes.
        severity="info" if wall_s and (len(compiles) < OFTEN or lost_s < LITTLE_SHARE * wall_s) else None,
    )


def _where(defined: str | None, compiles: list[Compile], kinds: Iterable[str]) -> Where | None:
    """The one line that calls it with what varies; else where the function is."""
    called = {c.where for c in compiles}
    if len(called) == 1 and OF_ARGUMENTS.issuperset(kinds):
        return where_of(called.pop()) or where_of(defined)
    return where_of(defined) or where_of(compiles[0].where)


STATIC_PART = (
    "{path} is no array, and JAX compiles for each value of it: make it once, before the loop, and let what changes in "
    "it be an array: of a learning rate a schedule of optax or optax.inject_hyperparams, of a number a field that is a "
    "leaf of the tree."
)
ADVICE = {
    "shape": "Pad what varies to a few sizes (buckets), or mask: every new shape is a new program.",
    "dtype": "Convert to one dtype before the call.",
    "weak type": "Give Python numbers a dtype before the call: jnp.float32(…).",
    "structure": "Pass the same tree each time, with None or empty arrays where something is missing.",
    "keyword": "Give each argument always by name, or always by position.",
    "static": "Pass what takes many values as an array.",
    "committed": "Place the arguments in one way from the first call on, with jax.device_put.",
    "sharding": "Place the arguments with one sharding from the first call on.",
    "settings": "Call jax.jit once, with one set of settings.",
    "config": "Set JAX's configuration once, before the first call.",
    "new function": "Make the function, and jit it, once.",
    "cleared": "Clear JAX's caches only where memory is short: what was compiled is lost with them.",
}
"""By the kind of the reason."""
OTHERWISE = "Look at the reasons: what differs between two calls is to be made the same."
