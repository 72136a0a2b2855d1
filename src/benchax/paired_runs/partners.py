"""Two processes that take turns: what each of them does, and the other end, which starts and asks it."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchax.case import Case
from benchax.checkouts.boot import Launch, Selection, clean_environ
from benchax.discovery import collect
from benchax.environment import capture
from benchax.errors import BenchaxError, UsageError
from benchax.json_values import decode_value, encode_value
from benchax.machine.noise import paused_gc
from benchax.measuring import paired
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.paired import SideFacts, Turns
from benchax.model import CaseId, Environment, Failure, Numerics, Options
from benchax.options import resolve
from benchax.workers import process_tree
from benchax.workers.answers import describe_array, rebuild_array
from benchax.workers.channel import Channel, Closed, Garbled, Message, pair, wait_readable
from benchax.workers.keeper import Output

# ---- partner ---------------------------------------------------------------------------------------------------------
#
# One of two processes that take turns: it loads the cases in its own environment, and answers requests.
#
# Requests come over its standard input, which is a socket. Output of the user's code goes elsewhere and disturbs
# nothing.
#
# Values are written by their annotations (`json_values.py`).
#
#                                  unasked   ⇒   {"cases", "broken", "environment", "jax"} or {"refused"}
#     {"do": "prepare", "case": i}           ⇒   {"stage"} …, {"facts", "signature", "iterations", "call_ns"}
#                                                or {"failure"}
#     {"do": "sample", "iterations": n}      ⇒   {"ns", "compiles"} or {"failure"}
#     {"do": "outputs"}                      ⇒   {"leaves"} with their bytes, or {"failure"}
#     {"do": "agree", "leaves"} with bytes   ⇒   {"agreement"} or {"failure"}
#
# It ends when the connection ends, or when the process that started it ends.


def begin(argument: dict[str, Any]) -> None:
    """Serves until the connection ends.

    Args:
        argument: the selection of cases, and the process that has started this one (parent).
    """
    process_tree.die_with_parent()
    # It may have ended before we asked to end with it.
    if os.getppid() != argument["parent"]:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then ends this
    channel = _take_over_stdin()
    faulthandler.enable(2)
    try:
        _serve(channel, argument)
    except Closed:
        pass  # the ordinary end: whoever asked has enough samples, or has died; there is nobody left to tell
    finally:
        sys.stdout.flush()


def _take_over_stdin() -> Channel:
    """Descriptor 0 becomes /dev/null: a function that asks for input gets none, instead of our messages."""
    channel = Channel(socket.socket(fileno=os.dup(0)))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return channel


def _serve(channel: Channel, argument: dict[str, Any]) -> None:
    selection: Selection = decode_value(argument["selection"], Selection)
    try:
        cases, broken = collect(selection.what, selection.pattern, selection.params)
    except UsageError as error:
        channel.send({"refused": [error.problem, error.expected, error.hint]})
        return
    service = Service(cases, selection.options, lambda stage: channel.send({"stage": stage}))
    listed = [(case.id, service.options_of(case).timeout_s) for case in cases]
    channel.send(
        {
            "cases": encode_value(listed, ListedCases),
            "broken": encode_value([each.failure for each in broken], list[Failure]),
            "environment": encode_value(capture(), Environment),
            "jax": paired.imported_jax(),
        }
    )
    with paused_gc(), without_cache():
        while (message := channel.receive()) is not None:
            channel.send(*service.answer(message))


@dataclass
class Service:
    """Answers requests, about one case at a time."""

    cases: Sequence[Case]
    options: Mapping[str, Any]
    tell: Callable[[str], None]
    """Told of each stage of preparing."""
    stage: str = ""
    turns: Turns | None = None

    def options_of(self, case: Case) -> Options:
        return resolve(None, case.options, self.options, project=case.folder)

    def answer(self, message: Message) -> tuple[dict[str, Any], Sequence[Any]]:
        request = message.document
        try:
            if request["do"] == "prepare":
                return self._prepare(self.cases[request["case"]]), ()
            if self.turns is None:
                raise BenchaxError("no case was prepared")
            self.stage = "rounds" if request["do"] == "sample" else "outputs"
            if request["do"] == "sample":
                ns = self.turns.sample(request["iterations"])
                return {"ns": ns, "compiles": self.turns.facts.compiles}, ()
            if request["do"] == "outputs":
                both = [describe_array(leaf) for leaf in self.turns.outputs]
                return {"leaves": [description for description, _ in both]}, [content for _, content in both]
            leaves = tuple(map(rebuild_array, request["leaves"], message.sections))
            return {"agreement": encode_value(self.turns.agreement(leaves), Numerics)}, ()
        except (Exception, SystemExit) as error:
            return {"failure": encode_value(diagnose(error, self.stage), Failure)}, ()

    def _prepare(self, case: Case) -> dict[str, Any]:
        self.turns = None
        gc.collect()
        self.turns = ready = paired.prepare_turns(case, self.options_of(case).seed, self._enter)
        facts, signature = encode_value(ready.facts, SideFacts), ready.subject.inputs.signature
        return {"facts": facts, "signature": signature, "iterations": ready.iterations, "call_ns": ready.call_ns}

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self.tell(stage)


SERVE = """
from benchax.paired_runs.partners import begin
begin(argument)
"""
"""A program for `Launch.command`."""
LAST_WORDS_S = 2.0
ListedCases = list[tuple[CaseId, float | None]]
"""The cases that a process finds, and the seconds that each of their stages may take."""
Listen = Callable[[str], None]


@dataclass(frozen=True)
class Listing:
    """The cases that a process has found."""

    cases: dict[CaseId, tuple[int, float | None]] = field(default_factory=dict[CaseId, tuple[int, float | None]])
    """Its number there, and the seconds that each stage may take."""
    broken: tuple[Failure, ...] = ()
    environment: Environment | None = None
    refused: UsageError | None = None

    def why_missing(self, label: str) -> Failure:
        if self.refused is not None:
            return Failure("error", f"import of {label}", self.refused.problem, self.refused.hint)
        return next(iter(self.broken), Failure("not_run", f"import of {label}", f"{label} has no such case"))


class Lost(Exception):
    """The requested answer did not come; the failure gives the reason."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Partner:
    """A process that alternates with another. Use `start_partners`."""

    def __init__(self, launch: Launch, selection: Selection, core: int | None) -> None:
        self.version = launch.version
        self.label = launch.version.label
        self.stage = "start"
        argument = {"parent": os.getpid(), "selection": encode_value(selection, Selection)}
        ours, theirs = pair()
        reading, writing = os.pipe()
        self.channel, self.output = Channel(ours), Output(reading)
        try:
            with theirs, os.fdopen(writing, "wb") as printed:
                self.process = subprocess.Popen(
                    launch.command(SERVE, argument, core),
                    stdin=theirs.fileno(),
                    stdout=printed,
                    stderr=printed,
                    cwd=launch.folder,
                    env=clean_environ(),
                    start_new_session=True,  # not in the terminal's group: Ctrl-C is for this program
                )
        except BaseException:
            self._let_go()
            raise

    @property
    def is_alive(self) -> bool:
        return not self.channel.is_closed

    def listing(self) -> Listing:
        """Returns the process's first message about itself."""
        try:
            document = self._answer(None, lambda stage: None).document
        except Lost as lost:
            return Listing(broken=(lost.failure,))
        if "refused" in document:
            return Listing(refused=UsageError(*document["refused"]))
        if self.version.jax not in (None, document["jax"]):
            return Listing(refused=_other_jax(self.label, document["jax"]))
        listed: ListedCases = decode_value(document["cases"], ListedCases)
        cases = {case: (i, timeout_s) for i, (case, timeout_s) in enumerate(listed)}
        broken = tuple(self._named(each) for each in decode_value(document["broken"], list[Failure]))
        return Listing(cases, broken, decode_value(document["environment"], Environment))

    def ask(
        self,
        request: dict[str, Any],
        sections: Sequence[Any] = (),
        limit_s: float | None = None,
        listen: Listen = lambda stage: None,
    ) -> Message:
        """The answer.

        Args:
            limit_s: seconds for each stage on the way; then it is ended.
            listen: told of each stage.

        Raises:
            Lost: it has failed, took too long, or is gone (`is_alive`).
        """
        self.stage = request["do"]
        try:
            self.channel.send(request, sections)
        except Closed:
            raise self._gone() from None
        return self._answer(limit_s, listen)

    def _answer(self, limit_s: float | None, listen: Listen) -> Message:
        while True:
            message = self._receive(limit_s)
            if "stage" in message.document:
                self.stage = message.document["stage"]
                listen(f"{self.stage} of {self.label}")
            elif "failure" in message.document:
                raise Lost(self._named(decode_value(message.document["failure"], Failure)))
            else:
                return message

    def _receive(self, limit_s: float | None) -> Message:
        try:
            while (message := self.channel.pop()) is None:
                ready = wait_readable([self.channel, *([self.output] if self.output.is_open else [])], limit_s)
                if not ready:
                    raise self._too_late(limit_s)
                if self.output in ready:
                    self.output.pump()
                if self.channel in ready:
                    self.channel.take()
        except (Closed, Garbled):
            raise self._gone() from None
        return message

    def _named(self, failure: Failure) -> Failure:
        return replace(failure, stage=f"{failure.stage} of {self.label}")

    def _too_late(self, limit_s: float | None) -> Lost:
        self.close()
        return Lost(Failure("timeout", f"{self.stage} of {self.label}", f"no end within {limit_s:g} s"))

    def _gone(self) -> Lost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS_S)
        self.output.drain()
        words = [line for line in self.output.text().splitlines() if line.strip()]
        code = self.process.poll()
        self.close()
        message = f"{_how(code)}{f'; its last words: {words[-1]}' if words else ''}"
        return Lost(Failure("crashed", f"{self.stage} of {self.label}", message, traceback="\n".join(words)))

    def close(self) -> None:
        """Ends it, and what it has started."""
        if self.process.poll() is None:
            process_tree.kill_tree(self.process.pid)
            self.process.wait()
        self._let_go()

    def _let_go(self) -> None:
        self.channel.close()
        self.output.close()


def _other_jax(label: str, found: str) -> UsageError:
    """An error if another JAX was imported, for example because of a user's own file `jax.py`."""
    return UsageError(f"{label} was asked for, and jax {found} was imported", "no other module called jax in the way")


def _how(code: int | None) -> str:
    if code is None:
        return "the process closed its connection"
    return f"the process ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


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
