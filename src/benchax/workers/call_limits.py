"""The limits of a call in a worker.

Each stage has its own limit, so that a long compilation does not use the time of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchax.measuring import timers
from benchax.model import Options

START_S = 60.0
"""Least time to import what a call needs: it is no stage of the user's function."""


@dataclass(frozen=True)
class CallLimits:
    """The time and memory that a call can use before it is ended."""

    stage_s: Callable[[str], float | None] = lambda stage: None
    """Seconds of wall-clock time for a stage, asked when it begins; None: no limit."""
    total_s: float | None = None
    """For the call as a whole."""
    memory_bytes: int | None = None
    """Beyond what a warm worker has mapped already."""


UNLIMITED = CallLimits()


def limits_of(options: Options) -> CallLimits:
    """Those that the options of a case set."""
    return CallLimits(lambda stage: stage_limit(stage, options), memory_bytes=options.memory_limit_bytes)


def stage_limit(stage: str, options: Options) -> float | None:
    """How long a stage may take: `timeout_s`, and on top of it what the options grant to warming up and sampling."""
    if options.timeout_s is None:
        return None
    if stage == "start":
        return max(START_S, options.timeout_s)
    granted = {"warm-up": options.max_warmup_s, **dict.fromkeys(timers.TIMERS, options.max_time_s)}
    return options.timeout_s + granted.get(stage, 0.0)


def limit_stages(limit_s: float) -> CallLimits:
    """The same for every stage, with enough time to start."""
    return CallLimits(lambda stage: max(START_S, limit_s) if stage == "start" else limit_s)
