"""The other end of `partner.py`: starts a process in some environment, asks it, and says what became of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from benchax import codec
from benchax.checkouts.boot import Launch, Selection, clean_environ
from benchax.errors import UsageError
from benchax.model import CaseId, Environment, Failure
from benchax.workers import process_tree
from benchax.workers.channel import Channel, Closed, Garbled, Message, pair, wait_readable
from benchax.workers.keeper import Output

SERVE = """
from benchax.paired_runs import partner
partner.begin(argument)
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
