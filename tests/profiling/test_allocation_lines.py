"""Arrays by the line that made them: real arrays, whose sizes are known."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.errors import FormatError
from benchax.profiling import memory
from benchax.profiling.memory import MOST_LINES, OTHERS, Sampler, bytes_by_line, line_columns

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


def test_what_is_gone_is_no_longer_there() -> None:
    kept = by_jit(128)
    held = bytes_by_line(jax.profiler.device_memory_profile())[line_of(by_jit)]
    del kept

    assert bytes_by_line(jax.profiler.device_memory_profile()).get(line_of(by_jit), 0) == held - 4 * 128**2


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


def test_a_jax_that_does_not_tell_costs_only_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bytes:
        raise RuntimeError("UNIMPLEMENTED")

    monkeypatch.setattr(memory.jax.profiler, "device_memory_profile", fail)

    timeline = Sampler(interval_s=60).start().stop()

    assert (timeline.lines, timeline.ended_because) == ((), "")
    assert len(timeline.times_s) == 2


def test_lines_end_where_they_would_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_PROFILE_BYTES", 1)
    kept = by_numpy(10)

    timeline = Sampler(interval_s=60).start().stop()

    assert kept.nbytes
    assert {one.sizes_bytes[1] for one in timeline.lines} == {None}
