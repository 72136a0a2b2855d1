"""A row's statistics, timer by timer: mean and standard deviation beside the median, quartiles and extremes.

They stand on request only. A mean holds every preemption, so two means of one function differ by what else ran; what
benchax decides by is the median and its interval.
"""

from __future__ import annotations

from benchax.model import Measurement
from benchax.reporting.document import Document, Facts, Paragraph, Section, TableColumn, TextRow, tabulate
from benchax.reporting.tables import mean_and_deviation
from benchax.stats.summary import Summary
from benchax.units import seconds, seconds_range

COLUMNS = (TableColumn("timer", "names"), "n", "mean ± std", "min", "25 %", "median", "75 %", "max", "outliers")
BELOW_ZERO = "not above 0"


def document(m: Measurement) -> Document:
    """Tells the statistics of all processes together, per call and net of what the timer itself costs."""
    summaries = {timer: m.summary(timer) for timer in dict.fromkeys(samples.timer for samples in m.samples)}
    lines = [_line(timer, summary) for timer, summary in summaries.items() if summary is not None]
    if not lines:
        return Document((Paragraph(f"{m.case.label} has no samples"),))
    note = "outliers: readings 1.5 interquartile ranges beyond the quartiles, counted and kept"
    return Document((Paragraph(m.case.label), tabulate(COLUMNS, lines), Paragraph(note)))


def document_of_summary(s: Summary) -> Document:
    """One summary, whose timer it does not know: what was found, and how sure it is."""
    interval = (
        f"95 % {seconds_range(s.low_s, s.high_s)}" if s.low_s is not None and s.high_s is not None else "no interval"
    )
    where = "in this process" if s.processes == 1 else f"between {s.processes} processes"
    least = BELOW_ZERO if s.min_s is None else seconds(s.min_s)
    rows = (
        TextRow("median", seconds(s.median_s), f"{interval} {where}"),
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
