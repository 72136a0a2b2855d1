"""`benchax.profile`: records a function, or a block of code, and reads the trace at once.

    p = benchax.profile(f, x)                  # f is warmed up, then run often enough for its times to mean something
    with benchax.profile("traces") as p: ...   # whatever runs inside; files are kept in the folder
    p = benchax.profile(f, x, memory_s=0.01)   # and reads live memory every 10 ms

The numbers belong to a program under the profiler. There, each operation on CPU costs up to a microsecond more than
without it (`benchmarks/profiles.py`). benchax also measures how this changes the time of a call
(`Profile.recording_cost`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, overload

import jax

from benchax.environment import fingerprint, has_jax_plugins
from benchax.errors import NotAvailable, NotMeasured, UsageError, one_of
from benchax.keywords import guard_keywords
from benchax.model import Remark
from benchax.profiling import files, samplers, trace
from benchax.profiling.host_thread import MACHINE
from benchax.profiling.samplers import Sampler, annotate
from benchax.profiling.trace import recording_cost
from benchax.progress import Listener, Progress, ProgressEvent, check_progress, show_progress
from benchax.results.profile import Profile, Timeline
from benchax.specs import is_spec
from benchax.units import read_duration, size

LEAST_S = 0.05
"""The least recording time for a function without `runs`, so that rare disturbances weigh little."""
LEAST_RUNS, MOST_RUNS = 3, 1000
"""A median of fewer runs is one of the two ends; more make a trace large."""
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
        self._before = samplers.live()
        self._recorded = self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            # Wait for dispatched work: a block of code rarely waits for its last call.
            jax.block_until_ready(samplers.live_arrays())
        self._session.__exit__(kind, error, where)
        with show_progress(self._progress) as report:
            report(ProgressEvent(self._title, "reading the trace"))
            self.result = _read(self._recorded, self._title, self._options, self._before)

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for attributes that are missing here: ops, devices, table, …
        if name.startswith("_"):
            raise AttributeError(name)
        if self.result is None:
            raise NotMeasured(f"{name!r} was requested before the block had ended", "it after the `with` block")
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
    name, call = getattr(fn, "__qualname__", "") or type(fn).__name__, partial(fn, *args, **kwargs)
    report(ProgressEvent(name, "first call"))
    jax.block_until_ready(call())  # compiles
    # A function that donates its inputs can be called this many times, and no more.
    unrecorded_s = None if runs else _time_unrecorded(call)
    before = samplers.live()  # behind the first calls: what these make once and keep, such as constants, is no leak
    report(ProgressEvent(name, f"recording {runs} runs" if runs else "recording"))
    with session(options, folder=folder, memory_s=memory_s) as recorded:
        made = run_each(repeat_call(call, runs), lambda number: jax.profiler.StepTraceAnnotation(STEP, step_num=number))
    report(ProgressEvent(name, "reading the trace"))
    read = _read(recorded, f"{name}, {made} runs", options, before)
    cost = recording_cost(read, unrecorded_s, "all calls were recorded", median)  # one late call says nothing of it
    return replace(read, split=None, recording_cost=cost)  # the loop is ours


def _time_unrecorded(call: Callable[[], Any]) -> float:
    """Seconds of a call, the median of as many as end in LEAST_S."""
    found: list[float] = []
    while not found or (sum(found) < LEAST_S and len(found) < MOST_RUNS):
        began = time.perf_counter_ns()
        jax.block_until_ready(call())
        found.append((time.perf_counter_ns() - began) / 1e9)
    return median(found)


def repeat_call(call: Callable[[], Any], runs: int | None) -> Iterator[Callable[[], Any]]:
    """A call as often as it is to be recorded: `runs` times; else until LEAST_S have passed, 3 to 1000 times."""
    # Not by the time of a call: recording makes those with many small operations several times slower.
    end = time.perf_counter() + LEAST_S
    for made in range(runs or MOST_RUNS):
        if not runs and made >= LEAST_RUNS and time.perf_counter() >= end:
            return
        yield call


def run_each(
    calls: Iterable[Callable[[], Any]],
    annotate: Callable[[int], contextlib.AbstractContextManager[Any]],
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Makes all calls, or until the recording has stopped by itself; returns how many ended in time."""
    done = 0
    for call in calls:
        with annotate(done):
            jax.block_until_ready(call())
        if is_over():
            break
        done += 1
    return done


def _read(recorded: Session, title: str, options: Mapping[str, Any] | None, before: samplers.Live) -> Profile:
    """Returns the recording as a profile, with the facts that are not in the trace."""
    after = samplers.live()
    notes = tuple(Remark("profiler", "warning", text) for text in recorded.remarks)
    read = trace.profile_of(recorded.xspace, title=title, options=options)
    return replace(
        read,
        left_over=samplers.left_over(before, after),
        live_bytes_before=samplers.live_bytes(before),
        live_bytes_after=samplers.live_bytes(after),
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


# ---- one recording by JAX's profiler ----------------------------------------------------------------------------
#
# One recording by JAX's profiler, with readings of memory: it starts, stops, and puts the files in their place.
#
# It uses only public JAX: `jax.profiler.start_trace` and `stop_trace`, which write files. It reads the bytes of the
# trace from these files. It adds four things:
#
# - It checks options by name (JAX silently takes any attribute, jax 0.6.2 to 0.10.2).
# - It refuses a second recording with a reason.
# - It finds a folder that cannot be written to before anything runs.
# - If it cannot write the files of a recording, the next recording still works.
#
# It never uses `create_perfetto_link`, which waits until a browser has fetched the trace. In CI that would be forever.

# Checks before profiling: will there be anything in the trace, and can benchax write it?
#
# A trace without device events looks like success. So this module checks in advance whatever it can, and reports it as
# remarks. An error means that profiling must not begin; a warning means that the table can be incomplete. The checks
# start nothing except JAX's backend, which the profiled call needs anyway.

LEAST_FREE_BYTES = 64 * 2**20
"""A trace of a second is some megabytes; while it is written, the profiler holds it in memory and on disk."""
NVIDIA_PARAMS = Path("/proc/driver/nvidia/params")
NO_COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer="
_ADMIN_ONLY = re.compile(r"^RmProfilingAdminOnly:\s*1\b", re.MULTILINE)
_CAP_SYS_ADMIN = 21


def kernels_apart(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for a process whose kernels shall be seen one by one; empty where the user has decided about it.

    A loop of an H100 is one "command_buffer" otherwise, without a line of anybody's.
    """
    flags = environ.get("XLA_FLAGS", "")
    if NO_COMMAND_BUFFERS in flags or not has_jax_plugins():
        return {}
    return {"XLA_FLAGS": f"{flags} {NO_COMMAND_BUFFERS}".strip()}


def preflight(folder: Path | None = None) -> list[Remark]:
    """Looks at this process, its device, and the folder for the trace, if there is to be one. Starts the backend."""
    platform = jax.default_backend()
    found = [*about_profilers(running(os.environ), platform), *about_options()]
    # Distinguishes CUDA from ROCm, which JAX both calls gpu.
    if platform == "gpu" and "rocm" not in getattr(jax.devices()[0].client, "platform_version", "").lower():
        params = ""
        with contextlib.suppress(OSError):  # no NVIDIA driver, or none that tells
            params = NVIDIA_PARAMS.read_text(encoding="utf-8", errors="replace")
        found += about_nvidia(params, os.environ.get("XLA_FLAGS", ""), _may_administrate())
    return found if folder is None else [*found, *about_folder(folder)]


def stop_at_errors(found: list[Remark]) -> None:
    """Raises UsageError with the first of the errors."""
    if error := next((remark for remark in found if remark.severity == "error"), None):
        raise UsageError(f"cannot profile: {error.message}")


def running(environment: Mapping[str, str]) -> str:
    """Returns the profiler that already records this process: "jax.profiler", "Nsight Systems", or an empty text."""
    # No public API shows it before a second start_trace raises. JAX 0.6.0 to 0.11.2 have the first of these names, and
    # 0.12.0.1 the second. Without them, the user sees JAX's own error.
    state = getattr(jax._src.profiler, "_profile_state", None)  # noqa: TID251  # pyright: ignore[reportAttributeAccessIssue]
    if any(getattr(state, name, None) is not None for name in ("profile_session", "session")):
        return "jax.profiler"
    if any(name.startswith("NSYS_PROFILING_SESSION") for name in environment):
        return "Nsight Systems"
    return ""


def _may_administrate() -> bool:
    """Root, or the capability that the NVIDIA driver asks for."""
    if os.geteuid() == 0:
        return True
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
        return bool(int(effective, 16) >> _CAP_SYS_ADMIN & 1)
    return False


def about_profilers(running: str, platform: str) -> Iterator[Remark]:
    """Yields an error if a profiler that runs already, as `running` names it, keeps ours from seeing anything."""
    if running == "jax.profiler":
        yield Remark(
            "profiler-running",
            "error",
            "jax.profiler is tracing this process already, and one trace at a time is possible; call "
            "jax.profiler.stop_trace() first",
        )
    elif running and platform == "gpu":
        yield Remark(
            "profiler-running",
            "error",
            f"this process runs under {running}, which has the GPU's profiler (CUPTI) for itself: no kernels will be "
            "seen. Profile with one of the two",
        )


def about_options() -> Iterator[Remark]:
    if not hasattr(jax.profiler, "ProfileOptions"):
        yield Remark(
            "no-profile-options",
            "warning",
            f"JAX {jax.__version__} has no jax.profiler.ProfileOptions (0.6.2 has): frames of Python are traced too, "
            "which slows the program and fills the trace",
        )


def about_nvidia(params: str, xla_flags: str, may_administrate: bool) -> Iterator[Remark]:
    """Says what hides kernels.

    Args:
        params: the text of the driver's file; empty without such a file.
        may_administrate: this process has the rights that the driver asks for.
    """
    if _ADMIN_ONLY.search(params) and not may_administrate:
        yield Remark(
            "no-gpu-permission",
            "error",
            f"{NVIDIA_PARAMS} says RmProfilingAdminOnly: 1, so that only root may see kernels (CUPTI_ERROR_"
            "INSUFFICIENT_PRIVILEGES). As root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
            "/etc/modprobe.d/nvidia-profiling.conf, then reboot; in a container: --cap-add=SYS_ADMIN",
        )
    if NO_COMMAND_BUFFERS in xla_flags.split():
        text = "command buffers (CUDA graphs) are off, so that each kernel is seen: starting a program takes longer"
        yield Remark("no-command-buffers", "info", text)
    else:
        yield Remark(
            "command-buffers",
            "warning",
            "command buffers (CUDA graphs) are on, and kernels inside them can lack their HLO names. To see each "
            f"kernel: XLA_FLAGS='{NO_COMMAND_BUFFERS}', which makes the run a little slower",
        )


def about_folder(folder: Path, least_free_bytes: int = LEAST_FREE_BYTES) -> list[Remark]:
    """Can a trace be written there? The folder need not exist yet; nothing is left behind."""
    nearest = next((p for p in (folder, *folder.absolute().parents) if p.exists()), folder.absolute())
    if not nearest.is_dir():
        return [Remark("no-folder", "error", f"{str(nearest)!r} is a file; expected a folder for the trace")]
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
        free = shutil.disk_usage(nearest).free
    except OSError as error:
        return [Remark("no-folder", "error", f"cannot write into {str(nearest)!r}: {error.strerror or error}")]
    text = f"{str(nearest)!r} has {size(free)} free, and a trace needs at least {size(least_free_bytes)}"
    return [Remark("disk-full", "error", text)] if free < least_free_bytes else []


START_TRACE = jax.profiler.start_trace
"""Bound here: a recorder replaces the public name, to give way to a trace of the program's own."""
OPTIONS = {
    "host_tracer_level": 2,
    "python_tracer_level": 0,
    "device_tracer_level": 1,
    "enable_hlo_proto": True,
    "advanced_configuration": {},
}
"""Options of `jax.profiler.ProfileOptions` that may be set, with our defaults. `python_tracer_level` is 1 in JAX: a
frame of Python for every call, which slows the run down and fills the trace."""


@dataclass
class Session:
    """A recording; all of it is there once the block has ended."""

    xspace: bytes = b""
    """The trace, a serialized XSpace."""
    files: dict[str, Path] = field(default_factory=dict)
    """Kind → file, as in `files.list_files`. Empty without a folder."""
    start_s: float | None = None
    """Seconds that starting took."""
    stop_s: float | None = None
    """Seconds that stopping and writing took."""
    timeline: Timeline | None = None
    """Readings of memory, if there were to be any."""
    remarks: list[str] = field(default_factory=list)


@contextlib.contextmanager
def session(
    options: Mapping[str, Any] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    keeps_memory: bool = True,
    memory_s: float | None = None,
) -> Iterator[Session]:
    """Records what runs inside the block.

    Args:
        options: names and values of `OPTIONS`, as `check_options` takes them; the others keep their defaults.
        folder: where to keep the files; made where it is missing. None: only `xspace` is kept.
        keeps_memory: with a folder, keeps what is alive at the end, for `pprof`.
        memory_s: seconds between two readings of memory. None: no readings.

    Raises:
        UsageError: a folder that cannot be written to, or another recording is running.
        NotAvailable: this JAX cannot take options (0.6.0, 0.6.1), and some were given.
    """
    recording, folder = Session(), None if folder is None else Path(folder)
    with files.recording_folder(folder) as place:
        began = time.perf_counter_ns()
        _start(place, _profile_options(options, recording))
        recording.start_s = (time.perf_counter_ns() - began) / 1e9
        # An exception is harmless: the report then leaves out what needs the mark.
        with contextlib.suppress(Exception):
            annotate(MACHINE + fingerprint())
        sampler = None if memory_s is None else Sampler(memory_s).start()
        try:
            try:
                yield recording
            finally:
                recording.timeline = sampler and sampler.stop()
        except BaseException:
            # The exception of the block matters more. End the recording, so that another one can begin.
            with contextlib.suppress(Exception):
                _stop(place)
            raise
        began = time.perf_counter_ns()
        _stop(place)
        recording.stop_s = (time.perf_counter_ns() - began) / 1e9
        if recording.timeline and recording.timeline.incomplete:
            recording.remarks.append(recording.timeline.incomplete)
        _collect(place, folder, recording, keeps_memory)


def check_options(options: Mapping[str, Any] | None) -> None:
    """Raises UsageError: an option that is unknown, or of another type than its default."""
    for name, value in (options or {}).items():
        if name not in OPTIONS:
            raise UsageError(f"unknown option of the profiler {name!r}", one_of(OPTIONS, name))
        if not isinstance(value, type(OPTIONS[name])):
            kind = type(OPTIONS[name]).__name__
            raise UsageError(f"{name}={value!r} for the profiler", f"a value of type {kind}, such as {OPTIONS[name]!r}")


def _profile_options(options: Mapping[str, Any] | None, recording: Session) -> dict[str, Any]:
    """The options as an argument of `start_trace`; empty where this JAX takes none."""
    made = getattr(jax.profiler, "ProfileOptions", None)
    if made is None:  # jax 0.6.0 and 0.6.1
        if options:
            raise NotAvailable(
                f"jax {jax.__version__} takes no options for its profiler",
                "jax 0.6.2 or newer",
                "leave the options out",
            )
        recording.remarks.append(f"jax {jax.__version__} always records every call of Python, which slows the run")
        return {}
    chosen = made()
    for name, value in {**OPTIONS, **(options or {})}.items():
        if name != "device_tracer_level" or name in (options or {}):  # absent until set; the default is JAX's
            setattr(chosen, name, value)
    # Otherwise, a session that could not begin would look like an empty one.
    chosen.raise_error_on_start_failure = True
    return {"profiler_options": chosen}


def _start(place: Path, options: Mapping[str, Any]) -> None:
    try:
        START_TRACE(str(place), **options)
    except Exception as error:
        if "already been started" in str(error):
            raise _refuse_occupied("nothing has been run") from error
        raise UsageError(
            f"JAX could not start its profiler: {error}",
            "a profiler that starts; on NVIDIA it needs CUPTI, the right to use it, and no running Nsight",
        ) from error


def _stop(place: Path) -> None:
    try:
        jax.profiler.stop_trace()
    except Exception as error:
        # JAX keeps a session that it could not write, and would refuse all later ones. Private API, tried on jax
        # 0.10.2, 0.11.2, and 0.12.0.1. If it is missing, the next recording fails with the message of `_start`.
        with contextlib.suppress(Exception):
            jax._src.profiler._profile_state.reset()  # noqa: TID251  # pyright: ignore[reportAttributeAccessIssue]
        if "ALREADY_EXISTS" in str(error):  # JAX says so only now (0.10.2)
            raise _refuse_occupied("the program has run, and was not recorded") from error
        raise UsageError(
            f"the profile was recorded but could not be written below {str(place.parent)!r}: {error}",
            "a folder with room for the trace, which stays there while the program runs",
            "the program has run to its end; nothing of its trace was kept",
        ) from error


def _refuse_occupied(what_happened: str) -> UsageError:
    return UsageError(
        "another profiler is running in this process",
        "one recording at a time",
        "end it first: jax.profiler.stop_trace(), the end of a `with jax.profiler.trace(...)` block, or of a capture "
        f"through jax.profiler.start_server; {what_happened}",
    )


def _collect(place: Path, folder: Path | None, recording: Session, keeps_memory: bool) -> None:
    """Reads the trace, and moves the files to where they were wanted."""
    run = files.find_run(place)
    if run is None:
        recording.remarks.append("JAX wrote no trace at all")
        return
    recording.xspace = next(iter(run.glob("*.xplane.pb"))).read_bytes()
    if folder is None:
        return
    try:
        files.write_perfetto(run, recording.timeline)
        if recording.timeline is not None:
            (run / files.TIMELINE).write_text(files.timeline_csv(recording.timeline), encoding="utf-8")
        if keeps_memory:
            _write_live_memory(run, recording)
        recording.files = files.list_files(files.move_run(run, folder))
    except OSError as error:
        raise UsageError(
            f"the profile was recorded but could not be kept in {str(folder)!r}: {error}",
            "a folder with room for the trace",
            "the program has run to its end; make room, or name another folder",
        ) from error


def _write_live_memory(run: Path, recording: Session) -> None:
    try:
        (run / files.MEMORY).write_bytes(jax.profiler.device_memory_profile())
    except Exception as error:  # the trace is worth more than this file
        recording.remarks.append(f"the memory profile could not be taken: {error}")
