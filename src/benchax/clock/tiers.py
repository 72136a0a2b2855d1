"""The three tiers of the clock, best first, and how to load each. `selftest.py` chooses one.

    prebuilt   compiled when benchax was installed
    built      compiled at first use, kept in the user's cache folder
    python     ctypes callbacks: ten times slower, and always there on a CPU

Handlers are registered once per process and permanently, under names that contain the tier. So the next tier can
replace one that fails its test.

The library is plain C (`handlers.c`) and depends on neither Python nor JAX. A library that is built at first use is
kept in the user's cache folder. Its name identifies the source, the compiler and the machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jax
import platformdirs

from benchax.clock import interpreted
from benchax.errors import NotAvailable

Name = Literal["prebuilt", "built", "python"]
VERSION = 1
"""The version of the handlers' interface, as in `handlers.c`."""
MAJOR, OLDEST, NEWEST = 0, 1, 5
"""Versions of XLA's FFI whose call frame was seen to be laid out as `handlers.c` has it: jax 0.6 to 0.12."""

SOURCE = Path(__file__).with_name("handlers.c")


@dataclass(frozen=True)
class Tier:
    """A clock that XLA knows."""

    name: Name
    reasons: tuple[str, ...] = ()
    """Why the better tiers do not serve."""

    def target(self, handler: str) -> str:
        """The name under which XLA knows a handler ("stamp", "arm", "tick", "spin") of this tier."""
        return f"benchax_{handler}_{self.name}"


@lru_cache(maxsize=3)
def load(name: Name) -> Tier:
    """Loads and registers one tier, untested.

    Raises:
        NotAvailable: it cannot be had here.
    """
    minor = _api_minor()
    handlers = LOADERS[name](minor)
    # Registered before there is a backend, a handler that XLA refuses would keep the backend from starting at all.
    try:
        jax.devices("cpu")
    except RuntimeError as error:
        raise NotAvailable(f"JAX has no CPU backend here: {error}") from None
    found = Tier(name)
    for handler in ("stamp", "arm", "tick", "spin"):
        capsule = jax.ffi.pycapsule(handlers(f"benchax_{handler}"))
        try:
            jax.ffi.register_ffi_target(found.target(handler), capsule, platform="cpu")
        except Exception as error:
            first_line, _, _ = str(error).partition("\n")
            raise NotAvailable(f"XLA refuses the handler: {first_line}") from None
    return found


def _api_minor() -> int:
    """The version that the handlers name: XLA's own, from the header that jaxlib ships, or the newest that we know.

    XLA refuses a handler of a version above its own, and one that is too old for it. Below that a minor version adds
    and renames, and moves nothing (c_api.h); the self-test then judges.
    """
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h")
    try:
        text = header.read_text(encoding="utf-8")
    except OSError as error:
        raise NotAvailable(f"the version of XLA's FFI is unknown: {error}") from None
    major, minor = (int(re.search(rf"#define XLA_FFI_API_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR"))  # type: ignore[index]
    if major != MAJOR or minor < OLDEST:
        raise NotAvailable(f"XLA's FFI has version {major}.{minor}; known are {MAJOR}.{OLDEST} to {MAJOR}.{NEWEST}")
    return min(minor, NEWEST)


Handlers = Callable[[str], Any]


def _library(path: Path, minor: int) -> Handlers:
    try:
        library = ctypes.CDLL(str(path))
        found = ctypes.c_int.in_dll(library, "benchax_handlers_version").value
        ctypes.c_int.in_dll(library, "benchax_api_minor").value = minor
    except (OSError, ValueError) as error:
        raise NotAvailable(f"{path.name} cannot be loaded: {error}") from None
    if found != VERSION:
        raise NotAvailable(f"{path.name} is of version {found}, not {VERSION}: install benchax again")
    return lambda name: getattr(library, name)


def _interpreted_handlers(minor: int) -> Handlers:
    interpreted.api_minor = minor
    return lambda name: interpreted.HANDLERS[name]


LOADERS: dict[Name, Callable[[int], Handlers]] = {
    "prebuilt": lambda minor: _library(prebuilt(), minor),
    "built": lambda minor: _library(build_library(), minor),
    "python": _interpreted_handlers,
}


def prebuilt() -> Path:
    """The library that came with the installation.

    Raises:
        NotAvailable: there was no compiler then.
    """
    # It is no Python module, but setuptools names it like one: native.cpython-311-x86_64-linux-gnu.so
    library = SOURCE.with_name("native" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so"))
    if not library.exists():
        raise NotAvailable("benchax was installed without a C compiler")
    return library


def build_library(folder: Path | None = None) -> Path:
    """The library in the user's cache folder, compiled now if it is not there yet (0.1 to 0.2 s).

    Args:
        folder: another place to keep it.

    Raises:
        NotAvailable: no compiler, or it fails, or the folder cannot be written to.
    """
    compiler = os.environ.get("CC") or "cc"
    # By the machine as well: folders of users are shared between machines.
    facts = SOURCE.read_text(encoding="utf-8") + compiler + platform.platform() + platform.machine()
    folder = folder or platformdirs.user_cache_path("benchax")
    library = folder / f"handlers-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _compile(compiler, library)
        except OSError as error:
            raise NotAvailable(f"the clock cannot be built in {folder}: {error}") from None
    return library


def _compile(compiler: str, library: Path) -> None:
    """Under a name of its own first: another process may be doing the same."""
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        made = Path(work, library.name)
        command = [*shlex.split(compiler), "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        except FileNotFoundError:
            raise NotAvailable(f"there is no C compiler {compiler!r}") from None
        except subprocess.TimeoutExpired:
            raise NotAvailable(f"{compiler!r} did not finish within a minute") from None
        except subprocess.CalledProcessError as error:
            first_line = (error.stderr.strip().splitlines() or [""])[0]
            raise NotAvailable(f"{compiler!r} cannot compile {SOURCE.name}: {first_line}") from None
        made.replace(library)
