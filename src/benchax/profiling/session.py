"""One recording by JAX's profiler, with readings of memory: it starts, stops, and puts the files in their place.

It uses only public JAX: `jax.profiler.start_trace` and `stop_trace`, which write files. It reads the bytes of the trace
from these files. It adds four things:

- It checks options by name (JAX silently takes any attribute, jax 0.6.2 to 0.10.2).
- It refuses a second recording with a reason.
- It finds a folder that cannot be written to before anything runs.
- If it cannot write the files of a recording, the next recording still works.

It never uses `create_perfetto_link`, which waits until a browser has fetched the trace. In CI that would be forever.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from benchax.environment import fingerprint, has_jax_plugins
from benchax.errors import NotAvailable, UsageError, one_of
from benchax.model import Remark
from benchax.profiling import files
from benchax.profiling.host_thread import MACHINE
from benchax.profiling.memory import Sampler
from benchax.profiling.stack_sampler import annotate
from benchax.results.profile import Timeline
from benchax.units import size

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
    # Tells CUDA from ROCm, both of which JAX calls gpu.
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
    # No public name tells it before the second start_trace raises. JAX 0.6.0 to 0.11.2 have the first of these, and
    # 0.12.0.1 the second; without them, that error of JAX is what the user sees.
    state: object = None
    with contextlib.suppress(ImportError):
        from jax._src import profiler  # noqa: TID251, PLC0415

        state = getattr(profiler, "_profile_state", None)
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

    folder: Path | None = None
    """Where files are kept. None: nothing is kept but `xspace`."""
    run: Path | None = None
    """The folder of this recording below it, `plugins/profile/<run>/`."""
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
        options: names and values of `OPTIONS`; the others keep their defaults.
        folder: where to keep the files; made where it is missing. None: only `xspace` is kept.
        keeps_memory: with a folder, keeps what is alive at the end, for `pprof`.
        memory_s: seconds between two readings of memory. None: no readings.

    Raises:
        UsageError: an unknown option, a folder that cannot be written to, or another recording is running.
        NotAvailable: this JAX cannot take options (0.6.0, 0.6.1), and some were given.
    """
    check_options(options)
    recording = Session(None if folder is None else Path(folder))
    with files.recording_folder(recording.folder) as place:
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
            # What the block raises is the news; the recording is ended so that another one may begin.
            with contextlib.suppress(Exception):
                _stop(place)
            raise
        began = time.perf_counter_ns()
        _stop(place)
        recording.stop_s = (time.perf_counter_ns() - began) / 1e9
        if recording.timeline and recording.timeline.incomplete:
            recording.remarks.append(recording.timeline.incomplete)
        _collect(place, recording, keeps_memory)


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
    # Otherwise a session that cannot begin looks like one in which nothing ran.
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
        # JAX still holds a session that it could not write, and would refuse the next one for ever. Private, tried on
        # jax 0.10.2, 0.11.2 and 0.12.0.1. Where it is gone, the next recording is refused with the message of `_start`.
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


def _collect(place: Path, recording: Session, keeps_memory: bool) -> None:
    """Reads the trace, and moves the files to where they were wanted."""
    run = files.find_run(place)
    if run is None:
        recording.remarks.append("JAX wrote no trace at all")
        return
    recording.xspace = next(iter(run.glob("*.xplane.pb"))).read_bytes()
    if recording.folder is None:
        return
    try:
        files.write_perfetto(run, recording.timeline)
        if recording.timeline is not None:
            (run / files.TIMELINE).write_text(files.timeline_csv(recording.timeline), encoding="utf-8")
        if keeps_memory:
            _write_live_memory(run, recording)
        recording.run = files.move_run(run, recording.folder)
    except OSError as error:
        raise UsageError(
            f"the profile was recorded but could not be kept in {str(recording.folder)!r}: {error}",
            "a folder with room for the trace",
            "the program has run to its end; make room, or name another folder",
        ) from error
    recording.files = files.list_files(recording.run)


def _write_live_memory(run: Path, recording: Session) -> None:
    try:
        (run / files.MEMORY).write_bytes(jax.profiler.device_memory_profile())
    except Exception as error:  # the trace is worth more than this file
        recording.remarks.append(f"the memory profile could not be taken: {error}")
