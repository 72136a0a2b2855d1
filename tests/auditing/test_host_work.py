"""What the main thread is at between calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from benchax.auditing import host_work
from benchax.auditing.host_work import HostSampler, HostWork


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(host_work, "clock", found)
    monkeypatch.setattr(host_work, "perf_counter", found)
    return found


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> HostWork:
    """Samples are taken by the test."""
    monkeypatch.setattr(HostSampler, "start", lambda self: None)
    monkeypatch.setattr(HostSampler, "stop", lambda self: None)
    found = HostWork()
    found.open()
    return found


def load(work: HostWork, clock: Clock, s: float) -> None:
    clock.now += s
    work._sampler.sample(sys._getframe(), 0.0)


def test_time_at_lines_of_the_users_counts_for_the_next_call(work: HostWork, clock: Clock) -> None:
    for _ in range(3):
        load(work, clock, 0.5)
        clock.now += 1.0
        work._sampler._last = clock.now  # a sample in which JAX was on the stack
        work.note_call("train.py:9")

    (line,) = work.asdict()
    assert (line["where"], line["count"], line["elapsed_s"], line["host_s"]) == ("train.py:9", 3, 3.0, 1.0)
    ((stack, seconds),) = line["stacks"]
    assert seconds == 1.0
    assert [place.rpartition("/")[2].partition(":")[0] for place in stack[-2:]] == ["test_host_work.py"] * 2


def test_what_lies_before_the_first_call_of_a_line_is_left_out(work: HostWork, clock: Clock) -> None:
    load(work, clock, 60.0)
    work.note_call("train.py:5")
    load(work, clock, 60.0)
    work.note_call("train.py:9")

    assert [(line["count"], line["elapsed_s"], line["host_s"]) for line in work.asdict()] == [(1, 0.0, 0.0)] * 2


def test_what_lies_between_two_windows_is_left_out(work: HostWork, clock: Clock) -> None:
    work.note_call("train.py:9")
    work.close()
    clock.now += 60.0
    work.open()
    work.note_call("train.py:9")

    assert work.asdict()[0]["elapsed_s"] == 0.0


def test_calls_of_other_threads_are_not_those_of_the_loop(work: HostWork, clock: Clock) -> None:
    thread = threading.Thread(target=work.note_call, args=("loader.py:3",))
    thread.start()
    thread.join()

    assert work.asdict() == []


def test_without_a_window_and_without_a_line_nothing_is_noted(work: HostWork) -> None:
    work.note_call(None)
    work.close()
    work.note_call("train.py:9")

    assert work.asdict() == []


def _inside(file: str, call: Callable[[], Any]) -> Any:
    """Calls it from a function of another file."""
    found: dict[str, Any] = {}
    exec(compile("def run(call):\n    return call()\n", file, "exec"), found)
    return found["run"](call)


def test_where_jax_is_on_the_stack_the_host_does_not_work(work: HostWork) -> None:
    import jax

    assert _inside(jax.__file__, lambda: host_work._stack_of_host(sys._getframe())) == ()
    assert _inside("<string>", lambda: host_work._stack_of_host(sys._getframe())) != ()


def test_a_real_loop_is_sampled() -> None:
    work = HostWork()
    work.open()
    try:
        while sum(line["host_s"] for line in work.asdict()) == 0.0:
            sum(i * i for i in range(100_000))
            work.note_call("train.py:9")
    finally:
        work.close()

    assert any("test_host_work.py" in place for stack, _ in work.asdict()[0]["stacks"] for place in stack)
