"""One job on one worker: sent, watched against its limits, and brought to an end, whatever the worker does.

It waits for three sources at once: the worker's connection, its output, and the zygote. The zygote reports the worker's
end even if a process that the worker forked keeps the connection open. After each arrival, the limits are checked
before the next wait. So no worker gains time by sending messages.

The output of Python's fault handler shows where a process was when it crashed or was stopped.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import signal
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from benchax import subprocesses
from benchax.environment import clean_environ
from benchax.errors import BenchaxError, FormatError
from benchax.json_values import decode_value
from benchax.model import Failure
from benchax.source_files import is_library, is_machinery
from benchax.units import plural, seconds, size
from benchax.workers.channel import Bytes, Channel, Closed, Garbled, Message, unpack, wait_readable
from benchax.workers.task import UNLIMITED, CallLimits, Task, hint_of
from benchax.workers.worker import ZYGOTE_BOOT, import_paths

SEND_S = 60.0
"""For a worker to take a job, which is some KiB and a descriptor: more only if it is stuck."""
ASK_S = 0.02
"""For a worker to write where it is."""
LAST_BREATH_S = 1.0
"""A process that has closed its connection is about to end, or did it on purpose."""

# Matches lines of frames, except for "  Garbage-collecting", which may precede the first, and "  ..." after the last.
_BLOCK = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*\n((?:  \S.*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_OURS = str(Path(__file__).parent)
_MOST_FRAMES = 40


Listener = Callable[[dict[str, Any]], None]


def ignore(message: dict[str, Any]) -> None:
    """Ignores the message."""


@dataclass(frozen=True)
class Job:
    """A call of a task, as a pool sends it."""

    task: Task[Any, Any]
    argument: Any
    limits: CallLimits = UNLIMITED
    shows_output: bool = True


@dataclass(frozen=True)
class Conclusion:
    """How a job ended on a worker."""

    outcome: Any = None
    """The return value of the task, or a `Failure`; None for a stale worker."""
    doubt: str = ""
    """Why the worker must not be used again; empty if it may."""
    is_stale: bool = False
    """The worker has not begun, and another one can: it is gone, knows old code, or is busy with what a job left."""


class Budget:
    """When the present stage, and the job, must be over."""

    def __init__(self, limits: CallLimits) -> None:
        self.limits = limits
        self.begun = perf_counter()
        self.enter("start")

    def enter(self, stage: str) -> None:
        self.stage = stage
        named = (
            (stage, perf_counter(), self.limits.stage_s(stage)),
            ("the job as a whole", self.begun, self.limits.total_s),
        )
        self.ends = [(name, begun + limit, limit) for name, begun, limit in named if limit is not None]
        """The stage and the job, with the time of their end and their limit; without those that have no limit."""

    def rest(self) -> float | None:
        return min(end for _, end, _ in self.ends) - perf_counter() if self.ends else None

    def failure(self) -> Failure | None:
        """Returns the failure to report if a limit was passed."""
        now = perf_counter()
        for name, end, limit in self.ends:
            if now >= end:
                text = f"{name} took longer than {seconds(limit)}; the process was killed"
                return Failure("timeout", self.stage, text, "Allow more time, or give it less work.")
        return None


class Conversation:
    """One job on one worker. With a doubt in the conclusion, the worker has been or must be killed."""

    def __init__(
        self,
        keeper: ZygoteClient,
        worker: Worker,
        job: Job,
        sections: Sequence[Bytes],
        state: dict[str, Any] | None,
        on_message: Listener = ignore,
    ) -> None:
        """Sends the job, without waiting for what comes of it.

        Args:
            sections: the pickled argument.
            state: what is to hold in the worker (see `capture_state`); None: what holds there.
        """
        self.keeper, self.worker, self.job, self.on_message = keeper, worker, job, on_message
        worker.jobs += 1
        self.number = worker.jobs
        self.oom_kills = subprocesses.oom_kills()
        self.early: Conclusion | None = None
        self.has_begun = False
        worker.output.begin(job.shows_output)
        name = f"{job.task.__module__}:{job.task.__qualname__}"
        limit = job.limits.memory_bytes
        document = {"job": self.number, "task": name, "memory_limit_bytes": limit, "state": state}
        self.budget = Budget(job.limits)
        try:
            worker.channel.send(document, sections, timeout_s=SEND_S)
        except TimeoutError:
            self.early = self._give_up("crashed", "the worker process did not take the job; it was killed")
        except MemoryError as error:
            self.early = Conclusion(Failure("out_of_memory", "start", str(error), _SMALLER))
        except Closed:
            self.early = self._conclude_death()

    def finish(self) -> Conclusion:
        """Listens until the job is over."""
        conclusion = self.early or self._listen()
        self.worker.output.drain()
        return conclusion

    def _listen(self) -> Conclusion:
        worker, control = self.worker, self.keeper.channel
        while True:
            # Check this before the limits, because an answer that has arrived counts.
            if (conclusion := self._read_messages()) is not None:
                return conclusion
            if (failure := self.budget.failure()) is not None:
                # Asks where it is, which takes milliseconds, and ends it.
                stack = frames(self.keeper.request_stack(worker, ASK_S))
                return self._give_up(failure.kind, failure.message, failure.advice, stack)
            ready = wait_readable([worker.channel, control, *worker.output.sources], self.budget.rest())
            if worker.output in ready:
                worker.output.pump()
            try:
                if control in ready:
                    self.keeper.read_events()
                if worker.channel in ready:
                    worker.channel.take()
            except Closed:
                return self._conclude_death()
            if worker.status is not None:
                return self._conclude_death()

    def _read_messages(self) -> Conclusion | None:
        """Works through the messages that are there; the conclusion, if one of them is the answer."""
        while True:
            try:
                message = self.worker.channel.pop()
                if message is None:
                    return None
                found = self._read(message)
            except (Garbled, FormatError, ValueError, LookupError, TypeError):
                text = f"the function wrote to the connection of its process in {self.budget.stage}"
                return self._give_up("crashed", text)
            except MemoryError as error:
                return self._give_up("out_of_memory", str(error), _SMALLER)
            if isinstance(found, Conclusion):
                return found
            if found is not None:  # outside of `try`: what a listener raises is not the worker's doing
                self.on_message(found)

    def _read(self, message: Message) -> Conclusion | dict[str, Any] | None:
        """The answer, or an announcement, already counted; None for anything else, such as words of a process that an
        earlier job forked."""
        document = message.document
        if document["job"] != self.number:
            return None
        self.has_begun = True
        match document:
            case {"begun": _}:
                return None
            case {"say": said}:
                if said["stage"] != self.budget.stage or said.get("again"):
                    self.budget.enter(said["stage"])
                return said
            case {"stale": why}:
                return Conclusion(None, why, is_stale=True)
            case {"failure": failure, "doubt": doubt}:
                return Conclusion(decode_value(failure, Failure), doubt)
        return Conclusion(unpack(message.sections, hint_of(self.job.task)), document["doubt"])

    def _conclude_death(self) -> Conclusion:
        """The connection has ended, or the process."""
        with contextlib.suppress(Closed, Garbled):  # its last message may be an answer
            while True:
                if (conclusion := self._read_messages()) is not None:
                    return replace(conclusion, doubt=conclusion.doubt or "it has ended")
                if not wait_readable([self.worker.channel], 0.0):
                    break
                self.worker.channel.take()
        self.keeper.await_end(self.worker, LAST_BREATH_S)
        self.worker.output.drain()
        if not self.has_begun:
            return Conclusion(None, "a worker that ended while it waited", is_stale=True)
        return self._give_up(*self._cause(self.worker.status))

    def _cause(self, status: int | None) -> tuple[str, str, str]:
        """kind, message, advice."""
        stage, words = self.budget.stage, self.worker.output.text()
        if self.keeper.process.poll() is not None:
            return "crashed", f"the process that keeps the workers was killed in {stage}", ""
        if status is None:
            return "crashed", f"the function closed the connection of its process in {stage}; it was killed", ""
        if status == -signal.SIGKILL and subprocesses.oom_kills() > self.oom_kills:
            return "out_of_memory", f"the kernel ran out of memory in {stage}, and killed the process", _SMALLER
        if self.job.limits.memory_bytes is not None and _OUT_OF_MEMORY.search(words):
            limit = size(self.job.limits.memory_bytes)
            return "out_of_memory", f"the process ended in {stage}, beyond its {limit} of memory", _SMALLER
        how = describe_end(status)
        if status < 0:
            advice = "Perhaps the kernel ran out of memory: see dmesg." if status == -signal.SIGKILL else ""
            return "crashed", f"the process was killed by {how} in {stage}", advice
        return "crashed", f"the process ended with {how} in {stage}, without an answer", ""

    def _give_up(self, kind: Any, message: str, advice: str = "", stack: list[str] | None = None) -> Conclusion:
        """Kills the worker: what it does now is of no use to anybody."""
        stage, output = self.budget.stage, self.worker.output
        output.drain()
        stack = frames(output.text()) if stack is None else stack
        where = user_line(stack)
        message += f" (at {where})" if where else ""
        failure = Failure(kind, stage, message, advice, _story(stack, "" if kind == "timeout" else output.text()))
        self.keeper.kill(self.worker)
        return Conclusion(failure, message)


def describe_end(status: int) -> str:
    """SIGKILL, or exit code 3, of the status of a process."""
    names = {-each.value: each.name for each in signal.Signals}
    return f"exit code {status}" if status >= 0 else names.get(status, f"signal {-status}")


def _story(stack: list[str], words: str) -> str:
    """Where it was and what it printed last, as a row keeps it."""
    words = words.partition("Fatal Python error:")[0].strip()[-LAST_WORDS:]
    parts = [_place(stack) if stack else "", f"Its last output:\n{words}" if words else ""]
    return "\n\n".join(part for part in parts if part)


def _place(stack: list[str]) -> str:
    """The frames of the user's own code and of packages that it uses, and how many others there were."""
    own = [line for line in stack if (match := _FRAME.match(line)) and not is_machinery(match["file"])]
    others = plural(len(stack) - len(own), "frame") + " of JAX, benchax and Python"
    if not own:
        return f"No line of your own was running, as in a compiled loop. The innermost of {others}:\n  {stack[0]}"
    joined = "\n  ".join(own[:_MOST_FRAMES])
    left_out = f"\n({others} left out)" if len(stack) > len(own) else ""
    return f"Where it was, innermost first:\n  {joined}{left_out}"


_SMALLER = "Measure a smaller case, or allow more memory."


_OUT_OF_MEMORY = re.compile("bad_alloc|[Oo]ut of memory|Cannot allocate memory")


def frames(text: str) -> list[str]:
    """The stack of the thread that ran the job, innermost first, without the frames below the job. Empty if there is no
    such stack."""
    for block in _BLOCK.finditer(text):
        lines = block[1].splitlines()
        if (own := next((i for i, line in enumerate(lines) if _OURS in line), None)) is not None:
            return [line.strip() for line in lines[:own]]
    return []


def user_line(stack: list[str]) -> str:
    """file:line of the innermost frame of the user's own code; empty if there is no such frame."""
    found = (match for line in stack if (match := _FRAME.match(line)))
    return next((f"{match['file']}:{match['line']}" for match in found if not is_library(match["file"])), "")


# ---- the zygote and the workers, from this side ----------------------------------------------------------------------
#
# This program's handle on its zygote, and through it on the workers: started, read, told of their end, killed.
#
# The zygote does the killing, since it alone knows which processes are still there and which number is free for another
# one. All of it ends with `stop`, and also when this program ends in any other way (see `worker.py`).
#
# Output of a worker goes to this program's standard error, up to a limit, and is never kept as a whole. A function that
# prints without end cannot fill memory or disk, and cannot delay the waiting program.


PASSED_ON_BYTES = 64 * 2**10
"""Per job."""
TAIL_BYTES = 16 * 2**10
"""Kept to say what a crash was: the fault handler writes up to 100 frames per thread, the innermost ones first."""
LAST_WORDS = 2 * 2**10
_AT_A_TIME = 2**16
_MOST_READS = 16


class Output:
    """The reading end of a worker's output pipe."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.pipe = os.fdopen(fd, "rb", buffering=0)
        self.begin(is_passed_on=False)

    def fileno(self) -> int:
        return self.pipe.fileno()

    @property
    def sources(self) -> list[Output]:
        """For `wait_readable`: nothing once the worker has closed it."""
        return [] if self.pipe.closed else [self]

    def begin(self, is_passed_on: bool) -> None:
        """A new job: what was printed since the last one belongs to neither."""
        self.is_passed_on, self.tail = False, b""
        self.drain()
        self.is_passed_on, self.tail, self.left = is_passed_on, b"", PASSED_ON_BYTES
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def pump(self) -> bool:
        """Takes what is there, without waiting. False if there was nothing, or nothing will come any more."""
        data = None if self.pipe.closed else self.pipe.read(_AT_A_TIME)
        if data == b"":  # the worker has closed it: from now on it could always be read, and would be empty
            self.close()
        if not data:
            return False
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        if self.is_passed_on:
            self._pass_on(data)
        return True

    def drain(self) -> None:
        """All that is there, up to 1 MiB: something may go on printing."""
        for _ in range(_MOST_READS):
            if not self.pump():
                return

    def _pass_on(self, data: bytes) -> None:
        text = self.decoder.decode(data[: self.left])
        self.left -= len(data)
        if self.left < 0:
            text += f"\n[benchax: more than {PASSED_ON_BYTES // 2**10} KiB printed; the rest is dropped]\n"
            self.is_passed_on = False
        # A closed or full standard error must not cost a measurement.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def text(self) -> str:
        """The end of the output."""
        return self.tail.decode("utf-8", "replace")

    def close(self) -> None:
        self.pipe.close()


START_S = 120.0
"""Importing JAX from a cold disk on a busy machine takes its time; more than this it does not."""
END_S = 15.0


class CannotStart(BenchaxError):
    """There is no worker process, and why."""


@dataclass(eq=False)
class Worker:
    channel: Channel
    output: Output
    pid: int = 0
    status: int | None = None
    """Once it has ended: its exit code, or minus the signal that killed it."""
    jobs: int = 0

    def close(self) -> None:
        self.channel.close()
        self.output.close()


StartKeeper = Callable[..., subprocess.Popen[Any]]
"""`start_keeper` with some of its arguments; gets the others."""


def start_keeper(
    preload: Sequence[str],
    environ: Mapping[str, str],
    *,
    python: str = "",
    paths: Sequence[str] | None = None,
    core: int | None = None,
    **how: Any,
) -> subprocess.Popen[Any]:
    """Starts a zygote.

    Args:
        preload: it imports these modules before anything else.
        environ: variables that it has on top of those of this process.
        python: another Python. Empty: this one.
        paths: this Python looks for modules in these folders alone, and another one behind its own. Default: the
            import paths of this process.
        core: it runs on this one alone.
        how: for `subprocess.Popen`.
    """
    # Flags of this interpreter that change what code does.
    flags = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    sites = [*site.getsitepackages(), site.getusersitepackages()] if python else []
    boot = {"core": core, "paths": import_paths() if paths is None else paths, "sites": sites, "preload": preload}
    # Without -P the working folder would come first.
    command = [python or sys.executable, *flags, "-P", "-c", ZYGOTE_BOOT, json.dumps(boot)]
    here = clean_environ() if python else os.environ
    # OpenBLAS would start threads, and a process with threads must not fork. Each job brings its own value.
    return subprocess.Popen(command, env={**here, **environ, "OPENBLAS_NUM_THREADS": "1"}, **how)


class ZygoteClient:
    def __init__(self, start_keeper: StartKeeper) -> None:
        """Starts the zygote, and does not wait for it."""
        self.workers: dict[int, Worker] = {}
        self.reply: dict[str, Any] = {}
        self.count = 0
        self.errors = tempfile.TemporaryFile(prefix="benchax-")  # noqa: SIM115 - lives as long as the process
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        with theirs:
            self.process = start_keeper(
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self.errors,
                start_new_session=True,  # not in the terminal's group: Ctrl-C is for this program
            )

    def start(self) -> Worker:
        """A new worker.

        Raises:
            CannotStart: it, or the zygote, did not come to life.
        """
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        worker = Worker(Channel(ours), Output(reading))
        try:
            # Our copies of the worker's ends close here: while one is open, neither ever shows its end.
            with theirs, os.fdopen(writing, "wb"):
                worker.pid = self._request({"start": 0}, (theirs.fileno(), writing), START_S)["pid"]
        except (Closed, Garbled, TimeoutError) as error:
            raise CannotStart(f"no worker process could be started: {self._why()}") from error
        finally:
            if not worker.pid:
                worker.close()
        self.workers[worker.pid] = worker
        return worker

    def request_stack(self, worker: Worker, within_s: float) -> str:
        """Returns the position of `worker` from its fault handler, which is not shown elsewhere; any text if the
        handler writes nothing in time."""
        output, until = worker.output, perf_counter() + within_s
        output.begin(is_passed_on=False)  # before it is asked: the answer may be there at once
        with contextlib.suppress(Closed, TimeoutError):
            self.channel.send({"ask": worker.pid}, timeout_s=within_s)
        while not output.text().endswith("<module>\n") and wait_readable(output.sources, until - perf_counter()):
            output.pump()
        return output.text()

    def kill(self, worker: Worker | None = None) -> None:
        """Ends what workers have left behind; also `worker`, if it has not ended, whose status is known afterwards."""
        pid = worker.pid if worker is not None and worker.status is None else 0
        try:
            self._request({"kill": pid}, (), END_S)
        except (Closed, Garbled, OSError):  # the zygote itself is in trouble: nothing of it shall stay
            self.stop()
        if worker is not None:
            self.workers.pop(worker.pid, None)
            worker.close()

    def read_events(self) -> None:
        """Takes note of new messages from the zygote. Raises `Closed` if it is gone."""
        self.channel.take()
        while (message := self.channel.pop()) is not None:
            self._note(message.document)

    def _note(self, document: dict[str, Any]) -> None:
        if "ended" not in document:
            self.reply = document
        elif (worker := self.workers.get(document["ended"])) is not None:
            worker.status = document["status"]

    def await_end(self, worker: Worker, timeout_s: float) -> None:
        """Waits until the status of `worker` is known, or for `timeout_s`."""
        try:
            self._wait(lambda: worker.status is not None, timeout_s)
        except TimeoutError:
            pass  # whoever asked sees that there is no status
        except (Closed, Garbled):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)

    def _request(self, document: dict[str, Any], fds: Sequence[int], timeout_s: float) -> dict[str, Any]:
        """The reply of the zygote; others answer requests that were given up."""
        self.count += 1
        self.channel.send({**document, "number": self.count}, fds=fds, timeout_s=timeout_s)
        self._wait(lambda: self.reply.get("number") == self.count, timeout_s)
        return self.reply

    def _wait(self, is_over: Callable[[], bool], timeout_s: float) -> None:
        until = perf_counter() + timeout_s
        while not is_over():
            message = self.channel.receive(max(0.0, until - perf_counter()))
            if message is None:
                raise TimeoutError
            self._note(message.document)

    def _why(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 2000))
        words = self.errors.read().decode("utf-8", "replace").strip()
        code = self.process.returncode
        how = "it does not answer" if code is None else f"it ended with exit code {code}"
        return f"{how}; its last output: {words.splitlines()[-1]}" if words else how

    def stop(self) -> None:
        """Ends the zygote, which first ends everything below it. May be called while another thread uses this."""
        with contextlib.suppress(OSError):
            # Don't send a signal: for the zygote, the end of its connection is the order to end its workers, which only
            # it can do.
            self.channel.sock.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            subprocesses.kill_tree(self.process.pid)
            self.process.wait()

    def close(self) -> None:
        self.stop()
        # If another process killed the zygote, its workers end by themselves, but the processes that they started do
        # not.
        self._let_go()

    def detach(self) -> None:
        """In a fork of this program, to which none of this belongs: lets go of it without ending it."""
        self.process.returncode = 0  # it is no child of this process, which Popen would find out with a warning
        self._let_go()

    def _let_go(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()
        self.channel.close()
        self.errors.close()
