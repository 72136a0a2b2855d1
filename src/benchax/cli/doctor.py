"""`benchax doctor`: how well this machine can measure right now, what disturbs it, and what to do."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from benchax.measuring.doctor import Diagnosis
    from benchax.reporting.tables import Row, Section


def doctor(
    seconds: Annotated[float, typer.Option("--seconds", "-s", min=0.1, help="How long to look.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Look at the clock, the noise of this machine, and the settings that disturb measurements."""
    from benchax.cli.console import line, note, show
    from benchax.measuring.doctor import examine
    from benchax.reporting import terminal

    note(f"looking at this machine for {seconds:g} s …")
    found = examine(seconds)
    if as_json:
        line(json.dumps(dataclasses.asdict(found), indent=2))
        return
    show(terminal.measured(_section(found)))
    show(terminal.remarks(found.advice))


def _compiled_clock(found: Diagnosis) -> Row:
    from benchax.reporting.tables import Row
    from benchax.units import seconds

    inside = found.compiled_clock
    if inside.tier is None or inside.reading_s is None:
        return Row("clock in jit", "none", "; ".join(inside.reasons), "warning")
    return Row("clock in jit", seconds(inside.reading_s), f"a reading inside compiled code, by the {inside.tier} clock")


def _section(found: Diagnosis) -> Section:
    from benchax.reporting.tables import Row, Section
    from benchax.units import percent, seconds

    def share(value: float | None) -> str:
        return "not known" if value is None else percent(value)

    gaps, spread, noise = found.gaps, found.spread, found.noise
    rows = [
        Row("clock step", seconds(found.clock.resolution_s), f"one reading takes {seconds(found.clock.reading_s)}"),
        _compiled_clock(found),
        Row(
            "time lost",
            percent(gaps.lost_share),
            f"{gaps.per_s:.0f} gaps above 5 µs a second, longest {seconds(gaps.longest_s)}",
        ),
        Row("others", share(noise.others_share), "of all CPU time was used by other processes"),
        Row("stolen", share(noise.steal_share), "of all CPU time was taken by the hypervisor"),
    ]
    if noise.load_1m is not None:
        rows.append(
            Row("load", f"{noise.load_1m:.2f}", f"over the last minute, on {found.environment.cores or '?'} cores")
        )
    if spread is not None:
        slowest = f"{spread.p99_over_median:.2f} ×"
        detail = f"of {seconds(spread.median_s)} of fixed work; the slowest of a hundred takes {slowest}"
        rows.append(Row("spread", percent(spread.relative_iqr), detail))
    if found.smallest_effect is not None:
        detail = "the least slowdown that 150 paired samples of this fixed work would show; real code needs more"
        rows.append(Row("smallest effect", percent(found.smallest_effect), detail))
    return Section("this machine, now", tuple(rows))
