"""Two processes that take turns: what each of them does, and the other end, which starts and asks it."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, TypeVar, get_type_hints

import numpy as np

from benchax import subprocesses
from benchax.case import Case
from benchax.checkouts.launch import Launch, Selection, clean_environ
from benchax.discovery import collect
from benchax.environment import capture
from benchax.errors import BenchaxError
from benchax.json_values import decode_value, encode_value
from benchax.machine.noise import paused_gc
from benchax.measuring import paired
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.paired import SideFacts, Turns
from benchax.model import CaseId, Environment, Failure, Numerics, Options
from benchax.options import resolve
from benchax.workers.channel import Channel, Closed, Garbled, Message, pack, take_over_stdin, unpack, wait_readable
from benchax.workers.conversation import Output, describe_end

# ---- partner ---------------------------------------------------------------------------------------------------------
#
# One of two processes that take turns: it loads the cases in its own environment, and answers requests.
#
# Requests come over its standard input, which is a socket. Output of the user's code goes elsewhere and disturbs
# nothing.
#
# A request is a call of a method of `Service`. Its argument and its result travel by their annotations
# (`workers/channel.py`); the stages on the way are announced:
#
#     {"do": "sample"}, argument   ⇒   {"stage": name} …, then {}, result; or {"failure"}
#
# It ends when the connection ends, or when the process that started it ends.


def begin(argument: dict[str, Any]) -> None:
    """Serves until the connection ends.

    Args:
        argument: the process that has started this one (parent).
    """
    subprocesses.die_with_parent(argument["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then ends this
    channel = take_over_stdin()
    faulthandler.enable(2)
    service = Service(lambda stage: channel.send({"stage": stage}))
    # The ordinary end is that whoever asked has enough samples, or has died; there is nobody left to tell.
    with paused_gc(), without_cache(), contextlib.suppress(Closed):
        while (message := channel.receive()) is not None:
            channel.send(*service.answer(message))


@dataclass(frozen=True)
class Listing:
    """The cases that a process has found."""

    listed: tuple[tuple[CaseId, float | None], ...] = ()
    """With the seconds that each of their stages may take."""
    broken: tuple[Failure, ...] = ()
    """Files that cannot be imported, or why there is no case at all."""
    environment: Environment | None = None
    jax: str = ""

    @cached_property
    def cases(self) -> dict[CaseId, tuple[int, float | None]]:
        """Its number there, and the seconds that each stage may take."""
        return {case: (i, timeout_s) for i, (case, timeout_s) in enumerate(self.listed)}

    def why_missing(self, label: str) -> Failure:
        return next(iter(self.broken), Failure("not_run", f"import of {label}", f"{label} has no such case"))


@dataclass(frozen=True)
class WarmCase:
    """A case that is ready to be sampled."""

    facts: SideFacts
    signature: str
    iterations: int
    """Calls in a sample."""
    call_ns: int


@dataclass
class Service:
    """Answers requests, about one case at a time."""

    tell: Callable[[str], None]
    """Told of each stage of preparing."""
    stage: str = "import"
    cases: Sequence[Case] = ()
    options: Sequence[Options] = ()
    turns: Turns | None = None

    def list_cases(self, argument: Selection) -> Listing:
        self.cases, broken = collect(argument.what, argument.pattern, argument.params)
        self.options = [resolve(None, each.options, argument.options, project=each.folder) for each in self.cases]
        listed = [(case.id, options.timeout_s) for case, options in zip(self.cases, self.options, strict=True)]
        return Listing(tuple(listed), tuple(broken), capture(), paired.imported_jax())

    def prepare(self, argument: int) -> WarmCase:
        """The case of this number."""
        self.turns = None
        gc.collect()
        self.turns = ready = paired.prepare_turns(self.cases[argument], self.options[argument].seed, self._enter)
        facts, signature = ready.version.facts, ready.version.inputs.signature
        return WarmCase(facts, signature, ready.iterations, ready.call_ns)

    def sample(self, argument: int) -> tuple[int, int]:
        """(nanoseconds of this number of calls, programs that were compiled in all samples of the case)."""
        self.stage = "rounds"
        return self._ready.sample(argument), self._ready.version.facts.compiles

    def outputs(self, argument: None) -> list[np.ndarray]:
        self.stage = "outputs"
        return self._ready.outputs

    def compare(self, argument: list[np.ndarray]) -> Numerics:
        """With the outputs of the baseline."""
        self.stage = "outputs"
        return self._ready.agreement(argument)

    @property
    def _ready(self) -> Turns:
        if self.turns is None:
            raise BenchaxError("no case was prepared")
        return self.turns

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self.tell(stage)

    def answer(self, message: Message) -> tuple[dict[str, Any], Sequence[Any]]:
        try:
            method = getattr(Service, message.document["do"])
            takes, gives = _kinds(method)
            return {}, pack(method(self, unpack(message.sections, takes)), gives)
        except (Exception, SystemExit) as error:
            return {"failure": encode_value(diagnose(error, self.stage), Failure)}, ()


@cache
def _kinds(method: Callable[..., Any]) -> tuple[Any, Any]:
    """The annotations of the argument and of the result."""
    hints = get_type_hints(method)
    return hints["argument"], hints["return"]


SERVE = """
from benchax.paired_runs.partners import begin
begin(argument)
"""
"""A program for `Launch.command`."""
LAST_WORDS_S = 2.0
A = TypeVar("A")
R = TypeVar("R")
Listen = Callable[[str], None]


class Lost(Exception):
    """The requested answer did not come; the failure gives the reason."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Partner:
    """A process that alternates with another. Use `start_partners`."""

    def __init__(self, launch: Launch, selection: Selection, core: int | None) -> None:
        self.version, self.label, self.stage = launch.version, launch.version.label, "start"
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        self.channel, self.output = Channel(ours), Output(reading)
        with theirs, os.fdopen(writing, "wb") as printed:
            self.process = subprocess.Popen(
                launch.command(SERVE, {"parent": os.getpid()}, core),
                stdin=theirs.fileno(),
                stdout=printed,
                stderr=printed,
                cwd=launch.folder,
                env=clean_environ(),
                start_new_session=True,  # not in the terminal's group: Ctrl-C is for this program
            )
        # `listing` reads the answer, so that processes started together look for their cases at the same time.
        self._send(Service.list_cases, selection)

    @property
    def is_alive(self) -> bool:
        return self.channel.fileno() >= 0

    def listing(self) -> Listing:
        """Returns the cases that the process has found."""
        try:
            found = self._answer(Service.list_cases, None, lambda stage: None)
        except Lost as lost:
            return Listing(broken=(lost.failure,))
        if self.version.jax not in (None, found.jax):
            # For example because of a user's own file `jax.py`.
            problem = f"{self.label} was requested, and jax {found.jax} was imported"
            return Listing(broken=(Failure("error", f"import of {self.label}", problem),))
        return replace(found, broken=tuple(map(self._name, found.broken)))

    def ask(
        self,
        method: Callable[[Service, A], R],
        argument: A,
        limit_s: float | None = None,
        listen: Listen = lambda stage: None,
    ) -> R:
        """The result of this method of the service there.

        Args:
            limit_s: seconds for each stage on the way; then it is ended.
            listen: told of each stage.

        Raises:
            Lost: it has failed, took too long, or is gone (`is_alive`).
        """
        self.stage = method.__name__
        self._send(method, argument)
        return self._answer(method, limit_s, listen)

    def _send(self, method: Callable[[Service, A], Any], argument: A) -> None:
        # Reading the answer finds out that it is gone, and why.
        with contextlib.suppress(Closed):
            self.channel.send({"do": method.__name__}, pack(argument, _kinds(method)[0]))

    def _answer(self, method: Callable[[Service, Any], R], limit_s: float | None, listen: Listen) -> R:
        while True:
            message = self._receive(limit_s)
            match message.document:
                case {"stage": stage}:
                    self.stage = stage
                    listen(f"{stage} of {self.label}")
                case {"failure": failure}:
                    raise Lost(self._name(decode_value(failure, Failure)))
                case _:
                    return unpack(message.sections, _kinds(method)[1])

    def _receive(self, limit_s: float | None) -> Message:
        try:
            while (message := self.channel.pop()) is None:
                ready = wait_readable([self.channel, *self.output.sources], limit_s)
                if not ready:
                    self.close()
                    raise Lost(self._name(Failure("timeout", self.stage, f"no end within {limit_s:g} s")))
                if self.output in ready:
                    self.output.pump()
                if self.channel in ready:
                    self.channel.take()
        except (Closed, Garbled):
            raise self._describe_loss() from None
        return message

    def _name(self, failure: Failure) -> Failure:
        return replace(failure, stage=f"{failure.stage} of {self.label}")

    def _describe_loss(self) -> Lost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS_S)
        self.output.drain()
        words = [line for line in self.output.text().splitlines() if line.strip()]
        code = self.process.poll()
        self.close()
        how = "closed its connection" if code is None else f"ended with {describe_end(code)}"
        message = f"the process {how}{f'; its last output: {words[-1]}' if words else ''}"
        return Lost(self._name(Failure("crashed", self.stage, message, traceback="\n".join(words))))

    def close(self) -> None:
        """Ends it, and what it has started."""
        if self.process.poll() is None:
            subprocesses.kill_tree(self.process.pid)
            self.process.wait()
        self.channel.close()
        self.output.close()


@contextmanager
def start_partners(
    launches: Sequence[Launch], selection: Selection, core: int | None
) -> Generator[list[Partner], None, None]:
    """Processes of these versions, on one core. None of them is left afterwards."""
    partners: list[Partner] = []
    try:
        for launch in launches:
            partners.append(Partner(launch, selection, core))
        yield partners
    finally:
        for each in partners:
            each.close()
