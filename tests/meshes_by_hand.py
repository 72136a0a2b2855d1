"""Meshes in a worker whose fake devices are treated as real ones: recorded, though what is seen there says nothing."""

from __future__ import annotations

from typing import Any

from benchax.experiments.variants import devices
from benchax.experiments.variants.devices import DeviceSweep
from benchax.model import Estimate
from benchax.workers.task import Say, task


@task
def try_recorded(argument: Any, say: Say) -> DeviceSweep:
    """In the worker."""
    tried = devices._try_mesh
    devices.time_calls = lambda call: Estimate(1.0, 0.5, 2.0)
    devices._try_mesh = lambda *given, is_timed: tried(*given, is_timed=True)
    return devices.try_meshes(argument, say)
