"""Budgets: each stage its own, from its first announcement on; nothing else restarts them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchax.workers import conversation
from benchax.workers.channel import Message
from benchax.workers.conversation import Budget, Conversation, Job
from benchax.workers.task import CallLimits
from benchax.workers.worker import warm_up


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(conversation, "perf_counter", clock)
    return clock


def budget(total_s: float | None = None) -> Budget:
    limits = {"trace": 2.0, "run": 3.0}
    return Budget(CallLimits(limits.get, total_s))


def test_a_stage_and_the_whole_job_have_their_limits(clock: Clock) -> None:
    """The start has no limit, and what one stage leaves, the next does not get."""
    one = budget(total_s=6.0)
    assert (budget().rest(), budget().failure()) == (None, None)
    one.enter("trace")
    clock.now += 0.5
    one.enter("run")
    clock.now += 2.0
    assert (one.rest(), one.failure()) == (1.0, None)

    one.enter("run")

    assert one.rest() == 3.0
    clock.now += 3.0
    failure = one.failure()
    assert (failure.kind, failure.stage) == ("timeout", "run")
    assert failure.message == "run took longer than 3.00 s; the process was killed"
    one.enter("run")
    clock.now += 0.5
    failure = one.failure()
    assert failure.message == "the job as a whole took longer than 6.00 s; the process was killed"
    assert one.rest() == 0.0


def test_a_worker_that_says_that_it_knows_old_code_and_ends_at_once_is_replaced() -> None:
    """Its end may be told before its last message is read: then it had looked like a process without an answer."""
    last = Message({"job": 1, "stale": "model.py"})
    channel = SimpleNamespace(pop=lambda: last, send=lambda *_, **__: None)
    worker: Any = SimpleNamespace(jobs=0, output=SimpleNamespace(begin=lambda is_shown: None), channel=channel)
    one = Conversation(Any, worker, Job(warm_up, ()), (), {})  # type: ignore[arg-type]

    conclusion = one._conclude_death()

    assert (conclusion.is_stale, conclusion.doubt) == (True, "model.py")
