"""Shows how a function scales over devices: a table for strong and for weak scaling, and from where it does not pay."""

from __future__ import annotations

from benchax.reporting.document import Block, Document, Heading, Paragraph, Table, list_remarks, tabulate
from benchax.reporting.tables import describe_machine
from benchax.results.scaling import Scaling, ScalingCurve, ScalingPoint, SpeedupFactor
from benchax.units import percent, seconds

TITLES = {
    "strong": "strong scaling: the same shapes on more devices",
    "weak": "weak scaling: {axis} grows with the devices",
}


def document(found: Scaling) -> Document:
    blocks: list[Block] = [Heading(found.case.label, 1, (describe_machine(found.environment),))]
    for curve in found.curves:
        blocks += [Heading(TITLES[curve.kind].format(axis=found.axis)), _table(curve, found.is_fake)]
        blocks.append(Paragraph(_sentence(curve, found.is_fake)))
    return Document((*blocks, *list_remarks(found.remarks)))


def _table(curve: ScalingCurve, is_fake: bool) -> Table:
    columns = (
        "fake devices" if is_fake else "devices",
        "inputs",
        "median",
        "work/s",
        "efficiency",
        "against the one before",
    )
    return tabulate(columns, [_line(point) for point in curve.points])


def _line(point: ScalingPoint) -> tuple[str, ...]:
    if point.why or point.median_s is None:
        return (str(point.devices), point.signature, "", "", "", f"not measured, because {point.why}")
    efficiency = point.efficiency
    return (
        str(point.devices),
        point.signature,
        seconds(point.median_s),
        _times(point.throughput),
        "" if efficiency is None else _share(efficiency),
        f"{_times(point.gain)}{_PAYS[point.pays]}" if point.gain else "",
    )


_PAYS = {True: ", pays", False: ", does not pay", None: ", unclear"}


def _times(gain: SpeedupFactor | None) -> str:
    """1.82× (1.79 – 1.85)"""
    if gain is None:
        return ""
    ends = "" if gain.low is None or gain.high is None else f" ({gain.low:.2f} – {gain.high:.2f})"
    return f"{gain.factor:.2f}×{ends}"


def _share(gain: SpeedupFactor) -> str:
    ends = "" if gain.low is None or gain.high is None else f" ({percent(gain.low)} – {percent(gain.high)})"
    return percent(gain.factor) + ends


def _sentence(curve: ScalingCurve, is_fake: bool) -> str:
    what = "fake devices" if is_fake else "devices"
    first = curve.first_that_does_not_pay
    if curve.last_that_pays is None:
        return "From how many devices on it does not pay is not known: fewer than two counts could be measured."
    if first is None:
        return f"It pays up to {curve.last_that_pays} {what}, the most that were tried."
    return f"{first} {what} are the first that do not clearly get more done in a second than {curve.last_that_pays}."
