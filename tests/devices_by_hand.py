"""Meshes and pipelines in a worker that takes fake devices for real ones, though what it sees there says nothing."""

from __future__ import annotations

from typing import Any

from benchax.experiments.variants import devices
from benchax.experiments.variants.devices import DeviceSweep
from benchax.model import Estimate
from benchax.workers.task import Say


def try_recorded(argument: Any, say: Say) -> DeviceSweep:
    """In the worker: records each mesh."""
    tried = devices._try_mesh
    devices.time_calls = lambda call: Estimate(1.0, 0.5, 2.0)
    devices._try_mesh = lambda *given, is_timed: tried(*given, is_timed=True)
    return devices.try_meshes(argument, say)


def try_unhindered(argument: Any, say: Say) -> DeviceSweep:
    """In the worker: times each pipeline, even where the machine has too few cores."""
    devices.skip_reason_of = lambda devices, cores, slowdown: ""
    return devices.try_pipeline(argument, say)
