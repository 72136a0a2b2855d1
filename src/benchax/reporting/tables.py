"""Columns, and texts of one line, that several documents share."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rich.cells import cell_len, set_cell_size

from benchax.grouping import group_by
from benchax.model import Environment, Remark
from benchax.printable import list_some
from benchax.reporting.document import Section, Style, Table, TableColumn, TextRow, tabulate
from benchax.results.inspection import Peaks
from benchax.stats.intervals import ENOUGH_RUNS, LEAST_MARGIN
from benchax.stats.summary import Summary
from benchax.stats.verdicts import Verdict
from benchax.store.schema import Row as StoredRow
from benchax.units import plural, rate, seconds, seconds_around, seconds_range, size

if TYPE_CHECKING:
    from benchax.store.baselines import StoredRun

T = TypeVar("T")
K = TypeVar("K")
CASE = TableColumn("case", "names", 16, is_cut=True)
COMMIT = TableColumn("commit", "words", 9, breaks_words=True)
LINE = TableColumn("line", "words", 16, breaks_words=True)
LINE_NAMES = TableColumn("line", "names", 16, breaks_words=True)
SCOPE_NAMES = TableColumn("scope", "names", 16, breaks_words=True)
REMARKS = TableColumn("remarks", "words", 12, breaks_words=True)
VERDICT = TableColumn("verdict", "words", 12, breaks_words=True)
WHEN = TableColumn("when (UTC)", "words", 10)
WHERE = TableColumn("where", "words", 18, breaks_words=True)
"""Columns of several tables."""
ESTIMATE = 10
"""A column of times with intervals folds down to this width in a narrow window."""
VERDICT_STYLES: dict[Verdict, Style] = {"faster": "good", "slower": "bad", "same": "", "unclear": "faint"}


def one_line(text: str) -> str:
    """Joins the words: a row of a table is one line, also for `grep`."""
    return " ".join(text.split())


def join_names(names: Sequence[str]) -> str:
    """f, g and h"""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def truncate(text: str, width: int | None) -> str:
    """Cuts `text` to one line of `width` columns of a terminal (some letters take two columns). None: uncut."""
    line = one_line(text)
    return line if width is None or cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + "…"


LEAST_BEGIN = 4
"""Columns that are left of the begin of a name that is cut in its middle."""
_PARAMETERS = re.compile(r"\[[^\[]*\]$")


def cut_middle(name: str, width: int) -> str:
    """Cuts `name` to `width` columns of a terminal. The parameters at its end stay, as far as there is room, and both
    ends of the rest: they tell cases apart."""
    if cell_len(name) <= width:
        return name
    parameters = _PARAMETERS.search(name)
    kept = min(len(parameters[0]), width - LEAST_BEGIN - 1) if parameters else 0
    rest = width - 1 - kept
    end = kept + max(0, min(rest // 2, rest - LEAST_BEGIN))
    return f"{set_cell_size(name, width - end - 1)}…{set_cell_size(name[::-1], end)[::-1]}"


def describe_date(date: str) -> str:
    """2026-01-31 12:05, of UTC in ISO 8601."""
    return date[:16].replace("T", " ")


def describe_machine(env: Environment) -> str:
    """cpu · AMD EPYC · 4 fake devices · jax 0.10.2"""
    versions = f"jax {env.jax}" if env.jax else ""
    fakes = plural(env.fake_devices, "fake device") if env.fake_devices else ""
    return " · ".join(part for part in (env.backend, name_device(env), fakes, versions) if part)


def name_device(env: Environment) -> str | None:
    # On CPU the device kind is just "cpu"; the processor says more.
    return env.processor if env.backend == "cpu" else env.device_kind


def stored_grid(rows: Sequence[StoredRow]) -> Table:
    """Rows of the store, one line each. A shared year or timer is in the head of its column."""
    when, dates = date_column(row.started_at for row in rows)
    timers = {row.timer for row in rows if row.timer}
    timer = next(iter(timers)) if len(timers) == 1 else ""
    columns = (
        "id",
        when,
        CASE,
        TableColumn("timer", "words"),
        TableColumn(timer or "time", "numbers", ESTIMATE),
        TableColumn("compile", is_optional=True),
        replace(COMMIT, is_optional=True),
    )
    styles: list[Style] = ["bad" if row.failure_kind else "" for row in rows]
    lines = (_stored_line(row, date, bool(timer)) for row, date in zip(rows, dates, strict=True))
    return tabulate(columns, lines, styles).without_empty_columns(kept=(0, 1, 2, 4, 5, 6))


def date_column(times: Iterable[str]) -> tuple[TableColumn, list[str]]:
    """Returns a column of dates, and its texts. A shared year is in the head of the column.

    Args:
        times: in ISO 8601, as rows have them.
    """
    dates = [describe_date(time) for time in times]
    years = {date[:4] for date in dates}
    if len(years) != 1:
        return WHEN, dates
    return TableColumn(f"{years.pop()} (UTC)", "words"), [date[5:] for date in dates]


def run_grid(runs: Sequence[StoredRun], names: Mapping[str, str]) -> Table:
    """Runs of the store, one line each.

    Args:
        names: names of baselines, by run id.
    """
    when, dates = date_column(run.started_at for run in runs)
    columns = (
        "run",
        when,
        "rows",
        TableColumn("cases", "names", 12, is_cut=True),
        COMMIT,
        TableColumn("machine", "words", 10, is_cut=True, is_optional=True),
        TableColumn("name", "names", 8, is_cut=True),
    )
    styles: list[Style] = ["bad" if run.failed else "" for run in runs]
    lines = (_run_line(run, date, names.get(run.run_id, "")) for run, date in zip(runs, dates, strict=True))
    return tabulate(columns, lines, styles).without_empty_columns(kept=(0,))


def _run_line(run: StoredRun, date: str, name: str) -> tuple[str, ...]:
    failed = f", {run.failed} failed" if run.failed else ""
    device = run.backend if run.backend == "cpu" else run.device_kind
    return (
        run.run_id[:12],
        date,
        f"{run.rows}{failed}",
        one_line(", ".join(list_some(run.cases, MOST_NAMES))),
        (run.commit or "")[:8] + ("+" if run.is_dirty else ""),
        one_line(" · ".join(part for part in (run.host, device, run.jax and f"jax {run.jax}") if part)),
        one_line(name),
    )


MOST_NAMES = 3
"""More names of cases are counted."""


def _stored_line(row: StoredRow, date: str, has_timer: bool) -> tuple[str, ...]:
    """`has_timer`: the head of the table has the timer."""
    failed = row.failure_kind.replace("_", " ") if row.failure_kind else ""
    return (
        str(row.id),
        date,
        one_line(row.case.label),
        "" if has_timer or failed else row.timer or "",
        failed or estimate(row),
        seconds(row.compile_s) if row.compile_s is not None and not failed else "",
        (row.commit or "")[:8] + ("+" if row.is_dirty else ""),
    )


def environment(env: Environment) -> Section:
    """The machine and the software. Unknown facts are listed as unknown."""
    rows = [TextRow(f.name.replace("_", " "), describe_fact(f.name, getattr(env, f.name))) for f in fields(env)]
    return Section(
        "environment", (*rows, TextRow("fingerprint", env.fingerprint, "rows with the same one may be compared"))
    )


def describe_fact(name: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if name == "memory_bytes":
        return size(value)
    if isinstance(value, Mapping):
        settings = cast("Mapping[str, Any]", value)
        return "\n".join(f"{k}={v}" for k, v in sorted(settings.items())) or "none set"
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[Any, ...]", value)))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


# ---- a time with its interval ----------------------------------------------------------------------------------


UNSTABLE = 3.0
"""High over low. An interval that is wider marks its median."""
FEW = 20
"""Fewer readings than this explain a wide interval."""


def estimate(s: Summary | StoredRow | None) -> str:
    """5.16 ms (5.08–5.31); 1.30 ms (0.900–6.34, unstable). The median alone without an interval; empty without one."""
    return "" if s is None or s.median_s is None else f"{seconds(s.median_s)} {spread(s)}".rstrip()


def mean_and_deviation(s: Summary) -> str:
    """2.00 ms ± 1.00 ms: the scatter of the readings, which isn't the uncertainty of their mean."""
    if s.mean_s is None:
        return ""
    return seconds(s.mean_s) + ("" if s.std_s is None else f" ± {seconds(s.std_s)}")


def spread(s: Summary | StoredRow) -> str:
    """(5.08–5.31) in the unit of the median; (0.900–6.34, unstable); empty without an interval."""
    if s.median_s is None or s.low_s is None or s.high_s is None or s.median_s <= 0:
        return ""
    mark = ", unstable" if is_unstable(s) else ""
    return f"({seconds_around(s.median_s, s.low_s, s.high_s)}{mark})"


def is_unstable(s: Summary | StoredRow) -> bool:
    return s.low_s is not None and s.high_s is not None and s.high_s > UNSTABLE * max(s.low_s, 0.0)


def agreement(s: Summary) -> str:
    """4 of 5 processes agree; one was slow (6.40 ms), or: as in 12 earlier runs. One process without earlier
    runs says so, and why its interval is unstable."""
    runs = plural(len(s.earlier_s), "earlier run")
    if len(s.earlier_s) >= ENOUGH_RUNS:
        fastest_s, slowest_s = min(s.earlier_s), max(s.earlier_s)
        if fastest_s / (1 + LEAST_MARGIN) <= s.median_s <= slowest_s * (1 + LEAST_MARGIN):
            return f"as in {runs}"
        how = "slower" if s.median_s > slowest_s else "faster"
        return f"{how} than all of {runs} ({seconds_range(fastest_s, slowest_s)})"
    if s.processes == 1:
        why = _why_unstable(s) if is_unstable(s) else ""
        return ", ".join(filter(None, (f"with {runs}" if s.earlier_s else "one process only", why)))
    agreeing = s.processes - len(s.outlying_s)
    if 2 * agreeing <= s.processes:
        return f"{s.processes} processes differ: {seconds_range(s.process_medians_s[0], s.process_medians_s[-1])}"
    if not s.outlying_s:
        return f"{s.processes} processes agree"
    sides = group_by(s.outlying_s, lambda median_s: "slow" if median_s > s.median_s else "fast")
    outliers = (_count_outliers(sides[how], how) for how in ("slow", "fast") if how in sides)
    return f"{agreeing} of {s.processes} processes agree; {', '.join(outliers)}"


def _count_outliers(medians_s: Sequence[float], how: str) -> str:
    if len(medians_s) == 1:
        return f"one was {how} ({seconds(medians_s[0])})"
    return f"{len(medians_s)} were {how} ({seconds_range(medians_s[0], medians_s[-1])})"


def _why_unstable(s: Summary) -> str:
    if s.n < FEW:
        return f"{s.n} readings are few"
    return "the readings scatter" if s.q75_s > UNSTABLE * s.q25_s else "the readings drift or have two modes"


def describe_interval(s: Summary) -> str:
    """(5.08–5.31) 95 % interval for a later run"""
    interval = spread(s)
    return f"{interval} 95 % interval for {scope(s)}" if interval else "no interval: too few readings"


def scope(s: Summary) -> str:
    """Returns the scope of the interval."""
    return "this process" if s.scope == "process" else "a later run"


OF_THE_MACHINE = "busy"
"""The code of a remark that each comparison has with its own numbers, and a reader needs once."""
MOST_SHARED = 0.5
"""A remark that more than this share of the cases have appears once."""
MOST_EXCEPTIONS = 3
"""So many cases that lack it are named."""


@dataclass(frozen=True)
class SharedRemarks:
    """The remarks that appear once, and the remarks that stay with each case."""

    common: tuple[Remark, ...]
    """Their messages begin with how many have it."""
    universal: frozenset[str]
    """Codes of those that all have: no column needs them."""
    own: Mapping[str, tuple[Remark, ...]]
    """By name: the remarks about this case alone."""


def share_remarks(
    by_name: Mapping[str, Iterable[Remark]], noun: str = "case", apart: Collection[str] = ()
) -> SharedRemarks:
    """Moves remarks that most cases have out of the remarks of each case.

    Remarks with the same code are equal, even if their numbers differ. Errors always stay with their case, however many
    cases have the same error.

    Args:
        by_name: the remarks of each case, by its label.
        noun: the kind of thing that the names refer to, in the singular.
        apart: codes of remarks that are about one case even if other cases have them.
    """
    listed = {name: tuple(each_once(remarks)) for name, remarks in by_name.items()}
    each = [(name, remark) for name, remarks in listed.items() for remark in remarks]
    common = {
        code: dict(held)
        for code, held in group_by(each, lambda one: one[1].code).items()
        if len(dict(held)) == len(held) > max(1, MOST_SHARED * len(listed))
        and code not in apart
        and all(remark.severity != "error" for _, remark in held)
    }
    return SharedRemarks(
        tuple(_join_remarks(held, list(listed), noun) for held in common.values()),
        frozenset(code for code, held in common.items() if len(held) == len(listed)),
        {name: tuple(r for r in remarks if r.code not in common) for name, remarks in listed.items()},
    )


def _join_remarks(held: Mapping[str, Remark], names: Sequence[str], noun: str) -> Remark:
    """busy (18 of 20 cases, not f and g), for example h: other processes used 20 % of the CPU"""
    first_name, first = next(iter(held.items()))
    counted = f"both {noun}s" if len(names) == 2 else f"all {len(names)} {noun}s"
    if lacking := [name for name in names if name not in held]:
        few = f", not {join_names(lacking)}" if len(lacking) <= MOST_EXCEPTIONS else ""
        counted = f"{len(held)} of {len(names)} {noun}s{few}"
    # Numbers of a single case name that case.
    example = "" if len({remark.message for remark in held.values()}) == 1 else f", for example {first_name}"
    return replace(first, message=f"{first.code} ({counted}){example}: {first.message}")


def each_once(remarks: Iterable[Remark]) -> list[Remark]:
    """Comparisons share what was found: each of them has the remark."""
    alike = group_by(remarks, lambda r: (r.code, "" if r.code == OF_THE_MACHINE else r.message))
    return [first for first, *_ in alike.values()]


BOUND = {True: "memory", False: "compute"}
"""Is it memory-bound?"""
NOT_MEASURED = "this machine's rates were never measured with these settings; benchax inspect --time measures them"


def describe_rates(peaks: Peaks) -> str:
    """The best that was reached: 20 GB/s in memory (268 MB), 80 GB/s in caches (262 kB), 100 GFLOP/s by f32 matmuls."""
    moved = (
        (peaks.memory_bytes_per_s, "in memory", peaks.memory_array_bytes),
        (peaks.cache_bytes_per_s, "in caches", peaks.cache_array_bytes),
    )
    bytes_at = [f"{rate(per_s, 'B')} {where} ({size(array_bytes)})" for per_s, where, array_bytes in moved if per_s]
    flops = [f"{rate(per_s, 'FLOP')} by matmuls of {dtype}" for dtype, per_s in peaks.matmul_flops_per_s.items()]
    return ", ".join([*bytes_at, *flops, "the highest measured"])
