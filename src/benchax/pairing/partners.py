"""The other end of `partner.py`: starts a process in some environment, asks it, and says what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import site
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchax import codec
from benchax.errors import UsageError
from benchax.executors import process_tree
from benchax.executors.channel import Channel, Closed, Garbled, Message, pair, wait_readable
from benchax.executors.output import Output
from benchax.model import CaseId, Environment, Failure, Version

BOOT = """
import json, os, site, sys
told = json.loads(sys.argv[1])
if told["core"] is not None:
    os.sched_setaffinity(0, [told["core"]])
sys.path[:0] = told["before"]
for path in told["behind"]:
    if path in told["sites"]:
        site.addsitedir(path)
    elif path not in sys.path:
        sys.path.append(path)
from benchax.pairing import partner
partner.begin(told)
"""
"""The core first: whatever is imported counts the cores to make its threads. Packages of the program that asks come
last, so that this environment's own win; `addsitedir` also finds what is installed editable."""
LAST_WORDS_S = 2.0
_OWN = ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")
"""Of this program's environment: they would put its packages before those of the other one."""
Listen = Callable[[str], None]


@dataclass(frozen=True)
class Launch:
    """How processes of one version are started.

    Modules are looked for in `before`, in the environment that `python` belongs to, and then in `behind`.
    """

    version: Version
    python: str = sys.executable
    folder: Path = Path()
    """Where it works: relative paths and pyproject.toml."""
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = field(default_factory=lambda: tuple(path for path in sys.path if path))


@dataclass(frozen=True)
class Chosen:
    """Which cases: what, pattern, params and options as for `benchax run`."""

    what: tuple[str, ...]
    pattern: str = ""
    params: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By name, in values that JSON knows; what a benchmark sets itself is stronger."""


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
    """What was asked for did not come; the failure says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Partner:
    """A process that takes its turns. Use `started`."""

    def __init__(self, launch: Launch, chosen: Chosen, core: int | None) -> None:
        self.version = launch.version
        self.label = launch.version.label
        self.stage = "start"
        ours, theirs = pair()
        reading, writing = os.pipe()
        self.channel, self.output = Channel(ours), Output(reading)
        try:
            with theirs, os.fdopen(writing, "wb") as printed:
                self.process = subprocess.Popen(
                    [launch.python, "-P", "-c", BOOT, json.dumps(_make_argument(launch, chosen, core))],
                    stdin=theirs.fileno(),
                    stdout=printed,
                    stderr=printed,
                    cwd=launch.folder,
                    env={name: value for name, value in os.environ.items() if name not in _OWN},
                    start_new_session=True,  # not in the terminal's group: Ctrl-C is for this program
                )
        except BaseException:
            self._let_go()
            raise

    @property
    def is_alive(self) -> bool:
        return not self.channel.is_closed

    def listing(self) -> Listing:
        """What it says of itself when it has started."""
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


def _make_argument(launch: Launch, chosen: Chosen, core: int | None) -> dict[str, Any]:
    return {
        "core": core,
        "parent": os.getpid(),
        "before": launch.before,
        "behind": launch.behind,
        "sites": [*site.getsitepackages(), site.getusersitepackages()],
        "what": chosen.what,
        "pattern": chosen.pattern,
        "params": chosen.params,
        "options": dict(chosen.options),
    }


def _other_jax(label: str, found: str) -> UsageError:
    """Beside a user's own file `jax.py`, say."""
    return UsageError(f"{label} was asked for, and jax {found} was imported", "no other module called jax in the way")


def _how(code: int | None) -> str:
    if code is None:
        return "the process closed its connection"
    return f"the process ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


@contextmanager
def started(launches: Sequence[Launch], chosen: Chosen, core: int | None) -> Generator[list[Partner], None, None]:
    """Processes of these versions, on one core. None of them is left afterwards."""
    partners: list[Partner] = []
    try:
        for launch in launches:
            partners.append(Partner(launch, chosen, core))
        yield partners
    finally:
        for each in partners:
            each.close()
