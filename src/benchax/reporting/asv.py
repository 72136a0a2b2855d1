"""airspeed velocity (asv) results: a `results_dir` for its compare, show and publish. Read by asv 0.6.6.

    benchmarks.json                     what benchmarks there are
    <machine>/machine.json
    <machine>/<commit>-<environment>.json

A benchmark is a name with variant and tag; its parameters are asv's parameters. asv has a cell for every combination of
their values: one that was not measured is NaN (asv's "skipped"), one that failed is null. Readings are left out, as asv
itself leaves them out by default: it would test those of one process as if they were independent, and alarm on
unchanged code. Its 99 % interval is given instead, by our own rule; it is infinite if there are too few readings, as
asv writes it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from benchax.errors import UsageError
from benchax.grouping import group_by
from benchax.model import CaseId, Environment, Opaque
from benchax.reporting.exports import ExportedCase, drop_unknown
from benchax.stats.intervals import median_interval

LEVEL = 0.99
WIDER = 2.576 / 1.960
"""The quantile of the normal distribution at 99 % over the one at 95 %."""
STATS = ("ci_99_a", "ci_99_b", "q_25", "q_75", "number", "repeat")
COLUMNS = ("result", "params", "version", "started_at", "duration", *(f"stats_{name}" for name in STATS))
VERSION = "1"
"""The version of every benchmark. In asv it is a digest of the benchmark's code, and results of two versions are not
compared."""
SPARSE = 10
"""With more cells than this per case, a grid becomes one axis of combinations."""
ABSENT = "-"
"""The value of a parameter that a case does not have."""


def files(found: Sequence[ExportedCase], dates: Mapping[str, int]) -> dict[str, str]:
    """Texts by their paths.

    Args:
        dates: of the commits, in seconds since 1970. asv orders by them.

    Raises:
        UsageError: a row whose commit is not known; asv keeps results by commit.
    """
    if unknown := [entry.label for entry in found if entry.m.environment.commit is None]:
        problem = f"{unknown[0]!r} was measured outside of any commit"
        raise UsageError(problem, "rows with a commit, by which asv keeps results")
    groups = group_by(found, _name)
    grids = {name: grid_of([entry.m.case for entry in group]) for name, group in groups.items()}
    written = {"benchmarks.json": _dump({name: _describe(name, grid) for name, grid in grids.items()} | {"version": 2})}
    for (machine, stem), rows in group_by(found, _file).items():
        env = rows[0].m.environment
        written[f"{machine}/machine.json"] = _dump(_machine(env) | {"version": 1})
        written[f"{machine}/{stem}.json"] = _dump(
            _results(rows, grids, 1000 * dates[env.commit or ""]) | {"version": 2}
        )
    return written


def merge(old: str | bytes, new: str) -> str:
    """Keeps the content of an existing file, except for the benchmarks that this export writes.

    Raises:
        UsageError: the old one is not JSON.
    """
    try:
        before, after = json.loads(old), json.loads(new)
    except ValueError as error:
        raise UsageError("a file in the folder is not JSON", "an empty folder, or one of asv") from error
    if "results" in after:
        return _dump(after | {"results": before.get("results", {}) | after["results"]})
    return _dump(before | after)


# ---- benchmarks and their grids ---------------------------------------------------------------------------------


class AsvGrid(NamedTuple):
    """The parameters of one benchmark. asv wants all values as texts."""

    names: tuple[str, ...]
    axes: tuple[list[str], list[list[str]]]
    """(names, values), as asv has them. If the grid is sparse, the combinations that there are make one axis."""
    cells: list[tuple[str, ...]]
    """Combinations in asv's order: the last parameter varies fastest."""


def grid_of(cases: Sequence[CaseId]) -> AsvGrid:
    names = tuple(dict.fromkeys(key for case in cases for key, _ in case.params))
    there = [_cell(case, names) for case in cases]
    values = [list(dict.fromkeys(column)) for column in zip(*there, strict=True)]
    if math.prod(map(len, values)) > SPARSE * len(cases):
        return AsvGrid(names, ([", ".join(names)], [list(map(", ".join, there))]), there)
    return AsvGrid(names, (list(names), values), list(itertools.product(*values)))


def _cell(case: CaseId, names: Sequence[str]) -> tuple[str, ...]:
    """Where `case` belongs."""
    params = dict(case.params)
    return tuple(_text(params[name]) if name in params else ABSENT for name in names)


def _text(value: Any) -> str:
    """As Python writes it, which tells 1 from "1"."""
    return f"<{value.type} {value.text}>" if isinstance(value, Opaque) else repr(value)


def _name(entry: ExportedCase) -> str:
    return replace(entry.m.case, params=()).label or "(no name)"


def _describe(name: str, grid: AsvGrid) -> dict[str, Any]:
    names, values = grid.axes
    about = {"code": "", "type": "time", "unit": "seconds", "version": VERSION}
    return {"name": name, "param_names": names, "params": values} | about


# ---- results ----------------------------------------------------------------------------------------------------


def _file(entry: ExportedCase) -> tuple[str, str]:
    """(folder, stem). asv looks for results under the first eight digits of a commit."""
    env = entry.m.environment
    return _machine_name(env), f"{(env.commit or '')[:8]}-{_environment(env)}"


def _machine_name(env: Environment) -> str:
    """The host, as a folder can be called."""
    safe = re.sub(r"[^\w.-]", "_", env.host)[:100].strip(".") or "unnamed"
    return safe if safe == env.host else f"{safe}-{hashlib.sha256(env.host.encode()).hexdigest()[:8]}"


def _environment(env: Environment) -> str:
    """asv has no word for a dirty working tree: it is an environment of its own there."""
    return f"benchax-{env.fingerprint}" + "-dirty" * bool(env.is_dirty)


def _machine(env: Environment) -> dict[str, Any]:
    ram = None if env.memory_bytes is None else env.memory_bytes // 1024
    numbers = {name: str(value) for name, value in (("num_cpu", env.cores), ("ram", ram)) if value is not None}
    return drop_unknown({"machine": _machine_name(env), "os": env.os, "cpu": env.processor} | numbers)


def _results(rows: Sequence[ExportedCase], grids: Mapping[str, AsvGrid], date_ms: int) -> dict[str, Any]:
    env = rows[0].m.environment
    versions = drop_unknown({"jax": env.jax, "jaxlib": env.jaxlib, "numpy": env.numpy})
    state = {"is_dirty": "yes"} if env.is_dirty else {}
    fakes = str(env.fake_devices) if env.fake_devices else None
    device = drop_unknown({"backend": env.backend, "device_kind": env.device_kind, "fake_devices": fakes})
    return {
        "commit_hash": env.commit,
        "env_name": _environment(env),
        "date": date_ms,
        "params": _machine(env) | versions | device | state,
        "python": env.python,
        "requirements": versions,
        "env_vars": {},
        "result_columns": list(COLUMNS),
        "results": {name: _columns(group, grids[name]) for name, group in group_by(rows, _name).items()},
        "durations": {},
    }


def _columns(group: Sequence[ExportedCase], grid: AsvGrid) -> list[Any]:
    """Returns the values that asv keeps for one benchmark, in the order of COLUMNS."""
    there = {_cell(entry.m.case, grid.names): entry for entry in group}
    found = [there.get(cell) for cell in grid.cells]
    stats = [_stats(entry) if entry else {} for entry in found]
    when = datetime.fromisoformat(group[0].m.started_at)
    # Milliseconds since 1970, as in JavaScript.
    started_ms = round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    columns = ([each.get(name) for each in stats] for name in STATS)
    return [list(map(_result, found)), grid.axes[1], VERSION, started_ms, None, *columns]


def _result(entry: ExportedCase | None) -> float | None:
    """NaN: skipped. None: failed."""
    if entry is not None and entry.summary is not None:
        return entry.summary.median_s
    return None if entry is not None and entry.m.failure else math.nan


def _stats(entry: ExportedCase) -> dict[str, Any]:
    if entry.samples is None or entry.summary is None:
        return {}
    s = entry.summary
    # The 95 % interval for a later run, widened as for a normal distribution of logarithms.
    ends = [s.median_s * (end / s.median_s) ** WIDER for end in (s.low_s, s.high_s) if end]
    if s.scope == "process":
        ends = median_interval(entry.samples.per_call_s, LEVEL) or ()
    low, high = ends if len(ends) == 2 else (-math.inf, math.inf)
    return dict(zip(STATS, (low, high, s.q25_s, s.q75_s, entry.samples.iterations, s.n), strict=True))


def _dump(document: Any) -> str:
    """Writes NaN and infinities as asv writes and reads them."""
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
