"""`benchax run`: measures benchmark files, or one function from the command line."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.console import line, note, print_json, printing_to_stderr, show, show_broken
from benchax.cli.options import Given, Html, On, Params, Pattern, Reasons, What, takes_options
from benchax.cli.output_files import check_writable, write_documents
from benchax.errors import UsageError
from benchax.options import NAMES
from benchax.units import plural, seconds

if TYPE_CHECKING:
    from benchax.api import RunOutcome
    from benchax.case import Case
    from benchax.discovery import Broken
    from benchax.model import CaseId, Comparison, Measurement

# Imports of a command that measures.


@contextmanager
def importing() -> Iterator[None]:
    """Keeps the modules imported inside to the end, and hides them from the garbage collector.

    Its collections took 0.2 s of the 6 s of a run of 20 small benchmarks.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


QUICK = {
    "timer": "wall", "max_time_s": 0.1, "min_time_s": 0.02, "relative_width": 0.05, "memory": False,
    "stages": "samples", "processes": 1,
}  # fmt: skip
"""These are the defaults of --quick. benchax still checks the result."""
LEFT_OUT = (
    "quick: one timer (wall) in one process, without memory, transfers, or dispatch. Omit --quick to measure everything"
)


OPTIONS = tuple(name for name in NAMES if name not in ("processes", "sample_time_s", "max_warmup_s"))


@takes_options(*OPTIONS, processes="Measure in this many processes; auto: as many as needed, up to 5 (auto).")
def run(
    what: What = None,
    pattern: Pattern = "",
    params: Params = None,
    *,
    given: Given,
    break_even: Annotated[
        bool,
        typer.Option("--break-even", help="Also measure each case eagerly: after how many calls does jit pay?"),
    ] = False,
    mode: Annotated[
        str | None, typer.Option(help="Run losses unchanged (forward), or as grad or forward_and_grad (forward).")
    ] = None,
    work: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=AMOUNT", help="State the work of one call: --work tokens=4096 shows tokens/s."),
    ] = None,
    mesh: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MESH", help="Set devices for specs such as f32[8@data]: data=4,model=2. Several: a case each."
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="COUNTS",
            help="Measure strong and weak scaling over 1,2,4,8 devices, on the axis --mesh leaves open.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Give a first answer: wall time in this process, 0.1 s a case; no memory, no transfers."
        ),
    ] = False,
    no_jit: Annotated[
        bool, typer.Option("--no-jit", help="Run each case as it is, operation by operation, without jit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document per row to stdout.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the cases.")] = False,
    on: On = None,
    html: Html = None,
    is_verbose: Reasons = False,
) -> None:
    """Measure benchmarks, or one function, and store a row for each case.

    Exit codes: 0 fine, 1 a compiled result is WRONG, 2 an error (also a failed case).
    """
    if quick:
        given = QUICK | {name: value for name, value in given.items() if value is not None}
    with importing():
        from benchax.discovery import collect
    from benchax.modes import FORWARD, check_mode
    from benchax.specs import read_mesh

    check_writable(html)
    amounts = read_work(work or [])
    check_mode(mode or FORWARD)
    for each in mesh or ():
        read_mesh(each)
    cases, broken = printing_to_stderr(lambda: collect(what or ["."], pattern, params or []))
    if break_even and no_jit:
        raise UsageError("--break-even is given with --no-jit", "--break-even for both ways, --no-jit for one")
    cases = [replace(case, work=amounts or case.work).with_mode(mode or case.mode) for case in cases]
    cases = [case.with_mesh(each) for each in mesh or (None,) for case in cases]
    for option, is_given in (("--break-even", break_even), ("--devices", devices)):
        if is_given and on is not None:
            raise UsageError(f"{option} is given with --on", f"{option} on this machine, or --on without it")
    if no_jit:
        cases = [case.eager() for case in cases]
    if break_even:
        cases = [variant for case in cases for variant in with_eager(case)]
    if dry_run:
        for case in cases:
            line(case.id.label)
        show_broken(broken)
        raise typer.Exit(2 if broken else 0)
    if devices is not None:
        from benchax.cli.scaling import scale

        raise typer.Exit(scale(cases, devices, given, broken, as_json=as_json, html=html))
    if on is None and follows(cases, given):
        raise typer.Exit(follow(cases, given, broken))
    code = measure(
        cases, given, broken, as_json=as_json, pairs=eager_pairs(cases), on=on, html=html, is_verbose=is_verbose
    )
    if quick:
        note(LEFT_OUT)
    raise typer.Exit(code)


def read_work(texts: Sequence[str]) -> dict[str, float]:
    """Reads ["tokens=4096"] as amounts. Raises UsageError if one isn't an amount."""
    from benchax.amounts import check_work
    from benchax.discovery import literal

    pairs = [text.partition("=") for text in texts]
    for text, (name, equals, _) in zip(texts, pairs, strict=True):
        if not name or not equals:
            raise UsageError(f"cannot read --work {text!r}", "NAME=AMOUNT, such as --work tokens=4096")
    return check_work({name: literal(amount) for name, _, amount in pairs}) if pairs else {}


def with_eager(case: Case) -> tuple[Case, ...]:
    """Returns the eager form of the case, and the case. If the function has no eager form, returns only the case."""
    is_jitted = hasattr(case.fn, "lower")
    fn = getattr(case.fn, "__wrapped__", None) if is_jitted else case.fn
    # A method that is jitted shows the function under the jit, which knows no instance.
    if not case.jit or fn is None or (is_jitted and isinstance(case.fn, MethodType)):
        return (case,)
    return replace(case.eager(), fn=fn), case


def eager_pairs(cases: Sequence[Case]) -> dict[CaseId, tuple[Case, Case]]:
    """Returns (eager, jitted) by the id of the jitted case."""
    by_id = {case.id: case for case in cases}
    jitted = {id: replace(id, variant="eager") for id in by_id if id.variant != "eager"}
    return {id: (by_id[eager], by_id[id]) for id, eager in jitted.items() if eager in by_id}


def measure(
    cases: Sequence[Case],
    given: dict[str, Any],
    broken: Sequence[Broken] = (),
    *,
    as_json: bool = False,
    pairs: Mapping[CaseId, tuple[Case, Case]] | None = None,
    on: str | None = None,
    html: Path | None = None,
    is_verbose: bool = False,
    is_brief: bool = False,
) -> int:
    """Measures, shows, and returns the exit code. Ctrl-C shows and keeps the finished cases.

    Args:
        is_verbose: show why each missing number is missing.
        is_brief: show the answers only.
    """
    from contextlib import nullcontext

    with importing():
        from benchax.api import RunOutcome
        from benchax.api import run as run_cases
    from benchax.clusters import open_agents
    from benchax.measuring.stages import release_programs
    from benchax.progress import show_progress
    from benchax.reporting.document import Document
    from benchax.reporting.measurement import answer

    rows: list[Measurement] = []
    ended: list[str] = []
    outcome, interrupted, run_id = RunOutcome(), False, uuid.uuid4().hex

    def show_so_far(what: str, value: Any) -> None:
        """Shows the row of a case after each of its further processes."""
        if what == "row":
            ended[:] = _lines_of([*rows, value])

    try:
        try:
            with (
                show_progress(True, has_bar=not as_json, results=lambda: ended) as report,
                nullcontext() if on is None else open_agents(on, folder_of(cases), nprocs_of(cases, given)) as agents,
            ):
                found = run_cases(
                    [replace(case, listen=show_so_far) for case in cases],
                    command_line=given,
                    run_id=run_id,
                    defaults={"processes": "auto"},
                    report=report,
                    outcome=outcome,
                    agents=agents,
                )
                # The generator measures while it is asked for the next row, so that is when user code may print.
                while row := printing_to_stderr(lambda: next(found, None)):
                    rows.append(row)
                    release_programs()
                    ended[:] = _lines_of(rows)
                    if as_json:
                        print_json([row])
        except KeyboardInterrupt:
            interrupted = True
        in_turns = {} if as_json else _in_turns(rows, pairs or {}, given)
        if is_brief:
            show(Document(tuple(map(answer, rows))))
        elif not as_json:
            _show(rows, pairs or {}, in_turns, is_verbose)
        _write(html, rows, in_turns)
    finally:  # also when stdout is closed or full
        show_broken(broken)
        rescue(outcome)
        _describe_run(rows, run_id, outcome)
    if interrupted:
        note(f"interrupted: {len(rows)} of {len(cases)} cases finished, and kept")
        return 130
    if any(row.failure for row in rows) or broken or outcome.unstored:
        return 2
    return 1 if any(row.numerics and not row.numerics.agrees for row in rows) else 0


def follows(cases: Sequence[Case], given: Mapping[str, Any]) -> bool:
    """Has a launcher started this program together with another one, which makes the rows?"""
    if not any(_nprocs_of_each(cases, given)):
        return False
    from benchax.workers.ranks import is_follower

    return is_follower()


def nprocs_of(cases: Sequence[Case], given: Mapping[str, Any]) -> int | None:
    """Returns the number of processes of all cases. Raises `UsageError` if it differs between cases."""
    found = set(_nprocs_of_each(cases, given))
    if len(found) > 1:
        counts = ", ".join(sorted(str(each or "none") for each in found))
        raise UsageError(
            f"cases of nprocs {counts} are given with --on", "one number for all of them", "a run for each number"
        )
    return found.pop() if found else None


def _nprocs_of_each(cases: Sequence[Case], given: Mapping[str, Any]) -> list[int | None]:
    from benchax.options import resolve

    return [resolve(None, case.options, given, project=case.folder).nprocs for case in cases]


def follow(cases: Sequence[Case], given: dict[str, Any], broken: Sequence[Broken]) -> int:
    """Runs the rank of this program in each case. Returns the exit code."""
    from benchax.api import run as run_cases

    found = run_cases(cases, command_line=given | {"store": "off"}, defaults={"processes": "auto"})
    printing_to_stderr(lambda: [None for _ in found])
    show_broken(broken)
    return 2 if broken else 0


def folder_of(cases: Sequence[Case]) -> Path:
    """Returns the common folder of all benchmark files, which goes to the nodes. Default: the working folder."""
    folders = [case.folder.resolve() for case in cases if case.folder is not None]
    if len(folders) < len(cases) or not folders:
        return Path.cwd()
    return Path(os.path.commonpath(folders))


def _lines_of(rows: Sequence[Measurement]) -> list[str]:
    """Returns a table of the newest rows, as many as a terminal shows. It is empty if stderr isn't a terminal."""
    if not sys.stderr.isatty():
        return []
    from benchax.reporting import terminal
    from benchax.reporting.document import Document
    from benchax.reporting.measurement import overview

    height = shutil.get_terminal_size().lines
    return terminal.to_text(Document((overview(rows[-height:]),))).splitlines()


def _describe_run(rows: Sequence[Measurement], run_id: str, outcome: RunOutcome) -> None:
    """Notes a text such as: run 3f2a9c81d0b7: 20 rows in .benchmarks/benchax.db, on node-17 · cpu · AMD EPYC."""
    from benchax.api import opened
    from benchax.reporting.tables import describe_machine

    if not rows:
        return
    environment = rows[0].environment
    where = f"on {environment.host} · {describe_machine(environment)}"
    places = ", ".join(dict.fromkeys(opened(row.options.store).where for row in rows if row.options.store != "off"))
    stored = plural(len(outcome.row_ids), "row")
    note(f"run {run_id[:12]}: {stored} in {places}, {where}" if outcome.row_ids else f"not stored, {where}")


def _in_turns(
    rows: Sequence[Measurement], pairs: Mapping[CaseId, tuple[Case, Case]], given: Mapping[str, Any]
) -> dict[CaseId, Comparison]:
    """Compares the jitted call of each case with the eager one, by the paired method, if both calls ran."""
    ran = {row.case for row in rows if row.failure is None}
    chosen = [id for id, (eager, _) in pairs.items() if {id, eager.id} <= ran]
    if not chosen:
        return {}
    from benchax.comparing.sequential import Effort
    from benchax.experiments.lab import Pair, time_pairs
    from benchax.options import resolve
    from benchax.progress import show_progress

    note("comparing eager and jitted calls in turns")
    both = [Pair(id.label, "eager", pairs[id][0], "jitted", pairs[id][1]) for id in chosen]

    def compare() -> dict[str, Comparison]:
        with show_progress(None) as report:
            return time_pairs(both, resolve(command_line=given), Effort(looks=(2, 3)), report)

    found = printing_to_stderr(compare)
    return {id: found[id.label] for id in chosen}


def _show(
    rows: Sequence[Measurement],
    pairs: Mapping[CaseId, tuple[Case, Case]],
    in_turns: Mapping[CaseId, Comparison],
    is_verbose: bool,
) -> None:
    from benchax.cli.programs_in_words import describe_programs
    from benchax.reporting.document import Document, Paragraph
    from benchax.reporting.measurement import document, list_measurements

    if rows:
        found = document(rows[0], is_verbose) if len(rows) == 1 else list_measurements(rows, is_verbose)
        programs = printing_to_stderr(lambda: describe_programs({id: pairs[id][1] for id in in_turns}))
        show(Document((*found.blocks, *map(Paragraph, [*break_evens(rows, in_turns), *programs]))))


def _write(html: Path | None, rows: Sequence[Measurement], in_turns: Mapping[CaseId, Comparison]) -> None:
    """Writes the page of the run, with the comparisons made during the run."""
    if html is None:
        return
    from benchax.comparing.ranking import Comparisons
    from benchax.reporting.display import documents_of
    from benchax.store.load import Rows

    head, *parts = documents_of(Rows(tuple(rows)))
    compared = documents_of(Comparisons(tuple(in_turns.values()))) if in_turns else ()
    write_documents(html, (head, *compared, *parts))


def break_evens(rows: Sequence[Measurement], in_turns: Mapping[CaseId, Comparison]) -> list[str]:
    """For each case measured both ways, states after how many calls compiling pays, or why this is unknown."""
    from benchax.comparing.break_even import of_comparison

    sentences: list[tuple[str, str]] = []
    for row in rows:
        c = in_turns.get(row.case)
        if c is None or row.stages.build_s is None:
            continue
        found = of_comparison(row.stages.build_s, c)
        unknown = f"Whether compiling ({seconds(row.stages.build_s)}) pays was not measured, because {c.why}"
        sentences.append((row.case.label, unknown if found is None else str(found)))
    return [f"{label}: {text}" if len(sentences) > 1 else text for label, text in sentences]


def rescue(outcome: RunOutcome) -> None:
    """Writes rows that the store refused to a separate file, and tells the user its name."""
    if not outcome.unstored:
        return
    from benchax import codec

    n = len(outcome.unstored)
    rows = plural(n, "row")
    note(f"error: {outcome.unstored[0].error}")
    try:
        # In the folder of temporary files, since the store's own place has just refused these rows.
        with tempfile.NamedTemporaryFile(
            "w", suffix=".jsonl", prefix="benchax-", delete=False, encoding="utf-8"
        ) as file:
            file.writelines(codec.encode(each.row) + "\n" for each in outcome.unstored)
    except OSError as error:
        note(f"error: {rows} not stored anywhere: {error}")
        return
    note(f"{rows} kept in {file.name}; benchax.load({file.name!r}) reads {'them' if n > 1 else 'it'}")
