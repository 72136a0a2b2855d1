"""A pipeline in a worker, timed whatever speaks against it: the tests' machine may have too few cores."""

from __future__ import annotations

from typing import Any

from benchax.experiments.variants import devices
from benchax.experiments.variants.devices import DeviceSweep
from benchax.workers.task import Say, task


@task
def try_unhindered(argument: Any, say: Say) -> DeviceSweep:
    """In the worker."""
    devices.skip_reason_of = lambda devices, cores, slowdown: ""
    return devices.try_pipeline(argument, say)
