"""--ptjb-fail-slower: the reference's program runs again, side by side with the present one, and only this decides.

Times of two sessions cannot show a change below a factor of 2.5. So both programs run side by side, in fresh processes
(`benchax.paired_runs`), and a change counts when a second measurement confirms it. This happens in the test and not at
the end of the session. A program's time can depend on its input values, and only the test has them. Later, random data
of their shapes would have to replace them. Programs that are equal except for names of files and numbers of lines are
the same, and need not run.

A measurement without a program is not compared, and gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchax import units
from benchax.case import Case
from benchax.comparing import gate
from benchax.comparing.sequential import RUN, TIMES, Effort
from benchax.errors import NotMeasured, reason_of
from benchax.measuring.exported import is_same_program, leaves_of
from benchax.measuring.prepare import prepare
from benchax.model import Comparison, Measurement, Metric
from benchax.paired_runs import session
from benchax.paired_runs.compare import StoredVersion, pair_with_rows
from benchax.paired_runs.paired_run import PairedRun
from benchax.reporting.comparisons import interval, verdict_with_reason
from benchax.stats.verdicts import Verdict
from pytest_jax_bench import side_by_side
from pytest_jax_bench.baseline import Row, has

Limits = Mapping[Metric, gate.Limit]
SAME_PROGRAM = f"same: {side_by_side.SAME.why}"


@dataclass(frozen=True)
class GateResult:
    """The result of one comparison."""

    against: str
    """The reference, as --ptjb-pin takes it."""
    verdict: Verdict | None
    """The verdict on the run time; None: not compared."""
    text: str
    """The verdict with its numbers, or why there is no verdict."""
    alarms: tuple[str, ...] = ()
    """The metrics that exceed their limits."""
    notes: tuple[str, ...] = ()
    """Facts to know about the comparison, or a note that there is no comparison."""
    change: str = ""
    """The change of the run time: +32 %."""
    unjudged: tuple[str, ...] = ()
    """The metrics that have a limit and no verdict."""


def check(old: Row, new: Row, measured: Measurement | None, case: Case | None, limits: Limits) -> GateResult:
    """Compares a measurement of a jitted function, which is stored, with the measurement of the row `old`.

    Args:
        measured, case: of the jitted function; None if there is no such function.
    """
    labels = (f"{old['commit']}:{old['commit_run']}", f"{new['commit']}:{new['commit_run']}")
    try:
        if measured is not None and not has(new, "jit"):
            raise NotMeasured("its run time was not measured")
        paired_run = _pair_programs(old, labels, measured, case)
        if is_same_program(*(side.program or b"" for side in paired_run.sides)):
            return GateResult(labels[0], "same", SAME_PROGRAM)
        found = compare_programs(paired_run, limits)
        run = next(c for c in found if c.metric == "run")
        if run.failure is not None:
            raise NotMeasured(run.why)
    except Exception as error:  # whatever it is: the row is there, and the test has done its work
        text = f"not compared with {labels[0]}, because {reason_of(error)}"
        return GateResult(labels[0], None, text, notes=(text,), unjudged=tuple(limits))
    of_limits = gate.Gate(limits)
    alarms = tuple(gate.describe_alarm(c, limit) for c, limit in of_limits.alarms(found))
    text = f"{interval(run)} {verdict_with_reason(run)}".strip()
    notes = tuple(remark.message for remark in run.remarks)
    change = "" if run.ratio is None else units.change(run.ratio)
    return GateResult(labels[0], run.verdict, text, alarms, notes, change, tuple(of_limits.unjudged(found)))


# ---- what is compared -------------------------------------------------------------------------------------------


def _pair_programs(old: Row, labels: tuple[str, str], new: Measurement | None, case: Case | None) -> PairedRun:
    """Raises `NotMeasured` with the reason if there is no pair."""
    if new is None or case is None:
        raise NotMeasured("only jitted functions have a program that could run again")
    store, reference = side_by_side.find_reference(old, new)
    one, other = (
        StoredVersion(label, {new.case: row}, store) for label, row in zip(labels, (reference, new), strict=True)
    )
    paired_runs, rest = pair_with_rows(one, other, new.environment, new.options)
    if rest:
        raise NotMeasured(rest[0].why)
    (paired_run,) = paired_runs
    # The test's own inputs for both sides: how long a program takes may depend on the values that it is given.
    prepared = prepare(case, new.options.seed)
    leaves = leaves_of(prepared.trace().subject).args
    return replace(
        paired_run,
        sides=tuple(replace(side, leaves=leaves) for side in paired_run.sides),
        remarks=tuple(remark for remark in paired_run.remarks if remark.code != "random-data"),
    )


# ---- and how ----------------------------------------------------------------------------------------------------


def compare_programs(paired_run: PairedRun, limits: Limits) -> list[Comparison]:
    """Until the run time is clear, and compiling where it has a limit; changes of them are confirmed."""
    effort = Effort(metrics=TIMES if "compile" in limits else RUN)
    (found,) = session.compare_runs([paired_run], effort)
    return found
