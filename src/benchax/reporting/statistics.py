"""A row's statistics, timer by timer: the median with mean, standard deviation, quartiles, and extremes.

They are shown on request only. A mean contains every preemption, so two means of one function differ by what else ran.
benchax decides by the median and its interval.
"""

from __future__ import annotations

from benchax.model import Measurement
from benchax.reporting.document import Document, Facts, Paragraph, Section, TableColumn, TextRow, tabulate
from benchax.reporting.tables import agreement, describe_interval, mean_and_deviation
from benchax.stats.summary import Summary
from benchax.units import seconds

COLUMNS = (TableColumn("timer", "names"), "n", "mean ± std", "min", "25 %", "median", "75 %", "max", "outliers")
BELOW_ZERO = "not above 0"


def document(m: Measurement) -> Document:
    """Shows the statistics of all processes together, per call and net of the timer's own cost."""
    lines = [_line(timer, m.summary(timer)) for timer in dict.fromkeys(samples.timer for samples in m.samples)]
    if not lines:
        return Document((Paragraph(f"{m.case.label} has no samples"),))
    note = "outliers: readings 1.5 interquartile ranges beyond the quartiles, counted and kept"
    return Document((Paragraph(m.case.label), tabulate(COLUMNS, lines), Paragraph(note)))


def document_of_summary(s: Summary) -> Document:
    """One summary, which doesn't know its timer."""
    least = BELOW_ZERO if s.min_s is None else seconds(s.min_s)
    rows = (
        TextRow("median", seconds(s.median_s), " · ".join(filter(None, (describe_interval(s), agreement(s))))),
        TextRow("quartiles", f"{seconds(s.q25_s)} to {seconds(s.q75_s)}"),
        TextRow("extremes", f"{least} to {seconds(s.max_s)}"),
        TextRow("mean ± std", mean_and_deviation(s), "of the readings, preempted ones included"),
        TextRow("readings", str(s.n), f"{s.outliers} of them 1.5 interquartile ranges beyond the quartiles, and kept"),
    )
    return Document((Facts((Section("a call", tuple(row for row in rows if row.value)),)),))


def _line(timer: str, s: Summary) -> tuple[str, ...]:
    least = BELOW_ZERO if s.min_s is None else seconds(s.min_s)
    return (
        timer,
        str(s.n),
        mean_and_deviation(s),
        least,
        *map(seconds, (s.q25_s, s.median_s, s.q75_s, s.max_s)),
        str(s.outliers),
    )
