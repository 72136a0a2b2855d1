"""Nsight Systems: the command line that profiles a JAX program well, and the marks that it looks for.

`plan` writes the command, `run` runs it, `region` tells Nsight from inside a program which part is meant. Written
from NVIDIA's documentation (JAX-Toolbox) and tried with a stand-in for nsys, also on a GPU. `jax.profiler` cannot
be used at the same time: the profiler of the GPU (CUPTI) serves one at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import importlib
import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchax.errors import NotAvailable
from benchax.profiling.preflight import NO_COMMAND_BUFFERS

NAME = "nsys"
_WHOLE = "profile a whole program instead: benchax profile --nsys -- python train.py"
_FLAG = NO_COMMAND_BUFFERS.removesuffix("=")


@dataclass(frozen=True)
class NsysPlan:
    """A command, and the variables to add to its environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    report: Path
    """The file that nsys writes."""

    def __str__(self) -> str:
        """As one types it into a shell."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*settings, shlex.join(self.command)])


def plan(
    program: Sequence[str],
    report: Path,
    *,
    by_region: bool = False,
    start_after_s: float | None = None,
    duration_s: float | None = None,
    environment: Mapping[str, str] = os.environ,
) -> NsysPlan:
    """How nsys is to run `program`.

    Args:
        report: where the result goes, a name that ends in .nsys-rep.
        by_region: the program says itself where to begin and end (`region`). Else it is profiled as a whole, or the
            `duration_s` that begin `start_after_s` after its start.
    """
    options = [
        "--output", str(report.with_suffix("")),
        "--trace", "cuda,nvtx,osrt,cublas,cudnn",
        # Kernels inside a CUDA graph one by one, where the flag below did not keep XLA from making one.
        "--cuda-graph-trace", "node",
    ]  # fmt: skip
    if by_region:
        # "stop": what nsys does by default at the end of the region is to kill the program.
        options += ["--capture-range", "cudaProfilerApi", "--capture-range-end", "stop"]
    if start_after_s is not None:
        options += ["--delay", f"{start_after_s:g}"]
    if duration_s is not None:
        options += ["--duration", f"{duration_s:g}", "--kill", "none"]
    return NsysPlan((NAME, "profile", *options, *program), _settings(environment), report)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Kernels one by one, and whole tracebacks in the names of operations; what the user has set stays."""
    settings: dict[str, str] = {}
    flags = environment.get("XLA_FLAGS", "")
    if _FLAG not in flags:
        settings["XLA_FLAGS"] = f"{flags} {NO_COMMAND_BUFFERS}".strip()
    if "JAX_TRACEBACK_IN_LOCATIONS_LIMIT" not in environment:
        settings["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "-1"
    return settings


def is_installed() -> bool:
    return shutil.which(NAME) is not None


def run(it: NsysPlan) -> int:
    """Runs it with this program's own input and output; returns the program's exit code, as nsys passes it on.

    Raises:
        NotAvailable: there is no nsys.
    """
    if not is_installed():
        raise NotAvailable("there is no nsys on the PATH", hint="https://developer.nvidia.com/nsight-systems")
    it.report.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(it.command, env={**os.environ, **it.environment})
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue  # nsys was sent it too, ends the program, and writes its report
        return code if code >= 0 else 128 - code


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """Marks a block of code that nsys captures (`by_region`). The block has an NVTX range of this name if `nvtx` is
    installed.

    Raises:
        NotAvailable: there is no CUDA runtime, or it refuses, so benchax cannot start nsys's capture.
    """
    cuda = _cuda_runtime()
    if cuda is None:
        raise NotAvailable(
            "no CUDA runtime (libcudart) was found, through which nsys is told where to begin", hint=_WHOLE
        )
    if code := cuda.cudaProfilerStart():
        raise NotAvailable(f"cudaProfilerStart, which tells nsys where to begin, failed with error {code}", hint=_WHOLE)
    try:
        with annotation(name):
            yield
    finally:
        cuda.cudaProfilerStop()


def annotation(name: str) -> contextlib.AbstractContextManager[Any]:
    """An NVTX range; nothing where `nvtx` is not installed."""
    if importlib.util.find_spec("nvtx") is None:
        return contextlib.nullcontext()
    return importlib.import_module("nvtx").annotate(name)


def _cuda_runtime() -> Any:
    """Loads the runtime of JAX's own CUDA wheels if it exists: another copy would have a separate profiler state."""
    names = [str(path) for folder in _wheel_folders() for path in sorted(folder.glob("libcudart.so*"))]
    names += [found for found in [ctypes.util.find_library("cudart")] if found]
    for name in names:
        with contextlib.suppress(OSError):  # a file of another architecture
            return ctypes.CDLL(name)
    return None


def _wheel_folders() -> list[Path]:
    """Returns the folders of the wheels for CUDA 13 and for CUDA 12."""
    try:
        specs = [importlib.util.find_spec(name) for name in ("nvidia.cu13", "nvidia.cuda_runtime")]
    except ModuleNotFoundError:  # there is no package nvidia at all
        return []
    return [Path(folder) / "lib" for spec in specs if spec for folder in (spec.submodule_search_locations or [])]
