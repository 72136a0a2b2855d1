"""Processes of another version that find cases and do work with them: what they do, and the other end, which starts and
asks them.

A partner is a worker (`workers/pool.py`) whose keeper runs in the environment of its version. It stays from one request
to the next, and keeps the cases that it has found.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchax.case import Case
from benchax.checkouts.launch import Launch, Selection
from benchax.discovery import collect
from benchax.environment import CONFIG, ask_git, capture
from benchax.errors import NotMeasured
from benchax.measuring import paired
from benchax.measuring.jax_settings import apply_settings, imported_jax, jax_settings
from benchax.measuring.paired import SideFacts, Turns
from benchax.model import CaseId, Environment, Failure, Measurement, Options
from benchax.options import resolve
from benchax.workers import pickling
from benchax.workers.conversation import start_keeper
from benchax.workers.executors import measure_case
from benchax.workers.pool import Pool
from benchax.workers.task import A, CallLimits, Failed, R, Say, Task

# ---- in the worker ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaseSource:
    """Where a process finds its cases."""

    selection: Selection | bytes
    """Bytes are one case, pickled. Reading it can start JAX's backend, so the settings come first."""
    settings: Mapping[str, Any]
    """Settings of JAX."""
    top: Path | None = None
    """As `Launch.top`."""


@dataclass(frozen=True)
class Listing:
    """The cases that a process has found."""

    listed: tuple[tuple[CaseId, float | None], ...] = ()
    """With the seconds that each of their stages may take."""
    broken: tuple[Failure, ...] = ()
    """Files that cannot be imported, or why there is no case at all."""
    environment: Environment | None = None
    jax: str = ""
    inside: tuple[str, ...] = ()
    """Files of modules inside of `CaseSource.top`, installed packages apart."""

    @cached_property
    def cases(self) -> dict[CaseId, tuple[int, float | None]]:
        """Its number there, and the seconds that each stage may take."""
        return {case: (i, timeout_s) for i, (case, timeout_s) in enumerate(self.listed)}

    def why_missing(self, label: str) -> Failure:
        return next(iter(self.broken), Failure("not_run", f"import of {label}", f"{label} has no such case"))


_kept: list[tuple[Case, Options]] = []
"""The cases of this process, from one request to the next."""


def list_cases(source: CaseSource, say: Say) -> Listing:
    say("import")
    apply_settings(dict(source.settings))
    chosen, broken = source.selection, list[Failure]()
    if isinstance(chosen, bytes):
        cases, given = [pickling.loads(chosen)], {}
    else:
        cases, broken = collect(chosen.what, chosen.pattern, chosen.params)
        given = chosen.options
    _kept[:] = [(case, resolve(None, case.options, given, project=case.folder)) for case in cases]
    listed = tuple((case.id, options.timeout_s) for case, options in _kept)
    return Listing(listed, tuple(broken), capture(), imported_jax(), tuple(_find_modules(source.top)))


def _find_modules(top: Path | None) -> Iterator[str]:
    if top is None:
        return
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for path in sorted(Path(file).resolve() for file in files if file):
        if path.is_relative_to(top) and "site-packages" not in path.parts:
            yield str(path)


def kept_case(source: CaseSource, number: int, say: Say) -> tuple[Case, Options]:
    """Returns the case of this number, and its options."""
    if not _kept:  # this process has taken the place of one that ended
        list_cases(source, say)
    return _kept[number]


def build_case(argument: tuple[CaseSource, int], say: Say) -> tuple[Measurement, bytes | None]:
    """Returns what `measure_case` does for the case of this number."""
    case, options = kept_case(*argument, say)
    return measure_case((case, options, "", "function"), say)


# ---- a pair that takes turns -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WarmCase:
    """A case that is ready to be sampled."""

    facts: SideFacts
    signature: str
    iterations: int
    """Calls in a sample."""
    call_ns: int


_prepared: list[Turns] = []
"""The case that this process has prepared, from one request to the next; none, or one."""


def prepare_case(argument: tuple[CaseSource, int], say: Say) -> WarmCase:
    """The case of this number."""
    case, options = kept_case(*argument, say)
    # A persistent cache would be filled by the first pair, and later ones time looking things up.
    apply_settings({"jax_enable_compilation_cache": False})
    _prepared.clear()
    gc.collect()
    gc.disable()
    ready = paired.prepare_turns(case, options.seed, say)
    _prepared.append(ready)
    return WarmCase(ready.version.facts, ready.version.inputs.signature, ready.iterations, ready.call_ns)


def _ready() -> Turns:
    if not _prepared:
        raise NotMeasured("the process that had prepared the case has ended")
    return _prepared[0]


def sample_case(iterations: int, say: Say) -> tuple[int, int]:
    """(nanoseconds of this number of calls, programs that were compiled in all samples of the case)."""
    say("rounds")
    return _ready().sample(iterations), _ready().version.facts.compiles


def give_outputs(argument: None, say: Say) -> list[np.ndarray]:
    say("outputs")
    return _ready().outputs


# ---- the other end ---------------------------------------------------------------------------------------------------


PLACES = "Put it into the repository's top folder, into src, or into a folder of PYTHONPATH."


class Partner:
    """A process of another version. It starts when it is needed, and again after its end.

    Args:
        core: it runs on this one alone.
    """

    def __init__(self, launch: Launch, selection: Selection | bytes, core: int | None = None) -> None:
        self.version, self.label = launch.version, launch.version.label
        # Settings that were made in code; of another JAX, only those whose meaning and default are the same there.
        here = {name: v for name, v in jax_settings().items() if launch.version.jax is None or name in CONFIG}
        self.source = CaseSource(selection, here | dict(launch.settings), launch.top)
        how = {"python": launch.python, "paths": launch.paths, "core": core, "cwd": launch.folder}
        keeper = partial(start_keeper, **how)
        self._pool = Pool(warm=False, preload=(__name__,), environ=launch.environ, start_keeper=keeper)
        self.renew, self.close = self._pool.renew, self._pool.close

    def listing(self) -> Listing:
        """Returns the cases that the process has found."""
        try:
            found = self.ask(list_cases, self.source)
        except Failed as failed:
            return Listing(broken=(failed.failure,))
        if self.version.jax not in (None, found.jax):
            # For example because of a user's own file `jax.py`.
            problem = f"{self.label} was requested, and jax {found.jax} was imported"
            return Listing(broken=(Failure("error", f"import of {self.label}", problem),))
        if wrong := self._find_own(found.inside):
            # For example because of a hook in `sys.meta_path`, as some editable installations have.
            problem = f"{wrong} was imported as it is now, and not as it is in {self.label}"
            return Listing(broken=(Failure("error", f"import of {self.label}", problem, PLACES),))
        return replace(found, broken=tuple(map(self._name, found.broken)))

    def _find_own(self, files: Sequence[str]) -> str:
        """The first of the files that belongs to the repository, and is not ignored there; empty if none does."""
        top = self.source.top
        words = ("ls-files", "--cached", "--others", "--exclude-standard", "--", *files)
        return (ask_git(top, *words) or "").partition("\n")[0] if top and files else ""

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
            Failed: the task, or the process.
        """

        def tell(message: dict[str, Any]) -> None:
            listen(f"{message['stage']} of {self.label}")

        limits = CallLimits(lambda stage: None if stage in ("start", "import") else limit_s)
        answer = self._pool.call(task, argument, limits, shows_output=False, on_message=tell)
        if isinstance(answer, Failure):
            raise Failed(self._name(answer))
        return answer

    def _name(self, failure: Failure) -> Failure:
        return replace(failure, stage=f"{failure.stage} of {self.label}")
