"""An experiment in a table: what each variant does to time, memory, compiling and errors, and a sentence for each."""

from __future__ import annotations

from dataclasses import replace

from benchax.model import Estimate, Remark, find_why
from benchax.reporting.document import (
    Block,
    Document,
    Facts,
    Heading,
    Paragraph,
    Section,
    Style,
    Table,
    TableColumn,
    TextRow,
    list_remarks,
    tabulate,
)
from benchax.reporting.tables import (
    CASE,
    REMARKS,
    VERDICT,
    VERDICT_STYLES,
    describe_machine,
    each_once,
    one_line,
    share_remarks,
    truncate,
)
from benchax.results.experiment import Curve, Experiment, Scaling, ScalingCurve, ScalingPoint, VariantRow
from benchax.units import percent, plural, seconds, seconds_range, size

STATUS: dict[str, str] = {"failed": "failed", "not_available": "not available", "wrong_result": "wrong result"}
SPECS = ("inputs", "outputs")
"""Facts that have a part for each array: hundreds for a model. All of it is in the JSON."""
LONGEST_SPECS = 120
COLUMNS = (
    replace(CASE, name="variant"),
    "time per call",
    "speedup",
    VERDICT,
    *(TableColumn(name, is_optional=True) for name in ("peak", "compile", "error")),
)


def document(e: Experiment) -> Document:
    blocks: list[Block] = [Heading(f"{e.name}: {answer(e)}", 1, (heading(e),)), table(e)]
    if (found := findings(e)).rows:
        blocks.append(Facts((found,), "words"))
    for curve in e.curves:
        blocks += [Heading(curve.title), curve_table(curve), *([Paragraph(curve.sentence)] if curve.sentence else [])]
    if e.ablation:
        rows = tuple(TextRow(one.name, one.sentence) for one in e.ablation)
        blocks.append(Facts((Section("contribution of each variant", rows),), "words"))
    return Document((*blocks, *list_remarks(remarks(e))))


def answer(e: Experiment) -> str:
    """fused is fastest, 1.31× (1.28 – 1.35); or no variant is faster."""
    if e.baseline.status != "ok":
        reason = truncate(e.baseline.reason, LONGEST_SPECS)
        return f"no comparison is possible; the baseline: {STATUS[e.baseline.status]}, {reason}"
    timed = [(row, row.comparison) for row in e.rows if row.status == "ok" and row.comparison and speedup(row)]
    faster = {c.ratio or 1.0: row for row, c in timed if c.verdict == "faster"}
    if faster:
        best = faster[min(faster)]
        return f"{best.name} is fastest, {speedup(best)}"
    if timed:
        return "no variant is faster"
    # Some variants compare build times, others count, or are measured at many points.
    said = [
        curve.sentence or curve.title
        if any(point.seconds for point in curve.points)
        else f"{curve.title}, counted, not timed"
        for curve in e.curves
    ]
    said += [f"{row.name}: {row.sentence}" for row in e.rows if row.sentence]
    return truncate(said[0], LONGEST_SPECS) if said else "no variant was timed"


def heading(e: Experiment) -> str:
    """f32[8] · cpu · AMD EPYC · jax 0.10.2"""
    machine = describe_machine(e.environment) if e.environment else ""
    return " · ".join(filter(None, (e.signature, machine)))


def table(e: Experiment) -> Table:
    lines = [_line(e.baseline, "baseline" if e.baseline.status == "ok" else STATUS[e.baseline.status])]
    lines += [_line(row, verdict(row)) for row in e.rows]
    return tabulate(COLUMNS, lines, [_style(row) for row in (e.baseline, *e.rows)])


def _line(row: VariantRow, verdict: str) -> tuple[str, ...]:
    return (
        one_line(row.name),
        times(row),
        speedup(row),
        verdict,
        "" if row.peak_bytes is None else size(row.peak_bytes),
        "" if row.compile_s is None else seconds(row.compile_s),
        error(row),
    )


def times(row: VariantRow) -> str:
    """Returns the time of the baseline and of the variant. Each pair ran at different moments."""
    c = row.comparison
    if c is None or c.baseline_value is None or c.candidate_value is None:
        return ""
    return f"{seconds(c.baseline_value)} → {seconds(c.candidate_value)}"


def speedup(row: VariantRow) -> str:
    """1.31× (1.28 – 1.35)"""
    ratio = row.comparison and row.comparison.estimate
    return ratio.map(lambda r: 1 / r).text(unit="×") if ratio else ""


def error(row: VariantRow) -> str:
    """The largest, 3.5e-4; or what is not finite."""
    e = row.errors
    if e is None:
        return ""
    broken = ", ".join(f"{count} {what}" for count, what in ((e.nans, "NaN"), (e.overflows, "inf")) if count)
    return broken or ("" if e.max_rel is None else f"{e.max_rel:.1e}" if e.max_rel else "0")


def verdict(row: VariantRow) -> str:
    if row.status != "ok":
        return STATUS[row.status]
    if row.comparison is None:
        return row.reason or "not compared"
    return row.comparison.verdict + (", confirmed" if row.comparison.confirmed else "")


def _style(row: VariantRow) -> Style:
    if row.status != "ok":
        return "faint" if row.status == "not_available" else "bad"
    return VERDICT_STYLES[row.comparison.verdict] if row.comparison else ""


def findings(e: Experiment) -> Section:
    """A sentence for each variant, and what else it shows."""
    rows: list[TextRow] = []
    told: set[str | None] = {None}
    for row in (e.baseline, *e.rows):
        lines = [row.sentence] if row.sentence else []
        if (why := find_why(row.absent, "errors")) not in told:  # most variants have the reason of the baseline
            told.add(why)
            lines.append(f"errors not measured, because {why}")
        lines += [f"{label}: {truncate(what, LONGEST_SPECS) if label in SPECS else what}" for label, what in row.facts]
        rows += [TextRow("", line, style="faint") if i else TextRow(row.name, line) for i, line in enumerate(lines)]
    return Section("details", tuple(rows))


def curve_table(curve: Curve) -> Table:
    lines = [
        (
            point.label,
            "" if point.seconds is None else seconds(point.seconds),
            seconds_range(point.low, point.high),
            "; ".join(f"{label} {what}" for label, what in point.facts),
        )
        for point in curve.points
    ]
    return tabulate((one_line(curve.x_label), "median", "95 % interval", REMARKS), lines)


def remarks(e: Experiment) -> list[Remark]:
    """Each once: the experiment's own, and those of its comparisons."""
    shared = share_remarks({row.name: row.comparison.remarks for row in e.rows if row.comparison}, "variant")
    return each_once((*e.remarks, *shared.common, *(r for own in shared.own.values() for r in own)))


TITLES = {
    "strong": "strong scaling: the same shapes on more devices",
    "weak": "weak scaling: {axis} grows with the devices",
}


def document_of_scaling(found: Scaling) -> Document:
    answers = "; ".join(_answer(curve, found.is_fake) for curve in found.curves)
    blocks: list[Block] = [Heading(f"{found.case.label}: {answers}", 1, (describe_machine(found.environment),))]
    for curve in found.curves:
        blocks += [Heading(TITLES[curve.kind].format(axis=found.axis)), _tabulate_curve(curve, found.is_fake)]
    return Document((*blocks, *list_remarks(found.remarks)))


def _tabulate_curve(curve: ScalingCurve, is_fake: bool) -> Table:
    columns = (
        "fake devices" if is_fake else "devices",
        TableColumn("inputs", "words", 16, breaks_words=True),
        "median",
        TableColumn("work/s", least_width=9),
        TableColumn("efficiency", least_width=9),
        TableColumn("against the one before", least_width=16, breaks_words=True),
    )
    return tabulate(columns, [_scaling_line(point) for point in curve.points])


def _scaling_line(point: ScalingPoint) -> tuple[str, ...]:
    if point.why or point.median_s is None:
        return (str(point.devices), point.signature, "", "", "", f"not measured, because {point.why}")
    efficiency = point.efficiency
    return (
        str(point.devices),
        point.signature,
        seconds(point.median_s),
        _times_factor(point.throughput),
        efficiency.text(percent) if efficiency else "",
        f"{_times_factor(point.gain)}{_PAYS[point.pays]}" if point.gain else "",
    )


_PAYS = {True: ", pays", False: ", does not pay", None: ", unclear"}


def _times_factor(gain: Estimate | None) -> str:
    """1.82× (1.79 – 1.85)"""
    return gain.text("{:.2f}".format, "×") if gain else ""


def _answer(curve: ScalingCurve, is_fake: bool) -> str:
    """strong scaling pays up to 4 devices, the most that were tried"""
    what = "fake device" if is_fake else "device"
    first, last = curve.first_that_does_not_pay, curve.last_that_pays
    if last is None:
        return f"whether {curve.kind} scaling pays is not known, because fewer than two counts could be measured"
    if first is None:
        return f"{curve.kind} scaling pays up to {plural(last, what)}, the most that were tried"
    return f"{curve.kind} scaling pays up to {plural(last, what)}: {first} don't clearly get more done in a second"
