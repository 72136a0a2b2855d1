"""Calls a function once in a worker process before an audit calls it here. If it never ends, or kills its process, it
does so there.

There are two ways of calling it, each tried when the first rule needs it: compiled, which traces, lowers, compiles and
runs it, and eagerly. Each stage has the limit. A Python exception is no obstacle: it is raised here again, where rules
explain it.

The worker is new, and ends afterwards: a waiting worker would hold memory of an accelerator that this process needs. It
leaves JAX's persistent cache unchanged, because rules report on that cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax

from benchax.case import Case
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.prepare import prepare
from benchax.model import Failure
from benchax.workers.pool import shared_pool
from benchax.workers.task import Say, limit_stages, task

TIMEOUT_S = 300.0
BEFORE_TRACING = ("start", "inputs")
BUILDING = ("trace", "lower", "compile")

Way = Literal["compiled", "eager"]
HOW: dict[Way, str] = {"compiled": "compiled", "eager": "eagerly"}


@dataclass(frozen=True)
class TrialCall:
    """The result of calling it in a worker."""

    way: Way
    obstacle: Failure | None = None
    """Why it must not be called here: it did not end in time, or took its process with it."""
    error: Failure | None = None
    """The Python exception that it raised."""
    untried: str = ""
    """Why it could not be called there."""

    @property
    def why(self) -> str:
        """Completes "not measured, because …" if there is an obstacle."""
        if self.obstacle is None:
            return ""
        raised = "it raised " if self.obstacle.kind == "error" else ""
        return f"it was tried {HOW[self.way]} in a worker process, and {raised}{self.obstacle.message}"

    @property
    def is_unbuilt(self) -> bool:
        """Was there nothing to run, since it does not trace or compile?"""
        return self.error is not None and self.error.stage in BUILDING

    @property
    def advice(self) -> str:
        """Advice against the obstacle; empty if there is no advice."""
        if self.obstacle is not None and self.obstacle.kind == "timeout":
            return "Allow more time (--timeout, timeout_s=), or give it smaller inputs."
        return self.obstacle.advice if self.obstacle else ""


def _way(case: Case) -> Way:
    return "compiled" if case.jit else "eager"


def try_case(case: Case, seed: int, limit_s: float, tell: Callable[[str], None]) -> TrialCall:
    """Calls it once, compiled or, if the case is not to be jitted, eagerly; no stage takes longer than `limit_s`."""
    way = _way(case)
    doing = f"trying it {HOW[way]} in a worker process"
    tell(doing)
    found: TrialCall | Failure = shared_pool(warm=False).call(
        call_once,
        (case, seed),
        limit_stages(limit_s),
        name=f"case {case.id.label!r}",
        shows_output=False,  # it will say the same in this process
        on_message=lambda message: tell(f"{doing}: {message['stage']}"),
    )
    if not isinstance(found, Failure):
        return found
    if found.stage == "start" and found.kind != "timeout":  # it was not reached
        return TrialCall(way, untried=found.message)
    return TrialCall(way, found)


@task
def call_once(argument: tuple[Case, int], say: Say) -> TrialCall:
    """A `BaseException` that is not an `Exception`, such as a `SystemExit`, ends the job, as it would end the audit."""
    case, seed = argument
    way, stage = _way(case), "inputs"

    def enter(name: str) -> None:
        nonlocal stage
        stage = name if case.jit or name != "first run" else "eager call"
        say(stage)

    try:
        # A program that this trial left in the user's persistent cache would be found there by the audit, which tells
        # of it.
        with without_cache():
            prepare(case, seed, enter).call_first()
            jax.effects_barrier()  # callbacks that nothing waits for
    except Exception as error:
        failure = diagnose(error, stage)
        if stage == "inputs":  # as where an accelerator has no room for two processes
            return TrialCall(way, untried=f"its inputs cannot be made there: {failure.message}")
        return TrialCall(way, error=failure)
    return TrialCall(way)
