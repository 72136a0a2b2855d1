"""`Roofline`: how long a program's bytes and FLOPs take at the rates that the machine did reach, its `Peaks`. Plain
data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchax.model import Absent, find_why


@dataclass(frozen=True)
class Timing:
    """How long one call took, in steady state."""

    timer: str
    median_s: float
    low_s: float | None = None
    """The lower end of the interval of the median."""
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
    """The type of the matmul with which `flops_per_s` was reached."""
    is_at_least: bool = False
    """Some of the work is not counted."""
    timing: Timing | None = None
    absent: tuple[Absent, ...] = ()
    """Why bytes_s or flops_s is missing."""

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
        return find_why(self.absent, what)


def _divide(work: float | None, per_s: float | None) -> float | None:
    """No work takes no time, at whatever rate."""
    if work == 0:
        return 0.0
    return work / per_s if work is not None and per_s else None


@dataclass(frozen=True)
class Peaks:
    """Rates that some program did reach on this device: a program can be faster, and then these are too low."""

    memory_bytes_per_s: float | None
    """Bytes read plus bytes written, of an array that no cache holds."""
    memory_array_bytes: int
    """How large it is."""
    cache_bytes_per_s: float | None
    """The same of one that a core's caches hold."""
    cache_array_bytes: int
    matmul_flops_per_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """By dtype, f32, bf16, f64; a matmul of n × n is 2·n³ FLOP."""
    measured_at: str = ""
    """UTC."""
    path: str = ""
    """The file that keeps them; without it, they are measured again. Empty if they could not be kept."""
    absent: tuple[Absent, ...] = ()
    """Why a rate is not there: of memory_bytes_per_s, cache_bytes_per_s, matmul_flops_per_s.f64."""

    def bytes_per_s(self, working_set_bytes: float | None) -> tuple[float | None, int]:
        """Returns (the rate for a program that keeps this much memory busy, bytes of the array that it was measured
        with)."""
        if working_set_bytes is not None and working_set_bytes <= self.cache_array_bytes and self.cache_bytes_per_s:
            return self.cache_bytes_per_s, self.cache_array_bytes
        # Between the two sizes the larger rate, so that a share is rather too small than above 100 %.
        if working_set_bytes is not None and working_set_bytes < self.memory_array_bytes and self.cache_bytes_per_s:
            faster = max(self.cache_bytes_per_s, self.memory_bytes_per_s or 0.0)
            size = self.cache_array_bytes if faster == self.cache_bytes_per_s else self.memory_array_bytes
            return faster, size
        return self.memory_bytes_per_s, self.memory_array_bytes

    def roofline(
        self, flops: float | None, bytes_accessed: float | None, working_set_bytes: float | None, dtype: str = "f32"
    ) -> Roofline:
        """How long this work takes at these rates; what has no rate has no time.

        Args:
            working_set_bytes: memory that is kept busy, which decides whether caches or memory are to be compared with.
        """
        bytes_per_s, array_bytes = self.bytes_per_s(working_set_bytes)
        flops_per_s = self.matmul_flops_per_s.get(dtype)
        return Roofline(
            bytes_s=_divide(bytes_accessed, bytes_per_s),
            flops_s=_divide(flops, flops_per_s),
            bytes_per_s=bytes_per_s,
            array_bytes=array_bytes,
            flops_per_s=flops_per_s,
            dtype=dtype,
        )

    def why_absent(self, what: str) -> str | None:
        return find_why(self.absent, what)
