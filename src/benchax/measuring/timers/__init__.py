"""The timers. A new one is one file here and one line in `TIMERS`.

Each is loaded at its first use. `in_graph` and `device` load the clock and the reader of profiles, which takes 0.1 s. A
session of tests, which are timed by `wall`, need not wait for that.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import jax

from benchax.errors import UsageError, one_of
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.model import Absent, Samples
from benchax.units import seconds


@dataclass(frozen=True)
class Timer:
    """One way of reading time: the module of its name, which is loaded at the first use."""

    name: str
    answers: str
    """The question that its number answers, in a few words; shown next to it."""

    def prepare(self, subject: Subject) -> PreparedTimer:
        """Raises `NotMeasured` if this timer cannot serve."""
        return import_module(f"{__name__}.{self.name}").prepare(subject)


TIMERS = {
    timer.name: timer
    for timer in (
        Timer("in_graph", "inside a program"),
        Timer("wall", "one call, dispatch and wait included"),
        Timer("pipelined", "calls queued, one wait at the end"),
        Timer("loop", "inside a program"),
        Timer("device", "the device at work, without dispatch"),
    )
}

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


def choose(
    text: str, call_s: float, calls: int = 0, platform: str | None = None
) -> tuple[tuple[str, ...], list[Absent]]:
    """Returns the timers for a function whose warm call takes `call_s`, the headline first; and why "auto" leaves out
    others.

    Args:
        call_s: the least of several calls: one preempted call must not decide.
        calls: the number of these calls, for the reasons; 0 if it is not known.
        platform: default: JAX's own. On CPU, `device` is only used on request.
    """
    if names := parse(text):
        return names, []
    is_cpu = (platform or jax.default_backend()) == "cpu"
    of = f" (the least of {calls})" if calls > 1 else ""
    short = ("in_graph", "wall", "pipelined", "loop") if is_cpu else ("device", "wall", "pipelined", "loop")
    if call_s < (AUTO_LIMIT_S if is_cpu else DEVICE_LIMIT_S):
        return short, []
    kept = ("wall",) if call_s >= AUTO_LIMIT_S else ("wall", "device", "pipelined")
    limit_s, share = (AUTO_LIMIT_S, "below 1 %") if kept == ("wall",) else (DEVICE_LIMIT_S, "a small part")
    left = [name for name in short if name not in kept]
    why = f"a call takes {seconds(call_s)}{of}, above {seconds(limit_s)}, where dispatch is {share} of it"
    return kept, [Absent(f"samples.{name}", f"{why}; --timer {','.join(left)} measures it") for name in left]


def names_for_others(text: str, taken: Sequence[Samples]) -> tuple[str, ...]:
    """Returns the timers of further processes: those with samples from the first process. Under "auto", `pipelined` is
    left out. Its throughput says little about layout, and it takes as long as the others together."""
    names = tuple(dict.fromkeys(s.timer for s in taken))
    return names if text != "auto" else tuple(name for name in names if name != "pipelined") or names


def why_not_needed(name: str, text: str, taken: Sequence[Samples]) -> str:
    """Says why `loop` is left out under "auto" if `in_graph` has answered its question already; empty if it is needed.

    Both are shown for very short functions: the surrounding code decides their cost, and the two are its bounds.
    """
    resident = next((s.summary.median_s for s in taken if s.timer == "in_graph"), 0.0)
    if name != "loop" or text != "auto" or resident < BRACKETED_S:
        return ""
    return "in_graph has answered the same question; --timer in_graph,loop measures both"
