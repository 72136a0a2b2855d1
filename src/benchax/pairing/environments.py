"""Throw-away environments with another JAX, kept in the user's cache folder: made once, by uv or by venv and pip.

    ~/.cache/benchax/environments/jax-0.9.2-py3.11.7-3f2a…/        an environment with jax 0.9.2 and what it brings
                                                        benchax.json   written last: without it, it is made anew

Nothing else is installed there. benchax itself, what it needs, and the user's own packages come from the environment
of the program that asks, which is searched last (`partners.BOOT`): so JAX, NumPy and SciPy are those of the other
version, and all the rest is the same on both sides.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from fcntl import LOCK_EX, flock
from pathlib import Path

import platformdirs

from benchax.environment import installed
from benchax.errors import BenchaxError, NotAvailable, UsageError, one_of

LEAST = (0, 6)
"""benchax runs with no older JAX."""
EXTRAS = {"jax-cuda12-plugin": "cuda12", "jax-cuda13-plugin": "cuda13", "libtpu": "tpu"}
"""Where one of these is installed here, the other JAX gets its own (unverified: never run on an accelerator)."""
LIST_THEM = "name all that shall be tried: --jax 0.9.0,0.9.1,0.9.2"
MARK = "benchax.json"
_VERSION = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)*")
_NO_NETWORK = re.compile(
    r"NewConnectionError|name resolution|Name or service not known|ConnectTimeout|ProxyError|Network is unreachable"
    r"|Failed to establish|error sending request|dns error|Failed to fetch|versions: none",
    re.IGNORECASE,
)
_NO_VERSION = re.compile(r"No matching distribution found for jax\b|no version of jax\b", re.IGNORECASE)
Say = Callable[[str], None]


def environment(version: str, say: Say = lambda text: None, folder: Path | None = None) -> Path:
    """The Python of an environment with that JAX; makes it if there is none.

    Args:
        say: told what takes long.
        folder: where environments are; default: in the user's cache folder.

    Raises:
        UsageError: there is no such version, or none for this Python.
        NotAvailable: it could not be installed; says why.
    """
    check(version)
    place = (folder or _folder()) / _name(version)
    python = place / "bin" / "python"
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place.with_name(f"{place.name}.lock")):
        if not (_is_finished(place) and python.exists()):
            say(f"making an environment with jax {version}")
            shutil.rmtree(place, ignore_errors=True)
            try:
                _make(place, f"jax{_extras()}=={version}", version)
            except BenchaxError:
                shutil.rmtree(place, ignore_errors=True)
                raise
            (place / MARK).write_text(json.dumps({"jax": version}), encoding="utf-8")
    return python


def check(version: str) -> None:
    """Raises `UsageError` for what is no version of JAX that benchax runs with."""
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{version!r} is no version of JAX", "numbers with dots, such as 0.9.2")
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST:
        raise UsageError(f"benchax does not run with jax {version}", f"{'.'.join(map(str, LEAST))} or newer")


def available() -> list[str]:
    """All releases of JAX for this Python, oldest first, without candidates of releases.

    Raises:
        NotAvailable: there is no pip to ask, or it could not ask.
    """
    if importlib.util.find_spec("pip") is None:
        raise NotAvailable("only pip can list the versions of JAX, and it is not installed", hint=LIST_THEM)
    _, said = _run([sys.executable, "-m", "pip", "index", "versions", "jax"])
    found = re.search(r"Available versions: (.*)", said)
    if found is None:
        raise NotAvailable(f"pip cannot list the versions of JAX: {_last_lines(said)}", hint=LIST_THEM)
    return sorted((v for v in found[1].split(", ") if re.fullmatch(r"[\d.]+", v)), key=order)


def order(version: str) -> tuple[int, ...]:
    """For sorting releases."""
    return tuple(map(int, version.split(".")))


def _folder() -> Path:
    return Path(platformdirs.user_cache_dir("benchax")) / "environments"


def _name(version: str) -> str:
    """One for each JAX, Python and kind of accelerator."""
    python = f"{sys.base_prefix} {sys.version} {platform.machine()} {_extras()}"
    digest = hashlib.sha256(python.encode()).hexdigest()[:8]
    return f"jax-{version}-py{platform.python_version()}-{digest}"


def _extras() -> str:
    found = [extra for package, extra in EXTRAS.items() if installed(package)]
    return f"[{','.join(found)}]" if found else ""


@contextlib.contextmanager
def _alone(path: Path) -> Generator[None, None, None]:
    """Waits for whoever makes the same environment, in the kernel and for as long as it takes."""
    with path.open("w") as file:
        flock(file, LOCK_EX)
        yield


def _is_finished(place: Path) -> bool:
    return (place / MARK).is_file()


def _make(place: Path, requirement: str, version: str) -> None:
    python = str(place / "bin" / "python")
    if uv := shutil.which("uv"):
        making = [uv, "venv", "--quiet", "--python", sys.executable, str(place)]
        filling = [uv, "pip", "install", "--quiet", "--python", python, requirement]
    else:
        making = [sys.executable, "-m", "venv", str(place)]
        filling = [python, "-m", "pip", "install", "--quiet", "--no-input", requirement]
    is_made, said = _run(making)
    if not is_made:
        raise NotAvailable(f"no environment could be made in {place}: {_last_lines(said)}")
    is_filled, said = _run(filling)
    if not is_filled:
        raise _why(said, version)


def _why(said: str, version: str) -> BenchaxError:
    """What the output of pip or uv means."""
    if _NO_NETWORK.search(said):
        return NotAvailable(
            f"jax {version} cannot be downloaded, for want of a network or of a package index: {_last_lines(said)}"
        )
    if _NO_VERSION.search(said):
        listed = re.search(r"\(from versions: (.*?)\)", said, re.DOTALL)  # pip says them, uv does not
        expected = one_of(listed[1].split(", "), version) if listed else "a version that was released"
        return UsageError(f"there is no jax {version} for Python {platform.python_version()}", expected)
    return NotAvailable(f"jax {version} cannot be installed: {_last_lines(said)}")


def _last_lines(said: str) -> str:
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    return "; ".join(lines[-3:])[-600:] or "it gave no reason"


def _run(command: Sequence[str]) -> tuple[bool, str]:
    """(it went well, all that it said)"""
    # PYTHONPATH may hold another JAX, which pip would take to be installed already.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env=env, check=False
        )
    except OSError as error:
        return False, str(error)
    return done.returncode == 0, done.stdout + done.stderr
