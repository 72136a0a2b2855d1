"""A pipeline in a worker, timed whatever speaks against it: the tests' machine may have too few cores."""

from __future__ import annotations

from typing import Any

from benchax.experiments import pipes
from benchax.workers.task import Say, task


@task
def try_unhindered(argument: Any, say: Say) -> pipes.PipelineReadings:
    """In the worker."""
    pipes.skip_reason_of = lambda devices, cores, slowdown: ""
    return pipes.try_pipeline(argument, say)
