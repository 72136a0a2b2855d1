"""One program in two real processes: who is last, and who is named when one dies, hangs or disagrees."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import psutil
import pytest
import ranks_by_hand
from measurement_strategies import HOST

from benchax import codec
from benchax.case import make_case
from benchax.errors import NotMeasured, UsageError
from benchax.model import Environment, Failure, Measurement
from benchax.options import DEFAULTS, resolve
from benchax.workers import ranks
from benchax.workers.executors import executor_for
from benchax.workers.rank import ClockReading, RankAnswer, RankJob, StartLine, measure_rank
from benchax.workers.ranks import RankEnd, _disagreement, _fill, find_root_cause


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a function of one sharded array in two ranks of two devices, and sees that no process is left."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

    def run(name: str, mesh: str | None = "data=4", **options: Any) -> Measurement:
        given = {"nprocs": 2, "store": "off", "max_time_s": 0.2, **options}
        before = {p.pid for p in psutil.Process().children(recursive=True)}
        spec = "f32[64@data]" if mesh else "f32[64]"
        case = make_case(getattr(ranks_by_hand, name), (spec,), mesh=mesh)
        resolved = resolve(given)
        row = executor_for(resolved).run(case, resolved, run_id="r", progress=lambda stage, share: None)
        pools = [ranks.rank_pool(place) for place in range(2)]  # the next case has those of one that went well
        spare = {pool._keeper.process.pid for pool in pools if pool._keeper is not None}
        left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before | spare]
        assert [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
        return row

    return run


@pytest.mark.slow
def test_a_sample_is_of_the_slowest_and_each_rank_has_times(run: Any) -> None:
    row = run("sums")

    assert row.failure is None
    ranks, samples = row.ranks, row.samples[0]
    assert [rank.rank for rank in ranks.ranks] == [0, 1]
    assert ranks.devices_each == 2
    assert ranks.compared_outputs == 1
    assert all(rank.compile_s > 0 for rank in ranks.ranks)
    assert samples.elapsed_s == tuple(map(max, *(rank.elapsed_s for rank in ranks.ranks)))
    assert sum(rank.was_last for rank in ranks.ranks) == len(samples.elapsed_s) == len(ranks.barrier_skew_s)
    assert (row.environment.process_count, row.environment.fake_devices) == (2, 4)
    assert row.why_absent("samples.in_graph")
    assert "fake-devices" in [remark.code for remark in row.remarks]


@pytest.mark.slow
def test_a_delay_in_one_rank_is_found_and_named(run: Any) -> None:
    row = run("late", max_time_s=0.4)

    late = next(remark for remark in row.remarks if remark.code == "late-rank")
    assert late.message.startswith("rank 1 ended last in ")
    first, second = row.ranks.ranks
    assert second.median_s - first.median_s > ranks_by_hand.DELAY_S / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "kind", "message"),
    [
        ("dies", {}, "crashed", "rank 1 of 2 ranks: the process was killed by SIGKILL in trace"),
        ("raises", {}, "error", "rank 1 of 2 ranks: ValueError: no such thing"),
        ("exchanges_more", {}, "error", "rank 1 compiled a program that exchanges different data than the others"),
        ("hangs", {"timeout_s": 3.0}, "timeout", "rank 1 of 2 ranks: trace took longer than "),
        ("differs", {"mesh": None}, "wrong_output", "rank 1: out[0:64] differs from that of rank 0"),
    ],
)
def test_a_rank_that_fails_hangs_or_differs_ends_all_under_its_name_without_times(
    run: Any, name: str, options: dict[str, Any], kind: str, message: str
) -> None:
    row = run(name, **options)

    assert (row.failure.kind, message in row.failure.message) == (kind, True), row.failure
    assert not row.samples
    assert name != "hangs" or row.signature == "f32[64@data]"


# ---- without processes ------------------------------------------------------------------------------------------


def told(rank: int, kind: Any, step: str, at: float, message: str = "it") -> RankEnd:
    return RankEnd(rank, Failure(kind, step, message), step, at)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        # A death counts before the complaint that came earlier.
        ([told(0, "error", "samples", 1.0), told(1, "crashed", "samples", 1.1)], "rank 1 of 2 ranks: it"),
        # JAX aborts the others when the first process, which connects them, has ended.
        ([told(1, "crashed", "lower", 1.1), told(0, "error", "trace", 1.0, "no")], "rank 0 of 2 ranks: no"),
        ([told(1, "crashed", "samples", 1.1), told(0, "crashed", "samples", 1.0)], "rank 0 of 2 ranks: it"),
        # Of stuck ranks those that are furthest behind.
        (
            [told(0, "timeout", "compile", 1.0), told(1, "timeout", "trace", 1.1), told(2, "timeout", "trace", 1.2)],
            "rank 1 and rank 2 of 3 ranks: it",
        ),
    ],
)
def test_the_rank_that_the_others_fail_because_of_is_blamed(ends: list[RankEnd], message: str) -> None:
    assert find_root_cause(ends, len(ends)).message == message


def test_a_rank_whose_call_raises_has_failed_and_the_others_are_ended() -> None:
    ended: list[str] = []

    def full(on_message: Any) -> RankAnswer:
        on_message({"stage": "connect"})
        raise OSError("no more processes")

    def lost(on_message: Any) -> RankAnswer:
        raise ranks.LostContact("node7 does not answer")

    found = ranks.run_together({0: full, 1: lost}, lambda message: None, 5.0, lambda: ended.append("all"))

    assert {(each.rank, each.answer.kind, each.answer.message) for each in found} == {
        (0, "error", "lost in connect: no more processes"),
        (1, "node_lost", "lost in start: node7 does not answer"),
    }
    assert ended == ["all"]


def answer(rank: int, begun: tuple[int, ...] = (), ended: tuple[int, ...] = (), **pieces: str) -> RankAnswer:
    return RankAnswer(rank, "h", 1, 0.1, begun, ended, pieces, HOST)


def test_the_odd_one_among_three_is_named_and_pieces_that_one_rank_holds_alone_agree() -> None:
    found = _disagreement([answer(0, out="b"), answer(1, out="a"), answer(2, out="a")])

    assert found.message == "rank 0: out differs from that of rank 1, rank 2"
    assert _disagreement([answer(0, left="a"), answer(1, right="b")]) is None


def fill(*answers: RankAnswer, here: Environment = HOST) -> Measurement:
    return _fill(Measurement(make_case(len, name="f").id, HOST, DEFAULTS, "r", "now"), answers, here)


def test_the_scatter_of_the_start_is_kept_out_of_the_time() -> None:
    """Rank 1 begins 200 ns after rank 0, and all end at 1,200: 1,000 ns are the sample's."""
    m = fill(answer(0, (0, 0), (1200, 900)), answer(1, (200, 100), (1100, 1100)))

    assert m.samples[0].elapsed_s == pytest.approx((1e-6, 1e-6))
    assert m.ranks.barrier_skew_s == pytest.approx((2e-7, 1e-7))
    assert [rank.was_last for rank in m.ranks.ranks] == [1, 1]
    assert m.ranks.least_s == pytest.approx((9e-7, 8e-7))


@pytest.mark.parametrize(
    ("cores", "texts"),
    [
        ([(0,), (1,)], []),
        ([(0,), (0,)], ["2 ranks share 1 core of h: they wait for one another"]),
        ([(0, 1), (0, 1)], []),
    ],
)
def test_ranks_of_a_host_share_cores_where_they_are_more_than_it_gives_them(
    cores: list[tuple[int, ...]], texts: list[str]
) -> None:
    m = fill(
        *(replace(answer(r, (0,), (1000,)), environment=replace(HOST, affinity=each)) for r, each in enumerate(cores))
    )

    assert [remark.message for remark in m.remarks if remark.code == "ranks-share-cores"] == texts


def test_the_error_of_the_clocks_is_told_and_counts_as_skew() -> None:
    m = fill(answer(0, (0,), (1000,)), replace(answer(1, (0,), (1000,)), clock_error_s=2e-7))

    assert m.samples[0].disturbed_count == 1
    assert m.samples[0].answers == (
        "the slowest of 2 ranks, from a common start; the clocks of their hosts are known to 200 ns"
    )


def test_a_row_has_the_devices_of_the_ranks_and_the_commit_of_who_launched_them() -> None:
    there = replace(HOST, commit=None, backend="cpu", process_count=2, config={"jax_num_cpu_devices": 2})

    m = fill(replace(answer(0), environment=there), here=replace(HOST, commit="c" * 40))

    assert m.environment == replace(there, commit="c" * 40)
    assert codec.decode(codec.encode(m)).environment == m.environment


def test_a_timer_of_one_process_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        executor_for(resolve({"nprocs": 2, "timer": "loop"}))

    assert str(error.value) == "the timer 'loop' is given with nprocs=2\nexpected wall, or auto"


def test_a_host_whose_name_has_no_address_is_told_how_to_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("enforce fail at gloo/transport/tcp/device.cc")

    monkeypatch.setattr(jax.distributed, "initialize", refuse)
    monkeypatch.setattr(socket, "gethostname", lambda: "node.invalid")
    job = RankJob(b"", resolve({"nprocs": 2}), 1, 2, "127.0.0.1:1", 1.0, "line")

    with pytest.raises(UsageError) as error:
        measure_rank(job, lambda stage, **facts: None)

    assert str(error.value) == (
        "rank 1 cannot join the others: enforce fail at gloo/transport/tcp/device.cc\n"
        "expected ranks that reach one another\n\n"
        "hint: this host's name, 'node.invalid', has no address: put one into its /etc/hosts"
    )


# ---- the start line, on one host, whose clock is known to be one ---------------------------------------------------

STARTS = 5


def start_together(clocks: list[int]) -> list[tuple[StartLine, list[Any]]]:
    """What each process saw: its line, and its starts, of which the last was none."""
    address = f"127.0.0.1:{ranks.free_port()}"

    def be(rank: int) -> tuple[StartLine, list[Any]]:
        line = StartLine(address, rank, len(clocks), 20.0, clocks[rank])
        begun = [line.start(is_last=i == STARTS) for i in range(STARTS + 1)]
        line.align()
        line.close()
        return line, begun

    with ThreadPoolExecutor(len(clocks)) as pool:
        return list(pool.map(be, range(len(clocks))))


@pytest.mark.slow
def test_all_begin_after_the_time_that_the_first_one_named_and_hear_of_the_end() -> None:
    found = start_together([1] * 3)

    assert [begun[-1] for _, begun in found] == [None] * 3
    starts = list(zip(*(begun[:-1] for _, begun in found), strict=True))
    # Nobody begins before all have come, and so after the start before.
    assert all(max(earlier) < min(later) for earlier, later in pairwise(starts))


def test_processes_of_one_clock_have_nothing_to_measure() -> None:
    (_, _), (line, begun) = start_together([1, 1])

    assert line.error_s == 0.0
    assert line.to_common(begun[:-1]) == tuple(begun[:-1])


@pytest.mark.slow
def test_the_offset_of_another_clock_is_within_what_is_told() -> None:
    """Both are the clock of this host, and called by two names: the truth is 0."""
    (_, _), (line, _) = start_together([1, 2])

    assert line.error_s > 0.0
    assert len(line.readings) == 2
    assert all(abs(reading.ahead_ns) <= reading.error_ns for reading in line.readings)


def test_between_two_readings_a_clock_drifts_in_a_straight_line() -> None:
    line = StartLine.__new__(StartLine)
    line.readings = [ClockReading(1000, 50, 3), ClockReading(3000, 70, 4)]

    assert line.to_common([1000, 2000, 3000]) == (1050, 2060, 3070)
    assert line.error_s == pytest.approx(4e-9)


def test_who_does_not_come_is_named_and_a_first_one_that_is_not_there_with_its_address() -> None:
    address = f"127.0.0.1:{ranks.free_port()}"

    with pytest.raises(NotMeasured) as error:
        StartLine(address, 0, 3, 0.05, 1)
    with pytest.raises(NotMeasured, match=f"rank 0 cannot be reached at {address}"):
        StartLine(address, 1, 2, 0.0, 1)

    assert error.value.problem == "rank 1, rank 2 did not come to the start within 50.0 ms"
