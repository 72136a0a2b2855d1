"""The state that a program shares with everything that it calls, and that its workers need, too.

Environment variables, working folder, import paths, command line, settings of JAX: they are gathered here and sent with
each job. The worker takes them over before the job begins. So a job has the same state as in the program, and changes
by the job before it are undone.

A pool can give its workers additional variables and settings (`Pool(environ=, jax_config=)`). This process keeps its
own. Otherwise another thread, or a compilation at the same time, would see values for the workers.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchax.environment import FLAG_PREFIXES, FLAGS
from benchax.errors import UsageError, one_of
from benchax.measuring.jax_settings import apply_settings, jax_settings

_PLAIN = (bool, int, float, str, type(None))


def check_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns `environ` if a process can have these variables.

    Raises:
        UsageError: a name or a value is not valid, or JAX would ignore it.
    """
    for name, value in environ.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise UsageError(f"environ has the name {name!r}", "names of environment variables, such as XLA_FLAGS")
        if not isinstance(value, str) or "\0" in value:
            raise UsageError(f"environ has {name}={value!r}", "text for each variable", f"{name!r}: {str(value)!r}")
        if (setting := name.lower()) in jax_settings():
            # The settings of this process go to each worker, and are stronger there than what JAX read at its start.
            raise UsageError(
                f"environ has {name}, by which JAX would set {setting} once, at the start of a process",
                "variables that are no settings of JAX",
                f"jax_config={{{setting!r}: ...}}",
            )
    return dict(environ)


def check_jax_config(jax_config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `jax_config` if JAX has these settings. JAX checks the values in the worker.

    Raises:
        UsageError: there is no such setting, or the value is of a kind that it cannot have.
    """
    here = jax_settings()
    for name, value in jax_config.items():
        if name not in here:
            raise UsageError(f"jax_config has {name!r}, which is no setting of JAX", one_of(here, str(name)))
        if type(here[name]) is bool and type(value) is not bool:
            raise UsageError(f"jax_config has {name}={value!r}", "True or False")
        if not isinstance(value, _PLAIN):
            raise UsageError(f"jax_config has {name}={value!r}", "text, a number, True, False or None")
    return dict(jax_config)


def capture_state(
    settings: Mapping[str, Any], environ: Mapping[str, str], jax_config: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the state for a worker: the state of this process, with these variables and settings on top.

    Args:
        settings: the settings of JAX in this process.
    """
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed
        folder = ""
    return {
        "environ": {**os.environ, **environ},
        "paths": [path for path in sys.path if isinstance(path, str)],
        "folder": folder,
        "arguments": list(sys.argv),
        "settings": {**settings, **jax_config},
    }


def restore_state(state: Mapping[str, Any]) -> None:
    """In the worker."""
    os.environ.clear()
    os.environ.update(state["environ"])
    sys.argv[:] = state["arguments"]
    sys.path[:] = state["paths"]
    with contextlib.suppress(OSError):  # it may have been removed; then the program is nowhere either
        os.chdir(state["folder"])
    apply_settings(state["settings"])


def start_flags() -> dict[str, str]:
    """Environment variables of this process that are read once, when a process or its libraries start."""
    prefixes = (*FLAG_PREFIXES, "PYTHON", "LD_", "OPENBLAS_", "MKL_")
    return {name: value for name, value in os.environ.items() if name in FLAGS or name.startswith(prefixes)}
