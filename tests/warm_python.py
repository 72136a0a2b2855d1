"""Python programs as forks of a process that has imported JAX: a process of its own for each, without the second that
importing takes.

A fork has its own variables, working directory, standard streams, `sys.path` and `__main__`; JAX has started no backend
in it. For what a program imports, how it starts, and how it ends by signals, use `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

# No package that a plugin of pytest is a part of: a session in a fork would warn that it cannot rewrite its asserts.
IMPORTED = (
    "jax.numpy", "jax.experimental.shard_map", "jax.export", "scipy.linalg", "scipy.stats", "pytest", "cloudpickle",
    "psutil", "rich.console", "typer",
)  # fmt: skip
LARGEST = 1 << 20
"""Bytes of a request."""


def run(
    command: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes = "",
    timeout: float = 120,
    check: bool = False,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`, for a command of this Python: a file, `-m` or `-c`, and its arguments. What it writes is
    captured, as text where the input is text.

    Variables that are read while Python or JAX start, and differ from those of this session, need a new Python.
    """
    python, *words = command
    environ = dict(os.environ if env is None else env)
    is_program = words[0] in ("-c", "-m") or not words[0].startswith("-")
    if python != sys.executable or not is_program or _at_start(environ) != _at_start(SESSION):
        options = {"cwd": cwd, "env": environ, "input": input, "timeout": timeout, "check": check}
        return subprocess.run(command, **options, capture_output=True, text=isinstance(input, str))
    with contextlib.ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(input if isinstance(input, bytes) else input.encode())
        given.seek(0)
        status = _server().run(
            [words, str(cwd or Path.cwd()), environ], [f.fileno() for f in (given, out, err)], timeout
        )
        written = [_content(file, isinstance(input, str)) for file in (out, err)]
    if check and status:
        raise subprocess.CalledProcessError(status, command, *written)
    return subprocess.CompletedProcess(list(command), status, *written)


def run_on_devices(count: int, code: str) -> str:
    """What a program prints that pretends to have so many devices of the CPU."""
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}
    done = run([sys.executable, "-c", code], env=os.environ | flags)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def start() -> None:
    """Starts the process that programs are forks of, which stays until the session ends."""
    _server()


def _content(file: IO[bytes], is_text: bool) -> str | bytes:
    file.seek(0)
    content = file.read()
    return content.decode() if is_text else content


SESSION = dict(os.environ)


def _at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """What a Python reads while it starts; but where it finds modules, which a fork can do later."""
    names = ("PYTHON", "OPENBLAS_", "OMP_", "LD_")
    later = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING"}  # the latter is always utf-8
    return {name: value for name, value in environ.items() if name.startswith(names) and name not in later}


class _Server:
    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import warm_python; warm_python.serve()"
        )
        with theirs:
            command = [sys.executable, "-c", code, str(theirs.fileno())]
            self.process = subprocess.Popen(command, env=SESSION, pass_fds=[theirs.fileno()])
        atexit.register(self.end)

    def end(self) -> None:
        self.socket.close()
        self.process.wait()

    def run(self, request: Any, streams: Sequence[int], timeout: float) -> int:
        socket.send_fds(self.socket, [json.dumps(request).encode()], streams)
        self.socket.settimeout(60)
        pid = json.loads(self.socket.recv(LARGEST))
        self.socket.settimeout(timeout)
        try:
            return json.loads(self.socket.recv(LARGEST))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self.socket.settimeout(60)
            self.socket.recv(LARGEST)
            raise


@functools.cache
def _server() -> _Server:
    return _Server()


def serve() -> None:
    """One request after the other, until the session that asks is gone."""
    del sys.path[0]
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the session, which ends this
    for module in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    inherited = len([each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each])
    paths = sys.path[1 + inherited :]
    gc.collect()
    gc.freeze()
    while True:
        message, streams, *_ = socket.recv_fds(requests, LARGEST, 3)
        if not message:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of forks; no backend runs here
            pid = os.fork()
        if pid == 0:
            requests.close()
            _become(*json.loads(message), streams, paths)
        for stream in streams:
            os.close(stream)
        requests.send(json.dumps(pid).encode())
        requests.send(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(words: list[str], cwd: str, environ: dict[str, str], streams: list[int], paths: list[str]) -> NoReturn:
    """The program: as Python would start and end it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    _set_jax(environ)
    first = {"-c": "", "-m": cwd}.get(words[0], str(Path(words[0]).absolute().parent))
    sys.path[:] = [first, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)), *paths]
    sys.orig_argv[:] = [sys.executable, *words]
    sys.argv[:] = words if words[0] != "-m" else words[1:]
    del sys.modules["warm_python"]
    code = 1
    try:
        _run_main(words)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
    except BaseException as error:
        traceback.print_exception(error.with_traceback(_of_program(error.__traceback__)))
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _set_jax(environ: Mapping[str, str]) -> None:
    """JAX has read its variables when it was imported, and a fork may have others."""
    import jax

    names = {name for name in (SESSION | environ) if SESSION.get(name) != environ.get(name)}
    for name in names & {each.upper() for each in jax.config.values}:
        now, text = jax.config.values[name.lower()], environ.get(name)
        if isinstance(now, bool):
            jax.config.update(name.lower(), (text or "").lower() in ("1", "true", "on", "yes"))
        else:
            jax.config.update(name.lower(), type(now)(text) if now is not None and text is not None else text)


def _of_program(at: types.TracebackType | None) -> types.TracebackType | None:
    """From where the program begins: above it are this file and those that run modules and files."""
    while at is not None and at.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        at = at.tb_next
    return at


def _run_main(words: list[str]) -> None:
    match words:
        case ["-c", code, *_]:
            sys.argv[:] = ["-c", *sys.argv[2:]]
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(main))
        case ["-m", module, *_]:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [file, *_]:
            runpy.run_path(file, run_name="__main__")
