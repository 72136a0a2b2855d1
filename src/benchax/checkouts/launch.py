"""How a process of another version is started: its Python, and its search path for modules.

    another commit     the worktree  →  the packages of this program
    another JAX        the packages of its own Python  →  the packages of this program

So JAX, NumPy and SciPy come from the other JAX, and the user's code comes from the worktree. benchax and all its
requirements are the same on both sides.

Environments with another JAX are kept in the user's cache folder. They are made once, by uv or by venv and pip:

    ~/.cache/benchax/environments/jax-0.9.2-py3.11.7-3f2a…/        an environment with jax 0.9.2 and what it brings
                                                        benchax.json   written last: without it, it is made again

Nothing else is installed there. benchax itself, its requirements, and the user's own packages come from the environment
of the calling program. It is searched last (`Launch.paths`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from benchax.environment import clean_environ, installed
from benchax.errors import BenchaxError, NotAvailable, UsageError, one_of
from benchax.model import Version
from benchax.whole_files import hold_lock


@dataclass(frozen=True)
class Selection:
    """Which cases: what, pattern, params and options as for `benchax run`."""

    what: tuple[str, ...] = (".",)
    """Paths, or a function and its inputs."""
    pattern: str = ""
    params: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By name. They win over what a benchmark sets itself."""


@dataclass(frozen=True)
class Launch:
    """How processes of one version are started.

    This Python looks for modules in `paths` alone, and another one behind its own.
    """

    version: Version
    python: str = ""
    """Another Python. Empty: this one."""
    folder: Path = Path()
    """Where it works: relative paths and pyproject.toml."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables, in addition to the ones that this process has."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of JAX that are added to the settings of this program. They hold there before anything runs."""
    paths: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    top: Path | None = None
    """The top of a repository whose own modules must not be imported there: the process is of another commit."""


def run_command(command: Sequence[str], environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`; a command that cannot be executed fails, and its errors say why."""
    # The environment can contain another JAX, which pip would consider installed.
    how = {"text": True, "errors": "replace", "stdin": subprocess.DEVNULL, "env": environ or clean_environ()}
    try:
        return subprocess.run(command, capture_output=True, check=False, **how)
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


# ---- environments with another JAX ------------------------------------------------------------------------------

LEAST = (0, 6)
"""benchax runs with no older JAX."""
EXTRAS = {"jax-cuda12-plugin": "cuda12", "jax-cuda13-plugin": "cuda13", "libtpu": "tpu"}
"""Where one of these is installed here, the other JAX gets its own (unverified: never run on an accelerator)."""
LIST_THEM = "list all versions to try: --jax 0.9.0,0.9.1,0.9.2"
MARK = "benchax.json"
_VERSION = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)*")
_NO_NETWORK = re.compile(
    r"NewConnectionError|name resolution|Name or service not known|ConnectTimeout|ProxyError|Network is unreachable"
    r"|Failed to establish|error sending request|dns error|Failed to fetch|versions: none",
    re.IGNORECASE,
)
_NO_VERSION = re.compile(r"No matching distribution found for jax\b|no version of jax\b", re.IGNORECASE)
Say = Callable[[str], None]


def launch_jax(version: str, label: str = "", say: Say = lambda text: None) -> Launch:
    """Returns how to start processes with that JAX in the working folder. Makes its environment if it does not exist.

    Args, Raises: as `ensure_environment`.
    """
    python = ensure_environment(version, say)
    return Launch(Version(label or f"jax {version}", jax=version), str(python), Path.cwd())


def ensure_environment(version: str, say: Say = lambda text: None, folder: Path | None = None) -> Path:
    """Returns the Python of an environment with that JAX. Makes the environment if it does not exist.

    Args:
        say: receives a text before each long step.
        folder: where environments are; default: in the user's cache folder.

    Raises:
        UsageError: there is no such version, or it does not support this Python.
        NotAvailable: it could not be installed; gives the reason.
    """
    check_version(version)
    directory = (folder or Path(platformdirs.user_cache_dir("benchax")) / "environments") / _name(version)
    python = directory / "bin" / "python"
    # If another process is making the same environment, let it finish first.
    with hold_lock(directory.with_name(f"{directory.name}.lock")):
        if not ((directory / MARK).is_file() and python.exists()):
            say(f"making an environment with jax {version}")
            shutil.rmtree(directory, ignore_errors=True)
            try:
                _make(directory, f"jax{_extras()}=={version}", version)
            except BenchaxError:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            # Write this last: if the process is killed before, the next one makes the environment again.
            (directory / MARK).write_text(json.dumps({"jax": version}), encoding="utf-8")
    return python


ENOUGH = "two versions or more, such as 0.9.2,0.10.2"
"""The versions of JAX that a comparison needs, for messages."""


def check_version(version: str) -> None:
    """Raises `UsageError` for what is no version of JAX that benchax runs with."""
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{version!r} isn't a version of JAX", "numbers with dots, such as 0.9.2")
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST:
        raise UsageError(f"benchax does not run with jax {version}", f"{'.'.join(map(str, LEAST))} or newer")


def list_versions() -> list[str]:
    """All releases of JAX for this Python, oldest first, without candidates of releases.

    Raises:
        NotAvailable: there is no pip to ask, or it could not ask.
    """
    if importlib.util.find_spec("pip") is None:
        raise NotAvailable("only pip can list the versions of JAX, and it is not installed", hint=LIST_THEM)
    done = run_command([sys.executable, "-m", "pip", "index", "versions", "jax"])
    found = re.search(r"Available versions: (.*)", done.stdout)
    if found is None:
        raise NotAvailable(f"pip cannot list the versions of JAX: {_last_lines(done)}", hint=LIST_THEM)
    return sorted((v for v in found[1].split(", ") if re.fullmatch(r"[\d.]+", v)), key=version_key)


def version_key(version: str) -> tuple[int, ...]:
    """Sorts releases from old to new."""
    return tuple(map(int, version.split(".")))


def _name(version: str) -> str:
    """One for each JAX, Python and kind of accelerator."""
    # An environment links to the Python that made it, so another build of the same version needs its own.
    python = f"{sys.base_prefix} {sys.version} {platform.machine()} {_extras()}"
    digest = hashlib.sha256(python.encode()).hexdigest()[:8]
    return f"jax-{version}-py{platform.python_version()}-{digest}"


def _extras() -> str:
    found = [extra for package, extra in EXTRAS.items() if installed(package)]
    return f"[{','.join(found)}]" if found else ""


def _make(directory: Path, requirement: str, version: str) -> None:
    python = str(directory / "bin" / "python")
    if uv := shutil.which("uv"):
        making = [uv, "venv", "--quiet", "--python", sys.executable, str(directory)]
        filling = [uv, "pip", "install", "--quiet", "--python", python, requirement]
    else:
        making = [sys.executable, "-m", "venv", str(directory)]
        filling = [python, "-m", "pip", "install", "--quiet", "--no-input", requirement]
    if (made := run_command(making)).returncode:
        raise NotAvailable(f"no environment could be made in {directory}: {_last_lines(made)}")
    if (filled := run_command(filling)).returncode:
        raise _why(filled, version)


def _why(done: subprocess.CompletedProcess[str], version: str) -> BenchaxError:
    """Turns the output of pip or uv into an error."""
    output = done.stdout + done.stderr
    if _NO_NETWORK.search(output):
        return NotAvailable(
            f"jax {version} cannot be downloaded without a network and a package index: {_last_lines(done)}"
        )
    if _NO_VERSION.search(output):
        listed = re.search(r"\(from versions: (.*?)\)", output, re.DOTALL)  # pip says them, uv does not
        expected = one_of(listed[1].split(", "), version) if listed else "a released version"
        return UsageError(f"there is no jax {version} for Python {platform.python_version()}", expected)
    return NotAvailable(f"jax {version} cannot be installed: {_last_lines(done)}")


def _last_lines(done: subprocess.CompletedProcess[str]) -> str:
    lines = [" ".join(line.split()) for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "; ".join(lines[-3:])[-600:] or "it gave no reason"
