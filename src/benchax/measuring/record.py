"""Accumulates the results of a case, and makes a row from them, even after a failure.

A process that measures for another one reports new results at each step (`Record.news`), with the names of the row's
fields. The other one keeps them (`RemoteRow`). A case that is killed becomes a row with all known results.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from benchax.case import Case
from benchax.environment import at_commit_of, capture, capture_process
from benchax.errors import NotMeasured
from benchax.json_values import decode_value, encode_value
from benchax.kept_peaks import kept_peaks
from benchax.machine import noise
from benchax.measuring.purity import Purity
from benchax.measuring.sampling import NO_WARMUP, Warmup
from benchax.model import (
    Absent,
    CaseId,
    Cost,
    Devices,
    EarlierRuns,
    Environment,
    Failure,
    Measurement,
    Memory,
    Noise,
    Numerics,
    Options,
    Program,
    Remark,
    Samples,
    Stages,
    WorkPerCall,
)

# ---- verification notes ----------------------------------------------------------------------------------------------
#
# Notes about the result of a row, besides the verdict. All rows use this, so it is separate from `verification.py`,
# which takes 0.1 s to load.


@dataclass
class Notes:
    """Observations about the result of a function, besides its verdict. State is listed by name."""

    dropped: list[str] = field(default_factory=list)
    """State that the eager call changes in place and the compiled one does not."""
    undetermined: list[str] = field(default_factory=list)
    """New state that rounding alone decides, and that the verdict does not speak of."""
    undecided: str = ""
    """Why it cannot be decided whether the outputs are right, though they were compared."""
    nonfinite: str = ""
    """The part of the result that isn't finite (`numerics.describe_nonfinite`); empty if all of it is, or if it was not
    verified."""
    returns_nothing: bool = False
    """Neither a result nor new state has come of a call."""


Progress = Callable[[str, float], None]
"""Receives the stage, and its finished share if that is known (else 0)."""


def quiet(stage: str, share: float = 0.0) -> None:
    """No progress."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass
class Record:
    """Each step adds to it."""

    progress: Progress
    started_at: str = field(default_factory=_now)
    reading: noise.Reading = field(default_factory=lambda: noise.start())
    """The machine's load by other processes, from now on."""
    stage: str = "inputs"
    signature: str = ""
    stages: Stages = field(default_factory=Stages)
    samples: list[Samples] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    cost: Cost | None = None
    numerics: Numerics | None = None
    program: Program | None = None
    amounts: Mapping[str, float] = field(default_factory=dict[str, float])
    """The amounts of the work that one call does, where its author says it."""
    source: str = ""
    """The digest of the exported program's source, if a store can have it."""
    devices: Devices | None = None
    remarks: tuple[Remark, ...] = ()
    absent: list[Absent] = field(default_factory=list)
    purity: Purity = field(default_factory=Purity)
    notes: Notes = field(default_factory=Notes)
    warmup: Warmup = NO_WARMUP
    first_call_s: float = 0.0
    first_compiles: int = 0
    """Programs that the first call compiled itself."""
    compiles: int = 0
    """Programs that were compiled while the case was timed."""
    processes: int | None = None
    """That share the time for sampling; None before that is known."""
    noise: Noise | None = None
    told: dict[str, Any] = field(init=False)
    told_samples: int = 0

    def __post_init__(self) -> None:
        self.told = self._known()

    def enter(self, stage: str) -> None:
        self.stage = stage
        self.progress(stage, 0.0)

    def news(self) -> dict[str, Any]:
        """Encodes the fields of the row that changed since the last call, and the samples that are new."""
        known = self._known()
        new = {name: value for name, value in known.items() if value != self.told[name]}
        self.told = known
        found = {name: encode_value(value, _hints()[name]) for name, value in new.items()}
        samples, self.told_samples = self.samples[self.told_samples :], len(self.samples)
        return found | ({NEW_SAMPLES: [encode_value(each, Samples) for each in samples]} if samples else {})

    def _known(self) -> dict[str, Any]:
        """The fields of the row that a killed worker leaves behind: those that have their name here."""
        found = {name: getattr(self, name) for name in _hints() if name in vars(self) and name not in _APART}
        return found | {"noise": self.noise or Noise(), "not_measured": tuple(self.absent)}

    def why(self, what: str) -> str:
        return next(a.why for a in self.absent if a.what == what)

    @contextmanager
    def recording_absence(self, what: str) -> Iterator[None]:
        """Runs a part that can turn out not to be measurable: then the row gives the reason."""
        try:
            yield
        except NotMeasured as error:
            self.absent.append(Absent(what, error.problem))

    def row(self, case: Case, options: Options, run_id: str, failure: Failure | None) -> Measurement:
        environment = at_commit_of(_find_commit(run_id, case.folder, options.store), capture_process())
        find, has_bytes = case.find_earlier_runs, "bytes" in self.amounts or (self.cost and self.cost.bytes_accessed)
        earlier = find(self.source, environment.fingerprint) if find and self.source else EarlierRuns(self.source)
        peaks = kept_peaks(environment.fingerprint) if has_bytes else None
        peak_bytes_per_s = peaks.bytes_per_s(self.memory.predicted_peak_bytes)[0] if peaks else None
        self.noise = self.noise or noise.finish(self.reading)
        return Measurement(
            case=case.id,
            environment=environment,
            options=options if self.processes is None else replace(options, processes=self.processes),
            run_id=run_id,
            started_at=self.started_at,
            failure=failure,
            samples=tuple(self.samples),
            program=self.program,
            earlier_runs=earlier,
            work=WorkPerCall(self.amounts, peak_bytes_per_s),
            **self._known(),
        )


NEW_SAMPLES = "new_samples"
_APART = ("started_at", "samples", "program")
"""Samples travel when they are new. A killed worker's row has its own beginning, and no program."""


@dataclass
class RemoteRow:
    """A row that another process measures, as far as that has reported it."""

    progress: Progress = quiet
    started_at: str = field(default_factory=_now)
    known: dict[str, Any] = field(default_factory=dict[str, Any])
    """The news of its record, by the names of the row's fields, and what else its messages hold."""

    def listen(self, message: Mapping[str, Any]) -> None:
        """Adds the news of a message. Reports its stage as progress."""
        for name, value in message.items():
            if name == NEW_SAMPLES:
                self.known.setdefault("samples", []).extend(value)
            else:
                self.known[name] = value
        self.progress(message["stage"], message.get("share", 0.0))

    def row(
        self, case: CaseId, environment: Environment, options: Options, run_id: str, failure: Failure | None = None
    ) -> Measurement:
        """Raises FormatError if the news is not valid."""
        hints = _hints()
        found = {name: decode_value(value, hints[name]) for name, value in self.known.items() if name in hints}
        return Measurement(case, environment, options, run_id, self.started_at, failure=failure, **found)


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Measurement)


@lru_cache(maxsize=8)
def _find_commit(run_id: str, folder: Path | None, store: str) -> Environment:
    """Asked once in a run: git takes 5 ms, and what is measured is what was there when the run began. Settings of JAX
    are asked for each row, because the case before can have changed them."""
    return capture(folder, with_jax=False, besides=None if store == "off" or "://" in store else Path(store))
