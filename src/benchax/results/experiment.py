"""The results of an experiment: an unchanged function, and variants of it, each compared with it. Plain data.

    Experiment    all of it
    VariantRow    one variant: its verdict, memory, time to compile, errors, and one sentence
    Errors        how far outputs are from a float64 run
    Curve         a sweep, such as time by batch size
    Contribution  what one variant adds when all are on

`None` means not measured; `VariantRow.absent` gives the reason.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from benchax.model import Absent, CaseId, Comparison, Environment, Estimate, Remark
from benchax.renderers import Displayed, SelfRendering

Status = Literal["ok", "failed", "not_available", "wrong_result"]
Facts = tuple[tuple[str, str], ...]
"""(label, text)"""


@dataclass(frozen=True)
class Errors:
    """How far the outputs are from those of a reference run on the same inputs, over all leaves."""

    reference: Literal["float64", "baseline"]
    max_rel: float | None
    """Largest difference over the largest magnitude of its leaf in the reference; None if no value is finite."""
    median_rel: float | None
    """The median error of the elements that are not zero in the reference, each by its own magnitude; None where all
    are zero."""
    overflows: int = 0
    """Elements that are infinite here and not in the reference."""
    nans: int = 0
    """Elements that are NaN here and not in the reference."""
    worst: str = ""
    """Path of the leaf with the largest error, or with values that are not finite; empty for an output that is one."""


@dataclass(frozen=True)
class VariantRow:
    """One variant of the function, or the function as it is."""

    name: str
    """As the command line knows it: bf16."""
    title: str
    status: Status = "ok"
    reason: str = ""
    """Why it is not "ok", or not compared."""
    comparison: Comparison | None = None
    """The comparison of the run times, with the baseline's. None: not compared."""
    compile_s: float | None = None
    """Trace, lower and compile, once, in a warm process."""
    temp_bytes: int | None = None
    """The temporaries of the compiler's plan, as `peak_bytes`."""
    peak_bytes: int | None = None
    observed_bytes: int | None = None
    """How far resident memory rose during a call above what was there before it."""
    flops: float | None = None
    errors: Errors | None = None
    facts: Facts = ()
    """Whatever else this variant shows."""
    sentence: str = ""
    """The row in one line."""
    absent: tuple[Absent, ...] = ()
    """The reasons for missing values; `what` is the name of the field."""


@dataclass(frozen=True)
class Point:
    """One place of a sweep."""

    x: float
    label: str
    seconds: float | None
    low: float | None = None
    high: float | None = None
    """The ends of the 95 % interval of the median."""
    facts: Facts = ()


def point_at(x: float, label: str, time: Estimate | None, facts: Facts = ()) -> Point:
    """The point of a time that was measured, or None."""
    ends = (time.value, time.low, time.high) if time else (None, None, None)
    return Point(x, label, *ends, facts=facts)


@dataclass(frozen=True)
class Curve:
    """Seconds over something that was swept."""

    name: str
    title: str
    x_label: str
    points: tuple[Point, ...]
    knee: float | None = None
    """The x from which on more of it gains hardly anything; None: none was seen."""
    sentence: str = ""


@dataclass(frozen=True)
class Contribution:
    """The loss when one variant alone is off and the others are on. Positive numbers: the variant helps."""

    name: str
    comparison: Comparison | None
    """All but this one, against all."""
    saved_s: float | None
    low_s: float | None = None
    high_s: float | None = None
    saved_bytes: int | None = None
    """The bytes saved of the planned peak."""
    sentence: str = ""


@dataclass(frozen=True)
class Experiment(Displayed):
    """An unchanged function, and variants of it, each compared with it.

    Example:
        >>> e = benchax.experiment(lambda x: x + 1, "f32[8]", variants=["f32"])
        >>> e.row("f32").status  # its inputs are f32 already
        'not_available'
    """

    name: str
    signature: str
    """The inputs as specs: f32[1024,128], key, axis=0."""
    baseline: VariantRow
    rows: tuple[VariantRow, ...] = ()
    """In the order in which they were asked for; the combination of all comes last, as "all"."""
    curves: tuple[Curve, ...] = ()
    ablation: tuple[Contribution, ...] | None = None
    """None: not asked for, or impossible, which a remark says then."""
    remarks: tuple[Remark, ...] = ()
    environment: Environment | None = None

    def row(self, name: str) -> VariantRow:
        """The row of a variant.

        Raises:
            KeyError: it was not tried.
        """
        return {row.name: row for row in self.rows}[name]


# ---- scaling ---------------------------------------------------------------------------------------------------------
#
# A function on 1 … N devices: the gain of each step, and the number of devices from which more do not pay.


ScalingKind = Literal["strong", "weak"]


@dataclass(frozen=True)
class ScalingPoint:
    """The function on one number of devices."""

    devices: int
    mesh: str
    signature: str = ""
    median_s: float | None = None
    throughput: Estimate | None = None
    """How many times the work per second of the fewest devices; None of these themselves."""
    efficiency: Estimate | None = None
    """`throughput` over how many times as many devices there are: 1 is all that they could give."""
    gain: Estimate | None = None
    """Against the count before."""
    why: str = ""
    """Why it has no numbers."""

    @property
    def pays(self) -> bool | None:
        """Whether the work per second is higher than with the previous count. None if unknown."""
        if self.gain is None or self.gain.low is None or self.gain.high is None:
            return None
        return True if self.gain.low > 1 else False if self.gain.high <= 1 else None


@dataclass(frozen=True)
class ScalingCurve:
    """Strong: the same work on more devices. Weak: as much work for each device as for those of the fewest."""

    kind: ScalingKind
    points: tuple[ScalingPoint, ...]

    @property
    def last_that_pays(self) -> int | None:
        """The most devices before the first count that does not clearly do more than the one before it."""
        measured = [point for point in self.points if not point.why]
        if len(measured) < 2:
            return None
        stop = next((i for i, point in enumerate(measured) if i and not point.pays), len(measured))
        return measured[stop - 1].devices

    @property
    def first_that_does_not_pay(self) -> int | None:
        """None if each count pays, or if there is nothing to compare."""
        measured = [point for point in self.points if not point.why]
        return next((point.devices for i, point in enumerate(measured) if i and not point.pays), None)


@dataclass(frozen=True)
class Scaling(SelfRendering):
    """A case over several counts of devices.

    Example:
        >>> s = benchax.scaling(jnp.matmul, "f32[8192@data,512]", "f32[512,512]")  # doctest: +SKIP
        >>> [(point.devices, point.efficiency) for point in s.curves[1].points]  # doctest: +SKIP
    """

    case: CaseId
    environment: Environment
    axis: str
    """The axis of the mesh that grows."""
    is_fake: bool
    curves: tuple[ScalingCurve, ...]
    remarks: tuple[Remark, ...] = ()
    not_measured: tuple[Absent, ...] = ()

    def asdict(self) -> dict[str, Any]:
        return dataclasses.asdict(self, dict_factory=_plain)


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a dataclass for JSON, where an estimate is a factor."""
    return {"factor" if name == "value" else name: value for name, value in fields}
