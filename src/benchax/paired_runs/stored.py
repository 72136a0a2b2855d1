"""Paired runs with a stored baseline: its program runs again, together with the candidate's function or program.

No stored time is compared: two sessions differ by 30 % and more for reasons that are not in the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchax.case import Case
from benchax.measuring.sides import Side
from benchax.model import CaseId, Comparison, Environment, Failure, Measurement, Options, Remark, Version
from benchax.options import resolve
from benchax.paired_runs.paired_run import PairedRun
from benchax.store.baselines import program
from benchax.store.database import DatabaseStore


@dataclass
class Pairing:
    """The paired runs of two versions of a suite, and the cases that have none."""

    paired_runs: list[PairedRun] = field(default_factory=list[PairedRun])
    without: list[Comparison] = field(default_factory=list[Comparison])
    """Cases that both have, and that cannot be compared; they say why."""
    new: list[CaseId] = field(default_factory=list[CaseId])
    """Only the candidate has them."""
    missing: list[CaseId] = field(default_factory=list[CaseId])
    """Only the baseline has them."""
    broken: list[Failure] = field(default_factory=list[Failure])
    """The failures of files of benchmarks that cannot be imported now."""


def pair_with_cases(
    store: DatabaseStore,
    label: str,
    baseline: Mapping[CaseId, Measurement],
    cases: Iterable[Case],
    here: Environment,
    command_line: Mapping[str, object] | None = None,
) -> Pairing:
    """Pairs stored rows with the current functions.

    Args:
        label: the label of the baseline.
        here: the environment of the candidate.
        command_line: options, as for `api.run`.
    """
    found = Pairing()
    listed = {case.id: case for case in cases}
    for id, case in listed.items():
        if id not in baseline:
            found.new.append(id)
            continue
        row = baseline[id]
        old = _version(row, label)
        new = Version("now", here.commit, here.is_dirty, here.jax)
        content, why = _program(store, row, here)
        if content is None:
            found.without.append(Comparison(id, "run", old, new, "unclear", why))
            continue
        options = resolve(None, case.options, command_line, project=case.folder)
        sides = (Side(old.label, program=content), Side(new.label, case))
        found.paired_runs.append(PairedRun(id, sides, (old, new), options, _remarks(row, here)))
    found.missing = [id for id in baseline if id not in listed]
    return found


def pair_with_rows(
    store: DatabaseStore,
    labels: tuple[str, str],
    baseline: Mapping[CaseId, Measurement],
    candidate: Mapping[CaseId, Measurement],
    here: Environment,
    options: Options,
) -> Pairing:
    """Pairs two stored versions, on random data of their shapes."""
    found = Pairing()
    for id, row in candidate.items():
        if id not in baseline:
            found.new.append(id)
            continue
        rows = (baseline[id], row)
        versions = (_version(rows[0], labels[0]), _version(rows[1], labels[1]))
        whose = ("its baseline", labels[1])
        programs = [_program(store, each, here, name) for each, name in zip(rows, whose, strict=True)]
        if missing := next((why for content, why in programs if content is None), ""):
            found.without.append(Comparison(id, "run", versions[0], versions[1], "unclear", missing))
            continue
        sides = tuple(Side(v.label, program=content) for v, (content, _) in zip(versions, programs, strict=True))
        data = Remark("random-data", "info", "both ran on random data of the shapes that they take")
        notes = (*_remarks(rows[0], here), *_remarks(row, here, labels[1]))
        found.paired_runs.append(PairedRun(id, sides, versions, options, (data, *notes)))
    found.missing = [id for id in baseline if id not in candidate]
    return found


def _version(row: Measurement, label: str) -> Version:
    env = row.environment
    return Version(label, env.commit, env.is_dirty, None, row.program.sha256 if row.program else None)


def _program(
    store: DatabaseStore, row: Measurement, here: Environment, whose: str = "its baseline"
) -> tuple[bytes | None, str]:
    """(content, "") or (None, why there is nothing that could run)."""
    was = row.environment
    if was.backend != here.backend:
        return None, f"{whose} was measured on {was.backend}, and this is {here.backend}"
    content = program(store, row)
    if content is not None:
        return content, ""
    if row.failure is not None:
        return None, f"{whose} ended with {row.failure.kind.replace('_', ' ')} in {row.failure.stage}"
    why = row.why_absent("program") or "it was stored by a benchax that kept none"
    return None, f"{whose} has no program that could run again, because {why}"


def _remarks(row: Measurement, here: Environment, whose: str = "the baseline") -> tuple[Remark, ...]:
    was, found = row.environment, list[Remark]()
    if (was.jax, was.jaxlib) != (here.jax, here.jaxlib):
        text = f"{whose} was made by jax {was.jax}, and both ran under jax {here.jax}: what JAX changed is in neither"
        found.append(Remark("other-jax", "info", text))
    if was.device_kind != here.device_kind:
        text = f"{whose} was measured on {was.device_kind}, and both ran on {here.device_kind}"
        found.append(Remark("other-device", "info", text))
    return tuple(found)
