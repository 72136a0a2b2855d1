"""A run as the parts of a page: an overview, then each case with its charts.

With a very large number of cases, the overview lists all of them. Cases that failed or have remarks get details first.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchax.model import Measurement
from benchax.reporting import measurement, measurement_charts
from benchax.reporting.document import Block, Document, Heading, Paragraph, list_remarks
from benchax.reporting.tables import describe_machine
from benchax.units import plural

MOST_DETAILS = 1000
MOST_NUMBERS = 36_000
"""Readings on a page. Each chart has its share of them, and notes if it does not show all."""
LEAST_NUMBERS = 40
CHARTS = 3
"""Timers of a case, mostly."""
FULL = "benchax show ID --json"


def documents(rows: Sequence[Measurement]) -> tuple[Document, ...]:
    """The overview first; its cases lead to their parts."""
    chosen = _choose(rows)
    most = max(LEAST_NUMBERS, min(measurement_charts.MOST_READINGS, MOST_NUMBERS // max(1, CHARTS * len(chosen))))
    return (_overview(rows, chosen), *(measurement_charts.document(m, most) for m in chosen))


def _choose(rows: Sequence[Measurement]) -> list[Measurement]:
    """Those that have details, in their order."""
    if len(rows) <= MOST_DETAILS:
        return list(rows)
    urgent = sorted(range(len(rows)), key=lambda i: _rank(rows[i]))[:MOST_DETAILS]
    return [rows[i] for i in sorted(urgent)]


def _rank(m: Measurement) -> int:
    """Returns 0 for a case that failed or is wrong, then 1 for a case with a warning."""
    severities = {remark.severity for remark in m.remarks}
    return 0 if m.failure or "error" in severities else 1 if "warning" in severities else 2


def _overview(rows: Sequence[Measurement], chosen: Sequence[Measurement]) -> Document:
    if not rows:
        return Document((Heading("No measurements", 1), Paragraph("There is nothing in this run.")))
    runs = list(dict.fromkeys(m.run_id for m in rows))
    started = sorted(m.started_at for m in rows)
    machines = list(dict.fromkeys(describe_machine(m.environment) for m in rows))
    commits = list(dict.fromkeys(m.environment.commit[:12] for m in rows if m.environment.commit))
    failed = sum(m.failure is not None for m in rows)
    title = f"Run {runs[0][:12]}" if len(runs) == 1 else plural(len(runs), "run")
    below = (
        f"{plural(len(rows), 'case')}" + (f", {failed} failed" if failed else ""),
        f"{started[0][:16].replace('T', ' ')} UTC" + (f" · commit {', '.join(commits)}" if commits else ""),
        *machines,
    )
    common = measurement.share_grave_remarks(rows).common
    blocks: list[Block] = [Heading(title, 1, below), measurement.overview(rows), *list_remarks(common)]
    if len(chosen) < len(rows):
        what = (
            f"Details of {len(chosen)} of {plural(len(rows), 'case')} follow: first those that failed or have remarks."
        )
        blocks.append(Paragraph(f"{what} `{FULL}` has all of each.", "warning"))
    return Document(tuple(blocks))
