"""Records a profile of a case in a worker process, which is not timed and can be killed.

The recording stops by itself before the worker's limit and then writes its files. This works even if a call never
returns: the recording up to that point is kept. The caller interprets the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax

from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.measuring.prepare import prepare
from benchax.measuring.sampling import warm_up
from benchax.measuring.timers.base import Subject
from benchax.model import Failure
from benchax.profiling.profile import repeat_call, run_each
from benchax.profiling.program_recorder import ProgramRequest, Recorded, Recorder
from benchax.workers.pool import Pool
from benchax.workers.task import Say, limit_stages

WARMUP_S = 0.2
RENEWED_RUNS = 20
"""The runs of a case that takes its buffers, which are copied beforehand for every run."""
_SHARE = 0.8
"""The share of the limit, after which recording stops and there is still time to write."""


@dataclass(frozen=True)
class ProfilingRequest:
    """The case to record, and how."""

    case: Case
    wish: ProgramRequest
    seed: int = 0
    runs: int | None = None
    """None: enough (`repeat_call`)."""


@dataclass(frozen=True)
class ProfilingOutcome:
    """The result of a request. After a failure, the folder of the request has the recording up to that point."""

    recorded: Recorded = field(default_factory=Recorded)
    runs: int = 0
    """Calls that ended while it was recorded."""
    unrecorded_s: float | None = None
    """Seconds of a call before it was recorded, when it was warm. None: none ended."""
    failure: Failure | None = None


def record(
    request: ProfilingRequest, limit_s: float, pool: Pool, progress: Callable[[str], None] = lambda stage: None
) -> ProfilingOutcome:
    """Records `request.case` in a worker; no stage takes longer than `limit_s`."""
    wish = replace(request.wish, duration_s=min(request.wish.duration_s, _SHARE * limit_s))
    answer = pool.call(
        record_case,
        replace(request, wish=wish),
        limit_stages(limit_s),
        name=f"the profile of {request.case.id.label!r}",
        on_message=lambda message: progress(message["stage"]),
    )
    return ProfilingOutcome(failure=answer) if isinstance(answer, Failure) else answer


def record_case(request: ProfilingRequest, say: Say) -> ProfilingOutcome:
    """Raises `NotMeasured` if the profiler does not start."""
    subject = prepare(request.case, request.seed, say).call_first().subject
    say("warm-up")
    warmup = warm_up(subject.ready, WARMUP_S)
    calls = _calls(subject, request)
    say("profile")
    recorder = Recorder(request.wish)
    recorder.start()
    if recorder.recording is None:
        raise NotMeasured("; ".join(recorder.found.remarks))
    # Marks the steps in the form that TensorBoard and XProf expect.
    step = partial(jax.profiler.StepTraceAnnotation, "step")
    done = run_each(calls, lambda number: step(step_num=number), lambda: bool(recorder.found.stopped_by))
    recorder.stop("end")
    return ProfilingOutcome(recorder.found, done, warmup.last_s)


def _calls(subject: Subject, request: ProfilingRequest) -> Iterator[Callable[[], Any]]:
    """As many as were asked for, else enough."""
    if subject.needs_renewal:
        # Make the copies before recording, so that they are not part of it.
        return iter([subject.ready() for _ in range(request.runs or RENEWED_RUNS)])
    return repeat_call(subject.ready(), request.runs)


def run_for_nsys(request: ProfilingRequest) -> int:
    """Runs the case in a process that nsys has started, without JAX's profiler. Returns the number of runs."""
    subject = prepare(request.case, request.seed).call_first().subject
    warm_up(subject.ready, WARMUP_S)
    return run_each(_calls(subject, request), lambda number: nullcontext())
