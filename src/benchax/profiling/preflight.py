"""Checks before profiling: will there be anything in the trace, and can benchax write it?

A trace without device events looks like success. So this module checks in advance whatever it can, and reports it as
remarks. An error means that profiling must not begin; a warning means that the table can be incomplete. The checks
start nothing except JAX's backend, which the profiled call needs anyway.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import jax

from benchax.environment import has_jax_plugins
from benchax.errors import UsageError
from benchax.model import Remark
from benchax.units import size

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


def check(folder: Path | None = None) -> list[Remark]:
    """Looks at this process, its device, and the folder for the trace, if there is to be one. Starts the backend."""
    platform = jax.default_backend()
    found = [*about_profilers(running(os.environ), platform), *about_options()]
    # Tells CUDA from ROCm, both of which JAX calls gpu.
    if platform == "gpu" and "rocm" not in getattr(jax.devices()[0].client, "platform_version", "").lower():
        params = ""
        with contextlib.suppress(OSError):  # no NVIDIA driver, or none that tells
            params = NVIDIA_PARAMS.read_text(encoding="utf-8", errors="replace")
        found += about_nvidia(params, os.environ.get("XLA_FLAGS", ""), _may_administrate())
    return [*found, *([] if folder is None else about_folder(folder))]


def stop_at_errors(found: list[Remark]) -> None:
    """Raises UsageError with the first of the errors."""
    for remark in found:
        if remark.severity == "error":
            raise UsageError(f"cannot profile: {remark.message}")


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


def about_profilers(running: str, platform: str) -> list[Remark]:
    """Returns an error if a profiler that runs already, as `running` names it, keeps ours from seeing anything."""
    if running == "jax.profiler":
        text = (
            "jax.profiler is tracing this process already, and one trace at a time is possible; call "
            "jax.profiler.stop_trace() first"
        )
    elif running and platform == "gpu":
        text = (
            f"this process runs under {running}, which has the GPU's profiler (CUPTI) for itself: no kernels will be "
            "seen. Profile with one of the two"
        )
    else:
        return []
    return [Remark("profiler-running", "error", text)]


def about_options() -> list[Remark]:
    if hasattr(jax.profiler, "ProfileOptions"):
        return []
    text = (
        f"JAX {jax.__version__} has no jax.profiler.ProfileOptions (0.6.2 has): frames of Python are traced too, which "
        "slows the program and fills the trace"
    )
    return [Remark("no-profile-options", "warning", text)]


def about_nvidia(params: str, xla_flags: str, may_administrate: bool) -> list[Remark]:
    """Says what hides kernels.

    Args:
        params: the text of the driver's file; empty where there is none.
        may_administrate: this process has the rights that the driver asks for.
    """
    remarks: list[Remark] = []
    if _ADMIN_ONLY.search(params) and not may_administrate:
        text = (
            f"{NVIDIA_PARAMS} says RmProfilingAdminOnly: 1, so that only root may see kernels (CUPTI_ERROR_"
            "INSUFFICIENT_PRIVILEGES). As root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
            "/etc/modprobe.d/nvidia-profiling.conf, then reboot; in a container: --cap-add=SYS_ADMIN"
        )
        remarks.append(Remark("no-gpu-permission", "error", text))
    if NO_COMMAND_BUFFERS in xla_flags.split():
        text = "command buffers (CUDA graphs) are off, so that each kernel is seen: starting a program takes longer"
        remarks.append(Remark("no-command-buffers", "info", text))
    else:
        text = (
            "command buffers (CUDA graphs) are on, and kernels inside them may lack their HLO names; to see each of "
            f"them: XLA_FLAGS='{NO_COMMAND_BUFFERS}', which makes the run a little slower"
        )
        remarks.append(Remark("command-buffers", "warning", text))
    return remarks


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
    if free < least_free_bytes:
        text = f"{str(nearest)!r} has {size(free)} free, and a trace needs at least {size(least_free_bytes)}"
        return [Remark("disk-full", "error", text)]
    return []
