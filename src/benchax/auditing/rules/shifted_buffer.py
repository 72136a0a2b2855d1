"""Finds buffers of past values that a loop moves by a row in each step, where a ring buffer writes one row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchax.auditing.choices import weighted_bodies
from benchax.auditing.dataflow import GRADIENT
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, Tried, gain_of_part, rule, try_variant
from benchax.auditing.shifts import Shift, shifts
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, first_of_each_line
from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, seconds, size

LEAST_BYTES = 1 << 16
"""Of the buffer. In a scan a shift of 64 KiB takes 1.3 to 12 µs a step, and writing a row 0.1 to 0.3 µs; of 1 MiB, 50
to 90 µs, and 0.3 µs (jaxlib 0.10.2, two cores)."""
FASTEST = 50e9
"""Bytes a second: one core copies no faster, so that the time is a lower bound."""
LEAST_S = 1e-3
"""Of all shifts of a call, at that rate."""
MOST_OPERATIONS = 1.0
"""Of what else the body does, for each byte of the buffer: of a step that computes more the shift is a small part."""


@dataclass(frozen=True)
class _Shifted:
    shift: Shift
    times: float
    """Steps of a call."""

    @property
    def step(self) -> TracedEquation:
        return self.shift.step

    @property
    def least_s(self) -> float:
        return self.times * self.shift.buffer.size_bytes / FASTEST


@rule("shifted-buffer", "do loops write new rows without moving old ones?", "warning", needs_trace_only=True)
def shifted_buffer(e: Evidence) -> Iterable[Finding]:
    found = [_Shifted(shift, times) for body, times in weighted_bodies(closed_jaxpr(e)) for shift in shifts(body)]
    dear = [one for one in found if _is_dear(one)]
    if dear and e.platform != "cpu":
        raise NotMeasured(f"what a shift takes is known of CPUs, not of {e.platform}")
    yield from (_finding(e, one) for one in first_of_each_line(dear))


def _is_dear(found: _Shifted) -> bool:
    n = found.shift.buffer.size_bytes
    is_large = n >= LEAST_BYTES and found.least_s >= LEAST_S
    return is_large and found.shift.others <= MOST_OPERATIONS * n and GRADIENT not in found.step.scope


def _finding(e: Evidence, found: _Shifted) -> Finding:
    buffer, rows = found.shift.buffer, found.shift.buffer.shape[found.shift.axis]
    tried = _try_ring(e, found)
    return shifted_buffer.finding(
        f"moves {size(buffer.size_bytes)} in each step of a loop, to append to a buffer",
        [
            f"{buffer.spec} is put together anew in each of {count(found.times)} steps, moved along its {rows} rows",
            "a step writes an eighth of it at most, and reads no more than that at once",
            f"what else a step does is {count(found.shift.others)} operations, counted from the shapes",
            tried.sentence,
        ],
        f"Keep it as a ring: with i the number of the step, buffer.at[i % {rows}].set(row) writes one row in place, "
        f"and the one of k steps ago is buffer[(i - k) % {rows}]. jnp.roll brings it in order once, after the loop.",
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "a loop that only keeps the buffer")
        or Gain(
            f"estimated: at least {seconds(found.least_s)} per call, at {size(int(FASTEST))} a second", found.least_s
        ),
    )


def _try_ring(e: Evidence, found: _Shifted) -> Tried:
    """A loop of as many steps that keeps such a buffer, and reads its oldest row."""
    rows = found.shift.buffer.shape[found.shift.axis]
    width = max(1, found.shift.buffer.size_bytes // rows // 4)
    inputs = (f"float32[{rows},{width}]", int(found.times))
    moved, ring = (make_case(fn, inputs, name=fn.__name__.strip("_"), static=(1,)) for fn in (_move, _write))
    return try_variant(e, "as a ring", ring, moved)


def _move(buffer: jax.Array, steps: int) -> Any:
    def body(buffer: jax.Array, _: Any) -> Any:
        row = 0.5 * buffer[0] + 1.0
        return jnp.concatenate([buffer[1:], row[None]]), row[0]

    buffer, read = jax.lax.scan(body, buffer, None, length=steps)
    return buffer[-1], read


def _write(buffer: jax.Array, steps: int) -> Any:
    n = len(buffer)

    def body(buffer: jax.Array, i: Any) -> Any:
        row = 0.5 * buffer[i % n] + 1.0
        return buffer.at[i % n].set(row), row[0]

    buffer, read = jax.lax.scan(body, buffer, jnp.arange(steps))
    return buffer[(steps - 1) % n], read
