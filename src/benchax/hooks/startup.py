"""The first code of every Python process of a wrapped program: `command.py` copies this file, as `sitecustomize.py`,
into a folder that it puts first on PYTHONPATH.

This module waits for the program to import `jax`, and never imports it. Then it calls the hook that `settings.json`
next to the copy names. The hook returns a function that runs when the process ends. It gets "exit" at `sys.exit`, the
end of the program, an uncaught exception, and Ctrl-C. It gets "SIGTERM" if the program has no handler for that signal.
It does not run at `os._exit`, SIGKILL, a crash, or in a child made by `os.fork`. These leave no report, and
`command.py` says so.

It runs in the program's own Python, so it needs the standard library only, from Python 3.7. It must never raise: the
program must run as it would without benchax.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Callable, Optional  # noqa: UP035  # Python 3.7

HERE = Path(__file__).resolve().parent
PATIENCE_S = 2.0
"""A call of compiled code that SIGTERM meets may end within this time; `command.py` kills after 10 s."""


class Process:
    """One file of the folder above, replaced at each step of this process's life, so that it is always whole."""

    def __init__(self, folder: Path) -> None:
        self.begun = time.perf_counter()
        self.pid = os.getpid()
        self.file = folder / f"{self.pid}-{time.time_ns()}.json"
        self.finish: Optional[Callable[[str], Any]] = None  # noqa: UP045  # Python 3.7
        self.lock = threading.Lock()
        self.write("started")

    def write(self, state: str, **details: Any) -> None:
        argv = list(getattr(sys, "orig_argv", [sys.executable]))
        whole = {"state": state, "pid": self.pid, "python": sys.executable, "argv": argv, **details}
        part = self.file.with_suffix(".part")
        with contextlib.suppress(OSError):  # no room, or the folder is gone with who wrapped us: then no report
            part.write_text(json.dumps(whole, default=str), encoding="utf-8")
            part.replace(self.file)  # at once, as somebody may kill us in the middle of writing

    def hook(self) -> None:
        """jax has just been imported: calls the hook, at once or as soon as it can be imported."""
        try:
            given = json.loads((HERE / "settings.json").read_text(encoding="utf-8"))
            module, _, function = given["hook"].partition(":")
            if unfinished := _unfinished(module.partition(".")[0]):
                Loading.follow(unfinished, self.hook)
                return
            self.finish = getattr(importlib.import_module(module), function)(given["settings"])
        except BaseException as error:  # even SystemExit: whatever goes wrong in ours is not the program's
            self.write("failed", error=_describe(error))
            return
        self.write("hooked")
        atexit.register(self.end, "exit")
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.on_sigterm)
            self.watch_sigterm()

    def watch_sigterm(self) -> None:
        """Ends our part from another thread if the main one never comes back from a call of compiled code."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        # The C handler writes there, whatever the main thread does.
        theirs = signal.set_wakeup_fd(writer)
        if theirs != -1:  # the program has its own, as an event loop does, and only one is possible
            signal.set_wakeup_fd(theirs)
            os.close(reader)
            os.close(writer)
            return
        # Otherwise a forked child would write into this pipe.
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        threading.Thread(target=self.await_sigterm, args=(reader,), daemon=True).start()

    def await_sigterm(self, reader: int) -> None:
        while signal.SIGTERM not in os.read(reader, 1):
            pass
        time.sleep(PATIENCE_S)
        if signal.getsignal(signal.SIGTERM) == self.on_sigterm:  # the program has no handler of its own by now
            self.end("SIGTERM")

    def on_sigterm(self, number: int, frame: object) -> None:
        """Python comes here only between two lines of it; `watch_sigterm` is for one long call of compiled code."""
        self.end("SIGTERM")
        # Then end by the signal, as without benchax, so that a waiting process sees the same exit status.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def end(self, how: str) -> None:
        """Once; not in a child that was forked off after the hook, which would report its parent's numbers."""
        # Acquired without waiting and never released: SIGTERM may arrive in the middle of the `atexit` handler, on the
        # same thread.
        if os.getpid() != self.pid or not self.lock.acquire(blocking=False):
            return
        wall_s = time.perf_counter() - self.begun
        try:
            result = self.finish(how) if self.finish else None
        except BaseException as error:
            self.write("failed", error=_describe(error))
        else:
            self.write("finished", ended=how, wall_s=wall_s, result=result)


class Finder:
    """First in `sys.meta_path`: finds nothing itself, but has `then` called once jax has been executed."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then
        self.is_looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "jax" or self.is_looking:
            return None
        self.is_looking = True
        try:
            spec = importlib.util.find_spec(name)  # asks all finders, so also this one, which then says nothing
        finally:
            self.is_looking = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self.follow(spec.loader)
        return spec

    def follow(self, loader: Any) -> None:
        """On this one loader only, and taken back: `jax.__loader__` is what it would be without us."""
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)  # where jax itself fails, the next import comes by here again
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then()

        with contextlib.suppress(AttributeError):  # a loader that takes none: then jax counts as never imported
            loader.exec_module = exec_module


class Loading(ModuleSpec):
    """The spec of a module that is being loaded: calls `then` as soon as it is, or has failed."""

    @classmethod
    def follow(cls, spec: ModuleSpec, then: Callable[[], None]) -> None:
        spec.__class__ = cls
        spec.then = then  # pyright: ignore[reportAttributeAccessIssue]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_initializing" and not value:
            self.__class__ = ModuleSpec  # pyright: ignore[reportAttributeAccessIssue]
            self.__dict__.pop("then")()


def _unfinished(package: str) -> Optional[ModuleSpec]:  # noqa: UP045  # Python 3.7
    """The outermost module of a package that is half loaded: it, or what it loads, has imported jax.

    Our hook could not import it. Private: `_initializing` is what Python itself asks (3.7 to 3.14).
    """
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name.partition(".")[0] == package and type(spec) is ModuleSpec and getattr(spec, "_initializing", False):
            return spec
    return None


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def begin() -> None:
    process = Process(HERE.parent / "processes")
    if "jax" in sys.modules:
        process.hook()
    else:
        sys.meta_path.insert(0, Finder(process.hook))  # pyright: ignore[reportArgumentType]


def step_aside() -> None:
    """Leaves the path as it would be without us, and loads the `sitecustomize` that this one hides."""
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # The import system expects a module of this name afterwards.
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


if __name__ == "sitecustomize":
    with contextlib.suppress(Exception):  # no report from this process, which `command.py` says
        begin()
    step_aside()
