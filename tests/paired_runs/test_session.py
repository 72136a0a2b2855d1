"""How long a session goes on, and what it makes of what it sees: with workers whose times are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchax.comparing import sequential
from benchax.comparing.sequential import Effort
from benchax.measuring.paired import PairedAnswer, PairedRequest, Side, SideFacts
from benchax.model import CaseId, Failure, Noise, Version
from benchax.options import DEFAULTS
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PATIENCE, PairedRun, doubts
from benchax.progress import ProgressEvent
from benchax.workers.pool import Pool

Answer = PairedAnswer | Failure
Times = Callable[[int, np.random.Generator], float]
"""(number of the process, dice) -> how many times as long the candidate takes there, in one pair."""


class Workers:
    """In place of processes. Remembers what was requested."""

    def __init__(
        self,
        times: dict[str, Times],
        ended: dict[str, Answer] | None = None,
        alone_s: tuple[float, float] | None = None,
    ) -> None:
        self.alone_s = alone_s
        self.times = times
        self.ended = ended or {}
        self.processes = 0
        self.asked: list[tuple[int, str, PairedRequest]] = []
        self.dice = np.random.default_rng(5)

    @contextmanager
    def start(self) -> Iterator[Workers]:
        self.processes += 1
        yield self

    def call(self, task: Any, request: PairedRequest, limits: Any, *, name: str, on_message: Any) -> Answer:
        label = request.sides[-1].label
        self.asked.append((self.processes, label, request))
        on_message({"stage": "rounds"})
        return self.ended.get(label) or self.answer(self.times[label], request)

    def answer(self, times: Times, request: PairedRequest) -> Any:
        if request.skips_equal and request.sides[-1].label.startswith("one program"):
            return PairedAnswer([SideFacts(True, "f")] * 2, signature="f32[8]", is_same_program=True)
        ns = np.full((request.blocks, 25, 2), 100_000, np.int64)
        for b in range(request.blocks):
            for r in range(25):
                ns[b, r, 1] = 100_000 * times(self.processes, self.dice)
        builds = [{"compile": 0.1}] * request.blocks
        sides = [SideFacts(True, builds=builds, alone_s=alone_s) for alone_s in self.alone_s or (None, None)]
        return PairedAnswer(sides, 10, ns, signature="f32[8]")


def steady(factor: float, scatter: float = 0.02) -> Times:
    return lambda process, dice: factor * float(np.exp(scatter * dice.standard_normal()))


def paired_run(label: str) -> PairedRun:
    versions = (Version("baseline"), Version(label))
    return PairedRun(CaseId(label), (Side("baseline", program=b""), Side(label, program=b"")), versions, DEFAULTS)


def verdicts(workers: Workers, effort: Effort = Effort(), **more: Any) -> dict[str, str]:  # noqa: B008
    paired_runs = [paired_run(label) for label in workers.times]
    found = session.compare_runs(paired_runs, effort, start=workers.start, **more)
    return {c.case.name: c.verdict for each in found for c in each if c.metric == "run"}


@pytest.mark.parametrize(("alone_s", "is_said"), [((64e-6, 4e-6), True), ((10e-6, 1.1e-6), False)])
def test_versions_that_differ_otherwise_in_a_row_than_in_turns_show_both(
    alone_s: tuple[float, float], is_said: bool
) -> None:
    workers = Workers({"fused": steady(1 / 9)}, alone_s=alone_s)

    ((run, *_),) = session.compare_runs([paired_run("fused")], Effort(), start=workers.start)
    told = {r.code: r.message for r in run.remarks}

    assert run.baseline_value == pytest.approx(10e-6)  # 100 µs for 10 calls
    assert ("alone-differs" in told) == is_said
    if is_said:
        assert told["alone-differs"].startswith(
            "when each is called in a row, baseline takes 16.0 times as long as fused (64.0 µs and 4.00 µs); "
            "alternately, "
        )
        assert "baseline takes 9" in told["alone-differs"]


def test_one_program_is_timed_only_where_the_error_rates_are_wanted() -> None:
    """One process is needed to know."""
    workers, timed = Workers({"one program": steady(1.0), "equal": steady(1.0)}), Workers({"one program": steady(1.0)})
    paired_runs = [paired_run("one program"), paired_run("equal")]

    (same,), equal = session.compare_runs(paired_runs, Effort(), start=workers.start)

    assert (same.verdict, same.method, same.ratio) == ("same", "same program", None)
    assert [c.method for c in equal if c.metric == "run"] == ["one process"]
    assert [label for _, label, _ in workers.asked].count("one program") == 1
    assert (verdicts(timed, Effort(skips_equal=False)), timed.processes) == ({"one program": "same"}, 2)


def test_a_finer_resolution_goes_on_for_longer_and_confirms_as_long() -> None:
    """+2 % among pairs that scatter by 20 %."""
    effort = sequential.effort_for(0.01)
    workers = Workers({"slow": steady(1.02, 0.2), "wild": steady(1.0, 0.6)})

    assert verdicts(Workers({"slow": steady(1.02, 0.02)}), sequential.effort_for()) != {"slow": "slower"}
    assert verdicts(workers, effort) == {"slow": "slower", "wild": "unclear"}
    assert sequential.FINE_LOOKS[-1] == 24
    assert workers.processes >= 24
    assert sequential.confirming(effort).looks == sequential.FINE_LOOKS
    assert sequential.confirming(effort).resolution == 0.01
    assert sequential.confirming(sequential.effort_for()).looks == sequential.LOOKS


def test_each_process_of_a_session_is_a_new_fork_of_one_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[Pool] = []
    monkeypatch.setattr(Pool, "renew", lambda pool: renewed.append(pool))

    with session.fresh_processes() as start:
        with start() as one:
            assert renewed == []
        with start() as other:
            assert renewed == [one]

    assert renewed == [one, other]
    assert one is other


def test_a_change_is_measured_a_second_time_beside_what_is_still_undecided() -> None:
    workers = Workers({"slow": steady(1.1), "fast": steady(0.8), "equal": steady(1.0), "wild": steady(1.02, 0.6)})
    lucky = Workers({"lucky": lambda process, dice: 1.1 if process <= 2 else steady(1.0)(process, dice)})

    assert verdicts(workers) == {"slow": "slower", "fast": "faster", "equal": "same", "wild": "unclear"}
    assert {label for process, label, _ in workers.asked if process in (3, 4)} == {"slow", "fast", "wild"}
    assert workers.processes == sequential.LOOKS[-1]
    ((run, *_),) = session.compare_runs([paired_run("lucky")], Effort(), start=lucky.start)
    assert (run.verdict, run.confirmed) == ("unclear", False)
    assert run.why.startswith("slower at first (+10 %), not confirmed (")


def test_a_change_is_measured_again_in_the_second_half_of_the_time_and_no_longer() -> None:
    workers = Workers({"slow": steady(1.1), "equal": steady(1.0)})

    def run(limit_s: float, *labels: str) -> tuple[int, list[tuple[bool | None, str]]]:
        begun = workers.processes
        tests = session.run_tests(
            [paired_run(label) for label in labels],
            Effort(looks=(8,), max_time_s=limit_s),
            start=workers.start,
            clock=lambda: float(workers.processes - begun),  # a process takes a second
        )
        found = [next(c for c in test.comparisons() if c.metric == "run") for test in tests]
        return workers.processes - begun, [(c.confirmed, c.why) for c in found]

    assert run(8.0, "slow") == (4 + 2, [(True, "")])
    assert "no time was left to measure it again" in run(3.0, "slow")[1][0][1]
    # Nothing begins later, and one of two cases has no turn in the first process.
    processes, found = run(0.5, "slow", "equal")
    assert processes == 1
    assert sum("no time was left" in why for _, why in found) == 1


def test_what_has_ended_is_told_while_others_go_on_and_so_is_the_most_that_is_left() -> None:
    workers = Workers({"equal": steady(1.0), "wild": steady(1.02, 0.6)})
    told: list[ProgressEvent] = []

    session.run_tests(
        [paired_run("equal"), paired_run("wild")],
        Effort(),
        told.append,
        workers.start,
        clock=lambda: float(workers.processes),  # a process takes a second
    )

    assert told[0].item == "process 1: 2 of 2 undecided"
    assert told[0].doing in ("equal · rounds", "wild · rounds")
    (ended,) = [event.ended for event in told if event.ended]
    assert ended.startswith("equal  ")
    assert "same" in ended
    # Eight processes of each stage at most, of which two have been taken when it is told first.
    left = [event.left_s for event in told if event.item.startswith("process 3")]
    assert set(left) == {14.0}


def test_what_is_unclear_goes_on_alone_with_more_rounds_in_each_process_and_ends_unclear() -> None:
    workers = Workers({"equal": steady(1.0), "wild": steady(1.02, 0.6)})

    assert verdicts(workers) == {"equal": "same", "wild": "unclear"}
    assert workers.processes == sequential.LOOKS[-1]
    asked = {(process > 2, label, request.patience) for process, label, request in workers.asked}
    assert asked == {(False, "equal", 1), (False, "wild", 1), (True, "wild", PATIENCE)}


def test_each_process_has_an_order_of_its_own_and_the_same_data_and_the_first_of_a_stage_compares_outputs() -> None:
    workers = Workers({"slow": steady(1.1)} | {f"case{i}": steady(1.0) for i in range(8)})

    verdicts(workers)

    orders = [[label for process, label, _ in workers.asked if process == p] for p in (1, 2)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    requests = [request for _, label, request in workers.asked if label == "slow"]
    assert len({request.order_seed for request in requests}) == len(requests)
    assert {request.seed for request in requests} == {DEFAULTS.seed}
    assert [request.compares_outputs for request in requests] == [True, False, True, False]


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (Failure("timeout", "build of stuck", "took longer than 1 s"), "timeout in build of stuck"),
        (
            PairedAnswer(failure=Failure("error", "build", "ValueError: no"), failed_side=1),
            "error in build: ValueError: no",
        ),
    ],
)
def test_a_side_that_cannot_run_is_a_comparison_with_its_reason(ended: Answer, why: str) -> None:
    workers = Workers({"stuck": steady(1.0), "equal": steady(1.0)}, {"stuck": ended})

    found = session.compare_runs([paired_run("stuck"), paired_run("equal")], Effort(), start=workers.start)

    ((failed,), others) = found
    assert failed.verdict == "unclear"
    assert failed.failure is not None
    assert failed.why.startswith(why)
    assert [c.verdict for c in others if c.metric == "run"] == ["same"]
    assert [label for _, label, _ in workers.asked].count("stuck") == 1


def test_who_failed_once_does_not_run_again_to_confirm_the_change_of_another() -> None:
    failed = PairedAnswer(failure=Failure("timeout", "compile", "too long"), failed_side=2)
    workers = Workers({"slow": steady(1.1)}, {"broken": failed})
    two = paired_run("slow")
    three = replace(two, sides=(*two.sides, Side("broken", program=b"")), versions=(*two.versions, Version("broken")))

    (test,) = session.run_tests([three], Effort(), start=workers.start)

    assert [label for _, label, _ in workers.asked].count("broken") == 1
    assert next(c for c in test.comparisons() if c.metric == "run" and c.candidate.label == "slow").confirmed
    assert list(test.first.samples.failures) == [2]


def test_compile_times_are_pairs_too() -> None:
    workers = Workers({"slow": steady(1.1)})
    (test,) = session.run_tests([paired_run("slow")], Effort(), start=workers.start)

    compiling = next(c for c in test.first.samples.comparisons() if c.metric == "compile")
    assert (compiling.pairs, compiling.processes) == (2, 2)  # the first builds of a process pay for its start
    assert compiling.ratio == 1
    assert replace(compiling, blocks=()).verdict == "unclear"  # equal readings tell of a coarse clock


def test_what_spoils_the_times_is_said() -> None:
    """Each version that compiled while it was timed, and of a busy machine the busiest process."""
    recompiled, busy = doubts({"kept": 0, "fresh": 2}, [Noise(others_share=0.02), Noise(others_share=0.4), Noise()])

    assert (recompiled.code, recompiled.severity) == ("recompiled", "error")
    said = "2 programs were compiled while fresh was being timed: the times contain compiling"
    assert recompiled.message.startswith(said)
    assert (busy.code, busy.severity) == ("busy", "warning")
    assert "other processes used 40 % of the CPU" in busy.message
    assert doubts({"a": 0, "b": 0}, [Noise(), Noise(others_share=0.05, steal_share=0.0)]) == ()
