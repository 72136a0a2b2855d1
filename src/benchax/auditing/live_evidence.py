"""Evidence of a function that may be called here: it is measured, watched, and compared with variants of it.

With a limit of time nothing of the function is called here before it was tried in a worker process (`trial.py`); what
does not end or crashes there is not measured here, for that reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any
from uuid import uuid4

import jax

from benchax.api import run
from benchax.auditing.compiled_evidence import CompiledEvidence
from benchax.auditing.nan_origins import is_nan
from benchax.auditing.trial import BEFORE_TRACING, BUILDING, HOW, TrialCall, Way, try_case
from benchax.case import Case
from benchax.comparing.sequential import Effort
from benchax.errors import NotMeasured
from benchax.experiments.lab import WorkerLab
from benchax.experiments.pair_timing import Pair
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.engine import measure
from benchax.measuring.inputs import Inputs, make_inputs, without_static
from benchax.measuring.program import program_of
from benchax.model import Comparison, Measurement, Remark
from benchax.options import resolve
from benchax.results.watch import Watch
from benchax.static_leaves import reveal
from benchax.watching.watch import watch

SHORT: Mapping[str, Any] = {"store": "off", "max_time_s": 0.25, "max_warmup_s": 0.25, "stages": "all"}
"""Options of the measurements."""
COMPARING_S = 20.0
"""A comparison begins no process after this long. It takes two processes to compare and two to confirm, of 3 s each on
a busy machine, and some room."""
LARGE_EFFECT = 2.0
"""So many times as fast or as slow, and yet unclear: then it goes on, for it is others' noise that hides it."""
LONGER_S = 40.0
"""It then goes on for about so long."""
RESERVED_SHARE = 0.25
"""In the last quarter of the time none is begun, so that the audit ends about when its time does."""
WATCHED_CALLS = 3
NOT_CALLED = "not-called"
"""Code of the remark that it was tried in a worker and must not be called here, so that little could be looked at."""
NOT_BUILT = "not-built"
"""Code of the remark that it does not trace or compile, so that most rules had nothing to look at."""
_DONE = {
    "measurement": "measured compiled",
    "eager": "measured eagerly",
    "watch": "called a few times as it stands",
}


class LiveEvidence(CompiledEvidence):
    """What is found out of a function that may be called.

    Args:
        max_time_s: comparisons are begun only in its first three quarters.
        timeout_s: limit of each stage in other processes, where the function is tried first; None: no limit, no trial.
    """

    why_not_called = ""

    def __init__(self, case: Case, *, max_time_s: float = 60.0, seed: int = 0, timeout_s: float | None = None) -> None:
        super().__init__(case, seed=seed, timeout_s=timeout_s)
        self.max_time_s = max_time_s
        self._begun = perf_counter()
        self._longest_s = 0.0
        """Of the comparisons so far."""
        self.process_s = 0.0
        """What starting a process, building the function there and calling it once took; 0 where that was not tried."""
        self._comparisons: list[tuple[Pair, Comparison]] = []

    @property
    def is_jitted(self) -> bool:
        return program_of(self.case).was_jitted

    @property
    def eager_case(self) -> Case:
        self._pass("eager")
        return self._without_jit()

    @property
    def given(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        if self._has_no_inputs:
            self._pass("compiled")
        return self.case.inputs()

    @property
    def inputs(self) -> Inputs:
        self._pass("compiled")
        error = self.trial("compiled").error
        if error is not None and error.stage in BUILDING and not self.is_jitted:
            self._pass("eager")  # the only way in which it runs
        return self._inputs

    @property
    def data(self) -> Sequence[Any]:
        made = self.inputs
        return jax.tree.leaves(without_static(made.args, made.kwargs, made.static))

    @property
    def nan_at(self) -> int:
        """Here it is called once for that."""
        args, kwargs = reveal(self.fresh_inputs())
        return int(any(map(is_nan, jax.tree.leaves(self.fn(*args, **kwargs)))))

    def fresh_inputs(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        return self.inputs.renewed()

    @property
    def signature(self) -> str:
        """The inputs as specs; empty where making them does not end."""
        return "" if self._has_no_inputs else self._inputs.signature

    # Whether it may be called

    def trial(self, way: Way) -> TrialCall:
        """What came of calling it in a worker process; without a limit of time there is none, and no obstacle."""
        limit_s = self.timeout_s
        if limit_s is None:
            return TrialCall(way)
        return self._once(f"{way} trial", lambda: self._try(way, limit_s))

    @property
    def trials(self) -> list[TrialCall]:
        """Those that were made."""
        return [part for part in self._parts.values() if isinstance(part, TrialCall)]

    # What is seen of it

    @property
    def measurement(self) -> Measurement:
        self._check_compiles()
        return self._once("measurement", self._measure_compiled)

    @property
    def eager(self) -> Measurement:
        self._pass("eager")
        return self._once("eager", lambda: self._measure(self.eager_case, "eagerly"))

    @property
    def watch(self) -> Watch:
        self._pass("compiled" if self.is_jitted else "eager")
        return self._once("watch", self._watch)

    @property
    def remarks(self) -> list[Remark]:
        """For who reads that it had effects."""
        trials = self.trials
        about_trials = [remark for trial in trials for remark in _of_trial(trial)]
        if self.trial("compiled").obstacle is not None:
            return about_trials
        ways = [trial.way for trial in trials if not trial.untried]
        compared = [pair.name for pair, _ in self._comparisons]
        done = [f"tried in a worker process ({', '.join(ways)})"] if ways else []
        done += ["traced"]
        done += ["compiled"] if self.failure is None else []
        done += [text for part, text in _DONE.items() if self._has(part)]
        done += [f"compared in fresh processes ({', '.join(compared)})"] if compared else []
        how = Remark("how", "info", f"To find this out, the function was {', '.join(done)}.")
        return [*about_trials, *self._of_failure(), how]

    def _of_failure(self) -> Iterable[Remark]:
        """Eagerly a function may run that cannot be compiled; one that runs in no way could not be looked at."""
        if self.failure is None:
            return
        # Not tried for this alone: it may take as long as the limit is.
        fails_eagerly = self.is_jitted or any(trial.way == "eager" and trial.error for trial in self.trials)
        text = f"It does not {self.failure.stage}, so that most rules had nothing to look at: {self.failure.message}"
        yield Remark(NOT_BUILT, "error" if fails_eagerly else "warning", text)

    # What is tried

    @property
    def budget_s(self) -> float:
        """Seconds left for comparisons."""
        return max(0.0, self.max_time_s - (perf_counter() - self._begun))

    def compare(self, name: str, variant: Case, baseline: Case | None = None) -> Comparison:
        pair = Pair(name, "as it is", baseline or self.case, name, variant)
        known = next((c for asked, c in self._comparisons if asked == pair), None)
        return known or self._compare(pair)

    # How

    def _pass(self, way: Way) -> None:
        """Raises `NotMeasured` where it must not be called so in this process; what fails compiled, in no way."""
        for each in dict.fromkeys(("compiled", way)):
            if why := self.trial(each).why:
                raise NotMeasured(why)

    def _refuse_tracing(self) -> None:
        self._pass("compiled")

    @property
    def _has_no_inputs(self) -> bool:
        obstacle = self.trial("compiled").obstacle
        return obstacle is not None and obstacle.stage in BEFORE_TRACING

    def _make_inputs(self) -> Inputs:
        return make_inputs(self.case, self.seed)

    def _measure_compiled(self) -> Measurement:
        """As `_measure`, of what has been built already."""
        self.tell("measuring it compiled")
        options = resolve({**SHORT, "seed": self.seed}, self.case.options, project=self.case.folder)
        return _check_row(measure(self.case, options, run_id=uuid4().hex, prepared=self.prepared), "compiled")

    def _measure(self, case: Case, what: str) -> Measurement:
        self.tell(f"measuring it {what}")
        (row,) = run([case], call={**SHORT, "seed": self.seed})
        return _check_row(row, what)

    def _try(self, way: Way, limit_s: float) -> TrialCall:
        begun = perf_counter()
        found = try_case(self.case if way == "compiled" else self._without_jit(), self.seed, limit_s, self.tell)
        self.process_s = max(self.process_s, perf_counter() - begun)
        return found

    def _compare(self, pair: Pair) -> Comparison:
        name = pair.name
        # A change is confirmed whatever the hour: what is begun late would end long after the time that was asked for.
        if self._ends_too_late():
            raise NotMeasured(f"the {self.max_time_s:g} s for comparisons were used up (--max-time)")
        self.tell(f"comparing with {name}")
        found = self._time(pair, Effort(looks=(2, 3), max_time_s=min(COMPARING_S, self.budget_s)))
        if is_hidden(found) and not self._ends_too_late():
            self.tell(f"comparing with {name} for longer, for the effect is large")
            found = self._time(pair, Effort(looks=(4, 6, 8), max_time_s=min(LONGER_S, self.budget_s)))
        if found.failure is not None:
            raise NotMeasured(f"the comparison with {name} failed: {found.failure.message}")
        self._comparisons.append((pair, found))
        return found

    def _ends_too_late(self) -> bool:
        """Would a comparison that begins now? Each of a function takes about as long as the one before it, the first
        one as long as two processes."""
        least_s = self._longest_s or 2 * self.process_s
        return self.budget_s <= max(RESERVED_SHARE * self.max_time_s, least_s)

    def _time(self, pair: Pair, effort: Effort) -> Comparison:
        begun = perf_counter()
        try:
            return self._time_in_workers(pair, effort)
        finally:
            self._longest_s = max(self._longest_s, perf_counter() - begun)

    def _time_in_workers(self, pair: Pair, effort: Effort) -> Comparison:
        given = {"store": "off", "memory": False, "seed": self.seed, "timeout_s": self.timeout_s}
        lab = WorkerLab(resolve(given, project=self.case.folder), effort)
        return lab.time_pairs([pair])[pair.name]

    def _watch(self) -> Watch:
        self.tell("calling it")
        # A copy for each call, for a function that donates takes its arguments away.
        calls = [reveal(self._inputs.renewed()) for _ in range(WATCHED_CALLS)]
        with watch() as seen:
            for args, kwargs in calls:
                try:
                    jax.block_until_ready(self.fn(*args, **kwargs))
                except Exception as error:
                    raise NotMeasured(f"calling it fails: {diagnose(error, 'call').message}") from error
        return seen


def is_hidden(c: Comparison) -> bool:
    """Is it unclear, though a large effect was seen?"""
    return c.verdict == "unclear" and bool(c.ratio) and max(c.ratio or 1.0, 1 / (c.ratio or 1.0)) >= LARGE_EFFECT


def _check_row(row: Measurement, what: str) -> Measurement:
    """Raises `NotMeasured` for one that failed."""
    if row.failure is not None:
        raise NotMeasured(f"it fails {what}, in {row.failure.stage}: {row.failure.message}")
    return row


def _of_trial(trial: TrialCall) -> Iterable[Remark]:
    if trial.obstacle is not None:
        is_all = trial.way == "compiled"
        how, left = (
            ("", "Only what needs no call was looked at") if is_all else (" eagerly", "What needs that is left out")
        )
        text = f"The function was not called{how} in this process: {trial.why}. {left}. {trial.advice}".strip()
        yield Remark(NOT_CALLED if is_all else "not-called-unjitted", "error" if is_all else "warning", text)
    elif trial.untried:
        how = HOW[trial.way]
        text = f"The function was called {how} in this process without a limit of time, because {trial.untried}."
        yield Remark("without-limit", "warning", text)
