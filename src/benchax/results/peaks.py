"""`Peaks`: the highest rates that were seen on this machine, as a scale for programs. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchax.model import Absent


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
    """The file that keeps them; removing it has them measured anew. Empty where they could not be kept."""
    absent: tuple[Absent, ...] = ()
    """Why a rate is not there: of memory_bytes_per_s, cache_bytes_per_s, matmul_flops_per_s.f64."""

    def bytes_per_s(self, working_set_bytes: int | None) -> tuple[float | None, int]:
        """(the rate for a program that keeps so much memory busy, bytes of the array that it was measured with)"""
        if working_set_bytes is not None and working_set_bytes <= self.cache_array_bytes and self.cache_bytes_per_s:
            return self.cache_bytes_per_s, self.cache_array_bytes
        # Between the two sizes the larger rate, so that a share is rather too small than above 100 %.
        if working_set_bytes is not None and working_set_bytes < self.memory_array_bytes and self.cache_bytes_per_s:
            faster = max(self.cache_bytes_per_s, self.memory_bytes_per_s or 0.0)
            size = self.cache_array_bytes if faster == self.cache_bytes_per_s else self.memory_array_bytes
            return faster, size
        return self.memory_bytes_per_s, self.memory_array_bytes

    def why_absent(self, what: str) -> str | None:
        return next((each.why for each in self.absent if each.what == what), None)
