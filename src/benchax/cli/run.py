"""`benchax run`: measures benchmark files, or one function from the command line."""

from __future__ import annotations

import gc
import json
import shutil
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax import codec
from benchax.case import FORWARD, Case, check_mode
from benchax.cli.console import (
    Given,
    Html,
    On,
    Params,
    Pattern,
    Reasons,
    What,
    collect_cases,
    line,
    note,
    printing_to_stderr,
    refuse,
    show,
    takes_options,
    with_progress,
    write_documents,
)
from benchax.comparing.ranking import Comparisons
from benchax.discovery import read_work
from benchax.errors import UsageError
from benchax.model import CaseId, Comparison, Measurement, Options
from benchax.options import NAMES
from benchax.progress import show_progress
from benchax.reporting import terminal
from benchax.reporting.display import documents_of
from benchax.reporting.document import Document, Paragraph, list_parts
from benchax.reporting.experiment import document_of_scaling
from benchax.reporting.measurement import answer, document, list_measurements, overview
from benchax.reporting.tables import describe_machine
from benchax.results.experiment import Scaling
from benchax.specs import read_mesh
from benchax.store.load import Rows
from benchax.units import plural

if TYPE_CHECKING:
    from benchax.api import RunOutcome

QUICK = {
    "timer": "wall", "max_time_s": 0.1, "min_time_s": 0.02, "relative_width": 0.05, "memory": False,
    "stages": "samples", "processes": 1,
}  # fmt: skip
"""These are the defaults of --quick. benchax still checks the result."""
LEFT_OUT = (
    "quick: one timer (wall) in one process, without memory, transfers, or dispatch. Omit --quick to measure everything"
)


DEFAULTS_OF_RUN = {"processes": "auto"}
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
    # Check before importing the files, which takes time.
    refuse(
        (break_even and no_jit, "--break-even is given with --no-jit", "--break-even for both ways, --no-jit for one"),
        *(
            (
                is_given and on is not None,
                f"{option} is given with --on",
                f"{option} on this machine, or --on without it",
            )
            for option, is_given in (("--break-even", break_even), ("--devices", devices))
        ),
    )
    amounts = read_work(work or [])
    check_mode(mode or FORWARD)
    meshes = [read_mesh(each) for each in mesh] if mesh else [None]
    cases, code_of_files = collect_cases(what or ["."], pattern, params or [])
    cases = [replace(case, work=amounts or case.work).with_mode(mode or case.mode) for case in cases]
    cases = [case.with_mesh(each) for each in meshes for case in cases]
    if no_jit:
        cases = [case.eager() for case in cases]
    if break_even:
        from benchax.experiments.experiment import with_eager

        cases = [variant for case in cases for variant in with_eager(case)]
    code = 0
    if dry_run:
        for case in cases:
            line(case.id.label)
    elif devices is not None:
        code = _scale(cases, devices, given, as_json=as_json, html=html)
    else:
        code = measure(cases, given, as_json=as_json, on=on, html=html, is_verbose=is_verbose)
        if quick:
            note(LEFT_OUT)
    raise typer.Exit(max(code, code_of_files))


def measure(
    cases: Sequence[Case],
    given: Given,
    *,
    as_json: bool = False,
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
    gc.disable()  # while modules are imported that stay to the end: collections took 0.2 s of a run of 6 s
    from benchax import api
    from benchax.workers.ranks import is_following

    gc.freeze()
    gc.enable()
    options = api.resolve_each(cases, command_line=given, defaults=DEFAULTS_OF_RUN)
    if on is None and is_following(options):  # the first rank shows and writes the rows
        printing_to_stderr(lambda: list(api.run(cases, options)))
        return 0
    rows: list[Measurement] = []
    outcome, run_id = api.RunOutcome(), uuid.uuid4().hex
    try:
        has_ended = _add_rows(rows, cases, options, run_id, outcome, as_json=as_json, on=on)
        compared: Mapping[CaseId, Comparison] = {}
        if not as_json:
            compared = _show(cases, options, rows, is_verbose=is_verbose, is_brief=is_brief)
        if html is not None:
            head, *parts = documents_of(Rows(tuple(rows)))
            between = documents_of(Comparisons(tuple(compared.values()))) if compared else ()
            write_documents(html, (head, *between, *parts))
    finally:  # also when stdout is closed or full
        for text in [*api.rescue(outcome.unstored), *_describe_run(rows, run_id, len(outcome.row_ids))]:
            note(text)
    if not has_ended:
        kept = ", and kept" if outcome.row_ids else ""
        note(f"interrupted: {len(rows)} of {plural(len(cases), 'case')} finished{kept}")
        return 130
    if any(row.failure for row in rows) or outcome.unstored:
        return 2
    return 1 if any(row.numerics and not row.numerics.agrees for row in rows) else 0


def _add_rows(
    rows: list[Measurement],
    cases: Sequence[Case],
    options: Sequence[Options],
    run_id: str,
    outcome: RunOutcome,
    *,
    as_json: bool,
    on: str | None,
) -> bool:
    """Measures the cases, and adds each row when its case ends. Returns False after Ctrl-C."""
    from benchax.api import run as run_cases
    from benchax.clusters import open_agents
    from benchax.clusters.cases import folder_of, nprocs_of
    from benchax.measuring.prepare import release_programs

    shown: list[str] = []

    def show_so_far(what: str, value: Any) -> None:
        """Shows the row of a case after each of its further processes."""
        if what == "row":
            shown[:] = _lines_of([*rows, value])

    try:
        with (
            show_progress(True, has_bar=not as_json, results=lambda: shown) as report,
            nullcontext() if on is None else open_agents(on, folder_of(cases), nprocs_of(options)) as agents,
        ):
            listening = [replace(case, listen=show_so_far) for case in cases]
            found = run_cases(listening, options, run_id=run_id, report=report, outcome=outcome, agents=agents)
            # The generator measures when the next row is requested. That is when user code may print.
            while row := printing_to_stderr(lambda: next(found, None)):
                rows.append(row)
                release_programs()
                shown[:] = _lines_of(rows)
                if as_json:
                    show(codec.encode(row))
    except KeyboardInterrupt:
        return False
    return True


def _lines_of(rows: Sequence[Measurement]) -> list[str]:
    """Returns a table of the newest rows, as many as a terminal shows. It is empty if stderr isn't a terminal."""
    if not sys.stderr.isatty():
        return []
    height = shutil.get_terminal_size().lines
    return terminal.to_text(Document((overview(rows[-height:]),))).splitlines()


def _describe_run(rows: Sequence[Measurement], run_id: str, stored: int) -> list[str]:
    """Returns a line such as: run 3f2a9c81d0b7: 20 rows in .benchmarks/benchax.db, on node-17 · cpu · AMD EPYC."""
    from benchax.api import opened

    if not rows:
        return []
    environment = rows[0].environment
    where = f"on {environment.host} · {describe_machine(environment)}"
    places = ", ".join(dict.fromkeys(opened(row.options.store).where for row in rows if row.options.store != "off"))
    return [f"run {run_id[:12]}: {plural(stored, 'row')} in {places}, {where}" if stored else f"not stored, {where}"]


def _show(
    cases: Sequence[Case], options: Sequence[Options], rows: Sequence[Measurement], *, is_verbose: bool, is_brief: bool
) -> Mapping[CaseId, Comparison]:
    """Shows the rows. Where cases ran eagerly and jitted, compares these calls first, and returns the comparisons."""
    compared, sentences = dict[CaseId, Comparison](), list[str]()
    if any(case.id.variant == "eager" for case in cases):
        from benchax.experiments.experiment import compare_eager, find_pairs

        if pairs := find_pairs(cases, rows):
            note("comparing eager and jitted calls, alternately")
            by_case = {case.id: each for case, each in zip(cases, options, strict=True)}
            compared, sentences = with_progress(lambda report: compare_eager(pairs, rows, by_case, report), None)
    if is_brief:
        show(Document(tuple(map(answer, rows))))
    elif rows:
        found = document(rows[0], is_verbose) if len(rows) == 1 else list_measurements(rows, is_verbose)
        show(Document((*found.blocks, *map(Paragraph, sentences))))
    return compared


# ---- --devices -------------------------------------------------------------------------------------------------------


def _scale(cases: Sequence[Case], devices: str, given: Given, *, as_json: bool, html: Path | None) -> int:
    """Measures and shows the scaling of each case. Returns 2 if a count could not be measured."""
    from benchax import api
    from benchax.measuring.scaling import measure_scaling, read_counts

    permitted = ("max_time_s", "seed")
    for name, value in given.items():
        if value is not None and name not in (*permitted, "store"):
            raise UsageError(f"--devices is given with {name}={value!r}", f"some of: {', '.join(permitted)}")
    counts, found = read_counts(devices), list[Scaling]()
    for case in cases:
        (options,) = api.resolve_each([case], command_line=given)
        limits = {name: getattr(options, name) for name in permitted}
        tell = partial("{} {}".format, case.id.label)
        found.append(
            printing_to_stderr(
                lambda case=case, tell=tell, limits=limits: measure_scaling(
                    case, counts, report=lambda text: note(tell(text)), **limits
                )
            )
        )
        plain = json.dumps(found[-1].asdict(), allow_nan=False, default=str)
        show(plain if as_json else document_of_scaling(found[-1]))
    write_documents(html, list_parts(f"Scaling over {devices} devices", list(map(document_of_scaling, found))))
    return 2 if any(point.why for each in found for curve in each.curves for point in curve.points) else 0
