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
STAT_IDS = {text: OPS + 1 + i for i, text in enumerate(STATS)}
FUNCTION, FILE = OPS + 20, OPS + 21
"""Ids of the texts that stats refer to; those up to `OPS` are the operations."""

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
began, used = time.perf_counter_ns(), time.process_time()
{code}
took, used = (time.perf_counter_ns() - began) / 1e9, time.process_time() - used
# Not ru_maxrss, which a process takes over from the one that started it.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(took, used, int(peak.split()[1]) * 1024)
"""


def trace(events: int) -> bytes:
    """An XSpace: loops of 9 operations on several threads, a run each. JAX turns the text into bytes."""
    import jax

    operations = {i: f"op.{i}" for i in range(1, OPS + 1)}
    texts = operations | {i: text for text, i in STAT_IDS.items()} | {FUNCTION: "jit_f", FILE: "thunk_executor.cc"}
    metadata = [_named("event_metadata", i, text) for i, text in operations.items()]
    metadata += [_named("stat_metadata", i, text) for i, text in texts.items()]
    lines = [_thread(t, events // THREADS) for t in range(THREADS)]
    space = f'planes {{ name: "/host:CPU" {" ".join([*lines, *metadata])} }} hostnames: "made"'
    return jax.profiler.ProfileData.text_proto_to_serialized_xspace(space)


def _named(field: str, i: int, text: str) -> str:
    return f'{field} {{ key: {i} value {{ id: {i} name: "{text}" }} }}'


def _thread(thread: int, events: int) -> str:
    """One operation in ten, the first, holds the others. Times in ps."""
    always = [
        _stat("hlo_module", ref_value=FUNCTION),
        _stat("program_id", int64_value=6),
        _stat("device_ordinal", int64_value=0),
        _stat("_src", ref_value=FILE),
        _stat("_pt", int64_value=0),
    ]
    same = " ".join(always)
    parts = [f'lines {{ id: {thread} name: "tf_XLAPjRtCpuClient/{thread}" timestamp_ns: 4780']
    for i in range(events):
        run, place = divmod(i, 10)
        op = 1 + (i * 7 + place) % OPS
        start = run * 10_000_000 + (place - 1) * 900_000 + 100_000 if place else run * 10_000_000
        length = 800_000 if place else 9_500_000
        run_id = _stat("run_id", int64_value=thread * 10**6 + run - 2**31)
        flow = _stat("_p", int64_value=(thread << 32) + i)
        stats = f"{_stat('hlo_op', ref_value=op)} {same} {run_id} {flow}"
        parts.append(f"events {{ metadata_id: {op} offset_ps: {start} duration_ps: {length} {stats} }}")
    return "\n".join([*parts, "}"])


def _stat(name: str, **value: int) -> str:
    ((kind, number),) = value.items()
    return f"stats {{ metadata_id: {STAT_IDS[name]} {kind}: {number} }}"


def read_in_a_process(code: str, events: int, file: Path) -> tuple[float, float, int]:
    """(seconds, those of a processor, peak bytes of the process with its imports and the trace itself)."""
    program = READING.format(code=code.format(events=events))
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
    took, used, peak = done.stdout.split()
    return float(took), float(used), int(peak)


def reading(events: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "made.xplane.pb"
        note(f"making a trace of {events} events")
        file.write_bytes(trace(events))
        rows = []
        for name, code in (("benchax, the whole table", OURS), ("ProfileData, sums only", PEER)):
            note(name)
            took, used, peak = read_in_a_process(code, events, file)
            is_kept = "" if code is PEER else "kept" if took <= LIMIT_S and peak <= LIMIT_BYTES else "NOT KEPT"
            rows.append([name, f"{took:.2f}", f"{used:.2f}", f"{peak / 2**20:.0f}", is_kept])
        print(f"{events} events, {file.stat().st_size / 2**20:.0f} MiB; limits of ours: {LIMIT_S:.0f} s, 2048 MiB")
        table(["reading", "s", "processor s", "peak MiB", "limits"], rows)


def recording() -> None:
    """What a run takes longer under the profiler, in turns in one process."""
    import jax
    import jax.numpy as jnp

    from benchax.profiling.profile import session

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
