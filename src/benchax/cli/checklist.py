"""`benchax checklist`: takes the advice of all guides to fast JAX, and ticks it off by measuring a function."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from benchax.cli.console import collect_cases, line, printing_to_stderr, show
from benchax.cli.options import Html, MaxTimeOfEach, Params, Pattern, Seed, What, limits_of_audit
from benchax.cli.output_files import check_writable, write_documents
from benchax.units import plural


def checklist(
    what: What = None,
    pattern: Pattern = "",
    params: Params = None,
    max_time: MaxTimeOfEach = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="End any stage in a worker after this time: 30, 500ms (5min).")
    ] = None,
    seed: Seed = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document per function to stdout.")] = False,
    html: Html = None,
) -> None:
    """Go through a checklist of optimisations, and tick off each one by a measurement.

    The exit code is 0 also if there is something to gain. It is 2 after an error, such as a function that does not
    trace, or that benchax could not call.
    """
    from benchax.auditing.checklist import walk_checklist
    from benchax.progress import show_progress
    from benchax.reporting.audit import document_of_checklist as document
    from benchax.reporting.document import list_parts

    check_writable(html)
    given = limits_of_audit(max_time, timeout, seed)
    cases, code = collect_cases(what or ["."], pattern, params or [])
    was_left_out, documents = False, []
    for case in cases:
        # A display of its own each: what has ended is shown before the next one begins.
        with show_progress(True) as report:
            each, trial = printing_to_stderr(
                lambda case=case, report=report: walk_checklist(case, **given, report=report)
            )
        documents.append(document(each))
        line(json.dumps(each.asdict())) if as_json else show(documents[-1])
        was_left_out |= trial.obstacle is not None or trial.is_unbuilt
    write_documents(html, list_parts(f"Checklists of {plural(len(documents), 'function')}", documents))
    raise typer.Exit(2 if was_left_out else code)
