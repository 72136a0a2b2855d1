"""`benchax.profile`: records a function, or a block of code, and reads the trace at once.

    p = benchax.profile(f, x)                  # f is warmed up, then run often enough for its times to mean something
    with benchax.profile("traces") as p: ...   # whatever runs inside; files are kept in the folder
    p = benchax.profile(f, x, memory_s=0.01)   # and reads live memory every 10 ms

The numbers belong to a program under the profiler. There, each operation on CPU costs up to a microsecond more than
without it (`benchmarks/profiles.py`). benchax also measures how this changes the time of a call
(`Profile.recording_cost`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from types import TracebackType
from typing import Any, overload

import jax

from benchax.errors import NotMeasured, UsageError
from benchax.keywords import guard_keywords
from benchax.model import Remark
from benchax.profiling import memory, trace
from benchax.profiling.session import Session, check_options, session
from benchax.profiling.trace import recording_cost
from benchax.progress import Listener, Progress, ProgressEvent, check_progress, show_progress
from benchax.results.profile import Profile
from benchax.specs import is_spec
from benchax.units import read_duration

LEAST_S = 0.05
"""The least recording time for a function without `runs`, so that rare disturbances weigh little."""
LEAST_RUNS, MOST_RUNS = 3, 1000
STEP = "benchax"
"""Name of the annotation around each run."""

Folder = str | os.PathLike[str]


@overload
def profile(
    fn: Callable[..., Any],
    /,
    *args: Any,
    dir: Folder | None = None,
    runs: int | None = None,
    options: Mapping[str, Any] | None = None,
    memory_s: float | str | None = None,
    progress: Progress = None,
    **kwargs: Any,
) -> Profile: ...
@overload
def profile(
    fn: Folder | None = None,
    /,
    *,
    dir: Folder | None = None,
    options: Mapping[str, Any] | None = None,
    memory_s: float | str | None = None,
    progress: Progress = None,
) -> Recording: ...
@guard_keywords()
def profile(
    fn: Callable[..., Any] | Folder | None = None,
    /,
    *args: Any,
    dir: Folder | None = None,
    runs: int | None = None,
    options: Mapping[str, Any] | None = None,
    memory_s: float | str | None = None,
    progress: Progress = None,
    **kwargs: Any,
) -> Profile | Recording:
    """Shows where the time goes: operations by self time, idle devices, the compiler, and arrays that stay alive.

    Args:
        fn: a function, which benchax calls unchanged. Pass `jax.jit(f)` to see one program rather than one for each
            operation. Or a folder, or nothing: then this is a context manager for `with`.
        args, kwargs: its inputs.
        dir: folder for the files: `plugins/profile/<run>/`, as TensorBoard and Perfetto open them. None: no files.
        runs: how often to call `fn` under the profiler, after a first call without it. None: for at least 50 ms, 3 to
            1000 times. In this case benchax first calls `fn` for 50 ms without the profiler, to know how much recording
            adds.
        options: of the profiler: host_tracer_level, python_tracer_level, device_tracer_level, enable_hlo_proto,
            advanced_configuration.
        memory_s: seconds between two readings of live memory, for `Profile.timeline`; "10ms" works, too. Readings are
            further apart if they would take more than 2 % of the time. None: no readings.
        progress: as for `bench`. There is no progress during the recording, because it would be recorded, too.

    Returns:
        Profile: read at once. If nothing was recorded, its `ops` are empty and a remark gives the reason.

    Raises:
        UsageError: a spec among the inputs, an unknown option, a folder that cannot be written to, a profiler that is
            running already.
        FormatError: the trace that JAX wrote cannot be read.

    Example:
        >>> p = benchax.profile(jax.jit(jnp.sort), jnp.ones(1000), runs=3)
        >>> len(p.ops) > 0
        True
    """
    check_options(options)
    interval_s = read_duration("memory_s", memory_s)
    check_progress(progress)
    if callable(fn):
        _refuse_specs(args, kwargs)
        if runs is not None and (isinstance(runs, bool) or not isinstance(runs, int) or runs < 1):
            raise UsageError(f"runs={runs!r}", "a whole number from 1 up, or None")
        with show_progress(progress) as report:
            return _of_function(fn, args, kwargs, dir, runs, options, interval_s, report)
    if args or kwargs or runs is not None:
        raise UsageError(
            f"benchax.profile({fn!r}, ...) with inputs or runs, but no function", "a function to call first"
        )
    if fn is not None and not isinstance(fn, str | os.PathLike):
        raise UsageError(f"benchax.profile({fn!r})", "a function with its inputs, a folder, or nothing")
    if fn is not None and dir is not None:
        raise UsageError(f"two folders: {os.fspath(fn)!r} and dir={os.fspath(dir)!r}", "one folder")
    return Recording(fn if fn is not None else dir, options, interval_s, progress)


class Recording:
    """The object that `with benchax.profile() as p:` gives. After the block it has everything that a `Profile` has."""

    def __init__(
        self,
        folder: Folder | None,
        options: Mapping[str, Any] | None,
        memory_s: float | None = None,
        progress: Progress = None,
    ) -> None:
        self.result: Profile | None = None
        """None until the block has ended without an exception."""
        self._folder = folder
        self._options, self._memory_s, self._progress = options, memory_s, progress
        self._title = "a block of code" if folder is None else f"a block of code, kept in {os.fspath(folder)}"

    def __enter__(self) -> Recording:
        if self.result is not None:
            raise UsageError("a recording that has ended was begun again", "a new benchax.profile() for each block")
        self._session = session(self._options, folder=self._folder, memory_s=self._memory_s)
        self._before = memory.live()
        self._recorded = self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            # What was dispatched has to run: a block of code rarely waits for its last call.
            jax.block_until_ready(memory.live_arrays())
        self._session.__exit__(kind, error, where)
        with show_progress(self._progress) as report:
            report(ProgressEvent(self._title, "reading the trace"))
            self.result = _read(self._recorded, self._title, self._options, self._before)

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not found here: ops, devices, table ...
        if name.startswith("_"):
            raise AttributeError(name)
        if self.result is None:
            raise NotMeasured(f"{name!r} was asked for before the block had ended", "it after the `with` block")
        return getattr(self.result, name)

    def __str__(self) -> str:
        return "a recording whose block has not ended" if self.result is None else str(self.result)

    def _repr_html_(self) -> str | None:
        return None if self.result is None else self.result._repr_html_()


def _of_function(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    folder: Folder | None,
    runs: int | None,
    options: Mapping[str, Any] | None,
    memory_s: float | None,
    report: Listener,
) -> Profile:
    name = getattr(fn, "__qualname__", "") or type(fn).__name__

    def call() -> None:
        jax.block_until_ready(fn(*args, **kwargs))

    report(ProgressEvent(name, "first call"))
    call()  # compiles
    # A function that takes its inputs away can be called so often, and not once more.
    unrecorded_s = None if runs else _time_unrecorded(call)
    enough = math.ceil(LEAST_S / max(unrecorded_s or LEAST_S, 1e-9))
    count = runs or min(MOST_RUNS, max(LEAST_RUNS, enough))
    before = memory.live()  # behind the first calls: what these make once and keep, such as constants, is no leak
    report(ProgressEvent(name, f"recording {'' if runs else 'up to '}{count} runs"))
    made = 0
    with session(options, folder=folder, memory_s=memory_s) as recorded:
        began = time.perf_counter()
        # Recording makes calls of many small operations several times as long, and takes a while to write them.
        while made < count and (runs or made < LEAST_RUNS or time.perf_counter() - began < LEAST_S):
            with jax.profiler.StepTraceAnnotation(STEP, step_num=made):
                call()
            made += 1
    report(ProgressEvent(name, "reading the trace"))
    read = _read(recorded, f"{name}, {made} runs", options, before)
    cost = recording_cost(read, unrecorded_s, "all calls were recorded", median)  # one late call says nothing of it
    return replace(read, split=None, recording_cost=cost)  # the loop is ours


def _time_unrecorded(call: Callable[[], None]) -> float:
    """Seconds of a call, the median of as many as end in LEAST_S."""
    found: list[float] = []
    while not found or (sum(found) < LEAST_S and len(found) < MOST_RUNS):
        began = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - began) / 1e9)
    return median(found)


def _read(recorded: Session, title: str, options: Mapping[str, Any] | None, before: memory.Live) -> Profile:
    """Returns the recording as a profile, with the facts that are not in the trace."""
    after = memory.live()
    notes = tuple(Remark("profiler", "warning", text) for text in recorded.remarks)
    read = trace.profile_of(recorded.xspace, title=title, options=options)
    return replace(
        read,
        left_over=memory.left_over(before, after),
        live_bytes_before=memory.live_bytes(before),
        live_bytes_after=memory.live_bytes(after),
        timeline=recorded.timeline,
        files={kind: str(file) for kind, file in recorded.files.items()},
        profiler_s=(recorded.start_s or 0.0) + (recorded.stop_s or 0.0),
        remarks=(*notes, *read.remarks),
    )


def _refuse_specs(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    for leaf in jax.tree.leaves((args, kwargs)):
        if isinstance(leaf, str) and is_spec(leaf):
            raise UsageError(
                f"benchax.profile was given the spec {leaf!r}, and calls the function with what it is given",
                "arrays, such as jax.random.normal(jax.random.key(0), (8,))",
                f"benchax profile MODULE:FUNCTION {leaf!r} makes data of specs, as benchax.bench does",
            )
