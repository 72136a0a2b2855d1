"""Run times of pairs of cases, compared as `benchax.compare` does it: one session for all that share settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from benchax.case import Case
from benchax.comparing.sequential import Effort
from benchax.errors import BenchaxError
from benchax.experiments.functions import side_by_side
from benchax.experiments.study import under
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.sides import Side
from benchax.model import CaseId, Comparison, Options, Version
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PairedRun
from benchax.progress import Listener


@dataclass(frozen=True)
class Pair:
    """A pair; the comparison is of `other` against `one`."""

    name: str
    one_label: str
    one: Case
    other_label: str
    other: Case
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def time_pairs(pairs: Sequence[Pair], options: Options, effort: Effort, report: Listener) -> dict[str, Comparison]:
    """The comparison of run times of each pair, by its name."""
    found: dict[str, Comparison] = {}
    paired_runs: dict[tuple[tuple[str, Any], ...], dict[str, PairedRun]] = {}
    for pair in pairs:
        try:
            with under(pair.settings):
                paired_run = _as_paired_run(pair, options)
        except Exception as error:  # its inputs cannot be laid beside the others: a row says so
            found[pair.name] = _fail(pair, error)
        else:
            # Settings of JAX hold for a process, which all pairs of a session share.
            paired_runs.setdefault(tuple(sorted(pair.settings.items())), {})[pair.name] = paired_run
    begun = monotonic()
    for settings, group in paired_runs.items():
        limit_s = effort.max_time_s
        left = effort if limit_s is None else replace(effort, max_time_s=limit_s - (monotonic() - begun))
        with session.fresh_processes(dict(settings)) as start:
            settled = session.compare_runs(list(group.values()), left, report, start)
        for name, comparisons in zip(group, settled, strict=True):
            found[name] = next(c for c in comparisons if c.metric == "run")
    return found


def _as_paired_run(pair: Pair, options: Options) -> PairedRun:
    one, other = side_by_side(pair.one, pair.other, options.seed)
    sides = (Side(pair.one_label, one), Side(pair.other_label, other))
    return PairedRun(_pair_id(pair), sides, (Version(pair.one_label), Version(pair.other_label)), options)


def _pair_id(pair: Pair) -> CaseId:
    """With the variant in its name, which progress shows."""
    return CaseId(pair.one.id.name, pair.one.id.params, pair.name, pair.one.id.tag)


def _fail(pair: Pair, error: BaseException) -> Comparison:
    failure = diagnose(error, "preparing")
    versions = Version(pair.one_label), Version(pair.other_label)
    problem = error.problem if isinstance(error, BenchaxError) else failure.message
    return Comparison(_pair_id(pair), "run", *versions, "unclear", problem, failure=failure)
