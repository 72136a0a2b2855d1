"""Where it ran: host, devices, versions, settings and flags, commit.

`capture` answers with an `Environment`; whose `fingerprint` says which rows may be put side by side. What the system
does not tell is `None`, on every system: a laptop without JAX, Windows and a container without /proc all get an answer.
How busy the machine is belongs to `machine/noise.py`; what is wrong with it, to `machine/doctor.py`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchax.model import Environment

FLAGS = frozenset(
    {
        "XLA_FLAGS",
        "LD_PRELOAD",
        "LIBTPU_INIT_ARGS",
        "NVIDIA_TF32_OVERRIDE",
        "CUDA_VISIBLE_DEVICES",
        # XLA:CPU sizes its thread pools by these two, not by the cores (seen with jaxlib 0.10.2: 17 threads, then 31).
        "NPROC",
        "PJRT_NPROC",
    }
)
FLAG_PREFIXES = ("JAX_", "XLA_PYTHON_", "MALLOC_", "OMP_", "TF_CPP_", "TF_XLA_")

# The first four differ between the processes of one cluster, whose rows do belong side by side. The log level changes
# no program, and `import jax` sets it itself: the same process would have two fingerprints. How an accelerator's memory
# is taken is set for our workers (environment.py).
_NOT_SPEED = re.compile(
    r"JAX_(COORDINATOR_.*|NUM_PROCESSES|PROCESS_ID|LOCAL_DEVICE_IDS)|TF_CPP_MIN_LOG_LEVEL|XLA_PYTHON_CLIENT_PREALLOCATE"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_KEY", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/@\s]*@")

CONFIG = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_cpu_enable_async_dispatch",
    "jax_num_cpu_devices",
    "jax_disable_jit",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_enable_checks",
)

# A repository on a dead network drive must not block a benchmark.
HOST = "BENCHAX_HOST"
"""A name instead of the host's. Hosted CI has a new host for each job, so no two rows would share a machine."""
GIT_TIMEOUT_S = 5.0
# Git hooks, among others, set these variables. They would lead git to another repository instead of the folder's.
_GIT_ELSEWHERE = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"})


def capture(where: Path | None = None, with_jax: bool = True, besides: Path | None = None) -> Environment:
    """The environment of this process, now.

    Host and versions are read once per process; affinity, settings, flags and commit each time, since they change.

    Args:
        where: a folder (or file) of the repository that the benchmarks are in; the working folder by default.
        with_jax: read JAX's devices and settings too. This starts JAX's backend, if nothing else has. False neither
            imports nor starts JAX; the installed versions are there all the same.
        besides: a folder whose files make no working tree dirty: where results go.
    """
    return replace(capture_process(with_jax), **git_state(where or Path(), besides)._asdict())


def fingerprint() -> str:
    """The fingerprint of this process with its devices. Starts no other process, as git would need."""
    return capture_process(with_jax=True).fingerprint


def capture_process(with_jax: bool = True) -> Environment:
    """As `capture`, without commit and branch. Starts no other process, as asking git would."""
    # First, because importing JAX sets environment variables.
    devices = jax_facts() if with_jax else {}
    return replace(
        host(),
        affinity=affinity(),
        governor=governor(),
        huge_pages=huge_pages(),
        flags=flags(os.environ),
        **devices,
    )


def at_commit_of(here: Environment, there: Environment) -> Environment:
    """`there` with the commit of `here`: what went there, or who has started it, knows no repository."""
    return replace(there, commit=here.commit, branch=here.branch, is_dirty=here.is_dirty)


@lru_cache(maxsize=1)
def host() -> Environment:
    """The facts that stay the same for as long as the process lives."""
    info = cpuinfo()
    return Environment(
        host=os.environ.get(HOST) or platform.node(),
        os=platform.platform(),
        # abiflags: "d" is a debug build, "t" one without the GIL. Both dispatch more slowly than the usual build.
        python=platform.python_version() + getattr(sys, "abiflags", ""),
        processor=processor(info),
        cores=psutil.cpu_count(),
        memory_bytes=memory_bytes(),
        # By the hypervisor bit of x86; other processors have no such bit.
        virtual_machine="hypervisor" in info["flags"].split() if "flags" in info else None,
        benchax=installed("benchax"),
        jax=installed("jax"),
        jaxlib=installed("jaxlib"),
        numpy=installed("numpy"),
    )


def has_jax_plugins() -> bool:
    """Is a backend of JAX for accelerators installed? They are the modules of `jax_plugins`. Imports none of them."""
    return importlib.util.find_spec("jax_plugins") is not None


def jax_facts() -> dict[str, Any]:
    """Devices and settings of JAX, as fields of `Environment`.

    Empty if JAX is not installed or none of its backends starts. That hides nothing: the first computation raises
    the same error, in JAX's own words.
    """
    try:
        import jax

        device = jax.local_devices()[0]
    except (ImportError, RuntimeError):
        return {}
    # `client` is not documented; without it just this one fact is missing.
    version = getattr(getattr(device, "client", None), "platform_version", None)
    return {
        "backend": device.platform,
        "device_kind": device.device_kind,
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
        "platform_version": version,
        "config": jax_config(jax.config),
    }


def jax_config(config: Any) -> dict[str, Any]:
    """The settings of `CONFIG` that this JAX has."""
    # jax_cpu_enable_async_dispatch is a mere flag: it is in `values` and not an attribute (jax 0.10).
    values = {**getattr(config, "values", {})}
    values |= {name: getattr(config, name) for name in CONFIG if hasattr(config, name)}
    found = {name: values[name] for name in CONFIG if name in values}
    return {name: v if v is None or isinstance(v, str | int | float | bool) else str(v) for name, v in found.items()}


def flags(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that change programs or their speed. Names that smell of secrets are left out."""
    chosen = {k: v for k, v in variables.items() if k in FLAGS or k.startswith(FLAG_PREFIXES)}
    return {
        clean(k): _LOGIN.sub("", clean(v))
        for k, v in sorted(chosen.items())
        if not _NOT_SPEED.fullmatch(k) and not _SECRET.search(k)
    }


def clean(text: str) -> str:
    r"""`text` as valid Unicode. The system passes invalid bytes as lone surrogates; they become \udcff."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class GitState(NamedTuple):
    """The state of the checkout. All `None` without git, outside a repository, and before its first commit."""

    commit: str | None = None
    branch: str | None = None
    is_dirty: bool | None = None
    """Also by files that git does not know yet. None if git took longer than `GIT_TIMEOUT_S` to find out."""


def git_state(folder: Path, besides: Path | None = None) -> GitState:
    """The full hash of the commit in `folder`, its branch (None when detached), and whether anything differs from it.

    Tags play no part, so that tagging a commit does not rename it.

    Args:
        besides: a folder that is not looked at.
    """
    folder = folder if folder.is_dir() else folder.parent
    head = ask_git(folder, "rev-parse", "--show-toplevel", "HEAD", "--symbolic-full-name", "HEAD")
    if head is None:
        return GitState()
    top, commit, ref = head.split("\n")[:3]
    branch = ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None
    # The user's own settings may hide untracked files from `status`.
    changes = ask_git(folder, "status", "--porcelain", "--untracked-files=normal", *_without(besides, Path(top)))
    return GitState(commit, branch, None if changes is None else bool(changes))


def _without(folder: Path | None, top: Path) -> tuple[str, ...]:
    """Arguments by which git leaves out `folder`, if that is inside the repository at `top`, as only then it can be."""
    inside = folder.resolve() if folder else top
    if inside == top or not inside.is_relative_to(top):
        return ()
    return ("--", ":(top)", f":(top,exclude,literal){inside.relative_to(top).as_posix()}")


def ask_git(folder: Path, *arguments: str) -> str | None:
    """Returns git's answer; None if git is not there, fails, or takes too long."""
    # fsmonitor would leave a process behind, which then disturbs what is measured.
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(
            command,
            env=git_variables() | {"GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        # "No commit" is a valid answer: a benchmark must not fail because git is missing.
        return None
    return done.stdout.decode("utf-8", "backslashreplace")


def git_variables() -> dict[str, str]:
    """The variables of this process, without those by which git would work on another repository than it is given."""
    return {name: value for name, value in os.environ.items() if name not in _GIT_ELSEWHERE}


_SEARCHED_FIRST = ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")


def clean_environ() -> dict[str, str]:
    """The variables of this process, without those that would bring its packages to another Python."""
    return {name: value for name, value in os.environ.items() if name not in _SEARCHED_FIRST}


def cpuinfo() -> dict[str, str]:
    """Returns /proc/cpuinfo of the first processor; empty if there is no such file."""
    first = (read_text("/proc/cpuinfo") or "").partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def processor(info: Mapping[str, str]) -> str | None:
    """The processor's model. ARM has no name in /proc/cpuinfo, but numbers that tell the models apart."""
    if "CPU part" in info:
        return f"ARM implementer {info.get('CPU implementer')} part {info['CPU part']}"
    return info.get("model name") or info.get("cpu") or platform.processor() or None


def memory_bytes() -> int | None:
    """Memory of the machine; a container's limit can be lower."""
    try:
        return psutil.virtual_memory().total
    except OSError:
        # No /proc, or not for us.
        return None


def affinity() -> tuple[int, ...] | None:
    """The cores that this process may use; None if the system does not tell."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None


def count_cores() -> int:
    """That this process may use."""
    return len(affinity() or ()) or os.cpu_count() or 1


def governor() -> str | None:
    """Who chooses the clock rate: "performance"; "performance, powersave" where the cores disagree."""
    names = {read_text(str(p)) for p in Path("/sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor")}
    return ", ".join(sorted(name for name in names if name)) or None


def huge_pages() -> str | None:
    """Transparent huge pages: "always", "madvise" or "never"."""
    chosen = re.search(r"\[(\w+)\]", read_text("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return chosen[1] if chosen else None


@dataclass(frozen=True)
class Machine:
    """Facts from Linux in addition to `Environment`, for the doctor. They explain noise, and do not separate rows.
    None: not reported.
    """

    clock_source: str | None = None
    is_turbo_on: bool | None = None
    is_smt_on: bool | None = None
    cpu_quota: float | None = None
    """Cores' worth of CPU time that the control groups allow; None also where they set no limit."""


def machine() -> Machine:
    cpu = "/sys/devices/system/cpu"
    turbo, no_turbo = _switch(f"{cpu}/cpufreq/boost"), _switch(f"{cpu}/intel_pstate/no_turbo")
    return Machine(
        clock_source=read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        is_turbo_on=turbo if no_turbo is None else not no_turbo,
        is_smt_on=_switch(f"{cpu}/smt/active"),
        cpu_quota=cpu_quota(),
    )


def _switch(path: str) -> bool | None:
    return {"0": False, "1": True}.get(read_text(path) or "")


def cpu_quota() -> float | None:
    """The smallest limit among this process's control groups and those above them (versions 1 and 2), in cores."""
    lines = (line.split(":", 2) for line in (read_text("/proc/self/cgroup") or "").splitlines())
    groups = [(kinds, path) for _, kinds, path in lines if not kinds or "cpu" in kinds.split(",")]
    limits = [_limit(folder) for kinds, path in groups for folder in _folders(kinds, path)]
    return min((limit for limit in limits if limit is not None), default=None)


def _folders(kinds: str, path: str) -> list[str]:
    """The folders of a control group and of all above it."""
    # In a container, the path is often the host's and does not exist. Then the root is the container's own group.
    root = "/sys/fs/cgroup" + (f"/{kinds}" if kinds else "")
    parts = [part for part in path.split("/") if part]
    return ["/".join([root, *parts[:depth]]) for depth in range(len(parts) + 1)]


def _limit(folder: str) -> float | None:
    """Version 2 has one file, "150000 100000"; version 1 has two. Both say 1.5 cores. "max" and -1 mean no limit."""
    both = read_text(f"{folder}/cpu.max")
    quota, period = both.split() if both else (read_text(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return int(quota) / int(period) if quota and period and quota.isdigit() else None


def installed(package: str) -> str | None:
    """The version of `package`, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def read_text(path: str) -> str | None:
    """The text of a file of the system, stripped; None if it does not exist or may not be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


# ---- several processes on one accelerator ----------------------------------------------------------------------------
#
# JAX reserves three quarters of a GPU's memory when its backend starts, so the next process finds a quarter or nothing.
# On an H100 (jax 0.11.2), workers failed with "out of memory" at arrays of a megabyte. So processes that benchax starts
# allocate on demand. Steady times are the same; a first call may wait for the driver.


PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
_CHOSEN = (PREALLOCATE, "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR")
"""Who sets one of these has decided how memory is taken."""


def memory_on_demand(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for processes that share an accelerator: empty if JAX has none, or the user has set others."""
    if any(name in environ for name in _CHOSEN) or not has_jax_plugins():
        return {}
    return {PREALLOCATE: "false"}
