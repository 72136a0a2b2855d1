"""Where the compiled handlers are: beside this file if benchax was installed with a C compiler, else made at first use.

The library is plain C (`handlers.c`) and depends on neither Python nor JAX. One that is made at first use is kept in
the user's cache folder under a name that tells the source, the compiler and the machine apart.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import platformdirs

from benchax.errors import NotAvailable

SOURCE = Path(__file__).with_name("handlers.c")


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
