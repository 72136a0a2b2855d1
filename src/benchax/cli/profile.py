"""`benchax profile`: shows where the device time goes in a function, or in a program: `benchax profile -- python a.py`.

For a program that runs for a long time, use `--serve PORT -- python a.py`, then `--attach PORT` as often as you like.

A worker process records a function. It can be killed, because benchax does not time it. The exit code is 2 if there is
no profile, or if a profile has no operations; benchax never shows the latter as a table. After a program, the exit code
is the program's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.case import Case
from benchax.cli.console import (
    COMMAND,
    COMMAND_LINE,
    Given,
    Html,
    Params,
    Pattern,
    WhatOrCommand,
    at_terminal,
    collect_cases,
    line,
    note,
    show,
    takes_options,
    tell_end,
    while_read,
    write_documents,
)
from benchax.errors import BenchaxError, FormatError, UsageError
from benchax.model import Remark
from benchax.options import read_seed
from benchax.profiling.profile_change import compare_profiles
from benchax.progress import ProgressEvent, show_progress
from benchax.reporting.display import documents_of
from benchax.reporting.document import Document, list_parts
from benchax.reporting.profile import document, document_of_change
from benchax.results.profile import Profile
from benchax.source_files import below_here
from benchax.units import parse_seconds, plural, read_duration, seconds
from benchax.whole_files import write_text

if TYPE_CHECKING:
    from benchax.hooks.command import EndedCommand, Report
    from benchax.profiling.program_recorder import ProgramRequest, Recorded
    from benchax.workers.pool import Pool
    from benchax.workers.profiled import ProfilingRequest


TIMEOUT, DURATION_S, STEPS = "5min", 5.0, 10


@takes_options(
    "seed",
    timeout_s=f"End it after this time (default: {TIMEOUT} a stage for a function; never for a program).",
    duration_s=f"Record for this time; for a program, after its last compilation ({DURATION_S:g}s).",
)
def profile(
    ctx: typer.Context,
    what: WhatOrCommand = None,
    *,
    pattern: Pattern = "",
    params: Params = None,
    output: Annotated[
        Path | None,
        typer.Option(
            # --dir is as in the library. --output is a file, as in other commands.
            "--dir",
            "--output",
            "-o",
            metavar="DIR",
            help="Write files to DIR (default .benchmarks/profiles/NAME-TIME).",
        ),
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Number of calls (default: enough for 50 ms).")] = None,
    given: Given,
    start_after: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="For a program: begin this long after it imports jax, but not before it compiles."
        ),
    ] = "0s",
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
) -> None:
    """Show where device time goes: a table of operations, and files for Perfetto, TensorBoard and XProf."""
    command = ctx.meta.get(COMMAND)
    given_what = sum([bool(what), command is not None, read is not None, attach is not None])
    if given_what != 1 or command == []:
        raise UsageError(
            "there are two things to profile" if given_what > 1 else "there is nothing to profile",
            "one of: a function (jax.numpy:sort f32[1000000]), -- and a command (-- python train.py), --read PATH, or "
            "--attach PORT",
        )
    if serve is not None:
        _check_served(command, output, memory, as_json, compare, xprof, nsys, html)
    if html is not None and (nsys or xprof):
        raise UsageError(
            f"--html with --{'nsys' if nsys else 'xprof'}, which shows no profile of benchax", "one of them"
        )
    from benchax.profiling.program_recorder import ProgramRequest

    earlier = None if compare is None else read_trace(compare)
    wanted = Wanted(output, details, as_json, earlier, xprof, command is not None, html)
    delay_s = 0.0 if start_after in ("0", "0s") else read_duration("start_after", start_after, COMMAND_LINE) or 0.0
    for_s, limit_s = given["duration_s"] or DURATION_S, given["timeout_s"]
    least_steps = steps if command is not None else 0
    wish = ProgramRequest("", delay_s, for_s, keeps_memory=memory, least_steps=least_steps)
    if read is not None:
        code = show_all([read_trace(read)], wanted)
    elif attach is not None:
        code = profile_attached(attach, wish, limit_s, wanted)
    elif nsys:
        code = _print_nsys(what or [], command, wish, output)
    elif command is not None and serve is not None:
        code = profile_served(command, serve, limit_s)
    elif command is not None:
        code = profile_program(command, wish, limit_s, wanted)
    else:
        cases, _ = collect_cases(what or [], pattern, params or [])
        seed = read_seed(given["seed"])
        if not cases:
            code = 2
        elif IN_NSYS in os.environ:
            code = _region(cases, seed, runs)
        else:
            code = profile_cases(cases, wish, wanted, limit_s=limit_s, seed=seed, runs=runs)
    raise typer.Exit(code)


def _check_served(command: Any, *of_recordings: Any) -> None:
    """Raises UsageError for options of a recording, because --serve makes no recording."""
    if command is None:
        raise UsageError("--serve without a program", "one after two dashes: --serve 9999 -- python train.py")
    if any(of_recordings):
        raise UsageError(
            "--serve with options of a recording, although it records nothing",
            "them with --attach: benchax profile --attach PORT --memory -o DIR",
        )


def _print_nsys(what: Sequence[str], command: Sequence[str] | None, wish: ProgramRequest, output: Path | None) -> int:
    name = re.sub(r"[^\w.=,+-]+", "-", what[0] if command is None else name_of(command))
    lasting = None if wish.duration_s == DURATION_S else wish.duration_s
    line(nsys_command(command, (output or Path()) / name, wish.start_after_s, lasting))
    note(f"run it where Nsight Systems is installed, and open {name}.nsys-rep with nsys-ui")
    return 0


# ---- a function -------------------------------------------------------------------------------------------------


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
    from benchax.profiling.profile import kernels_apart
    from benchax.workers.pool import Pool
    from benchax.workers.profiled import ProfilingRequest

    code, profiles = 0, list["Profile"]()
    with Pool(environ=kernels_apart(os.environ)) as pool:
        for case in cases:
            found, has_failed = _record(ProfilingRequest(case, wish, seed, runs), limit_s, wanted, pool)
            if found:
                profiles.append(found)
            # Each one is printed when it is ready; a page contains all of them.
            shown = show_all([found] if found else [], replace(wanted, html=None))
            code = max(code, shown, 2 if has_failed else 0)
    write_profiles(profiles, wanted)
    return code


def _record(
    request: ProfilingRequest, limit_s: float | None, wanted: Wanted, pool: Pool
) -> tuple[Profile | None, bool]:
    """Returns (the profile, has the case failed?). Reports a failure, but a failed case can still have a profile."""
    from benchax.profiling.trace import recording_cost
    from benchax.workers.profiled import record

    label = request.case.id.label
    place = RecordingFolder(folder_for(label, wanted.output))
    request = replace(request, wish=replace(request.wish, folder=str(place.folder)))
    item = f"profiling {' '.join(label.split())}"
    try:
        with show_progress(True) as report:
            limit_s = limit_s or parse_seconds(TIMEOUT)
            outcome = record(request, limit_s, pool, lambda stage: report(ProgressEvent(item, stage)))
    finally:  # also at Ctrl-C
        files = place.new_traces()
    remarks, failure = list(outcome.recorded.remarks), outcome.failure
    if failure is not None:
        note(f"error: {label}: {failure.message}\n{failure.advice}".rstrip())
        remarks.append("the case failed; this was recorded until then")
        if not files:
            note(f"there is no profile of it: it ended in the stage {failure.stage!r}")
    if not files:
        return None, failure is not None
    if outcome.recorded.stopped_by == "duration":
        after = seconds(outcome.recorded.recorded_s or 0.0)
        remarks.append(f"recording stopped after {after}: --duration and --timeout limit it")
    found = profile_of_file(files[0], f"{label}, {outcome.runs} runs" if outcome.runs else label, remarks)
    cost = recording_cost(found, outcome.unrecorded_s, "all calls were recorded", median)
    return replace(found, split=None, recording_cost=cost), failure is not None  # the loop is ours


def _region(cases: Sequence[Case], seed: int, runs: int | None) -> int:
    """Runs each case in a process that nsys has started."""
    from benchax.profiling.program_recorder import ProgramRequest
    from benchax.workers.profiled import ProfilingRequest, run_for_nsys

    for case in cases:
        note(f"{case.id.label}: {run_for_nsys(ProfilingRequest(case, ProgramRequest(''), seed, runs))} runs")
    return 0


# ---- a program -------------------------------------------------------------------------------------------------------


SLOW_STOP_S = 1.0
"""A remark names the profiler's own work from this time on. It took minutes on large machines (marin#5528)."""

IN_NSYS = "BENCHAX_IN_NSYS"
"""With this variable, `benchax profile` of a function runs it for nsys, which records it."""


def profile_program(command: Sequence[str], wish: ProgramRequest, limit_s: float | None, wanted: Wanted) -> int:
    """Returns the program's exit code. Returns 2 if that is 0 and there is no profile."""
    from benchax.hooks.command import run
    from benchax.profiling.program_recorder import HOOK

    place = RecordingFolder(folder_for(name_of(command), wanted.output))
    with tempfile.TemporaryDirectory(prefix="benchax-", ignore_cleanup_errors=True) as told_in:
        settings = asdict(replace(wish, folder=str(place.folder), samples_stack=True, told_in=told_in))
        ended = run(command, HOOK, settings, limit_s=limit_s, on_wait=at_terminal("profile", Path(told_in)))
    with while_read():
        return _report(command, ended, place, wanted)
    return ended.exit_code


def _report(command: Sequence[str], ended: EndedCommand, place: RecordingFolder, wanted: Wanted) -> int:
    """Returns the program's exit code. Returns 2 if that is 0 and there is no profile."""
    tell_end(command, ended)
    profiles = _of_reports(ended)
    reported = {report.result[name] for report in ended.reports for name in ("xplane", "first_xplane")}
    why = "its process left no report; this was written before"
    for file in place.new_traces():
        if str(file) not in reported:
            profiles += _read(file, name_of(command), [why])
    if not profiles:
        note("error: there is no profile: nothing was recorded, or it could not be saved")
        return ended.exit_code or 2
    code = show_all(profiles, replace(wanted, output=place.folder))
    return ended.exit_code or code


def _of_reports(ended: EndedCommand) -> list[Profile]:
    from benchax.profiling.program_recorder import Recorded
    from benchax.profiling.trace import recording_cost

    profiles: list[Profile] = []
    for report in ended.reports:
        found = Recorded(**report.result)
        if found.xplane is None:
            note(f"note: process {report.pid} was not profiled: {'; '.join(found.remarks)}")
            continue
        title = f"process {report.pid}: {name_of(report.argv)}"
        for profile in _read(Path(found.xplane), title, [*_until(found), *found.remarks]):
            why = found.why_no_pace or "the program ended before it was"
            cost = recording_cost(profile, found.unrecorded_step_s, why)
            profiles.append(replace(_with_first_step(profile, found.first_xplane), recording_cost=cost))
    return profiles


def _with_first_step(profile: Profile, earlier: str | None) -> Profile:
    """Adds the first step to a later recording. The first recording has it, if it got that far."""
    if earlier is None or profile.split is None:
        return profile
    before = next((found.split for found in _read(Path(earlier), "", [])), None)
    first = before.first if before is not None and before.name == profile.split.name else None
    return replace(profile, split=replace(profile.split, first=first))


def _read(file: Path, title: str, remarks: list[str]) -> list[Profile]:
    """Reads a trace. Only reports a broken one, to keep the program's exit code."""
    try:
        return [profile_of_file(file, title, remarks)]
    except (BenchaxError, OSError) as error:
        note(f"error: the trace {file} cannot be read: {error}")
        return []


def _until(found: Recorded) -> list[str]:
    """Names the recorded part of the program, if that was not the whole program."""
    said: list[str] = []
    after = seconds(found.recorded_s or 0.0)
    if found.is_full:
        said.append(f"{after} of the program were recorded: so many events that more would take long to write")
    elif found.stopped_by == "duration":
        said.append(f"only {after} of the program were recorded: --start-after and --duration choose which")
    if found.attempts > 1:
        since = seconds(found.began_s or 0.0)
        best = f"this is the best of {found.attempts} recordings, {since} after the import of jax"
        said.append(f"{best}: in the others the device did less in steps of a loop")
    elif found.stopped_by not in ("end", "duration"):
        said.append(f"recording ended after {after}, when a {found.stopped_by} began")
    if found.stop_s is not None and found.stop_s > SLOW_STOP_S:
        said.append(f"the profiler took {seconds(found.stop_s)} to stop and write; record less with --duration")
    return said


def name_of(command: Sequence[str]) -> str:
    """Returns train.py for python train.py: the script says more than the name of its interpreter."""
    words = [word for word in command[1:] if not word.startswith("-")]
    is_python = Path(command[0]).name.startswith("python")
    return Path(words[0]).name if is_python and words else Path(command[0]).name


def nsys_command(program: Sequence[str] | None, report: Path, start_after_s: float, duration_s: float | None) -> str:
    """Returns the command that profiles a program with Nsight Systems, as you type it into a shell. Without a program,
    nsys runs the function of this command.

    It sets what a JAX program needs: kernels one by one, and whole tracebacks in the names of operations. Your own
    settings stay. It was written from NVIDIA's documentation (JAX-Toolbox).
    """
    from benchax.profiling.profile import NO_COMMAND_BUFFERS

    # Records the kernels inside a CUDA graph one by one, if the flag below did not keep XLA from making one.
    options = ["--output", str(report), "--trace", "cuda,nvtx,osrt,cublas,cudnn", "--cuda-graph-trace", "node"]
    options += ["--delay", f"{start_after_s:g}"] if start_after_s else []
    options += [] if duration_s is None else ["--duration", f"{duration_s:g}", "--kill", "none"]
    flags = os.environ.get("XLA_FLAGS", "")
    settings = {
        f"{IN_NSYS}=1": program is None,
        f"XLA_FLAGS={shlex.quote(f'{flags} {NO_COMMAND_BUFFERS}'.strip())}": NO_COMMAND_BUFFERS[:-1] not in flags,
        "JAX_TRACEBACK_IN_LOCATIONS_LIMIT=-1": "JAX_TRACEBACK_IN_LOCATIONS_LIMIT" not in os.environ,
    }
    ours = [sys.executable, "-m", "benchax.cli.main", *(word for word in sys.argv[1:] if word != "--nsys")]
    words = shlex.join(["nsys", "profile", *options, *(ours if program is None else program)])
    return " ".join([*(setting for setting, is_needed in settings.items() if is_needed), words])


def profile_served(command: Sequence[str], port: int, limit_s: float | None) -> int:
    """Runs the program, and returns its exit code."""
    from benchax.hooks.command import run
    from benchax.profiling.serving import HOOK

    with tempfile.TemporaryDirectory(prefix="benchax-", ignore_cleanup_errors=True) as folder:
        ended = run(command, HOOK, {"port": port, "owner": str(Path(folder, "owner.json"))}, limit_s=limit_s)
    with while_read():
        tell_end(command, ended, map(_describe, ended.reports))
    return ended.exit_code


def _describe(report: Report) -> str:
    if report.result["port"] is None:
        return f"process {report.pid} could not be recorded: {'; '.join(report.result['remarks'])}"
    return f"process {report.pid} was recorded {plural(report.result['recordings'], 'time')}"


def profile_attached(port: int, wish: ProgramRequest, limit_s: float | None, wanted: Wanted) -> int:
    """Records the program at `port`. Returns 2 if there are no operations to show."""
    from benchax.profiling.serving import attach

    place = RecordingFolder(folder_for(f"port-{port}", wanted.output))
    try:
        found = attach(
            port,
            wish.duration_s,
            place.folder,
            memory=wish.keeps_memory,
            limit_s=limit_s,
            begun=lambda pid: note(f"recording process {pid} for {seconds(wish.duration_s)}"),
        )
    finally:  # also at Ctrl-C
        place.new_traces()
    title = f"process {found.pid}: {name_of(found.argv)}, {seconds(found.recorded.recorded_s or 0.0)} of it"
    return show_all([profile_of_file(found.xplane, title, _describe_end_of(found.recorded, wish))], wanted)


def _describe_end_of(found: Recorded, wish: ProgramRequest) -> list[str]:
    if found.stopped_by == "duration":
        return found.remarks
    after, wanted = seconds(found.recorded_s or 0.0), seconds(wish.duration_s)
    why = "the program ended" if found.stopped_by == "end" else f"a {found.stopped_by} began"
    return [f"recording ended after {after} of {wanted}, when {why}", *found.remarks]


# ---- files -----------------------------------------------------------------------------------------------------------
#
# Chooses the folder of a recording, finds the trace, and shows a profile.


FOLDER = Path(".benchmarks", "profiles")


@dataclass(frozen=True)
class Wanted:
    """These settings say how benchax shows and keeps profiles."""

    output: Path | None = None
    details: bool = False
    as_json: bool = False
    earlier: Profile | None = None
    """benchax also shows the differences from this profile."""
    xprof: str | None = None
    is_aside: bool = False
    """stdout belongs to the user's program: texts go to stderr, and documents to a file."""
    html: Path | None = None


def folder_for(name: str, output: Path | None) -> Path:
    """Returns the absolute folder of the files: a program can change its folder before it writes them."""
    plain = re.sub(r"[^\w.=,+-]+", "-", name).strip("-.")[:60] or "profile"
    return (output or FOLDER / f"{plain}-{datetime.now().astimezone():%Y%m%d-%H%M%S}").absolute()


class RecordingFolder:
    """The folder of a recording. Another process makes the recording, and can end at any time."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageError if a trace can't be written there."""
        from benchax.profiling.profile import about_folder, stop_at_errors

        stop_at_errors(about_folder(folder))
        self.folder = folder
        self._earlier = set(traces(folder))

    def new_traces(self) -> list[Path]:
        """Returns the traces since then, newest first. They include the file that a killed process was writing, if
        there is one. Only reading shows whether that file is complete."""
        from benchax.profiling import files

        for rest in self.folder.glob(".recording-*"):
            if (run := files.find_run(rest)) is not None:
                files.move_run(run, self.folder)
            shutil.rmtree(rest, ignore_errors=True)
        with contextlib.suppress(OSError):  # there is something in it, or it was never made
            self.folder.rmdir()
        return [file for file in traces(self.folder) if file not in self._earlier]


def traces(folder: Path) -> list[Path]:
    """Lists traces, newest first, without the unfinished ones."""
    found = [f for f in folder.rglob("*.xplane.pb") if not f.relative_to(folder).parts[0].startswith(".recording-")]
    return sorted(found, key=lambda file: file.stat().st_mtime_ns, reverse=True)


def read_trace(path: Path) -> Profile:
    """Reads the trace in a file, or the newest one below a folder.

    Raises:
        UsageError: there is no trace.
        FormatError: the file isn't a trace, or was cut.
    """
    if not path.exists():
        raise UsageError(f"there is no {str(path)!r}", "a folder with a trace below it, or a file *.xplane.pb")
    if path.is_file():
        return profile_of_file(path, path.name)
    found = traces(path)
    if not found:
        raise UsageError(f"there is no *.xplane.pb in {str(path)!r}", "a folder with one, as JAX and XProf make them")
    if len(found) > 1:
        note(f"note: {str(path)!r} holds {len(found)} traces; this is the newest, {found[0]}")
    return profile_of_file(found[0], str(path))


def profile_of_file(file: Path, title: str, remarks: Sequence[str] = ()) -> Profile:
    """Reads a profile from a file. `remarks` describe how the recording was made."""
    from benchax.profiling import files
    from benchax.profiling.trace import profile_of

    found = profile_of(file.read_bytes(), title=title)
    listed, failed = files.list_files(file.parent), list[str]()
    timeline = None
    try:
        timeline = files.read_timeline(listed["timeline"]) if "timeline" in listed else None
    except (FormatError, OSError) as error:  # another program might own that file
        failed = [str(error)]
    ours = tuple(Remark("recording", "warning", text) for text in (*remarks, *failed))
    kept = {kind: str(below_here(path)) for kind, path in (listed | {"xplane": file}).items()}
    return replace(found, timeline=timeline, files=kept, remarks=(*ours, *found.remarks))


def show_all(profiles: Sequence[Profile], wanted: Wanted) -> int:
    """Shows each profile, and returns the exit code: 2 if one of them has no operations."""
    for found in profiles:
        if wanted.xprof is not None:
            (note if wanted.is_aside else line)(_xprof_command(wanted.xprof, found))
        elif not wanted.as_json or wanted.is_aside:
            show(_with_change(document(found, wanted.details), found, wanted), is_aside=wanted.is_aside)
        else:
            show(_json_line(found, wanted))
    if wanted.as_json and wanted.is_aside and profiles:
        file = (wanted.output or Path()) / "profile.json"
        write_text(file, "".join(_json_line(found, wanted) + "\n" for found in profiles))
        note(f"{file}: {plural(len(profiles), 'document')}, one a line")
    write_profiles(profiles, wanted)
    return 2 if any(not found.ops for found in profiles) else 0


def write_profiles(profiles: Sequence[Profile], wanted: Wanted) -> None:
    """Writes one page of all profiles, if the user wants one."""
    if wanted.html is not None and profiles:
        documents = [_with_change(part, found, wanted) for found in profiles for part in documents_of(found)]
        write_documents(wanted.html, list_parts(plural(len(documents), "profile"), documents))


def _with_change(shown: Document, found: Profile, wanted: Wanted) -> Document:
    """Adds the differences from the earlier profile."""
    if wanted.earlier is None:
        return shown
    change = document_of_change(compare_profiles(wanted.earlier, found))
    return Document((*shown.blocks, *change.blocks))


def _json_line(found: Profile, wanted: Wanted) -> str:
    change = {} if wanted.earlier is None else {"change": compare_profiles(wanted.earlier, found).asdict()}
    return json.dumps(found.asdict() | change, allow_nan=False)


def _xprof_command(tool: str, found: Profile) -> str:
    """Returns the command that prints what a tool of xprof makes of a trace, as JSON. xprof writes next to a trace."""
    program = (
        "import sys; from xprof.convert import raw_to_tool_data as xprof; "
        "data, _ = xprof.xspace_to_tool_data(sys.argv[2:], sys.argv[1], {}); "
        "print(data.decode() if isinstance(data, bytes) else data)"
    )
    return shlex.join(["python", "-c", program, tool, found.files["xplane"]])
