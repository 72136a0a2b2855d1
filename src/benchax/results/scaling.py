"""`Scaling`: a function over 1 … N devices, what more gain, and from how many on they do not pay. Plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from benchax.model import Absent, CaseId, Environment, Estimate, Remark
from benchax.renderers import SelfRendering

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
    """A case over several counts of devices."""

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
