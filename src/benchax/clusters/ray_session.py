"""A connection to a Ray cluster, or one that is started here: "ray", "HOST:PORT" or "ray://HOST:PORT".

A cluster of ours listens on 127.0.0.1 only and ends with this program, however that ends. The folder of the user's
files goes to the nodes (Ray's `runtime_env`), without what its .gitignore names. Flags of JAX and XLA go with it.

Tried with Ray 2.60.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchax.environment import FLAG_PREFIXES, FLAGS
from benchax.errors import UsageError, require

EXPECTED = "ray, which starts one here, HOST:PORT of a cluster, or ray://HOST:PORT of its client server"
CONNECT_S = 5.0
_ADDRESS = re.compile(r"(?P<client>ray://)?(?P<host>[^\s/:]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
# Of this machine, not of the program: each node has its own.
_OF_THE_MACHINE = frozenset({"LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "NPROC", "PJRT_NPROC", "JAX_COMPILATION_CACHE_DIR"})
_LEFT_AT_HOME = [".git", ".venv", ".benchmarks", "__pycache__", "node_modules"]

_ON_LOOPBACK = {
    # Read when Ray is imported: without it a single machine too listens on its outward address.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_raylet_start_wait_time_s": "150",  # on a busy machine 30 s are not enough
}


def check_address(on: object) -> str:
    """`on`, if a cluster can be meant. Raises `UsageError`."""
    match = _ADDRESS.fullmatch(on) if isinstance(on, str) else None
    if on == "ray" or (match is not None and 0 < int(match["port"]) < 65536):
        return str(on)
    raise UsageError(f"on={on!r} is no cluster", EXPECTED)


@contextmanager
def open_session(on: str, folder: Path) -> Generator[Any, None, None]:
    """Yields Ray, connected. A connection or a cluster started here is closed afterwards; a connection of the caller
    stays.

    Raises:
        UsageError: no cluster answers there, or it has another version of Ray or Python.
        MissingPackage: Ray is not installed.
    """
    check_address(on)
    if on != "ray":
        _check_reachable(on)
    else:
        for name, value in _ON_LOOPBACK.items():
            os.environ.setdefault(name, value)
    ray = require("ray", doing="measuring on a cluster")
    if ray.is_initialized():
        yield ray
        return
    _connect(ray, on, folder)
    try:
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, on: str, folder: Path) -> None:
    runtime_env = {"working_dir": str(folder), "excludes": _LEFT_AT_HOME, "env_vars": flags_to_send()}
    given: dict[str, Any] = {"runtime_env": runtime_env, "log_to_driver": False, "logging_level": "ERROR"}
    given |= {"address": "local", "include_dashboard": False} if on == "ray" else {"address": on}
    try:
        ray.init(**given)
    except KeyboardInterrupt:
        ray.shutdown()
        raise
    # Ray has no common type for what may be wrong with an address: ConnectionError, RuntimeError, ValueError, its own.
    except Exception as error:
        ray.shutdown()
        what = "no Ray could be started here" if on == "ray" else f"cannot join the Ray cluster at {on!r}"
        raise UsageError(f"{what}: {first_sentence(error)}", EXPECTED, _advise(on, str(error))) from error


def _advise(on: str, text: str) -> str:
    if "version" in text.lower():
        return "the same versions of Ray and Python are needed here and there; this is " + describe_here()
    if "size" in text.lower():
        return "name big files of the folder in its .gitignore: they are not sent to the nodes then"
    if on == "ray":
        return ""
    token = "where the cluster asks for a token, Ray takes RAY_AUTH_MODE=token here too"
    if "RAY_AUTH_MODE" not in os.environ and (Path.home() / ".ray" / "auth_token").exists():
        # Any earlier Ray of one machine has made it, that of `--on ray` too.
        token = (
            "there is a ~/.ray/auth_token, which `ray start` asks for: set RAY_AUTH_MODE=token here and on the nodes"
        )
    if on.startswith("ray://"):
        return token
    return f"HOST:PORT is for programs on a machine of the cluster; from elsewhere it is ray://HOST:10001; {token}"


def describe_here() -> str:
    """Ray 2.60.0 with Python 3.11.7"""
    version = require("ray", doing="measuring on a cluster").__version__
    return f"Ray {version} with Python {'.'.join(map(str, sys.version_info[:3]))}"


def _check_reachable(on: str) -> None:
    """Ray itself tries for a minute."""
    match = _ADDRESS.fullmatch(on)
    assert match is not None
    try:
        with socket.create_connection((match["host"].strip("[]"), int(match["port"])), timeout=CONNECT_S):
            pass
    except OSError as error:
        raise UsageError(
            f"nothing answers at {on!r}: {error}",
            "the address of a Ray cluster that runs",
            "`ray start --head` prints it; 6379 is the usual port, 10001 that of ray://",
        ) from error


def flags_to_send() -> dict[str, str]:
    """Variables of this process that change programs or their speed, for the processes on the nodes."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in FLAGS or name.startswith(FLAG_PREFIXES)) and name not in _OF_THE_MACHINE
    }


def folders_to_send(folder: Path) -> list[str]:
    """Import folders of this process inside `folder`, relative to it; itself first."""
    root = folder.resolve()
    inside = [Path(path).resolve() for path in sys.path if isinstance(path, str)]
    found = [path.relative_to(root).as_posix() for path in inside if path.is_relative_to(root)]
    # An environment that lies in the project is no part of it.
    return list(dict.fromkeys([".", *(path for path in found if "site-packages" not in path)]))


def first_sentence(error: BaseException) -> str:
    """The first line of an error that says something; that of Ray's error where one is inside."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    because = next((line for line in lines if "because" in line), "")
    return because or (lines[0] if lines else type(error).__name__)
