"""`benchax profile`: shows where the device time goes in a function, or in a program: `benchax profile -- python a.py`.

For a program that runs for a long time, use `--serve PORT -- python a.py`, then `--attach PORT` as often as you like.

A worker process records a function. It can be killed, because benchax does not time it. The exit code is 2 if there is
no profile, or if a profile has no operations; benchax never shows the latter as a table. After a program, the exit code
is the program's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.console import collect_cases, line, note
from benchax.cli.options import COMMAND, COMMAND_LINE, Html, Params, Pattern, Seed, WhatOrCommand
from benchax.cli.output_files import check_writable
from benchax.errors import UsageError
from benchax.units import parse_seconds, read_duration

if TYPE_CHECKING:
    from benchax.case import Case
    from benchax.cli.profile_output import Wanted
    from benchax.profiling.program_recorder import ProgramRequest
    from benchax.results.profile import Profile
    from benchax.workers.pool import Pool
    from benchax.workers.profiled import ProfilingOutcome, ProfilingRequest

TIMEOUT, DURATION_S, STEPS = "5min", 5.0, 10


def profile(
    ctx: typer.Context,
    what: WhatOrCommand = None,
    pattern: Pattern = "",
    params: Params = None,
    output: Annotated[
        Path | None,
        typer.Option(
            # --dir as in the library; --output as of other commands, where it is a file.
            "--dir",
            "--output",
            "-o",
            metavar="DIR",
            help="Write files to DIR (default .benchmarks/profiles/NAME-TIME).",
        ),
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Number of calls (default: enough for 50 ms).")] = None,
    duration: Annotated[
        str,
        typer.Option(metavar="TIME", help="Record for this time; for a program, after its last compilation."),
    ] = f"{DURATION_S:g}s",
    start_after: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="For a program: begin this long after it imports jax, but not before it compiles."
        ),
    ] = "0s",
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=f"End it after this time (default: {TIMEOUT} a stage for a function; never for a program).",
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(metavar="N", min=0, help="For a program: record until it has done N steps of its loop.")
    ] = STEPS,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show memory over time, and save live values of the device in memory.prof.")
    ] = False,
    serve: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Let --attach record the command while it runs. 0: a free port."
        ),
    ] = None,
    attach: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=1, max=65535, help="Record a program that runs with --serve, for --duration."),
    ] = None,
    seed: Seed = None,
    read: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Show an existing trace: a folder or a .xplane.pb file.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Show differences from this earlier trace.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Show all operations, with their full lines of HLO.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON document per profile; for a program, to DIR/profile.json.")
    ] = False,
    nsys: Annotated[bool, typer.Option("--nsys", help="Print the command of Nsight Systems.")] = False,
    xprof: Annotated[
        str | None,
        typer.Option(
            metavar="TOOL",
            help="Print the command of this xprof tool: hlo_stats, op_profile, ….",
        ),
    ] = None,
    html: Html = None,
    in_nsys: Annotated[bool, typer.Option("--in-nsys", hidden=True)] = False,
) -> None:
    """Show where device time goes: a table of operations, and files for Perfetto, TensorBoard and XProf."""
    command = ctx.meta.get(COMMAND)
    _one_of_four(what, command, read, attach)
    if serve is not None:
        _only_served(command, output, memory, as_json, compare, xprof, nsys, html)
    _check_page(html, nsys, xprof)
    from benchax.cli import profile_output
    from benchax.options import read_seed
    from benchax.profiling.program_recorder import ProgramRequest

    earlier = None if compare is None else profile_output.read(compare)
    wanted = profile_output.Wanted(output, details, as_json, earlier, xprof, command is not None, html)
    for_s = read_duration("duration", duration, COMMAND_LINE) or DURATION_S
    least_steps = steps if command is not None else 0
    wish = ProgramRequest("", _delay(start_after), for_s, keeps_memory=memory, least_steps=least_steps)
    limit_s = read_duration("timeout_s", timeout, COMMAND_LINE)
    number = read_seed(seed, COMMAND_LINE)
    if read is not None:
        code = profile_output.show_all([profile_output.read(read)], wanted)
    elif attach is not None or (command is not None and not nsys):
        code = _profile_program(command, serve, attach, wish, limit_s, wanted)
    elif nsys:
        code = _print_nsys(what or [], command, wish, output)
    else:
        cases = _cases(what or [], pattern, params or [])
        profile_them = _region if in_nsys else partial(profile_cases, wish=wish, wanted=wanted, limit_s=limit_s)
        code = profile_them(cases, seed=number, runs=runs)
    raise typer.Exit(code)


def _profile_program(
    command: list[str] | None,
    serve: int | None,
    attach: int | None,
    wish: ProgramRequest,
    limit_s: float | None,
    wanted: Wanted,
) -> int:
    """Profiles a program that runs already, or starts one and profiles it."""
    from benchax.cli.profile_program import profile_attached, profile_program, profile_served

    if attach is not None:
        return profile_attached(attach, wish, limit_s, wanted)
    if serve is not None:
        return profile_served(command or [], serve, limit_s)
    return profile_program(command or [], wish, limit_s, wanted)


def _one_of_four(what: Any, command: Any, read: Any, attach: Any) -> None:
    given = sum([bool(what), command is not None, read is not None, attach is not None])
    if given != 1 or command == []:
        raise UsageError(
            "there are two things to profile" if given > 1 else "there is nothing to profile",
            "one of: a function (jax.numpy:sort f32[1000000]), -- and a command (-- python train.py), --read PATH, or "
            "--attach PORT",
        )


def _check_page(html: Path | None, nsys: bool, xprof: str | None) -> None:
    """Raises UsageError if benchax would have no profile to write."""
    check_writable(html)
    if html is not None and (nsys or xprof):
        raise UsageError(f"--html with --{'nsys' if nsys else 'xprof'}, which shows no profile of ours", "one of them")


def _only_served(command: Any, *of_recordings: Any) -> None:
    """Raises UsageError for options of a recording, because --serve makes no recording."""
    if command is None:
        raise UsageError("--serve without a program", "one behind two dashes: --serve 9999 -- python train.py")
    if any(of_recordings):
        raise UsageError(
            "--serve with options of a recording, which it does not make",
            "them at the one who asks: benchax profile --attach PORT --memory -o DIR",
        )


def _delay(text: str) -> float:
    """Reads a duration as usual. Zero is allowed too, and means at once."""
    with suppress(UsageError):  # it is told below, in the words of all durations
        if parse_seconds(text) == 0:
            return 0.0
    return read_duration("start_after", text, COMMAND_LINE) or 0.0


def _print_nsys(what: Sequence[str], command: Sequence[str] | None, wish: ProgramRequest, output: Path | None) -> int:
    from benchax.cli.profile_program import name_of, nsys_command, this_command

    name = re.sub(r"[^\w.=,+-]+", "-", what[0] if command is None else name_of(command))
    lasting = None if wish.duration_s == DURATION_S else wish.duration_s
    line(nsys_command(command or this_command(), (output or Path()) / name, wish.start_after_s, lasting))
    note(f"run it where Nsight Systems is installed, and open {name}.nsys-rep with nsys-ui")
    return 0


# ---- a function -------------------------------------------------------------------------------------------------


def _cases(what: list[str], pattern: str, params: list[str]) -> list[Case]:
    cases, _ = collect_cases(what, pattern, params)
    if not cases:
        raise typer.Exit(2)
    return cases


def profile_cases(
    cases: Sequence[Case],
    wish: ProgramRequest,
    wanted: Wanted,
    *,
    limit_s: float | None = None,
    seed: int = 0,
    runs: int | None = None,
) -> int:
    """Records each case in a worker, shows it, and returns the exit code."""
    from benchax.cli.profile_output import show_all, write_profiles
    from benchax.profiling.session import kernels_apart
    from benchax.workers.pool import Pool
    from benchax.workers.profiled import ProfilingRequest

    code, profiles = 0, list["Profile"]()
    with Pool(environ=kernels_apart(os.environ)) as pool:
        for case in cases:
            found, has_failed = _record(ProfilingRequest(case, wish, seed, runs), limit_s, wanted, pool)
            profiles += [found] if found else []
            # Each is shown when it is there; a page is of all.
            shown = show_all([found] if found else [], replace(wanted, html=None))
            code = max(code, shown, 2 if has_failed else 0)
    write_profiles(profiles, wanted)
    return code


def _record(
    request: ProfilingRequest, limit_s: float | None, wanted: Wanted, pool: Pool
) -> tuple[Profile | None, bool]:
    """Returns (the profile, has the case failed?). Reports a failure, but a failed case can still have a profile."""
    from statistics import median

    from benchax.cli.profile_output import RecordingFolder, folder_for, profile_of_file
    from benchax.profiling.trace import recording_cost
    from benchax.progress import ProgressEvent, show_progress
    from benchax.workers.profiled import record

    label = request.case.id.label
    place = RecordingFolder(folder_for(label, wanted.output))
    wish = replace(request.wish, folder=str(place.folder))
    item = f"profiling {' '.join(label.split())}"
    try:
        with show_progress(True) as report:
            outcome = record(
                replace(request, wish=wish),
                limit_s or parse_seconds(TIMEOUT),
                pool,
                lambda stage: report(ProgressEvent(item, stage)),
            )
    finally:  # also at Ctrl-C
        files = place.new_traces()
    if outcome.failure is not None:
        note(f"error: {label}: {outcome.failure.message}\n{outcome.failure.advice}".rstrip())
        if not files:
            note(f"there is no profile of it: it ended in the stage {outcome.failure.stage!r}")
    title = f"{label}, {outcome.runs} runs" if outcome.runs else label
    if not files:
        return None, outcome.failure is not None
    found = profile_of_file(files[0], title, _remarks(outcome))
    cost = recording_cost(found, outcome.unrecorded_s, "all calls were recorded", median)
    return replace(found, split=None, recording_cost=cost), outcome.failure is not None  # the loop is ours


def _remarks(outcome: ProfilingOutcome) -> list[str]:
    from benchax.units import seconds

    remarks = list(outcome.recorded.remarks)
    if outcome.failure is not None:
        remarks.append("the case failed; this is what had been recorded until then")
    if outcome.recorded.stopped_by == "duration":
        after = seconds(outcome.recorded.recorded_s or 0.0)
        remarks.append(f"recording stopped after {after}: --duration and --timeout limit it")
    return remarks


def _region(cases: Sequence[Case], seed: int, runs: int | None) -> int:
    """Runs each case in a process that nsys has started."""
    from benchax.profiling.program_recorder import ProgramRequest
    from benchax.workers.profiled import ProfilingRequest, run_for_nsys

    for case in cases:
        note(f"{case.id.label}: {run_for_nsys(ProfilingRequest(case, ProgramRequest(''), seed, runs))} runs")
    return 0
