"""`benchax doctor`: shows how well this machine can measure right now, what disturbs it, and what to do. With --aa, it
shows how often verdicts are wrong here. `benchax env`: shows what benchax would record about the machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from benchax.cli.console import COMMAND_LINE, Given, note, show, takes_options
from benchax.comparing.error_rates import ErrorRates
from benchax.environment import capture
from benchax.errors import UsageError
from benchax.machine import doctor as machine
from benchax.progress import ProgressEvent, show_progress
from benchax.reporting.comparisons import document_of_error_rates, to_plain_data
from benchax.reporting.document import Document, Facts, Paragraph, Section, TextRow, list_remarks
from benchax.reporting.tables import environment
from benchax.units import percent, read_duration, seconds

LOOK_S = 1.0


@takes_options(max_time_s="With --aa: start no round that would end after this time (default 3min).")
def doctor(
    *,
    duration: Annotated[
        str, typer.Option("--duration", "-s", metavar="TIME", help="Observe for this long: 1, 500ms.")
    ] = "1s",
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
    aa: Annotated[
        bool,
        typer.Option("--aa", help="Judge unchanged and slowed-down kernels, and show how often verdicts are wrong."),
    ] = False,
    given: Given,
) -> None:
    """Check the clock, the noise of this machine, and the settings that disturb measurements."""
    max_time_s = given["max_time_s"]
    if max_time_s is not None and not aa:
        raise UsageError("--max-time is given without --aa", "both of them; --duration limits a run without --aa")
    if aa:
        _error_rates(max_time_s, as_json)
        return
    duration_s = read_duration("duration", duration, COMMAND_LINE) or LOOK_S
    note(f"observing this machine for {duration_s:g} s …")
    found = machine.examine(duration_s)
    shown = Document((Paragraph(_answer(found)), Facts((_section(found),)), *list_remarks(found.advice)))
    show(json.dumps(dataclasses.asdict(found), indent=2) if as_json else shown)


# ---- --aa -------------------------------------------------------------------------------------------------------


def _error_rates(max_time_s: float | None, as_json: bool) -> None:
    """Shows the results of the finished rounds, also after Ctrl-C.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when all results are on the screen; then the exit code is 130.
    """
    from benchax.paired_runs import protocol

    found: ErrorRates | None = None
    note("judging unchanged and slowed-down kernels; Ctrl-C shows the results so far")
    try:
        with show_progress(True) as report:
            for found in protocol.measure_rounds(max_time_s or protocol.MAX_TIME_S, report):
                verdicts = f"{len(found.trials)} verdicts after {found.elapsed_s:.0f} s"
                report(ProgressEvent(verdicts, is_lasting=True))
    finally:  # also after Ctrl-C
        if found is None:
            note("no round was finished, so nothing is known")
        else:
            show(json.dumps(to_plain_data(found), indent=2) if as_json else document_of_error_rates(found))


# ---- this machine -----------------------------------------------------------------------------------------------


def _compiled_clock(found: machine.Diagnosis) -> TextRow:

    inside = found.compiled_clock
    if inside.tier is None or inside.reading_s is None:
        return TextRow("clock in jit", "none", "; ".join(inside.reasons), "warning")
    return TextRow(
        "clock in jit", seconds(inside.reading_s), f"a reading inside compiled code, by the {inside.tier} clock"
    )


def _answer(found: machine.Diagnosis) -> str:

    if found.smallest_effect is None:
        return "The smallest slowdown that this machine shows was not measured: its clock is too coarse."
    effect, others = percent(found.smallest_effect), found.noise.others_share
    busy = f" Other processes use {percent(others)} of it now." if others else ""
    return f"On this machine, 150 pairs of a fixed piece of work show slowdowns from {effect} on.{busy}"


def _section(found: machine.Diagnosis) -> Section:

    def share(value: float | None) -> str:
        return "not known" if value is None else percent(value)

    gaps, spread, noise = found.gaps, found.spread, found.noise
    rows = [
        TextRow("clock step", seconds(found.clock.resolution_s), f"one reading takes {seconds(found.clock.reading_s)}"),
        _compiled_clock(found),
        TextRow(
            "time lost",
            percent(gaps.lost_share),
            f"{gaps.per_s:.0f} gaps above 5 µs a second, longest {seconds(gaps.longest_s)}",
        ),
        TextRow("others", share(noise.others_share), "of all CPU time was used by other processes"),
        TextRow("stolen", share(noise.steal_share), "of all CPU time was taken by the hypervisor"),
    ]
    if noise.pace_scatter is not None:
        detail = "standard deviation from moment to moment, in earlier runs; intervals across processes include it"
        rows.append(TextRow("pace", percent(noise.pace_scatter), detail))
    if noise.load_1m is not None:
        detail = f"over the last minute, on {found.environment.cores or '?'} cores"
        rows.append(TextRow("load", f"{noise.load_1m:.2f}", detail))
    if spread is not None:
        fixed = f"of {seconds(spread.median_s)} of fixed work"
        detail = f"{fixed}; the slowest of a hundred takes {spread.p99_over_median:.2f} ×"
        rows.append(TextRow("spread", percent(spread.relative_iqr), detail))
    return Section("this machine, now", tuple(rows))


# ---- benchax env ------------------------------------------------------------------------------------------------


def env(as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False) -> None:
    """Show the environment that benchax stores with every row."""

    found = capture(Path.cwd())
    plain = dataclasses.asdict(found) | {"fingerprint": found.fingerprint}
    show(json.dumps(plain, indent=2) if as_json else Document((Facts((environment(found),), "words"),)))
