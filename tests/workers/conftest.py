"""Pools for the tests, and a look at which processes there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import pytest
from workers.entries import call

from benchax.model import Failure
from benchax.workers.conversation import ignore
from benchax.workers.pool import Pool
from benchax.workers.task import CallLimits


@dataclass(frozen=True)
class Ended:
    """How a call of a test's function ended."""

    document: dict[str, Any] | None
    arrays: tuple[np.ndarray, ...] = ()
    failure: Failure | None = None


def ask(
    pool: Pool,
    function: Callable[..., Any],
    on_message: Callable[[dict[str, Any]], None] = ignore,
    *,
    limits: Callable[[str], float | None] = lambda stage: 20.0,
    total_s: float | None = None,
    memory_limit_bytes: int | None = None,
    name: str = "the function",
) -> Ended:
    """`function(say)` in a worker, with 20 seconds for each stage unless `limits` say otherwise."""
    permitted = CallLimits(limits, total_s, memory_limit_bytes)
    answer = pool.call(call, function, permitted, name=name, on_message=on_message)
    return Ended(None, failure=answer) if isinstance(answer, Failure) else Ended(*answer)


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


@pytest.fixture(scope="session")  # each takes a second to start, and no fault outlives its job
def pool() -> Iterator[Pool]:
    with Pool() as one:
        yield one
