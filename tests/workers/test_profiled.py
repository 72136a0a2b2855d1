"""Recording a case in a worker: how often it runs, what is recorded of it, and what a failure leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from benchax.case import make_case
from benchax.profiling.profile import LEAST_RUNS, MOST_RUNS
from benchax.profiling.program_recorder import ProgramRequest
from benchax.profiling.trace import profile_of
from benchax.results.profile import Profile
from benchax.workers.pool import Pool
from benchax.workers.profiled import RENEWED_RUNS, ProfilingOutcome, ProfilingRequest, record


@pytest.fixture
def recorded(pool: Pool, tmp_path: Path) -> Callable[..., ProfilingOutcome]:
    def run(
        fn: Callable[..., Any], *args: Any, donate: Any = (), runs: int | None = None, **wish: Any
    ) -> ProfilingOutcome:
        case = make_case(fn, args, name="case", donate=donate)
        return record(
            ProfilingRequest(case, ProgramRequest(**{"folder": str(tmp_path), **wish}), runs=runs), 30.0, pool
        )

    return run


def read(outcome: ProfilingOutcome) -> Profile:
    assert outcome.recorded.xplane is not None, outcome
    return profile_of(Path(outcome.recorded.xplane).read_bytes())


def test_runs_that_were_asked_for_are_recorded_and_no_other(recorded: Callable[..., ProfilingOutcome]) -> None:
    outcome = recorded(lambda x: jnp.sin(x) @ x, "f32[32,32]", runs=7)

    found = read(outcome)
    assert outcome.runs == 7
    assert [step.number for step in found.steps] == list(range(7))
    assert {run.module for run in found.runs} == {"jit_case"}
    assert len(found.runs) == 7
    assert found.compile_s is None


def test_without_a_wish_there_are_some_runs_and_for_a_case_that_takes_its_buffers_as_many_as_have_copies(
    recorded: Callable[..., ProfilingOutcome],
) -> None:
    outcome = recorded(lambda x: x + 1, "f32[8]")
    donating = recorded(lambda x: x + 1, "f32[1000]", donate=0)

    assert LEAST_RUNS <= outcome.runs <= MOST_RUNS
    assert len(read(outcome).steps) == outcome.runs
    assert donating.runs == RENEWED_RUNS
    # The copies are not recorded.
    assert {run.module for run in read(donating).runs} == {"jit_case"}


def test_recording_ends_when_its_time_is_over_and_so_do_the_runs(recorded: Callable[..., ProfilingOutcome]) -> None:
    outcome = recorded(lambda x: jnp.sin(x) @ x, "f32[32,32]", runs=10_000_000, duration_s=0.1)

    assert outcome.recorded.stopped_by == "duration"
    assert 0 < outcome.runs < 10_000_000
    assert len(read(outcome).runs) >= outcome.runs


def test_a_memory_profile_is_kept_on_request(recorded: Callable[..., ProfilingOutcome], tmp_path: Path) -> None:
    recorded(lambda x: x + 1, "f32[8]", runs=3, keeps_memory=True)

    (file,) = tmp_path.rglob("memory.prof")
    assert file.read_bytes()[:2] == b"\x1f\x8b"  # gzip


def test_a_function_that_fails_is_a_failure_without_a_trace(
    recorded: Callable[..., ProfilingOutcome], tmp_path: Path
) -> None:
    def fails(x):
        raise ValueError("öops")

    outcome = recorded(fails, "f32[8]")

    assert (outcome.failure.kind, outcome.failure.stage) == ("error", "trace")
    assert "öops" in outcome.failure.message
    assert outcome.recorded.xplane is None
    assert list(tmp_path.rglob("*.pb")) == []


def test_a_profiler_that_does_not_start_is_a_failure_that_says_why(
    recorded: Callable[..., ProfilingOutcome], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    outcome = recorded(lambda x: x + 1, "f32[8]", folder=str(tmp_path / "file"))

    assert "is a file; expected a folder for the trace" in outcome.failure.message
