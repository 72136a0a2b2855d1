"""Readings of further processes: where they come from, what they cost the first, and what is said without them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from benchax import codec
from benchax.case import make_case
from benchax.measuring import engine
from benchax.measuring.record import quiet
from benchax.model import Measurement
from benchax.options import resolve
from benchax.store.database import open_store
from benchax.workers import executors
from benchax.workers.executors import Inline, Replicated, SampleRequest, executor_for, sample_case
from benchax.workers.pool import Pool

OPTIONS = resolve(
    {"max_time_s": 0.06, "min_time_s": 0.03, "max_warmup_s": 0.02, "memory": False, "timer": "wall", "store": "off"},
    environ={},
)
ALONE = "samples.processes"


def heavy(x: Any) -> Any:
    return jnp.tanh(x @ x)


def run(pool: Pool, fn: Any = heavy, inputs: tuple[Any, ...] = ("f32[64,64]",), **options: Any) -> Measurement:
    case = make_case(fn, inputs)
    return Replicated(Inline(), pool).run(case, replace(OPTIONS, **options), run_id="r", progress=quiet)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as one:
        yield one


@pytest.fixture(scope="module")
def row(pool: Pool) -> Measurement:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "note_pace", lambda where: 0.05)
        return run(pool, processes=3)


def test_each_process_has_samples_and_intervals_hold_what_the_machine_scatters_by(row: Measurement) -> None:
    summary, alone = row.summary("wall"), replace(row, noise=replace(row.noise, pace_scatter=None)).summary("wall")

    assert row.failure is None
    assert [s.process for s in row.series_of("wall")] == [0, 1, 2]
    assert row.why_absent(ALONE) is None
    assert (summary.processes, row.noise.pace_scatter) == (3, 0.05)
    assert summary.low_s < min(alone.low_s, 0.9 * summary.median_s)
    # The rest is that of the first process.
    assert row.stages.cache == "off"
    assert None not in (row.stages.compile_s, row.numerics)
    assert row.options == replace(OPTIONS, processes=3)
    assert codec.decode(codec.encode(row)) == row


def test_the_row_is_known_after_each_process_and_workers_stay(pool: Pool, row: Measurement) -> None:
    rows: list[Measurement] = []
    before = [worker.pid for worker in pool._ready]

    def listen(what: str, value: Any) -> None:
        rows.extend([value] if what == "row" else [])

    case = replace(make_case(heavy, ("f32[64,64]",)), listen=listen)

    Replicated(Inline(), pool).run(case, replace(OPTIONS, processes=3), run_id="r", progress=quiet)

    assert [len(each.series_of("wall")) for each in rows] == [1, 2]
    assert len(set(before)) >= 2
    assert [worker.pid for worker in pool._ready] == before


def test_auto_adds_processes_while_the_interval_is_too_wide(pool: Pool) -> None:
    one = run(pool, processes=0, timer="auto", relative_width=1e9)
    five = run(pool, processes=0, timer="auto", relative_width=1e-6)

    assert one.options.processes == len(one.series_of("wall")) == 2
    assert five.options.processes == len(five.series_of("wall")) == 5
    assert len(five.series_of("pipelined")) == 1


def test_one_process_is_enough_for_a_program_that_earlier_runs_know(pool: Pool, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    case = make_case(heavy, ("f32[64,64]",))
    case = replace(case, find_earlier_runs=partial(store.find_earlier_runs, case.id))
    options = replace(OPTIONS, processes=0, store=str(tmp_path), relative_width=1e9)

    first = Replicated(Inline(), pool).run(case, options, run_id="r", progress=quiet)
    store.append(first)
    second = Replicated(Inline(), pool).run(case, options, run_id="s", progress=quiet)

    assert first.options.processes == 2
    assert second.options.processes == 1
    before, after = first.summary("wall"), second.summary("wall")
    assert after.scope == "run"
    assert second.earlier_runs.medians_s["wall"] == (pytest.approx(before.median_s, rel=1e-3),)


def test_a_long_case_is_measured_in_one_process_and_says_so(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchax.measuring.sampling.SHORT_CALL_S", 1e-9)

    m = run(pool, processes=0)
    one = executor_for(OPTIONS).run(make_case(heavy, ("f32[8,8]",)), OPTIONS, run_id="r", progress=quiet)

    assert isinstance(executor_for(OPTIONS), Inline)
    assert one.why_absent(ALONE) == "one process was requested; --processes 5 asks for more"
    assert m.options.processes == 1
    assert re.fullmatch(r"a call takes .*; --processes 5 asks for more", str(m.why_absent(ALONE)))


def test_a_case_that_cannot_travel_is_measured_alone_with_all_the_time(pool: Pool) -> None:
    lock = threading.Lock()

    def locked(x: Any) -> Any:
        with lock:
            return x + 1

    m = run(pool, locked, ("f32[8]",), processes=3)

    assert m.failure is None
    assert m.options == replace(OPTIONS, processes=1)
    assert "cannot be sent to a worker process" in str(m.why_absent(ALONE))


def test_a_failure_in_a_further_process_is_reported_and_the_others_count(pool: Pool, tmp_path: Path) -> None:
    driver, traces = os.getpid(), tmp_path / "traces"

    def only_here(x: Any) -> Any:
        if os.getpid() != driver:
            raise ValueError("not here")
        return x + 1

    def fails_once(x: Any) -> Any:
        if os.getpid() != driver and not traces.exists():
            traces.touch()
            raise ValueError("not now")
        return x + 1

    def broken(x: Any) -> Any:
        raise ValueError("it is broken")

    failed = run(pool, broken, ("f32[8]",), processes=3)
    none = run(pool, only_here, ("f32[8]",), processes=3)
    some = run(pool, fails_once, ("f32[8]",), processes=3)

    assert (failed.failure is not None, failed.samples) == (True, ())
    assert [s.process for s in none.series_of("wall")] == [0]
    assert none.options.processes == 1
    assert "ValueError: not here" in str(none.why_absent(ALONE))
    assert [s.process for s in some.series_of("wall")] == [0, 2]
    assert some.options.processes == 2
    assert "ValueError: not now" in str(some.why_absent(ALONE))


def test_a_further_process_does_not_look_again_for_differences_of_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(engine.purity, "check", lambda *_: looked.append("purity"))
    options = replace(OPTIONS, processes=1, stages="samples", verify="off")

    m = sample_case(SampleRequest(make_case(heavy, ("f32[8,8]",)), options, "r"), lambda *_, **__: None)

    assert m.samples
    assert looked == []


@pytest.mark.slow
def test_where_no_process_can_be_started_the_row_of_the_first_one_is_kept(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(pool, "call", full)

    m = run(pool, processes=3)

    assert [s.process for s in m.samples] == [0]
    assert m.why_absent(ALONE) == "no further process could be started: [Errno 11] Resource temporarily unavailable"
