"""A table in GitHub's Markdown: for a pull request, a job summary, a page of results."""

from __future__ import annotations

from collections.abc import Sequence

from benchax.reporting.comparisons import interval, verdict
from benchax.reporting.document import Document, Facts, Paragraph, Section, Table, TextRow, tabulate
from benchax.reporting.exports.entries import ExportedCase, common_environment
from benchax.reporting.markdown import render
from benchax.reporting.tables import CASE, VERDICT
from benchax.units import seconds, seconds_range, size

COLUMNS = (CASE, "median", "95 % interval", "compile", "peak memory", "planned peak", "change", VERDICT)


def text(found: Sequence[ExportedCase]) -> str:
    about = [Paragraph(_about(found))] if _about(found) else []
    why = tuple(TextRow(entry.label, entry.why) for entry in found if entry.why)
    notes = [Facts((Section("", why),), "words")] if why else []
    return render(Document((_table(found), *about, *notes)))


def _table(found: Sequence[ExportedCase]) -> Table:
    """Builds a table of the columns that have any content."""
    return tabulate(COLUMNS, map(_line, found)).without_empty_columns(kept=(0, 1))


def _line(entry: ExportedCase) -> tuple[str, ...]:
    return (
        entry.label,
        seconds(entry.summary.median_s) if entry.summary else _status(entry),
        _interval(entry),
        seconds(entry.compile_s) if entry.compile_s is not None else "",
        _size(entry, "observed_peak_bytes"),
        _size(entry, "predicted_peak_bytes"),
        interval(entry.run) if entry.run else "",
        verdict(entry.run) if entry.run else "",
    )


def _size(entry: ExportedCase, what: str) -> str:
    return size(entry.counted[what]) if what in entry.counted else ""


def _status(entry: ExportedCase) -> str:
    return entry.m.failure.kind.replace("_", " ") if entry.m.failure else "not measured"


def _interval(entry: ExportedCase) -> str:
    s = entry.summary
    return seconds_range(s.low_s, s.high_s) if s and s.low_s is not None and s.high_s is not None else ""


def _about(found: Sequence[ExportedCase]) -> str:
    """Where all this was measured, and against what."""
    env = common_environment([entry.m for entry in found])
    device = env.get("processor") if env.get("backend") == "cpu" else env.get("device_kind")
    jax = f"jax {env['jax']}" if "jax" in env else None
    commit = f"commit {env['commit'][:8]}{'+' * bool(env.get('is_dirty'))}" if "commit" in env else None
    timers = {entry.samples.timer for entry in found if entry.samples}
    timer = f"times by {', '.join(sorted(timers))}" if timers else None
    baselines = {entry.run.baseline.label for entry in found if entry.run}
    against = f"change against {', '.join(sorted(baselines))}" if baselines else None
    facts = (env.get("backend"), device, jax, commit, timer, against)
    return " · ".join(fact for fact in facts if fact)
