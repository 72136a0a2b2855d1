"""Traces of training loops, written by hand: what a step is made of is known to the microsecond."""

from __future__ import annotations

from collections.abc import Sequence

from xspace_by_hand import Event, op, plane, space

from benchax.profiling.host_thread import COMPILED, ENDED, SAMPLE, SampledFrame, encode
from benchax.profiling.trace import profile_of
from benchax.results.profile import Profile

US = 10**6
"""Picoseconds."""
LOOP = SampledFrame("/home/me/train.py", 12, "main", "user")
LOADER = SampledFrame("/home/me/loader.py", 31, "batches", "user")
AT_NEXT = LOOP._replace(line=10, is_iterating=True)


def call(name: str, start_us: int, length_us: int) -> Event:
    return Event(f"PjitFunction({name})", start_us * US, length_us * US)


def work(start_us: int, length_us: int, run: int, name: str = "dot.1", **stats: int | str) -> Event:
    return op(name, start_us * US, length_us * US, **{"hlo_module": "jit_step", "run_id": run, **stats})


def sample(at_us: int, *frames: SampledFrame, cpu_us: int = 0, since_us: int = 100, late_us: int = 0) -> Event:
    stats = {"cpu_us": cpu_us, "since_us": since_us, "late_us": late_us}
    return Event(SAMPLE + encode(frames), at_us * US, 0, stats)


def compiled(at_us: int, took_us: int, *frames: SampledFrame, name: str = "jit(step)", before: int = 0) -> Event:
    text = f"{COMPILED}compile {name} {encode(frames)}"
    return Event(text, at_us * US, 0, {"elapsed_us": took_us, "before": before})


def sampler_end(at_us: int, used_us: int, wall_us: int) -> Event:
    return Event(ENDED, at_us * US, 0, {"samples": 1, "used_us": used_us, "wall_us": wall_us})


def read(python: Sequence[Event], pool: Sequence[Event], sampler: Sequence[Event] = ()) -> Profile:
    lines = {"python": list(python), "pool": list(pool)} | ({"sampler": list(sampler)} if sampler else {})
    return profile_of(space(plane("/host:CPU", lines)))
