"""Two processes that take turns: what each of them does, and the other end, which starts and asks it."""

from __future__ import annotations

import contextlib
import dataclasses
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

from benchax import codec
from benchax.case import Case
from benchax.checkouts.boot import Launch, Selection, clean_environ
from benchax.discovery import Broken, collect
from benchax.environment import capture
from benchax.errors import BenchaxError, UsageError
from benchax.machine.noise import paused_gc
from benchax.measuring import paired
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.paired import Turns
from benchax.model import CaseId, Environment, Failure
from benchax.options import resolve
from benchax.workers import process_tree
from benchax.workers.answers import describe_array, rebuild_arrays
from benchax.workers.channel import Channel, Closed, Garbled, Message, pair, wait_readable
from benchax.workers.output import Output

# ---- partner ---------------------------------------------------------------------------------------------------------
#
# One of two processes that take turns: it loads the cases in its own environment, and answers requests.
#
# Requests come over its standard input, which is a socket. Output of the user's code goes elsewhere and disturbs
# nothing.
#
#                                  unasked   ⇒   {"cases", "broken", "environment", "jax"} or {"refused"}
#     {"do": "prepare", "case": i}           ⇒   {"stage"} …, {"facts", "iterations", "call_ns"} or {"failure"}
#     {"do": "sample", "iterations": n}      ⇒   {"ns", "compiles"} or {"failure"}
#     {"do": "outputs"}                      ⇒   {"leaves"} with their bytes, or {"failure"}
#     {"do": "agree", "leaves"} with bytes   ⇒   {"agreement"} or {"failure"}
#
# It ends when the connection ends, or when the process that started it ends.


def begin(argument: dict[str, Any]) -> None:
    """Serves until the connection ends.

    Args:
        argument: what, pattern, params, options as for `benchax run`; parent, the process that has started this one.
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
    try:
        cases, broken = collect(argument["what"], argument["pattern"], argument["params"])
    except UsageError as error:
        channel.send({"refused": [error.problem, error.expected, error.hint]})
        return
    channel.send(_listing(cases, broken, argument["options"]))
    with paused_gc(), without_cache():
        service = Service(cases, lambda stage: channel.send({"stage": stage}), argument["options"])
        while (message := channel.receive()) is not None:
            channel.send(*service.answer(message))


def _listing(cases: Sequence[Case], broken: Sequence[Broken], given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cases": [
            [
                case.id.name,
                codec.encode_params(case.id.params),
                case.id.variant,
                case.id.tag,
                _options(case, given).timeout_s,
            ]
            for case in cases
        ],
        "broken": [dataclasses.asdict(each.failure) for each in broken],
        "environment": dataclasses.asdict(capture()),
        "jax": paired.imported_jax(),
    }


def _options(case: Case, given: Mapping[str, Any]) -> Any:
    return resolve(None, case.options, given, project=case.folder)


class Service:
    """Answers requests, about one case at a time."""

    def __init__(
        self, cases: Sequence[Case], enter: Callable[[str], None], options: Mapping[str, Any] | None = None
    ) -> None:
        self.cases = cases
        self.options = options or {}
        self.enter = enter
        self.stage = ""
        self.turns: Turns | None = None

    def answer(self, message: Message) -> tuple[dict[str, Any], Sequence[Any]]:
        request = message.document
        if request["do"] == "sample" and self.turns is not None:  # first, since it is asked for in the rounds
            return self._guarded("rounds", lambda turns: _sample(turns, request["iterations"]))
        if request["do"] == "prepare":
            return self._prepare(self.cases[request["case"]])
        if request["do"] == "outputs":
            return self._guarded("outputs", _outputs)
        return self._guarded("outputs", lambda turns: _agreement(turns, message))

    def _prepare(self, case: Case) -> tuple[dict[str, Any], Sequence[Any]]:
        self.turns = None
        gc.collect()
        try:
            self.turns = paired.prepare_turns(case, _options(case, self.options).seed, self._enter)
        except (Exception, SystemExit) as error:
            return _failed(error, self.stage)
        ready = self.turns
        return {"facts": ready.facts, "iterations": ready.iterations, "call_ns": ready.call_ns}, ()

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self.enter(stage)

    def _guarded(self, stage: str, call: Callable[[Turns], Any]) -> tuple[dict[str, Any], Sequence[Any]]:
        try:
            if self.turns is None:
                raise BenchaxError("no case was prepared")
            return call(self.turns)
        except (Exception, SystemExit) as error:
            return _failed(error, stage)


def _failed(error: BaseException, stage: str) -> tuple[dict[str, Any], Sequence[Any]]:
    return {"failure": dataclasses.asdict(diagnose(error, stage))}, ()


def _sample(ready: Turns, iterations: int) -> tuple[dict[str, Any], Sequence[Any]]:
    """With the programs that it compiled in this sample and those before it."""
    ns = ready.sample(iterations)
    return {"ns": ns, "compiles": ready.facts["compiles"]}, ()


def _outputs(ready: Turns) -> tuple[dict[str, Any], Sequence[Any]]:
    both = [describe_array(leaf) for leaf in ready.outputs]
    return {"leaves": [description for description, _ in both]}, [content for _, content in both]


def _agreement(ready: Turns, message: Message) -> tuple[dict[str, Any], Sequence[Any]]:
    leaves = rebuild_arrays(message.document["leaves"], message.sections)
    return {"agreement": dataclasses.asdict(ready.agreement(leaves))}, ()


SERVE = """
from benchax.paired_runs.partners import begin
begin(argument)
"""
"""A program for `Launch.command`."""
LAST_WORDS_S = 2.0
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
        ours, theirs = pair()
        reading, writing = os.pipe()
        self.channel, self.output = Channel(ours), Output(reading)
        try:
            with theirs, os.fdopen(writing, "wb") as printed:
                self.process = subprocess.Popen(
                    launch.command(SERVE, _make_argument(selection), core),
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
        cases = {
            CaseId(name, codec.decode_params(params), variant, tag): (i, timeout_s)
            for i, (name, params, variant, tag, timeout_s) in enumerate(document["cases"])
        }
        facts = document["environment"]
        environment = Environment(**facts | {"affinity": tuple(facts["affinity"] or ()) or None})
        return Listing(cases, tuple(self._named(each) for each in document["broken"]), environment)

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
                raise Lost(self._named(message.document["failure"]))
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

    def _named(self, failure: dict[str, Any]) -> Failure:
        found = Failure(**failure)
        return replace(found, stage=f"{found.stage} of {self.label}")

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


def _make_argument(selection: Selection) -> dict[str, Any]:
    return {
        "parent": os.getpid(),
        "what": selection.what,
        "pattern": selection.pattern,
        "params": selection.params,
        "options": dict(selection.options),
    }


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
