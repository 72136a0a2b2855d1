"""The terminal output at the end of a session: the table, notes, the gate, plots, and the JSON file.

Verbosity: -q shows the table alone (and the failures of the session), -qq only the failures. The option -v also shows
the drawn files, and why comparisons are unclear.

With --ptjb-json all results of a session go into one JSON document:

    {"format": "ptjb-json", "version": 1, "session": …, "created": …,
     "results": [{"nodeid", "csv", "row", "reference", "verdicts", "gate", "notes", "measurements"}, …]}

`row` and `reference` have the columns of the CSV file, null for NaN. `verdicts` has [verdict, why] for each metric.
`gate` is the result of --ptjb-fail-slower, {"against", "verdict", "text", "alarms", "notes", "unjudged"}, null without
it. `measurements` are the documents of benchax with every reading, as `benchax run --json` writes them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchax.errors import BenchaxError
from benchax.units import plural
from benchax.whole_files import write_text
from pytest_jax_bench import stash
from pytest_jax_bench.options import PluginSettings
from pytest_jax_bench.table import (
    LONGEST,
    VERDICTS,
    Record,
    SummaryTable,
    count_gray,
    fit,
    has_ranges,
    tabulate_records,
    truncate,
)

TITLE = "Pytest Jax Benchmark (PTJB) results"

MARKUP: dict[str, dict[str, bool]] = {
    "": {},
    "good": {"green": True},
    "bad": {"red": True},
    "warning": {"yellow": True},
    "faint": {"light": True},
}
"""The styles of the table, as pytest's writer has them."""

SAID_ONCE = {
    "busy": "other processes kept the machine busy during {}",
    "no-commit": "the commit is unknown: the repository has none, or belongs to another user (git status says how to "
    "trust it)",
    "no-dispatches": "this JAX doesn't report which jitted functions a call runs: {} are shown as Run, without the "
    "compilation",
    "unforked": "{} ran without a fork, because JAX had started before (arrays or computations at the top of a test "
    "file)",
}
"""By the code of a remark: a line for all measurements that have it, which are most of a session or none."""

VERSION = 1
FIELDS = ("nodeid", "csv", "row", "reference", "verdicts", "gate", "notes", "measurements")


def report(config: pytest.Config, reporter: pytest.TerminalReporter, records: Sequence[Record]) -> bool:
    """Returns whether all files could be written."""
    settings, verbosity = config.stash[stash.SETTINGS], config.get_verbosity()
    if verbosity >= -1 and records:
        reporter.write_sep("=", TITLE)
        _tables(reporter, records, settings)
    lines = notes(records, settings, verbosity) if verbosity >= 0 else []
    if verbosity >= 0 and settings.disable:
        lines.append("ptjb: nothing was measured (--ptjb-disable)")
    workers = int(config.getoption("numprocesses", 0) or 0) if config.pluginmanager.hasplugin("dsession") else 0
    if verbosity >= 0 and records and workers:
        lines.append(
            f"ptjb: {workers} workers measured one at a time; tests that ran at the same time can have disturbed them"
        )
    # Also with -q: these lines are why the session fails.
    lines += gate_lines(records, verbosity)
    if metrics := unjudged(records, settings):
        lines.append(
            f"UNCLEAR: the limit for {', '.join(metrics)} judged no measurement (--ptjb-fail-slower); -v says why, and "
            "--ptjb-ignore-unclear accepts it"
        )
    for line in lines:
        reporter.write_line(line)
    problems: list[str] = []
    for write in _list_files(config, records, settings):
        try:
            path = write()
            if verbosity >= 0:
                reporter.write_line(f"ptjb: wrote {path}")
        except BenchaxError as error:
            problems.append(error.problem)
            reporter.write_line(f"ptjb: {error.problem}", red=True)
    if settings.plot and records:
        _plots(config, reporter, records)
    return not problems


def _tables(reporter: pytest.TerminalReporter, records: Sequence[Record], settings: PluginSettings) -> None:
    """One, but where groups, an order or columns were asked for."""
    wanted, hooked, saved = settings.benchmark, None, None
    if reporter.config.pluginmanager.hasplugin("benchax-fixture"):
        from pytest_jax_bench import benchmark_hooks

        hooked = benchmark_hooks.group(reporter.config, records, wanted.group_by)
    if not (hooked or vars(wanted) or any((r.get("benchmark") or {}).get("group") for r in records)):
        _table(reporter, tabulate_records(records))
        return
    # Here, because few sessions need it.
    from pytest_jax_bench import benchmark_reports

    if wanted.compare is not None:
        try:
            path = benchmark_reports.find(settings.output_dir, wanted.compare)
            saved = benchmark_reports.read(path)
            reporter.write_line(f"ptjb: (saved) is {path}, of another session; see -v for what that can tell")
        except BenchaxError as error:
            reporter.write_line(f"ptjb: not compared. {error}")
    for title, group in hooked or benchmark_reports.group(records, wanted):
        if title:
            reporter.write_line(f"group {truncate(title, 200)}: {plural(len(group), 'measurement')}")
        _table(reporter, benchmark_reports.tabulate(group, wanted, saved))


def _table(reporter: pytest.TerminalReporter, found: SummaryTable) -> None:
    """By pytest's writer, which knows how wide this terminal is and whether it shows colours. Logs aren't folded."""
    writer = reporter.config.get_terminal_writer()
    width = writer.fullwidth if reporter.isatty else None
    for line in fit(found, width, lambda text, style: writer.markup(text, **MARKUP[style])):
        reporter.write_line(line)


def _list_files(
    config: pytest.Config, records: Sequence[Record], settings: PluginSettings
) -> Iterator[Callable[[], Path]]:
    """Yields a function for each file, which writes it and returns its path, or raises `UsageError`."""
    wanted = settings.benchmark
    if settings.json is not None:
        yield partial(_write, settings.json, make_json(records, session=config.stash[stash.SESSION]))
    if wanted.keeps_documents:
        from pytest_jax_bench import benchmark_hooks, benchmark_reports

        document = benchmark_hooks.complete_document(config, benchmark_reports.make_document(records))
        if wanted.json is not None:
            yield partial(_write, config.invocation_params.dir / wanted.json, benchmark_reports.to_text(document))
        if wanted.save is not None or wanted.autosave:
            yield partial(benchmark_reports.save, settings.output_dir, wanted, document)


def _write(path: Path, text: str) -> Path:
    write_text(path, text)
    return path


def notes(records: Sequence[Record], settings: PluginSettings, verbosity: int) -> list[str]:
    lines = [f"{_name(r)}: {truncate(note, 500)}" for r in records for note in r["notes"]]
    lines += [f"{_name(r)}: {truncate(r['row']['message'], 500)}" for r in records if r["row"]["status"] != "ok"]
    if has_ranges(records):
        lines.append(
            "ptjb: (low–high) is the median's 95 % interval; of fewer than 6 rounds, the least and greatest reading"
        )
    for code, text in SAID_ONCE.items():
        if some := [r for r in records if code in r.get("codes", ())]:
            lines.append(f"ptjb: {text.format(_share(some, records))}")
    unmatched = [r for r in records if r["reference"] is None and r["row"]["status"] == "ok"]
    if settings.pin is not None and unmatched and not settings.no_compare:
        lines.append(f"ptjb: no run {settings.pin} to compare with (--ptjb-pin): {_share(unmatched, records)}")
    if settings.fail_slower is not None and unmatched:
        lines.append(f"ptjb: nothing to compare with (--ptjb-fail-slower): {_share(unmatched, records)}")
    if gray := count_gray(records):
        hint = "" if verbosity >= 1 else " (-v says why)"
        lines.append(f"ptjb: {plural(gray, 'value')} in gray: no verdict{hint}")
    if verbosity >= 1:  # each reason once, with the number of cells that it explains
        judged = [each for record in records for each in record["verdicts"].values()]
        counts = Counter(why for verdict, why in judged if verdict == "unclear")
        lines += [f"unclear ({count}): {why}" for why, count in counts.items()]
    return lines


def _share(some: Sequence[Any], records: Sequence[Record]) -> str:
    return f"{len(some)} of {plural(len(records), 'measurement')}"


def gate_lines(records: Sequence[Record], verbosity: int) -> list[str]:
    """How many were compared, with -v how each ended; and one line for each case that fails the session."""
    compared = [(r, r["gate"]) for r in records if r["gate"] and r["gate"]["verdict"]]
    counts = Counter(gate["verdict"] for _, gate in compared)
    lines: list[str] = []
    if compared and verbosity >= 0:
        listed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
        lines.append(f"ptjb: {_share(compared, records)} compared side by side (--ptjb-fail-slower): {listed}")
    if verbosity >= 1:
        lines += [f"{_name(r)}: {gate['text']}, against {gate['against']}" for r, gate in compared]
    return lines + [
        f"SLOWER {_name(r)}: {'; '.join(gate['alarms'])}, against {gate['against']}"
        for r, gate in compared
        if gate["alarms"]
    ]


def unjudged(records: Sequence[Record], settings: PluginSettings) -> list[str]:
    """The metrics whose limit judged no measurement.

    Empty in a session without anything to compare with, unless a run was pinned: the first session makes the baseline.
    """
    if settings.fail_slower is None or settings.ignore_unclear:
        return []
    if not (gates := [record["gate"] for record in records if record["gate"]]):
        is_missing = settings.pin is not None and not settings.no_compare
        return list(settings.fail_slower) if is_missing else []
    return [metric for metric in settings.fail_slower if all(metric in gate["unjudged"] for gate in gates)]


def _name(record: Record) -> str:
    return f"{truncate(record['nodeid'], 200)} #{truncate(record['row']['tag'], LONGEST)}"


def _plots(config: pytest.Config, reporter: pytest.TerminalReporter, records: Sequence[Record]) -> None:
    from benchax.errors import MissingPackage
    from pytest_jax_bench.plots import draw_all

    settings, problems = config.stash[stash.SETTINGS], list[str]()
    requests = {
        r["nodeid"]: draw_all.PlotRequest(r["nodeid"], Path(r["csv"]), **_read_plot_keywords(config, r, problems))
        for r in records
    }
    try:
        drawn = draw_all.draw_all(
            list(requests.values()),
            folder=settings.output_dir,
            x_axis=settings.plot_xaxis,  # pyright: ignore[reportArgumentType]  # checked when the options were read
            file_format=settings.plot_format,  # pyright: ignore[reportArgumentType]
        )
    except MissingPackage as error:
        reporter.write_line(f"ptjb: no plots. {error}")
        return
    for problem in [*problems, *drawn.problems]:
        reporter.write_line(f"ptjb: {problem}")
    if config.get_verbosity() >= 1:
        for file in drawn.files:
            reporter.write_line(f"ptjb: drew {file}")
    elif config.get_verbosity() == 0:
        reporter.write_line(f"ptjb: drew {plural(len(drawn.files), 'plot')} in {settings.output_dir}")


def _read_plot_keywords(config: pytest.Config, record: Record, problems: list[str]) -> dict[str, Any]:
    """Reads the plot options of the test's own marker."""
    from pytest_jax_bench.plots import draw_all  # with NumPy, which a session without plots need not wait for

    own = config.stash[stash.MARKED].get(record["nodeid"])
    if own is not None:
        return {name: own[name] for name in (*draw_all.KEYWORDS, "only_last") if own.get(name) is not None}
    chosen: dict[str, Any] = {"only_last": record["only_last"]}
    for name, packed in record["plots"].items():
        try:
            chosen[name] = draw_all.unpack(packed)
        except Exception as error:  # whatever importing a test file raises
            problems.append(f"{record['nodeid']}: {name} was not drawn, because {type(error).__name__}: {error}")
    return chosen


def make_json(records: Sequence[Record], *, session: str) -> str:
    rows = ("row", "reference")
    document = {
        "format": "ptjb-json",
        "version": VERSION,
        "session": session,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "results": [{name: _without_nan(r[name]) if name in rows else r[name] for name in FIELDS} for r in records],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _without_nan(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """JSON has no word for NaN and infinities: null."""
    if row is None:
        return None
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
