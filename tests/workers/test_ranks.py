"""One program in two real processes: who is last, and who is named when one dies, hangs or disagrees."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import jax
import psutil
import pytest
import ranks_by_hand
from measurement_strategies import HOST

from benchax import codec
from benchax.case import make_case
from benchax.errors import UsageError
from benchax.model import Failure, Measurement
from benchax.options import DEFAULTS, resolve
from benchax.workers import ranks
from benchax.workers.executors import executor_for
from benchax.workers.rank import RankAnswer, RankJob, measure_rank
from benchax.workers.ranks import RankEnd, _disagreement, _fill, blame


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
        spare = {pool._keeper.process.pid for pool in ranks._pools if pool._keeper is not None}
        assert len(spare) <= 2  # the next case has the pools of one that went well
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
    ("name", "kind", "message"),
    [
        ("dies", "crashed", "rank 1 of 2 ranks: the process was killed by SIGKILL in trace"),
        ("raises", "error", "rank 1 of 2 ranks: ValueError: no such thing"),
        ("exchanges_more", "error", "rank 1 compiled a program that exchanges other data than the others' do"),
    ],
)
def test_a_rank_that_fails_ends_all_under_its_name(run: Any, name: str, kind: str, message: str) -> None:
    row = run(name)

    assert row.failure is not None
    assert (row.failure.kind, message in row.failure.message) == (kind, True), row.failure
    assert not row.samples


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_and_ended(run: Any) -> None:
    row = run("hangs", timeout_s=3.0)

    assert row.failure is not None
    assert row.failure.kind == "timeout"
    assert row.failure.message.startswith("rank 1 of 2 ranks: trace took longer than ")
    assert row.signature == "f32[64@data]"


@pytest.mark.slow
def test_outputs_that_differ_between_ranks_are_a_wrong_output_without_times(run: Any) -> None:
    row = run("differs", mesh=None)

    assert row.failure is not None
    assert row.failure.kind == "wrong_output"
    assert row.failure.message == "rank 1: out[0:64] differs from that of rank 0"
    assert not row.samples


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
    assert blame(ends, len(ends)).message == message


def answer(rank: int, begun: tuple[int, ...] = (), ended: tuple[int, ...] = (), **pieces: str) -> RankAnswer:
    return RankAnswer(rank, "h", 1, 0.1, begun, ended, pieces, HOST)


def test_the_odd_one_among_three_is_named() -> None:
    found = _disagreement([answer(0, out="b"), answer(1, out="a"), answer(2, out="a")])

    assert found is not None
    assert found.message == "rank 0: out differs from that of rank 1, rank 2"


def test_pieces_that_one_rank_holds_alone_agree() -> None:
    assert _disagreement([answer(0, left="a"), answer(1, right="b")]) is None


def test_the_scatter_of_the_start_is_kept_out_of_the_time() -> None:
    """Rank 1 begins 200 ns after rank 0, and all end at 1,200: 1,000 ns are the sample's."""
    row = Measurement(make_case(len, name="f").id, HOST, DEFAULTS, "r", "now")

    m = _fill(row, [answer(0, (0, 0), (1200, 900)), answer(1, (200, 100), (1100, 1100))], HOST)

    assert m.samples[0].elapsed_s == pytest.approx((1e-6, 1e-6))
    assert m.ranks is not None
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
    answers = [
        replace(answer(r, (0,), (1000,)), environment=replace(HOST, affinity=each)) for r, each in enumerate(cores)
    ]

    m = _fill(Measurement(make_case(len, name="f").id, HOST, DEFAULTS, "r", "now"), answers, HOST)

    assert [remark.message for remark in m.remarks if remark.code == "ranks-share-cores"] == texts


def test_the_error_of_the_clocks_is_told_and_counts_as_skew() -> None:
    answers = [answer(0, (0,), (1000,)), replace(answer(1, (0,), (1000,)), clock_error_s=2e-7)]

    m = _fill(Measurement(make_case(len, name="f").id, HOST, DEFAULTS, "r", "now"), answers, HOST)

    assert m.samples[0].disturbed_count == 1
    assert m.samples[0].answers == (
        "the slowest of 2 ranks, from a common start; the clocks of their hosts are known to 200 ns"
    )


def test_a_row_has_the_devices_of_the_ranks_and_the_commit_of_who_launched_them() -> None:
    there = replace(HOST, commit=None, backend="cpu", process_count=2, config={"jax_num_cpu_devices": 2})

    m = _fill(
        Measurement(make_case(len, name="f").id, HOST, DEFAULTS, "r", "now"),
        [replace(answer(0), environment=there)],
        replace(HOST, commit="c" * 40),
    )

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
