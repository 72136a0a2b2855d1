"""How long a trace of a million events takes to become a table, and how much memory; and what recording costs.

    python benchmarks/profiles.py [--events 1000000]

The trace is made here, with the stats that JAX 0.10.2 writes on CPU. Each reading runs in a process of its own, so that
its peak of memory is its own. Beside ours: a loop over `jax.profiler.ProfileData` that does the least that a table
needs, reading two stats of each event and summing durations (no self times, no scopes).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import header, note, table

LIMIT_S, LIMIT_BYTES = 10.0, 2 * 2**30
OPS = 200
THREADS = 4
STATS = ("hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal", "_src", "_pt", "_p")

OURS = """
from benchax.profiling.trace import profile_of
p = profile_of(data)
assert sum(op.calls for op in p.ops) == {events}, sum(op.calls for op in p.ops)
"""
PEER = """
import collections, jax
sums, n = collections.Counter(), 0
for plane in jax.profiler.ProfileData.from_serialized_xspace(data).planes:
    for line in plane.lines:
        for event in line.events:
            stats = dict(event.stats)
            if "hlo_op" in stats:
                sums[stats["hlo_module"], stats["hlo_op"]] += event.duration_ns
                n += 1
assert n == {events}
"""
READING = """
import sys, time
data = open(sys.argv[1], "rb").read()
import numpy, jax, benchax.profiling.trace
began = time.perf_counter_ns()
{code}
took = (time.perf_counter_ns() - began) / 1e9
# Not ru_maxrss, which a process takes over from the one that started it.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(took, int(peak.split()[1]) * 1024)
"""


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(key: int, value: int) -> bytes:
    return varint(key << 3) + varint(value)


def block(key: int, value: bytes) -> bytes:
    return varint(key << 3 | 2) + varint(len(value)) + value


def trace(events: int) -> bytes:
    """An XSpace: loops of 9 operations on several threads, a run each."""
    names = {OPS + 1 + i: text for i, text in enumerate(STATS)} | {OPS + 20: "jit_f", OPS + 21: "thunk_executor.cc"}
    metadata = b"".join(
        block(4, number(1, i) + block(2, number(1, i) + block(2, f"op.{i}".encode()))) for i in range(1, OPS + 1)
    )
    texts = names | {i: f"op.{i}" for i in range(1, OPS + 1)}
    metadata += b"".join(
        block(5, number(1, i) + block(2, number(1, i) + block(2, text.encode()))) for i, text in texts.items()
    )
    lines = b"".join(block(3, _thread(t, events // THREADS)) for t in range(THREADS))
    return block(1, block(2, b"/host:CPU") + lines + metadata) + block(4, b"made")


def _thread(thread: int, events: int) -> bytes:
    key = {text: OPS + 1 + i for i, text in enumerate(STATS)}
    same = [
        block(4, number(1, key["hlo_module"]) + number(7, OPS + 20)),
        block(4, number(1, key["program_id"]) + number(4, 6)),
        block(4, number(1, key["device_ordinal"]) + number(4, 0)),
        block(4, number(1, key["_src"]) + number(7, OPS + 21)),
        block(4, number(1, key["_pt"]) + number(4, 0)),
    ]
    parts: list[bytes] = [number(1, thread), block(2, f"tf_XLAPjRtCpuClient/{thread}".encode()), number(3, 4780)]
    for i in range(events):
        run, place = divmod(i, 10)
        op = 1 + (i * 7 + place) % OPS
        start = run * 10_000_000 + (place - 1) * 900_000 + 100_000 if place else run * 10_000_000
        length = 800_000 if place else 9_500_000  # the first of ten holds the others
        stats = [
            block(4, number(1, key["hlo_op"]) + number(7, op)),
            *same,
            block(4, number(1, key["run_id"]) + number(4, thread * 10**6 + run - 2**31)),
            block(4, number(1, key["_p"]) + number(4, (thread << 32) + i)),
        ]
        parts.append(block(4, number(1, op) + number(2, start) + number(3, length) + b"".join(stats)))
    return b"".join(parts)


def read_in_a_process(code: str, events: int, file: Path) -> tuple[float, int]:
    """(seconds, peak bytes of the process, imports and the trace itself included)."""
    program = READING.format(code=code.format(events=events))
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
    took, peak = done.stdout.split()
    return float(took), int(peak)


def reading(events: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "made.xplane.pb"
        note(f"making a trace of {events} events")
        file.write_bytes(trace(events))
        rows = []
        for name, code in (("benchax, the whole table", OURS), ("ProfileData, sums only", PEER)):
            note(name)
            took, peak = read_in_a_process(code, events, file)
            is_kept = "" if code is PEER else "kept" if took <= LIMIT_S and peak <= LIMIT_BYTES else "NOT KEPT"
            rows.append([name, f"{took:.2f}", f"{peak / 2**20:.0f}", is_kept])
        print(f"{events} events, {file.stat().st_size / 2**20:.0f} MiB; limits of ours: {LIMIT_S:.0f} s, 2048 MiB")
        table(["reading", "s", "peak MiB", "limits"], rows)


def recording() -> None:
    """What a run takes longer under the profiler, in turns in one process."""
    import jax
    import jax.numpy as jnp

    from benchax.profiling.session import session

    step = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda i, y: jnp.sin(y @ x), x))
    x = jnp.full((64, 64), 0.01)
    jax.block_until_ready(step(x))
    plain: list[float] = []
    traced: list[float] = []
    costs: list[float] = []
    for _ in range(15):
        plain.append(_seconds(lambda: jax.block_until_ready(step(x))))
        with session() as recorded:
            traced.append(_seconds(lambda: jax.block_until_ready(step(x))))
        costs.append((recorded.start_s or 0.0) + (recorded.stop_s or 0.0))
    for column in (plain, traced, costs):
        column.sort()
    print("a loop of 100 small operations of two kinds, 15 pairs in turns, medians")
    rows = [["one run, ms", f"{plain[7] * 1e3:.3f}", f"{traced[7] * 1e3:.3f}", f"{traced[7] / plain[7]:.2f}"]]
    table(["", "plain", "recorded", "ratio"], rows)
    print(f"starting, stopping, writing: {costs[7] * 1e3:.1f} ms a recording\n")


def _seconds(call: Callable[[], object]) -> float:
    """Of 20 calls, each."""
    began = time.perf_counter_ns()
    for _ in range(20):
        call()
    return (time.perf_counter_ns() - began) / 1e9 / 20


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    header("Profiles", ["numpy"])
    reading(options.events - options.events % THREADS)
    recording()
