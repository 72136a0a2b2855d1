"""One job on one worker: sent, watched against its limits, and brought to an end, whatever the worker does.

It waits for three sources at once: the worker's connection, its output, and the zygote. The zygote reports the worker's
end even if a process that the worker forked keeps the connection open. After each arrival, the limits are checked
before the next wait. So no worker gains time by sending messages.

The output of Python's fault handler shows where a process was when it crashed or was stopped.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from benchax.errors import FormatError
from benchax.json_values import decode_value
from benchax.model import Failure
from benchax.source_files import is_library, is_machinery
from benchax.units import plural, seconds, size
from benchax.workers import process_tree
from benchax.workers.call_limits import UNLIMITED, CallLimits
from benchax.workers.channel import Bytes, Closed, Garbled, Message, TooLate, unpack, wait_readable
from benchax.workers.keeper import LAST_WORDS, Keeper, Worker, signal_name
from benchax.workers.task import Task

SEND_S = 60.0
"""For a worker to take a job, which is at most 64 KiB and a descriptor: more only if it is stuck."""
ASK_S = 0.02
"""For a worker to write where it is."""
LAST_BREATH_S = 1.0
"""A process that has closed its connection is about to end, or did it on purpose."""

# Of frames, but for "  Garbage-collecting", which may stand before the first, and "  ..." behind the last.
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
        self.limit = self.limits.stage_s(stage)
        self.until = None if self.limit is None else perf_counter() + self.limit

    def enter_announced(self, stage: str, is_again: bool) -> None:
        if stage != self.stage or is_again:
            self.enter(stage)

    def rest(self) -> float | None:
        ends = [self.until, None if self.limits.total_s is None else self.begun + self.limits.total_s]
        known = [end for end in ends if end is not None]
        return min(known) - perf_counter() if known else None

    def failure(self) -> Failure | None:
        """Returns the failure to report if a limit was passed."""
        now = perf_counter()
        if self.until is not None and self.limit is not None and now >= self.until:
            what, limit = self.stage, self.limit
        elif self.limits.total_s is not None and now >= self.begun + self.limits.total_s:
            what, limit = "the job as a whole", self.limits.total_s
        else:
            return None
        text = f"{what} took longer than {seconds(limit)}; the process was killed"
        return Failure("timeout", self.stage, text, "Allow more time, or give it less to do.")


class Conversation:
    """One job on one worker. With a doubt in the conclusion, the worker has been or must be killed."""

    def __init__(self, keeper: Keeper, worker: Worker, job: Job, on_message: Listener = ignore) -> None:
        self.keeper = keeper
        self.worker = worker
        self.job = job
        self.on_message = on_message
        worker.jobs += 1
        self.number = worker.jobs
        self.oom_kills = process_tree.oom_kills()
        self.early: Conclusion | None = None
        self.has_begun = False
        worker.output.begin(job.shows_output)

    def begin(self, sections: Sequence[Bytes], state: dict[str, Any]) -> None:
        """Sends the job, without waiting for what comes of it.

        Args:
            sections: the pickled argument.
            state: what is to hold in the worker (see `process_state.py`).
        """
        job = self.job
        memory = {"memory_limit_bytes": job.limits.memory_bytes}
        document = {"job": self.number, "task": job.task.name, **memory, **state}
        self.budget = Budget(job.limits)
        try:
            self.worker.channel.send(document, sections, timeout_s=SEND_S)
        except TooLate:
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
            # Before the limits: an answer that has arrived counts.
            if (conclusion := self._read_messages()) is not None:
                return conclusion
            if (failure := self.budget.failure()) is not None:
                return self._end_stuck(failure)
            sources = [worker.channel, control, *([worker.output] if worker.output.is_open else [])]
            ready = wait_readable(sources, self.budget.rest())
            if worker.output in ready:
                worker.output.pump()
            try:
                if control in ready:
                    self.keeper.absorb()
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
                said = self._read_announcement(message)
                if said is None and self._is_answer(message.document):
                    return self._read_answer(message)
            except (Garbled, FormatError, ValueError, LookupError, TypeError):
                text = f"the function wrote to the connection of its process in {self.budget.stage}"
                return self._give_up("crashed", text)
            except MemoryError as error:
                return self._give_up("out_of_memory", str(error), _SMALLER)
            if said is not None:  # outside of `try`: what a listener raises is not the worker's doing
                self.on_message(said)

    def _is_answer(self, document: dict[str, Any]) -> bool:
        is_ours = document["job"] == self.number
        self.has_begun |= is_ours
        return is_ours and "begun" not in document

    def _read_announcement(self, message: Message) -> dict[str, Any] | None:
        """An announcement, already counted; None for anything else, such as words of a process that an earlier job
        forked."""
        document = message.document
        if document["job"] != self.number or "say" not in document:
            return None
        said = document["say"]
        self.budget.enter_announced(said["stage"], bool(said.get("again")))
        return said

    def _read_answer(self, message: Message) -> Conclusion:
        document = message.document
        if "stale" in document:
            return Conclusion(None, document["stale"], is_stale=True)
        if "failure" in document:
            return Conclusion(decode_value(document["failure"], Failure), document["doubt"])
        return Conclusion(unpack(message.sections, self.job.task.returns), document["doubt"])

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
        if status == -signal.SIGKILL and _has_risen(self.oom_kills, process_tree.oom_kills()):
            return "out_of_memory", f"the kernel ran out of memory in {stage}, and killed the process", _SMALLER
        if self.job.limits.memory_bytes is not None and _is_about_memory(words):
            limit = size(self.job.limits.memory_bytes)
            return "out_of_memory", f"the process ended in {stage}, beyond its {limit} of memory", _SMALLER
        if status < 0:
            advice = "The kernel may have run out of memory: see dmesg." if status == -signal.SIGKILL else ""
            return "crashed", f"the process was killed by {signal_name(status)} in {stage}", advice
        return "crashed", f"the process ended with exit code {status} in {stage}, without an answer", ""

    def _end_stuck(self, failure: Failure) -> Conclusion:
        """Over its limit. Asks where it is, which takes milliseconds, and ends it."""
        stack = frames(self.keeper.where(self.worker, ASK_S))
        return self._give_up(failure.kind, failure.message, failure.advice, stack)

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


def _story(stack: list[str], words: str) -> str:
    """Where it was and what it printed last, as a row keeps it."""
    words = words.partition("Fatal Python error:")[0].strip()[-LAST_WORDS:]
    parts = [_place(stack) if stack else "", f"The last that it printed:\n{words}" if words else ""]
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


def _has_risen(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _is_about_memory(words: str) -> bool:
    return any(sign in words for sign in ("bad_alloc", "out of memory", "Out of memory", "Cannot allocate memory"))


def frames(text: str) -> list[str]:
    """The stack of the thread that ran the job, innermost first, without the frames below the job. Empty if there is no
    such stack."""
    blocks = [block.group(1).splitlines() for block in _BLOCK.finditer(text)]
    for block in blocks:
        own = next((i for i, line in enumerate(block) if _OURS in line), None)
        if own is not None:
            return [line.strip() for line in block[:own]]
    return []


def user_line(stack: list[str]) -> str:
    """file:line of the innermost frame of the user's own code; empty if there is no such frame."""
    found = [match for line in stack if (match := _FRAME.match(line))]
    own = next((match for match in found if not is_library(match["file"])), None)
    return f"{own['file']}:{own['line']}" if own else ""
