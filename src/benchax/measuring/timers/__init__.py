"""The timers. A new one is one file here and one line in TIMERS.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from benchax.errors import UsageError, one_of
from benchax.measuring.timers.base import Timer
from benchax.measuring.timers.device import Device
from benchax.measuring.timers.in_graph import InGraph
from benchax.measuring.timers.loop import Loop
from benchax.measuring.timers.pipelined import Pipelined
from benchax.measuring.timers.wall import Wall
from benchax.model import Samples

TIMERS: dict[str, Timer] = {timer.name: timer for timer in (InGraph(), Wall(), Pipelined(), Loop(), Device())}

AUTO_LIMIT_S = 10e-3
"""Calls longer than this are timed by `wall` alone: dispatch is below 1 % of them."""
BRACKETED_S = 0.5e-6
DEVICE_LIMIT_S = 1e-3
"""On an accelerator, calls shorter than this have `device` for their headline: dispatch is a good part of them."""


def parse(text: str) -> tuple[str, ...]:
    """ "wall,loop" as names; () for "auto".

    Raises:
        UsageError: a timer that does not exist.
    """
    if text == "auto":
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in TIMERS:
            raise UsageError(f"unknown timer {name!r}", one_of(["auto", *TIMERS], name))
    return names


def chosen(text: str, wall_s: float, platform: str | None = None) -> tuple[str, ...]:
    """The timers for a function whose call takes `wall_s` when warm; the first is the headline.

    Args:
        platform: JAX's own where it is not given. On CPU `device` comes only when it is asked for.
    """
    if names := parse(text):
        return names
    if (platform or jax.default_backend()) == "cpu":
        return ("in_graph", "wall", "pipelined", "loop") if wall_s < AUTO_LIMIT_S else ("wall",)
    if wall_s < DEVICE_LIMIT_S:
        return ("device", "wall", "pipelined", "loop")
    return ("wall", "device", "pipelined") if wall_s < AUTO_LIMIT_S else ("wall",)


def is_needed(name: str, text: str, taken: Sequence[Samples]) -> bool:
    """False for `loop` under "auto" where `in_graph` has answered its question already.

    Of very short functions both are shown: what surrounds them decides what they cost, and the two bracket it.
    """
    resident = next((s.summary.median_s for s in taken if s.timer == "in_graph"), 0.0)
    return name != "loop" or text != "auto" or resident < BRACKETED_S
