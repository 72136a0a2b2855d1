"""Pools for the tests, and a look at which processes there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from benchax.executors.jobs import Job
from benchax.executors.pool import Pool

ENTRY = "executors.entries:call"


def job(function: Callable[..., Any], **options: Any) -> Job:
    """`function(say)` in a worker, with 20 seconds for each stage unless `limits` say otherwise."""
    return Job(ENTRY, function, **({"limits": lambda stage: 20.0} | options))


def within(**limits: float) -> Callable[[str], float]:
    """Limits by stage; 20 seconds for others."""
    return lambda stage: limits.get(stage, 20.0)


def strays(pool: Pool) -> list[psutil.Process]:
    """Processes below this one that are neither `pool`'s zygote nor a worker that is ready; zombies do not count."""
    keeper = pool._keeper
    known = {worker.pid for worker in pool._ready} | ({keeper.process.pid} if keeper else set())
    below = psutil.Process(keeper.process.pid).children(recursive=True) if keeper else []
    return [each for each in below if each.pid not in known]


def answer(say: Callable[..., None]) -> Any:
    """A small job that does all that jobs do."""
    import jax
    import jax.numpy as jnp

    say("run")
    return {"n": 3}, (jax.jit(lambda x: x * 2)(jnp.arange(3)),)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as one:
        yield one
