"""`Roofline`: how long a program's bytes and FLOPs take at the rates that the machine did reach. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from benchax.model import Absent


@dataclass(frozen=True)
class Timing:
    """How long one call took, in steady state."""

    timer: str
    median_s: float
    low_s: float | None = None
    """Of the interval of the median."""
    high_s: float | None = None


@dataclass(frozen=True)
class Roofline:
    """A comparison, no bound: rates are those that were reached, and of the bytes a cache may serve some."""

    bytes_s: float | None = None
    """The bytes accessed, at `bytes_per_s`."""
    flops_s: float | None = None
    """The FLOPs, at `flops_per_s`."""
    bytes_per_s: float | None = None
    array_bytes: int = 0
    """Size of the array with which `bytes_per_s` was reached."""
    flops_per_s: float | None = None
    dtype: str = "f32"
    """Of the matmul with which `flops_per_s` was reached."""
    is_at_least: bool = False
    """Some of the work is not counted."""
    timing: Timing | None = None
    absent: tuple[Absent, ...] = ()
    """Of bytes_s and flops_s."""

    @property
    def roof_s(self) -> float | None:
        """The longer of the two; None unless both are known."""
        return None if self.bytes_s is None or self.flops_s is None else max(self.bytes_s, self.flops_s)

    @property
    def is_memory_bound(self) -> bool | None:
        """Do the bytes take longer than the FLOPs?"""
        return None if self.bytes_s is None or self.flops_s is None else self.bytes_s >= self.flops_s

    @property
    def share(self) -> float | None:
        """Share of the roofline: 1 is as fast as the machine was ever seen to be.

        None without a time, or without all counts."""
        if self.timing is None or self.roof_s is None or self.is_at_least:
            return None
        return self.roof_s / self.timing.median_s

    def why_absent(self, what: str) -> str | None:
        return next((each.why for each in self.absent if each.what == what), None)
