"""`benchax inspect`: shows what JAX and XLA make of a call: jaxpr, StableHLO, HLO, work, memory, and differences.

It runs the function only with --time. The exit code is 1 if --diff finds a difference and --exit-code is given. It is 2
after an error. If one of several cases does not build, the exit code is also 2, and benchax shows the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchax import codec
from benchax.case import Case
from benchax.checkouts.launch import Selection
from benchax.cli import console
from benchax.cli.console import (
    Html,
    Params,
    Pattern,
    What,
    check_writable,
    collect_cases,
    note,
    printing_to_stderr,
    refuse,
    with_progress,
    write_page,
)
from benchax.errors import BenchaxError, UsageError, one_of
from benchax.reporting import inspection
from benchax.reporting.document import Document
from benchax.reporting.inspection import PARTS, TEXTS, document_of_difference
from benchax.reporting.terminal import to_text
from benchax.results.inspection import Inspection, Roofline
from benchax.whole_files import write_text

GRAPH = "graph"
TIME_OPTIONS = {
    "timer": "in_graph,wall",
    "stages": "samples",
    "memory": False,
    "verify": "off",
    "store": "off",
    "max_time_s": 0.5,
}


def inspect(
    what: What = None,
    show: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTS",
            help="Show overview (default), jaxpr, stablehlo, hlo, cost, memory, constants, donation, collectives, "
            "graph; separate several by commas.",
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show whole texts, as JAX and XLA print them.")] = False,
    diff: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help='Compare with other inputs ("f32[2048] axis=0"), another function (module:other), a commit '
            "(ref:main), or another JAX (jax:0.9.2).",
        ),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="With --diff: exit with 1 if anything differs.")
    ] = False,
    time: Annotated[
        bool, typer.Option("--time", help="Also run it, and compare its time with this machine's rates.")
    ] = False,
    pattern: Pattern = "",
    params: Params = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document per case to stdout.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to FILE instead; a graph becomes SVG.",
            callback=check_writable,
        ),
    ] = None,
    html: Html = None,
) -> None:
    """Show what the compiler makes of a function: program, work, memory, constants, and differences."""
    from benchax.inspecting.inspect import inspect_case

    parts = _parts(show or [], output)
    _check(diff, exit_code, time, as_json, parts, html)
    cases, code = collect_cases(what or ["."], pattern, params or [])
    shown, file = list[Document | str](), None if GRAPH in parts else output
    if diff is not None:
        from benchax.inspecting.differences import differences

        selection = Selection(tuple(what or ["."]), pattern, tuple(params or []))
        changes = printing_to_stderr(lambda: differences(cases, selection, diff, note))
        for change in changes:
            _add(
                shown,
                json.dumps(change.asdict()) if as_json else document_of_difference(change, parts, full=full),
                file,
            )
        _write(shown, file, as_json)
        raise typer.Exit(code or int(exit_code and any(not change.is_none for change in changes)))
    is_one, one = len(cases) == 1, ("a single case", "choose one: --filter")
    refuse(
        (html is not None and not is_one, f"a page of {len(cases)} inspections", *one),
        (GRAPH in parts and not is_one, f"a graph of {len(cases)} cases cannot be one file", *one),
    )
    for case in cases:
        try:
            found = with_progress(lambda report, case=case: inspect_case(case, report), None)
            if parts != [GRAPH]:
                _add(shown, codec.encode(found) if as_json else _document(case, found, parts, full, time), file)
        except BenchaxError as error:
            note(f"error: {error}")
            code = 2
        else:
            if GRAPH in parts and output is not None:
                _draw(found, output)
            write_page(html, found)
    _write(shown, file, as_json)
    raise typer.Exit(code)


def _add(shown: list[Document | str], found: Document | str, file: Path | None) -> None:
    """Shows a document or a line of JSON at once, unless all of them go to a file."""
    if file is None:
        console.show(found, is_next=bool(shown))
    shown.append(found)


def _write(shown: Sequence[Document | str], file: Path | None, as_json: bool) -> None:
    """Writes what `_add` did not show."""
    if file is not None:
        texts = [each if isinstance(each, str) else to_text(each) for each in shown]
        write_text(file, ("\n" if as_json else "\n\n").join(texts) + "\n" * bool(texts))


def _document(case: Case, found: Inspection, parts: Sequence[str], full: bool, time: bool) -> Document:
    chosen = [part for part in parts if part != GRAPH] or ["overview"]
    needs_roof = time or not {"overview", "cost"}.isdisjoint(chosen)
    return inspection.document(found, chosen, full=full, roof=_roof(case, found, time) if needs_roof else None)


def _roof(case: Case, found: Inspection, time: bool) -> Roofline:
    from benchax.machine.peaks import matmul_type, peaks, roofline

    if not time:
        return roofline(found, peaks(measure=False))
    from benchax.api import run

    note(f"measuring {case.id.label}")
    (row,) = printing_to_stderr(lambda: list(run([case], command_line=TIME_OPTIONS)))
    row.summary()  # raises with the reason if it was not timed
    return roofline(found, peaks(dtypes=(matmul_type(found),)), row)


def _draw(found: Inspection, output: Path) -> None:
    from benchax.program import graph

    if found.hlo is None:
        raise BenchaxError(f"there is no program to draw: {found.why_absent('hlo')}")
    write_text(output, graph.svg(found.hlo, title=f"{found.name}({found.signature})", stablehlo=found.stablehlo or ""))
    note(f"graph drawn to {output}")


def _parts(given: Sequence[str], output: Path | None) -> list[str]:
    """Lists the parts to show, each once.

    Raises:
        UsageError: there is no such part, or a graph has no file.
    """

    permitted = (*PARTS, GRAPH)
    words = [word.strip() for text in given for word in text.split(",")]
    for word in words:
        if word not in permitted:
            raise UsageError(f"invalid --show {word!r}", one_of(permitted, word))
    if GRAPH in words and output is None:
        raise UsageError("--show graph needs a file", "--output FILE.svg")
    return list(dict.fromkeys(words))


def _check(diff: str | None, exit_code: bool, time: bool, as_json: bool, parts: list[str], html: Path | None) -> None:
    wrong = next((part for part in parts if part not in TEXTS), None) if diff is not None else None
    alone = f"--json is given with {'--show' if parts else '--time'}"
    refuse(
        (exit_code and diff is None, "--exit-code is given without --diff", "both"),
        (diff is not None and time, "--time is given with --diff", "one of them", "benchax compare times two versions"),
        (wrong is not None, f"--show {wrong!r} can't be used with --diff", one_of(TEXTS, wrong)),
        (diff is not None and html is not None, "--html with --diff", "one of them: a page shows one inspection"),
        (diff is None and as_json and (parts or time), alone, "--json alone: it holds all parts"),
    )
