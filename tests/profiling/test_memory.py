"""Memory over time: programs whose arrays are known, which wait until they have been read."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python

import benchax
from benchax.errors import FormatError, UsageError
from benchax.profiling import files, samplers
from benchax.profiling.samplers import MOST_LINES, MOST_SHARE, OTHERS, Sampler, bytes_by_line, line_columns
from benchax.results.profile import Column, LineMemory, Timeline

MIB = 2**20
FAST_S = 1e-4


@pytest.fixture
def is_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Waits until a reading has begun and ended: the second one from now, as the first may be under way."""
    read, count = samplers.live_bytes_by_device, Counter[str]()
    news = threading.Condition()

    def reading() -> Counter[str]:
        found = read()
        with news:
            count["readings"] += 1
            news.notify_all()
        return found

    def wait() -> None:
        with news:
            wanted = count["readings"] + 2
            assert news.wait_for(lambda: count["readings"] >= wanted, timeout=60)

    monkeypatch.setattr(samplers, "live_bytes_by_device", reading)
    return wait


def column(timeline: Timeline, kind: str, device: str = "cpu:0") -> tuple[int | None, ...]:
    (found,) = [one for one in timeline.columns if (one.kind, one.device) == (kind, device)]
    return found.sizes_bytes


def in_steps(is_read: Callable[[], None]) -> None:
    """8, 24 and 56 MiB, then nothing."""
    held = []
    for mib in (8, 16, 32):
        held.append(jnp.zeros(mib * MIB // 4))
        is_read()
    held.clear()
    is_read()


def test_what_is_allocated_in_steps_is_seen_in_steps(is_read: Callable[[], None], tmp_path: Path) -> None:
    in_steps(lambda: None)  # compiled before

    with benchax.profile(tmp_path, memory_s=FAST_S) as p:
        in_steps(is_read)

    arrays = column(p.timeline, "live_arrays")
    steps = [step for step, _ in groupby(round((size - arrays[0]) / MIB) for size in arrays)]
    assert steps == [0, 8, 24, 56, 0]
    assert all(size > 0 for size in column(p.timeline, "resident", ""))
    assert list(p.timeline.times_s) == sorted(p.timeline.times_s)


def test_a_function_is_read_where_that_is_wanted() -> None:
    read, unread = (benchax.profile(jnp.sin, 1.0, runs=1, memory_s=each) for each in (FAST_S, None))

    assert len(column(read.timeline, "live_arrays")) >= 2
    assert unread.timeline is None
    assert "over time" not in str(unread)


def test_the_readings_are_a_table_of_text_and_counters_of_perfetto(is_read: Callable[[], None], tmp_path: Path) -> None:
    with benchax.profile(tmp_path, memory_s=FAST_S) as p:
        jnp.zeros(3).block_until_ready()
        is_read()

    table = np.genfromtxt(p.files["timeline"], delimiter=",", names=True, deletechars="")
    sizes, lines = table.dtype.names[:4], table.dtype.names[4:]
    assert sizes == ("time_s", "reading_s", "live_arrays_bytes_cpu:0", "resident_bytes")
    assert all(name.startswith("made_at_bytes_") for name in lines)  # of whatever other tests keep
    assert table["live_arrays_bytes_cpu:0"].tolist() == list(column(p.timeline, "live_arrays"))
    assert files.read_timeline(Path(p.files["timeline"])).columns == p.timeline.columns
    trace = json.loads(gzip.decompress(Path(p.files["perfetto"]).read_bytes()))
    counters = [event for event in trace["traceEvents"] if event["ph"] == "C"]
    resident = [event["args"]["bytes"] for event in counters if event["name"] == "resident"]
    assert resident == list(column(p.timeline, "resident", ""))
    assert [event["ts"] for event in counters[: len(resident)]] == pytest.approx([s * 1e6 for s in p.timeline.times_s])
    assert any(event["ph"] == "X" for event in trace["traceEvents"])


def test_readings_that_cost_much_are_taken_less_often(
    is_read: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = samplers.live_bytes_by_device

    def slow() -> Counter[str]:
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            pass
        return read()

    monkeypatch.setattr(samplers, "live_bytes_by_device", slow)

    with benchax.profile(memory_s=FAST_S) as p:
        is_read()

    # The first one is before the block, and the last distance is cut short by its end.
    timeline = p.timeline
    paced = sum(timeline.reading_s[1:-2]) / (timeline.times_s[-2] - timeline.times_s[1])
    assert min(timeline.reading_s) >= 0.001
    assert paced <= MOST_SHARE


def test_a_reading_that_fails_ends_them_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()
    read, count = samplers.live_bytes_by_device, iter(range(100))

    def fails() -> Counter[str]:
        if next(count) < 2:
            return read()
        failed.set()
        raise RuntimeError("no more")

    monkeypatch.setattr(samplers, "live_bytes_by_device", fails)

    with benchax.profile(memory_s=FAST_S) as p:
        assert failed.wait(60)

    assert len(p.timeline.times_s) == 2
    assert "memory was read for a part of the time only: RuntimeError: no more" in [r.message for r in p.remarks]


def test_what_the_allocator_of_an_accelerator_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {"bytes_in_use": 5, "peak_bytes_in_use": 9, "num_allocs": 1}
    gpu = SimpleNamespace(platform="gpu", id=1, memory_stats=lambda: stats)

    def refuses() -> None:
        raise RuntimeError("UNIMPLEMENTED")

    mute = SimpleNamespace(platform="gpu", id=2, memory_stats=refuses)
    monkeypatch.setattr(jax, "local_devices", lambda: [gpu, mute])

    timeline = Sampler(1000.0).start().stop()

    assert column(timeline, "in_use", "gpu:1") == (5, 5)
    assert column(timeline, "peak_in_use", "gpu:1") == (9, 9)
    assert timeline.without("in_use") == ("gpu:2",)


def test_each_device_counts_the_part_that_it_holds() -> None:
    program = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_num_cpu_devices", 2)
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from benchax.profiling.samplers import live_bytes_by_device
mesh = Mesh(np.array(jax.devices()), "d")
split = jax.device_put(np.zeros(1000, "float32"), NamedSharding(mesh, P("d")))
print(sorted(live_bytes_by_device().items()))
both = jax.device_put(np.zeros(1000, "float32"), NamedSharding(mesh, P()))
print(sorted(live_bytes_by_device().items()))
both.delete()
print(sorted(live_bytes_by_device().items()))
"""

    done = warm_python.run([sys.executable, "-c", program], timeout=60)

    half, whole = [("cpu:0", 2000), ("cpu:1", 2000)], [("cpu:0", 6000), ("cpu:1", 6000)]
    assert done.stdout.splitlines() == [str(half), str(whole), str(half)], done.stderr


@pytest.mark.parametrize("memory_s", [0, -1, float("nan"), float("inf"), True, "soon"])
def test_a_distance_that_is_none_is_refused(memory_s) -> None:
    with pytest.raises(UsageError, match=r"option 'memory_s' in the call cannot be .*\nexpected a time above 0"):
        benchax.profile(jnp.sin, 1.0, memory_s=memory_s)


def test_what_is_not_known_survives_the_file(tmp_path: Path) -> None:
    timeline = Timeline(
        (0.0, 0.5),
        (0.001, 0.002),
        (Column("in_use", "gpu:0", (None, 7)), Column("resident", "", (1, 2))),
        lines=(LineMemory("/my files/ä.py:3", (5, None)), LineMemory("(other lines)", (None, 0))),
    )
    (tmp_path / "memory.csv").write_text(files.timeline_csv(timeline))

    assert files.read_timeline(tmp_path / "memory.csv") == timeline


TIMES = "time_s,reading_s"


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", f"{TIMES},other\n0,0,1\n", f"{TIMES},resident_bytes\n0.1,0.1\n", f"{TIMES}\n\x00"]
)
def test_another_file_of_that_name_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "memory.csv").write_text(text)

    with pytest.raises(FormatError, match="cannot be read as readings of memory"):
        files.read_timeline(tmp_path / "memory.csv")


# ---- allocation lines -----------------------------------------------------------------------------------------------


double = jax.jit(lambda x: x * 2)


def by_jit(n: int) -> jax.Array:
    return double(np.ones((n, n), np.float32))


def by_numpy(n: int) -> jax.Array:
    return jax.device_put(np.ones((n, n), np.float32))


def in_a_library(n: int) -> jax.Array:
    return jax.nn.one_hot(jnp.arange(n), n)


def line_of(function: Callable[..., object]) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize("make", [by_jit, by_numpy, in_a_library])
def test_an_array_belongs_to_the_innermost_line_of_the_users(make: Callable[[int], jax.Array]) -> None:
    make(4)  # what is made once and kept
    before = bytes_by_line(jax.profiler.device_memory_profile()).get(line_of(make), 0)

    kept = [make(64).block_until_ready() for _ in range(3)]

    after = bytes_by_line(jax.profiler.device_memory_profile())
    assert after[line_of(make)] - before == sum(one.nbytes for one in kept)


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"\xff\xff\xff", mtime=0), gzip.compress(b"\x12\x02\x1a\x7f", mtime=0)],
    ids=["nothing", "no gzip", "no message", "cut short"],  # not by their bytes
)
def test_what_is_no_profile_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        bytes_by_line(content)


def test_columns_begin_with_what_held_most_and_the_rest_is_one() -> None:
    many = {f"m.py:{i}": i for i in range(1, MOST_LINES + 3)}

    columns = line_columns([many, None, {"m.py:1": 10_000}])

    assert [column.source for column in columns[:2]] == ["m.py:1", f"m.py:{MOST_LINES + 2}"]
    assert columns[0].sizes_bytes == (1, None, 10_000)
    assert (columns[-1].source, columns[-1].sizes_bytes) == (OTHERS, (2 + 3, None, 0))


def test_a_sampler_reads_lines_at_its_begin_and_its_end() -> None:
    before = Sampler(interval_s=60).start()
    kept = by_numpy(200)

    timeline = before.stop()

    (column,) = [one for one in timeline.lines if one.source == line_of(by_numpy)]
    assert column.sizes_bytes[-1] == (column.sizes_bytes[0] or 0) + kept.nbytes


def test_a_jax_that_does_not_tell_costs_only_the_lines_and_they_end_where_they_would_take_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> bytes:
        raise RuntimeError("UNIMPLEMENTED")

    kept = by_numpy(10)
    with monkeypatch.context() as patch:
        patch.setattr(samplers.jax.profiler, "device_memory_profile", fail)
        untold = Sampler(interval_s=60).start().stop()
    monkeypatch.setattr(samplers, "MOST_PROFILE_BYTES", 1)
    many = Sampler(interval_s=60).start().stop()

    assert (untold.lines, untold.ended_because, len(untold.times_s)) == ((), "", 2)
    assert kept.nbytes
    assert {one.sizes_bytes[1] for one in many.lines} == {None}
