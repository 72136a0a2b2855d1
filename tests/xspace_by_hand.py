"""Writes traces, for tests: the messages of xplane.proto, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiled_texts import hlo_text

from benchax.profiling.host_thread import COMPILED, ENDED, SAMPLE, SampledFrame, encode
from benchax.profiling.trace import profile_of
from benchax.results.profile import Profile


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(key: int, value: int) -> bytes:
    return varint(key << 3) + varint(value)


def block(key: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(key << 3 | 2) + varint(len(raw)) + raw


@dataclass
class Event:
    """Times in ps since the line began."""

    name: str
    start: int
    length: int
    stats: Mapping[str, int | str] = field(default_factory=dict)


def op(name: str, start: int, length: int, **stats: int | str) -> Event:
    """As XLA:CPU records an operation."""
    same: dict[str, int | str] = {"hlo_module": "jit_f", "program_id": 6, "run_id": 1, "device_ordinal": 0}
    return Event(name, start, length, {"hlo_op": name, **same, **stats})


def plane(name: str, lines: Mapping[str, Sequence[Event]], began_ns: int = 1_795_312_703_005_883_643) -> bytes:
    """A plane whose texts are references, as those of XLA are."""
    events = [event for line in lines.values() for event in line]
    names = {text: i + 1 for i, text in enumerate(dict.fromkeys(event.name for event in events))}
    keys = dict.fromkeys(key for event in events for key in event.stats)
    words = dict.fromkeys(value for event in events for value in event.stats.values() if isinstance(value, str))
    stats = {text: i + 1 for i, text in enumerate(dict.fromkeys([*keys, *words]))}
    body = block(2, name)
    for title, line in lines.items():
        body += block(
            3, block(2, title) + number(3, began_ns) + b"".join(block(4, _event(e, names, stats)) for e in line)
        )
    for key, ids in ((4, names), (5, stats)):
        body += b"".join(block(key, number(1, i) + block(2, number(1, i) + block(2, text))) for text, i in ids.items())
    return block(1, body)


def _event(event: Event, names: Mapping[str, int], stats: Mapping[str, int]) -> bytes:
    written = b"".join(
        block(4, number(1, stats[key]) + (number(7, stats[value]) if isinstance(value, str) else number(4, value)))
        for key, value in event.stats.items()
    )
    return number(1, names[event.name]) + number(2, event.start) + number(3, event.length) + written


def space(*planes: bytes, warnings: Sequence[str] = (), host: str = "here") -> bytes:
    return b"".join(planes) + b"".join(block(3, text) for text in warnings) + (block(4, host) if host else b"")


def program(*lines: str, **computations: Sequence[str]) -> bytes:
    """`/host:metadata` with program 6, jit_f, as text.

    XLA has a message in that place; `tests/profiling/conftest.py` reads the text instead.
    """
    stat = number(1, 1) + block(6, block(1, hlo_text(*lines, **computations)))
    event = number(1, 1) + block(2, number(1, 1) + block(2, "jit_f(6)") + block(5, stat))
    keys = block(5, number(1, 1) + block(2, number(1, 1) + block(2, "Hlo Proto")))
    return block(1, block(2, "/host:metadata") + block(4, event) + keys)


# ---- traces of training loops: what a step is made of is known to the microsecond ------------------------------------

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
