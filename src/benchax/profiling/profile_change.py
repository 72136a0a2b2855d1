"""Two profiles: the operations that take longer in the second.

Names of operations change with every compilation (fusion.3 becomes fusion.4), so benchax matches operations by their
origin: scope below the program, opcode and shape. It sums operations with the same origin. The compiler's own copies
have no origin, so benchax matches them by name without its number. Two recordings are two samples, so there is no
verdict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from benchax.grouping import group_by
from benchax.model import Remark
from benchax.results.profile import LineChange, Op, OpChange, PartChange, PartKind, Profile, ProfileChange, StepSplit

Per = Literal["run", "call"]
_PROGRAM = re.compile(r"\bp?jit\([^/]*\)/")
_NUMBER = re.compile(r"(\.\d+)+$")
_NO_VERDICT = Remark(
    "no-verdict",
    "info",
    "one recording of each: noise is not told apart from a change; for a verdict use `benchax compare`",
)


def compare_profiles(before: Profile, after: Profile) -> ProfileChange:
    """Returns the changes from `before` to `after`, per run of the programs if both profiles know their runs."""
    per: Per = "run" if before.runs and after.runs else "call"
    old, new = _by_origin(before), _by_origin(after)
    other = _of_another_type(old, new)
    keys = [key for key in {**new, **old} if key not in other.values()]
    changes = [_change(old.get(other.get(key, key), ()), new.get(key, ()), before, after, per) for key in keys]
    return ProfileChange(
        before.title,
        after.title,
        per,
        tuple(sorted(changes, key=lambda change: (-change.more_s, change.name))),
        (_NO_VERDICT, *_remarks(before, after)),
        _by_line(changes, _count_runs(before, after)),
        *_compare_steps(before.split, after.split),
    )


def _count_runs(before: Profile, after: Profile) -> dict[str, int]:
    """Counts the runs of each program, if there are several."""
    if all(len({op.module for op in p.ops}) <= 1 for p in (before, after)):
        return {}
    old, new = (Counter(run.module for run in p.runs) for p in (before, after))
    return {name: max(old[name], new[name], 1) for p in (before, after) for name in {op.module for op in p.ops}}


def _by_line(changes: Sequence[OpChange], runs: Mapping[str, int]) -> tuple[LineChange, ...]:
    """A line that has moved counts under its new number if benchax recognises its operations by their scope.

    Args:
        runs: runs of each program. It is empty if there is only one program, whose name can differ between two
            versions.
    """
    groups = group_by(changes, lambda change: (change.source or "", change.module if runs else ""))
    found = [
        LineChange(
            source,
            _sum_of([change.before_s for change in ops if change.calls_before]),
            _sum_of([change.after_s for change in ops if change.calls_after]),
            max(ops, key=lambda change: abs(change.more_s)),
            module,
        )
        for (source, module), ops in groups.items()
    ]
    # Operations that ran a thousand times come before those that ran once, during setup.
    return tuple(sorted(found, key=lambda one: (-abs(one.more_s or 0.0) * runs.get(one.module, 1), one.source)))


def _sum_of(times_s: Sequence[float | None]) -> float | None:
    known = [time_s for time_s in times_s if time_s is not None]
    return sum(known) if len(known) == len(times_s) else None


def _compare_steps(
    before: StepSplit | None, after: StepSplit | None
) -> tuple[tuple[float, float] | None, tuple[PartChange, ...]]:
    if before is None or after is None or "none" in (before.mark, after.mark):
        return None, ()
    old: dict[PartKind, float] = {part.kind: part.mean_s for part in before.parts}
    new: dict[PartKind, float] = {part.kind: part.mean_s for part in after.parts}
    kinds: list[PartKind] = [*old, *(kind for kind in new if kind not in old)]
    parts = [PartChange(kind, old.get(kind, 0.0), new.get(kind, 0.0)) for kind in kinds]
    parts.sort(key=lambda part: -abs(part.after_s - part.before_s))
    return (median(before.lengths_s), median(after.lengths_s)), tuple(parts)


def _by_origin(p: Profile) -> Mapping[tuple[str, ...], Sequence[Op]]:
    def origin(op: Op) -> Origin:
        # Nested programs are not part of the place, because two versions may call or nest them differently.
        place = _PROGRAM.sub("", op.scope or "") or _NUMBER.sub("", op.name)
        return place, op.category, op.shape or ""

    return group_by(p.ops, origin)


Origin = tuple[str, ...]


def _of_another_type(old: Mapping[Origin, Sequence[Op]], new: Mapping[Origin, Sequence[Op]]) -> dict[Origin, Origin]:
    """Maps each new origin to the one that disappeared from the same scope and opcode, with the same sizes in another
    dtype.

    It maps an origin only if there is one of each.
    """
    gone = group_by((key for key in old if key not in new), _without_type)
    come = group_by((key for key in new if key not in old), _without_type)
    return {keys[0]: gone[same][0] for same, keys in come.items() if len(keys) == len(gone.get(same, ())) == 1}


def _without_type(key: Origin) -> Origin:
    """bf16[64,64] and f32[64,64] are alike."""
    return (*key[:2], re.sub(r"\b[a-z]+\d*\w*\[", "[", key[2]))


def _change(old: Sequence[Op], new: Sequence[Op], before: Profile, after: Profile, per: Per) -> OpChange:
    shown = (new or old)[0]
    return OpChange(
        shown.name,
        shown.category,
        shown.scope,
        shown.shape,
        _time(old, before, per),
        _time(new, after, per),
        sum(op.calls for op in old),
        sum(op.calls for op in new),
        shown.source,
        old[0].shape if old and new and old[0].shape != new[0].shape else None,
        shown.module,
    )


def _time(ops: Sequence[Op], p: Profile, per: Per) -> float | None:
    """Returns the self time of these operations together, or None if there are no operations."""
    if not ops:
        return None
    if per == "call":
        return sum(op.self_s for op in ops) / sum(op.calls for op in ops)
    runs = {module: sum(run.module == module for run in p.runs) for module in {op.module for op in ops}}
    if not all(runs.values()):  # an operation of no known run: per run would be a guess
        return None
    return sum(op.self_s / runs[op.module] for op in ops)


def _remarks(before: Profile, after: Profile) -> tuple[Remark, ...]:
    found: list[Remark] = []
    if before.backend != after.backend and before.backend and after.backend:
        found.append(Remark("other-backend", "warning", f"recorded on {before.backend} and on {after.backend}"))
    for p, which in ((before, "first"), (after, "second")):
        if not p.ops:
            found.append(Remark("no-operations", "error", f"the {which} profile holds no operation"))
        if p.is_truncated:
            found.append(Remark("events-dropped", "error", f"events are missing from the {which} profile"))
    return tuple(found)
