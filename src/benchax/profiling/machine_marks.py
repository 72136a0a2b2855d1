"""On which machine a trace was recorded, as an event of the trace: it is known also where the file has travelled."""

from __future__ import annotations

import contextlib

import jax

from benchax.environment import fingerprint
from benchax.profiling.operations import HOST
from benchax.profiling.space import Space

MACHINE = "benchax machine: "


def mark_machine() -> None:
    """Leaves the fingerprint of this process in the trace that is being recorded; nothing where it cannot be had."""
    # An exception is harmless: then nothing is told that needs the mark.
    with contextlib.suppress(Exception), jax.profiler.TraceAnnotation(MACHINE + fingerprint()):
        pass


def machine_of(space: Space) -> str | None:
    """Returns the fingerprint, or None if the trace has none."""
    plane = space.plane(HOST)
    names = plane.names.values() if plane else ()
    return next((name.removeprefix(MACHINE) for name in names if name.startswith(MACHINE)), None)
