"""Runs a command of the user unchanged, with a hook in each of its Python processes that imports jax.

The program keeps its standard streams, its folder, its arguments and its exit code. The wrapper passes on the signals
that it receives, and waits for the program's end. Only PYTHONPATH differs: its first entry is a private folder whose
`sitecustomize.py` is `startup.py`. This reaches `python x.py`, `python -m`, console scripts and launchers such as `uv
run`, and the Python processes that they start.

`Ended.remarks` lists the unreachable processes: Pythons that ignore the environment (-E, -I) or the site (-S), Pythons
without benchax, processes that were killed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from benchax import subprocesses
from benchax.errors import UsageError
from benchax.hooks import startup

GRACE_S = 10.0
"""The time that a program gets between SIGTERM and SIGKILL once its time is up, and between a Ctrl-C and one that kills
it."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
OF_TERMINALS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""A terminal sends these to the program as well as to us."""
ENDING = (signal.SIGINT, signal.SIGTERM)
"""The second one of these signals kills: XLA waits at its end for a computation that might never end, even without
benchax."""
TICK_S = 1.0
DEAF = re.compile(r"-[bBdEiIOPqsSuvVx]*[EIS][a-zA-Z]*")
"""Options of Python that keep `sitecustomize` or PYTHONPATH away."""


@dataclass(frozen=True)
class Report:
    """The report of one process that imported jax."""

    pid: int
    argv: tuple[str, ...]
    """As the process was started, with its Python."""
    ended: str
    """exit or SIGTERM."""
    wall_s: float
    """From the start of Python to its end, without the first milliseconds of the interpreter."""
    result: Any
    """The result of the hook's callable, as JSON keeps it."""


@dataclass(frozen=True)
class EndedCommand:
    """How a command ended, and what its processes left."""

    exit_code: int
    """As shells say it: 128 + n after signal n."""
    signal: int | None
    is_timed_out: bool
    elapsed_s: float
    reports: tuple[Report, ...]
    """In the order in which the processes began."""
    remarks: tuple[str, ...]
    """Sentences: which processes left no report, and why. Without a report there is always one."""


def run(
    command: Sequence[str],
    hook: str,
    settings: Mapping[str, Any],
    *,
    limit_s: float | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    on_wait: Callable[[float], None] | None = None,
) -> EndedCommand:
    """Runs `command` to its end.

    Args:
        hook: "package.module:function", called with `settings` in each Python process of the program as soon as that
            has imported jax. Returns what is called at the end with "exit" or "SIGTERM"; its result, a document of
            JSON, is the report.
        settings: what JSON can hold.
        limit_s: after this time the program gets SIGTERM, and 10 s later it and its children get SIGKILL.
        env: the environment of the program; ours without it.
        on_wait: told once in a second how long the program runs.

    Raises:
        UsageError: there is no such program, or it cannot be executed.
    """
    with tempfile.TemporaryDirectory(prefix="benchax-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        found_by = _furnish(folder, hook, settings, os.environ if env is None else env)
        begun = time.perf_counter()
        with _Forwarding() as forwarding:  # first, so that a signal that comes meanwhile is not lost
            program = _start(command, cwd, found_by)
            forwarding.to(program)
            is_timed_out = _wait(program, limit_s, on_wait)
        elapsed_s = time.perf_counter() - begun
        processes = _processes(folder)
    number = -program.returncode if program.returncode < 0 else None
    return EndedCommand(
        exit_code=program.returncode if number is None else 128 + number,
        signal=number,
        is_timed_out=is_timed_out,
        elapsed_s=elapsed_s,
        reports=tuple(
            Report(found["pid"], tuple(found["argv"]), found["ended"], found["wall_s"], found["result"])
            for found in processes
            if found["state"] == "finished"
        ),
        remarks=tuple(_remarks(command, processes)),
    )


def _furnish(folder: Path, hook: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Fills the folder; the environment of a program that finds our hook there."""
    (folder / "processes").mkdir()
    path = folder / "path"
    path.mkdir()
    # A copy, because the file must have this name, and no other file of benchax may be next to it, where the program
    # could import it.
    shutil.copyfile(startup.__file__, path / "sitecustomize.py")
    (path / "settings.json").write_text(json.dumps({"hook": hook, "settings": dict(settings)}), encoding="utf-8")
    return {**env, "PYTHONPATH": os.pathsep.join([str(path), *filter(None, [env.get("PYTHONPATH")])])}


def _start(command: Sequence[str], cwd: str | Path | None, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    if not command:
        raise UsageError("there is no command to run", "one, such as: python train.py")
    try:
        return subprocess.Popen(command, cwd=cwd, env=env)
    except OSError as error:
        is_python = command[0].endswith(".py")
        raise UsageError(
            f"cannot run {command[0]!r}: {error.strerror or error}",
            f"a program, with its arguments, such as: python {command[0] if is_python else 'train.py'}",
        ) from error
    except ValueError as error:  # a NUL in a word
        raise UsageError(f"cannot run {command[0]!r}: {error}", "words without NUL characters") from error


def _wait(program: subprocess.Popen[bytes], limit_s: float | None, on_wait: Callable[[float], None] | None) -> bool:
    """Waits for the end; True where the limit made it end."""
    begun = time.monotonic()
    while True:
        left_s = [] if limit_s is None else [max(0.0, begun + limit_s - time.monotonic())]
        try:
            program.wait(min([*left_s, *([TICK_S] if on_wait else [])], default=None))
            return False
        except subprocess.TimeoutExpired:
            elapsed_s = time.monotonic() - begun
        if limit_s is not None and elapsed_s >= limit_s:
            # List the children first: after the program has ended, they are no longer its children.
            children = _family(program)
            program.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(GRACE_S)
            subprocesses.kill_tree(program.pid)
            for child in children:
                with contextlib.suppress(psutil.Error):  # it has ended by itself
                    child.kill()
            program.wait()
            return True
        if on_wait is not None:
            on_wait(elapsed_s)


def _family(program: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):  # it has ended
        return psutil.Process(program.pid).children(recursive=True)
    return []


# ---- signals ----------------------------------------------------------------------------------------------------


class _Forwarding:
    """Passes signals on to the program while it runs. Outside the main thread, Python does not allow this."""

    def __init__(self) -> None:
        self.program: subprocess.Popen[bytes] | None = None
        self.early: list[int] = []
        self.before: dict[int, Any] = {}
        self.first_s: float | None = None
        """When the program was first told to end."""

    def __enter__(self) -> _Forwarding:
        if threading.current_thread() is threading.main_thread():
            for number in FORWARDED:
                if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by us is ignored by the program: nohup
                    self.before[number] = signal.signal(number, self.forward)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def to(self, program: subprocess.Popen[bytes]) -> None:
        self.program = program
        for number in self.early:
            program.send_signal(number)

    def forward(self, number: int, frame: FrameType | None) -> None:
        is_first = self.first_s is None
        if number in ENDING and is_first:
            self.first_s = time.monotonic()
        if self.program is None:
            self.early.append(number)
        elif number in ENDING and not is_first and time.monotonic() - (self.first_s or 0.0) >= GRACE_S:
            subprocesses.kill_tree(self.program.pid)
        elif not (number in OF_TERMINALS and _is_in_foreground()):
            self.program.send_signal(number)  # nothing happens if it has ended


def _is_in_foreground() -> bool:
    """Are we the job that the terminal sends Ctrl-C to? Then the program has got it already, and once is enough."""
    with contextlib.suppress(OSError), Path(os.ctermid()).open("rb", buffering=0) as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


# ---- what the processes left ------------------------------------------------------------------------------------


def _processes(folder: Path) -> list[dict[str, Any]]:
    """The documents of `startup.py`, first process first."""
    # The second part of the name is the start time of the process, because the system reuses process numbers.
    files = sorted((folder / "processes").glob("*.json"), key=lambda file: int(file.stem.split("-")[1]))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _remarks(command: Sequence[str], processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not processes:
        yield f"no Python process of {shlex.join(command)} loaded benchax's hook, because {_deaf(command)}"
    elif all(found["state"] == "started" for found in processes):
        count = len(processes) - 1
        others = {0: "", 1: " or its other Python process"}.get(count, f" or its {count} other Python processes")
        yield f"jax was never imported by {shlex.join(processes[0]['argv'])}{others}"
    yield from (_without_report(found) for found in processes if found["state"] in ("failed", "hooked"))


def _deaf(command: Sequence[str]) -> str:
    names = [Path(word).name for word in command]
    begin = next((place for place, name in enumerate(names) if name.startswith(("python", "pypy"))), len(names))
    for option in itertools.takewhile(lambda word: word.startswith("-"), command[begin + 1 :]):
        if DEAF.fullmatch(option):
            return f"{option} tells Python to ignore PYTHONPATH or its site module, which the hook needs"
    return "it started no Python, or one that has another PYTHONPATH, ignores it (-E, -I, -S), or is older than 3.7"


def _without_report(found: Mapping[str, Any]) -> str:
    name, error = f"process {found['pid']} ({shlex.join(found['argv'])})", found.get("error", "")
    if error.startswith("ModuleNotFoundError: No module named 'benchax"):
        return f"{name} was not watched: benchax is not installed in its Python, {found['python']}"
    if error:
        return f"{name} left no report: benchax's hook in it failed with {error}"
    if psutil.pid_exists(found["pid"]):
        return f"{name} left no report: it is still running"
    return f"{name} left no report: it ended by SIGKILL, a crash, os._exit or os.exec, or there was no room to save one"
