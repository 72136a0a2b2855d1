"""The process in which a job runs. It can be killed at any time.

It reads one job after the other from its connection, runs it, and answers. Output of the user's code goes to the output
pipe and can never be taken for an answer. The program handles Ctrl-C and ends this process: two tracebacks would say
the same.

Before each job, the worker takes over the shared state of the program that sent the job.

After each job it notes which modules came with it, and before the next one looks whether their files have changed.
Otherwise it would measure old code: a user who edits a file and measures again expects the new code.

Before its first job it can warm up: the first trace, lowering, compilation and run in a process take 50 to 200 ms more
than the next ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import itertools
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, perf_counter, process_time, sleep
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from benchax import subprocesses
from benchax.environment import FLAG_PREFIXES, FLAGS, count_cores
from benchax.json_values import encode_value
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import apply_settings
from benchax.model import Failure
from benchax.subprocesses import children, descendants
from benchax.workers import pickling
from benchax.workers.channel import Channel, Closed, Message, pack, take_over_stdin, wait_readable
from benchax.workers.task import Say, hint_of

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from benchax.workers import worker; "
    "worker.begin(*map(int, sys.argv[2:]))"
)

WARM_UP_S = 120.0
"""More than this warming up does not take, on the busiest machine."""
_COLLECT_EVERY = 16
_COLLECT_FROM_BYTES = 2**29


def begin(connection: int, output: int) -> NoReturn:
    """Makes this process a worker. Never returns, whatever happens: above it in a fork is the zygote's own loop."""
    try:
        _detach(connection, output)
        serve(Channel(socket.socket(fileno=3)))
    except BaseException:
        traceback.print_exc()
        _flush()
    finally:
        os._exit(1)


def _detach(connection: int, output: int) -> None:
    """Own session, own output, no descriptor but its own, first to go when memory runs out."""
    os.setsid()
    subprocesses.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The keeper has 1 and 2, so neither of these has such a number.
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(connection, 3, inheritable=False)
    os.closerange(4, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**16))
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable(2)  # what a crash says about itself is the best that its row can say
    faulthandler.register(signal.SIGUSR1, 2)  # where it is stuck, asked before it is killed
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    random.seed()
    np.random.seed()  # forks would all draw the same otherwise
    # Existing objects share memory with the zygote. A garbage collection would write to them, and so copy them.
    gc.freeze()


def serve(channel: Channel) -> None:
    imported, ended = ImportedModules(), (perf_counter(), process_time())
    for number in itertools.count(1):
        wait_readable([channel], None)
        # Check before reading the job: reading arrays of 76 MiB takes long enough to look like leftover work.
        why_busy = find_computation(*ended)
        try:
            message = channel.receive()
        except Closed:
            return
        if message is None:
            return
        state = message.document["state"]
        job = Running(channel, message.document["job"], os.getpid(), imported)
        if state and (why := imported.find_changed() or why_busy):
            channel.send({"job": job.number, "stale": why})
            return
        if state and number == 1:  # not at the start, since the variables of the program come with a job
            # The zygote must have no threads, and so NumPy and SciPy are loaded with one. jnp.linalg on CPU calls them.
            threadpool_limits(_usual_threads(state["environ"]), user_api="blas")
        job.run(message)
        # They can hold large values, which would stay in memory until the next job.
        del message, job
        if state:
            _collect(number)
        ended = perf_counter(), process_time()


def _usual_threads(variables: Mapping[str, str]) -> int:
    """Says how many threads OpenBLAS takes in a process with these environment variables."""
    for name in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"):
        with contextlib.suppress(ValueError, KeyError):
            if (count := int(variables[name])) > 0:
                return count
    return count_cores()


def find_computation(since: float, used: float) -> str:
    """Why this process was not idle between two jobs: a computation would take the processor from the next one. Empty
    if it was, or over a moment too short to tell.

    Args:
        since, used: `perf_counter` and `process_time` at the end of the last job.
    """
    idle_s = perf_counter() - since
    is_busy = idle_s > 0.02 and process_time() - used > 0.3 * idle_s
    return "a computation that an earlier job left" if is_busy else ""


def _collect(number: int) -> None:
    """Frees what only cycles hold: always if it is much, else now and then, since it takes some milliseconds."""
    if number % _COLLECT_EVERY == 0 or psutil.Process().memory_info().rss > _COLLECT_FROM_BYTES:
        gc.collect()


class Running:
    """A job, while it runs."""

    def __init__(self, channel: Channel, number: int, pid: int, imported: ImportedModules) -> None:
        self.channel = channel
        self.number = number
        self.pid = pid
        self.imported = imported
        self.stage = "start"

    def say(self, stage: str, **facts: Any) -> None:
        """Announces a stage; `facts` are JSON. {"again": True} begins its budget again."""
        self.stage = stage
        self._send({"say": {"stage": stage, **facts}})

    def _send(self, document: dict[str, Any], sections: Sequence[Any] = ()) -> None:
        if os.getpid() != self.pid:  # a process that the user's code forked has nothing to say here
            os._exit(0)
        self.channel.send({"job": self.number, **document}, sections)

    def run(self, message: Message) -> None:
        self._send({"begun": True})  # from here on a death is the job's doing
        threads = set(threading.enumerate())
        before = _limit_memory(message.document["memory_limit_bytes"])
        try:
            document, sections = self._outcome(message)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        _flush()
        # After the job, and untimed: checking takes up to 50 ms if something is still working.
        document["doubt"] = document.get("doubt") or (_leftovers(threads) if message.document["state"] else "")
        self.imported.note_new()  # before the answer: whoever has it may edit a file at once
        self._send(document, sections)

    def _outcome(self, message: Message) -> tuple[dict[str, Any], Sequence[Any]]:
        try:
            if state := message.document["state"]:
                restore_state(state)
            module, _, name = message.document["task"].partition(":")
            task = getattr(importlib.import_module(module), name)
            argument = pickling.loads(message.sections[0], message.sections[1:])
            value = task(argument, self.say)
            del argument
            return {}, pack(value, hint_of(task))
        except Closed:
            os._exit(0)
        except BaseException as error:
            failure = diagnose(error, self.stage)
            doubt = "memory ran out" if failure.kind == "out_of_memory" else ""
            return {"failure": encode_value(failure, Failure), "doubt": doubt}, ()


def _limit_memory(beyond: int | None) -> tuple[int, int]:
    """Limits the address space to what is mapped already and `beyond`; returns the limits that held before."""
    # Linux ignores RLIMIT_RSS, which would be the right limit. Beyond this one, XLA gets no memory, reports
    # RESOURCE_EXHAUSTED, and the worker survives.
    before = resource.getrlimit(resource.RLIMIT_AS)
    if beyond is not None:
        most = psutil.Process().memory_info().vms + beyond
        hard = before[1]
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    return before


def _leftovers(threads_before: set[threading.Thread]) -> str:
    """Names threads and processes that the job left running, since they would disturb the next job. Else empty."""
    # XLA threads that called into Python once look like this. They wait for work and disturb nothing.
    own = [t for t in threading.enumerate() if t not in threads_before and type(t).__name__ != "_DummyThread"]
    if own:
        return f"{len(own)} threads were left"
    if children(os.getpid()):
        return "child processes were left"
    return "a computation was left" if _is_computing(looks=25) else ""


def _is_computing(looks: int) -> bool:
    """A function that returns before its computation is over leaves threads of XLA at work."""
    idle = 0
    for look in range(looks):
        idle += not subprocesses.running_threads()
        if idle > look / 5:  # the work goes from one thread to the other, and now and then a look falls between
            return False
        # Threads that have just finished look for more work, or wait for a processor before they sleep.
        sleep(0.002)
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user's code may have closed or replaced them
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # what C has printed


class ImportedModules:
    """Those that were imported since this was made, with the stamps of their files."""

    def __init__(self) -> None:
        self.known = set(sys.modules)
        self.stamps: dict[str, tuple[int, int] | None] = {}

    def note_new(self) -> None:
        """Notes the files of the modules that came since the last look."""
        new = [name for name in list(sys.modules) if name not in self.known]
        self.known.update(new)
        paths = [path for name in new if (path := getattr(sys.modules.get(name), "__file__", None))]
        self.stamps |= {path: _stamp(path) for path in paths if path not in self.stamps}

    def find_changed(self) -> str:
        """The file of a module that is not what it was when it was noted; empty if all are."""
        return next((path for path, stamp in self.stamps.items() if _stamp(path) != stamp), "")


def _stamp(path: str) -> tuple[int, int] | None:
    """The size too: times of files move in steps of some milliseconds."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def warm_up(modules: tuple[str, ...], say: Say) -> None:
    """Does every kind of thing that a job does, with something tiny; also imports `modules`, whose tasks earlier jobs
    have called."""
    say("warm-up")
    for module in modules:
        with contextlib.suppress(Exception):  # the job that needs it says so
            importlib.import_module(module)
    x = np.ones(4, np.float32)  # random numbers of JAX would compile three more programs
    # One program for each way to call: what is compiled ahead, and a jitted function.
    compiled = jax.jit(lambda x: jnp.sin(x) @ x + 1).trace(x).lower().compile()
    jax.block_until_ready(compiled(x))
    jax.block_until_ready(jax.jit(lambda x: x * 2)(x))


# ---- zygote ----------------------------------------------------------------------------------------------------------
#
# The keeper of the workers: a process that has imported JAX, started no backend, and forks one worker after the other.
#
# A fork of it is a process in which everything is imported (10 ms instead of 1 s) and nothing of JAX has run yet. It is
# the parent of all workers, adopts the processes that they leave behind, and ends them all. It does so on request, and
# when the program that started it is gone, for whatever reason. So no process of benchax outlives the program that used
# it.
#
# If forking is not possible or not safe (no `fork`, or importing left threads), workers are started as new processes.
# The rest is the same.
#
# It talks to `ZygoteClient` over standard input, which is a socket:
#
#     {"start": 0, "number": n} with two descriptors (connection, output)   ⇒   {"number": n, "pid": pid}
#     {"kill": pid, "number": n}, and all that descends from it              ⇒   {"number": n}
#     {"ask": pid}: it writes where it is to its output
#                                                                  unasked   ⇒   {"ended": pid, "status": exit code or
#                                                                                 minus signal}
#
# Status and orphans are reported in order: after the reply to {"kill"}, nothing of that worker is left.


PATIENCE_S = 10.0
"""A killed process that the kernel holds on to (a dead network drive) is given up after this long."""


def keep(preload: Sequence[str]) -> NoReturn:
    """Makes this process the zygote, which imports these modules."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then ends what it must
    for module in preload:
        with contextlib.suppress(Exception):  # the job that needs it says so
            importlib.import_module(module)
    zygote = Zygote(take_over_stdin(), _can_fork())
    try:
        zygote.serve()
    finally:
        zygote.workers.clear()
        zygote.kill(0)
        os._exit(0)


def _can_fork() -> bool:
    """Threads do not survive a fork, but the locks that they hold do."""
    # Forks of a process whose backend had started hung each time (jax 0.10.2, 13 to 16 threads).
    if sys.platform != "linux" or psutil.Process().num_threads() > 1:
        return False
    gc.collect()
    gc.freeze()  # the workers' collector shall not touch, and thereby copy, what they share
    return True


class Zygote:
    def __init__(self, control: Channel, can_fork: bool) -> None:
        self.control, self.can_fork = control, can_fork
        self.workers: set[int] = set()
        subprocesses.adopt_orphans()
        self.wake, signalling = os.pipe()
        for fd in (self.wake, signalling):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(signalling, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a signal without a handler would write nothing there

    def serve(self) -> None:
        """Until whoever started this process is gone."""
        parent = _handle_of(os.getppid())
        sources = [self.control, self.wake, *([] if parent is None else [parent])]
        # A process that it forked may keep its end of the connection open, so wait for its own end.
        while parent not in (ready := wait_readable(sources, None)):
            if self.wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 4096)
                self.reap()
            try:
                if self.control in ready:
                    self.control.take()
                while (message := self.control.pop()) is not None:
                    self.obey(message)
            except Closed:
                return

    def obey(self, message: Message) -> None:
        match message.document:
            case {"start": _, "number": number}:
                self.control.send({"number": number, "pid": self.start(message.fds)})
            case {"kill": pid, "number": number}:
                self.kill(pid)
                self.control.send({"number": number})
            case {"ask": pid} if pid in self.workers:
                os.kill(pid, signal.SIGUSR1)

    def start(self, fds: Sequence[int]) -> int:
        try:
            pid = self._fork(fds) if self.can_fork else self._spawn(fds)
        finally:
            for fd in fds:
                os.close(fd)
        self.workers.add(pid)
        return pid

    def _fork(self, fds: Sequence[int]) -> int:
        try:
            with warnings.catch_warnings():
                # JAX warns about forks, because a program that has used JAX has threads. This one has none.
                warnings.simplefilter("ignore", RuntimeWarning)
                pid = os.fork()
        except OSError:  # too many processes, or no memory to copy the page tables
            self.can_fork = False
            return self._spawn(fds)
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            begin(*fds)
        return pid

    def _spawn(self, fds: Sequence[int]) -> int:
        python = sys.orig_argv[: sys.orig_argv.index("-c")]
        command = [*python, "-c", BOOT, json.dumps(import_paths()), *map(str, fds)]
        child = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL)
        child.returncode = 0  # `reap` waits for it, and Popen must not
        return child.pid

    def kill(self, pid: int) -> None:
        """Ends a worker, what descends from it, and what others have left behind."""
        until = monotonic() + PATIENCE_S
        # Repeat: processes that a killed process started become children of this one, and visible, only after it is
        # gone.
        while (victims := self._victims(pid)) and monotonic() < until:
            subprocesses.kill(victims)
            self.reap()
            sleep(0.0003)

    def _victims(self, pid: int) -> list[int]:
        roots = [child for child in children(os.getpid()) if child == pid or child not in self.workers]
        return [each for root in roots for each in (*descendants(root), root)]

    def reap(self) -> None:
        """Takes note of all children that have ended, workers and adopted ones."""
        with contextlib.suppress(ChildProcessError):  # none is left
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in self.workers:
                    self.workers.discard(pid)
                    with contextlib.suppress(Closed):
                        self.control.send({"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _handle_of(pid: int) -> int | None:
    """Becomes readable when that process has ended."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:  # an old kernel, or gone already: then the connection has an end
        return None


ZYGOTE_BOOT = """
import json, os, site, sys
boot = json.loads(sys.argv[1])
if boot["core"] is not None:
    os.sched_setaffinity(0, [boot["core"]])
if not boot["sites"]:
    sys.path[:] = boot["paths"]
else:
    for path in boot["paths"]:
        if path in boot["sites"]:
            site.addsitedir(path)
        elif path not in sys.path:
            sys.path.append(path)
from benchax.workers import worker
worker.keep(boot["preload"])
"""
"""The core first: whatever is imported counts the cores to make its threads. `addsitedir` also finds what is installed
editable."""


# ---- the state of the program that a job needs -----------------------------------------------------------------------
#
# The state that a program shares with everything that it calls, and that its workers need, too.
#
# Environment variables, working folder, import paths, command line, settings of JAX: they are gathered here and sent
# with each job. The worker takes them over before the job begins. So a job has the same state as in the program, and
# changes by the job before it are undone.
#
# A pool can give its workers additional variables and settings (`Pool(environ=, jax_config=)`). This process keeps its
# own. Otherwise another thread, or a compilation at the same time, would see values for the workers.
#
# Workers of another version (`Pool(start_keeper=)`) share no state. All their jobs are requests to one process, so
# nothing looks at what a job has left.


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
        "paths": import_paths(),
        "folder": folder,
        "arguments": list(sys.argv),
        "settings": {**settings, **jax_config},
    }


def import_paths() -> list[str]:
    return [path for path in sys.path if isinstance(path, str)]


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
