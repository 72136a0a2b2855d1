"""Two processes of different versions that take turns: what each of them does, and the other end, which starts and asks
it.

Each is a worker (`workers/pool.py`) whose keeper runs in the environment of its version, on one core. It stays from one
request to the next, and keeps the case that it has prepared.
"""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from benchax.case import Case
from benchax.checkouts.launch import Launch, Selection, clean_environ
from benchax.discovery import collect
from benchax.environment import capture
from benchax.errors import NotMeasured
from benchax.measuring import paired
from benchax.measuring.jax_settings import apply_settings
from benchax.measuring.paired import SideFacts, Turns
from benchax.model import CaseId, Environment, Failure, Options
from benchax.options import resolve
from benchax.workers import pickling
from benchax.workers.pool import Pool
from benchax.workers.task import A, CallLimits, R, Say, Task

# ---- in the worker ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaseSource:
    """Where a process finds its cases."""

    selection: Selection | bytes
    """Bytes are one case, pickled. Reading it can start JAX's backend, so the settings come first."""
    settings: Mapping[str, Any]
    """Settings of JAX."""


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
class Kept:
    """The cases of a process, and the one that it has prepared. It keeps them from one request to the next."""

    cases: Sequence[Case] = ()
    options: Sequence[Options] = ()
    turns: Turns | None = None

    @property
    def ready(self) -> Turns:
        if self.turns is None:
            raise NotMeasured("the process that had prepared the case has ended")
        return self.turns


_kept = Kept()


def list_cases(source: CaseSource, say: Say) -> Listing:
    say("import")
    apply_settings(dict(source.settings))
    chosen, broken = source.selection, list[Failure]()
    if isinstance(chosen, bytes):
        _kept.cases, given = [pickling.loads(chosen)], {}
    else:
        _kept.cases, broken = collect(chosen.what, chosen.pattern, chosen.params)
        given = chosen.options
    _kept.options = [resolve(None, each.options, given, project=each.folder) for each in _kept.cases]
    # A persistent cache would be filled by the first pair, and later ones time looking things up.
    apply_settings({"jax_enable_compilation_cache": False})
    gc.disable()
    listed = [(case.id, options.timeout_s) for case, options in zip(_kept.cases, _kept.options, strict=True)]
    return Listing(tuple(listed), tuple(broken), capture(), paired.imported_jax())


def prepare_case(argument: tuple[CaseSource, int], say: Say) -> WarmCase:
    """The case of this number."""
    source, number = argument
    if not _kept.cases:  # this process has taken the place of one that ended
        list_cases(source, say)
    _kept.turns = None
    gc.collect()
    _kept.turns = ready = paired.prepare_turns(_kept.cases[number], _kept.options[number].seed, say)
    facts, signature = ready.version.facts, ready.version.inputs.signature
    return WarmCase(facts, signature, ready.iterations, ready.call_ns)


def sample_case(iterations: int, say: Say) -> tuple[int, int]:
    """(nanoseconds of this number of calls, programs that were compiled in all samples of the case)."""
    say("rounds")
    return _kept.ready.sample(iterations), _kept.ready.version.facts.compiles


def give_outputs(argument: None, say: Say) -> list[np.ndarray]:
    say("outputs")
    return _kept.ready.outputs


# ---- the other end ---------------------------------------------------------------------------------------------------

KEEP = """
from benchax.workers import worker
worker.keep(argument)
"""
"""A program for `Launch.command`."""


class Lost(Exception):
    """The requested answer did not come; the failure gives the reason."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Partner:
    """A process that alternates with another, on one core. It starts when it is needed, and again after its end."""

    def __init__(self, launch: Launch, selection: Selection | bytes, core: int | None) -> None:
        self.version, self.label = launch.version, launch.version.label
        self.source = CaseSource(selection, launch.settings)
        command = launch.command(KEEP, ["benchax.paired_runs.partners"], core)
        start_keeper = partial(subprocess.Popen, command, cwd=launch.folder, env=clean_environ() | dict(launch.environ))
        self._pool = Pool(warm=False, start_keeper=start_keeper)
        self.renew, self.close = self._pool.renew, self._pool.close

    def listing(self) -> Listing:
        """Returns the cases that the process has found."""
        try:
            found = self.ask(list_cases, self.source)
        except Lost as lost:
            return Listing(broken=(lost.failure,))
        if self.version.jax not in (None, found.jax):
            # For example because of a user's own file `jax.py`.
            problem = f"{self.label} was requested, and jax {found.jax} was imported"
            return Listing(broken=(Failure("error", f"import of {self.label}", problem),))
        return replace(found, broken=tuple(map(self._name, found.broken)))

    def ask(
        self,
        task: Task[A, R],
        argument: A,
        limit_s: float | None = None,
        listen: Callable[[str], None] = lambda stage: None,
    ) -> R:
        """The result of this task there.

        Args:
            limit_s: seconds for each stage but the import of the cases; then the process is ended.
            listen: told of each stage.

        Raises:
            Lost: it has failed, took too long, or is gone.
        """

        def tell(message: dict[str, Any]) -> None:
            listen(f"{message['stage']} of {self.label}")

        limits = CallLimits(lambda stage: None if stage in ("start", "import") else limit_s)
        answer = self._pool.call(task, argument, limits, shows_output=False, on_message=tell)
        if isinstance(answer, Failure):
            raise Lost(self._name(answer))
        return answer

    def _name(self, failure: Failure) -> Failure:
        return replace(failure, stage=f"{failure.stage} of {self.label}")
