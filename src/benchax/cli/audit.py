"""`benchax audit`: finds what makes a function or a program slower or larger than necessary, with evidence.

`benchax checklist`: takes the advice of all guides to fast JAX, and ticks it off by measuring a function.

The exit code is 0 also with findings. It is 1 if a finding has the severity of --fail-on or a worse one. It is 2 after
an error, or if a function does not trace, does not end within --timeout, or kills its process. Then a lack of findings
means nothing. After a program, the exit code is the program's, or the audit's if the program's is 0. If --timeout ended
the program, the exit code shows the signal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchax.cli.console import (
    COMMAND,
    MAX_TIME_OF_EACH,
    Given,
    Html,
    JsonFile,
    Params,
    Pattern,
    Verbose,
    What,
    WhatOrCommand,
    at_terminal,
    check_writable,
    collect_cases,
    note,
    refuse,
    show,
    show_list,
    takes_options,
    while_read,
    with_progress,
    write_documents,
)
from benchax.errors import one_of
from benchax.options import split_names
from benchax.reporting.audit import document, document_of_checklist, documents_of_all, to_sarif
from benchax.reporting.document import list_parts
from benchax.results.audit import SEVERITIES, Audit
from benchax.units import plural
from benchax.whole_files import write_text


@takes_options(
    "seed",
    max_time_s=MAX_TIME_OF_EACH,
    timeout_s="End any stage of a function (default 5min) or a program (default never) after this time.",
)
def audit(
    ctx: typer.Context,
    what: WhatOrCommand = None,
    *,
    rules: Annotated[
        str | None,
        typer.Option(metavar="IDS", help="Check only these rules or packs: not-jitted,numerics (see --list)."),
    ] = None,
    pattern: Pattern = "",
    params: Params = None,
    given: Given,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="SEVERITY", help="Exit with 1 at a finding this severe or worse: info, warning, error."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Write one JSON document per function to stdout; for a program, to --output FILE."),
    ] = False,
    output: JsonFile = None,
    sarif: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write SARIF to FILE; code hosts show it next to the lines.",
            callback=check_writable,
        ),
    ] = None,
    html: Html = None,
    is_verbose: Verbose = False,
    list_them: Annotated[bool, typer.Option("--list", help="List the rules and end.")] = False,
) -> None:
    """Find what makes a function or a program slow, large or wrong, and show a measurement for each finding."""
    if list_them:
        from benchax.auditing.rules import rules as all_rules

        show_list([(rule.id, rule.pack or rule.severity, rule.title) for rule in all_rules().values()])
        return
    command: list[str] = ctx.meta.get(COMMAND, [])
    is_mute = command and as_json and output is None
    refuse(
        (fail_on not in (None, *SEVERITIES), f"invalid --fail-on {fail_on!r}", one_of(SEVERITIES, fail_on)),
        (command and what, f"{(what or [''])[0]!r} is given with a command", "one of them"),
        (is_mute, "--json is given with a command, which writes to the standard output itself", "--output FILE"),
    )
    ids = split_names(rules)
    if command:
        audits, code = _program(command, ids, given["timeout_s"], is_full=is_verbose)
    else:
        chosen = (what or ["."], pattern, params or [])
        audits, code = _functions(chosen, ids, _limits_of_functions(given), as_json=as_json, is_full=is_verbose)
    for file, text in ((output, _json_lines), (sarif, to_sarif)):
        if file is not None:
            write_text(file, text(audits))
            note(f"written to {file}")
    write_documents(html, documents_of_all(audits))
    is_reached = fail_on in SEVERITIES and any(found.reaches(fail_on) for found in audits)
    raise typer.Exit(code or int(is_reached))


def _limits_of_functions(given: Given) -> dict[str, Any]:
    from benchax.auditing.audit import read_limits
    from benchax.auditing.evidence import TIMEOUT_S

    return read_limits(given["max_time_s"], given["timeout_s"] or TIMEOUT_S, given["seed"])


def _program(
    command: list[str], ids: Sequence[str] | None, limit_s: float | None, *, is_full: bool
) -> tuple[list[Audit], int]:
    """Audits a program, and shows the audit on stderr, because stdout belongs to the program. Returns (audit, the
    program's exit code)."""
    from benchax.auditing.audit import audit_program

    found = audit_program(command, ids, limit_s=limit_s, on_wait=at_terminal("audit"))
    with while_read():
        note("")
        show(document(found.audit, is_full), is_aside=True)
    return [found.audit], found.ended.exit_code


def _functions(
    chosen: tuple[list[str], str, list[str]],
    ids: Sequence[str] | None,
    limits: dict[str, Any],
    *,
    as_json: bool,
    is_full: bool,
) -> tuple[list[Audit], int]:
    """Returns (audits, exit code). The code is 2 if a file is broken, or a function could not be called."""
    from benchax.auditing.audit import audit_case, choose_rules
    from benchax.auditing.evidence import NOT_BUILT, NOT_CALLED

    choose_rules(ids)
    cases, code = collect_cases(*chosen)
    audits: list[Audit] = []
    for case in cases:
        # A log gets no line for each rule.
        found = with_progress(lambda report, case=case: audit_case(case, ids, **limits, report=report), None)
        show(json.dumps(found.asdict()) if as_json else document(found, is_full), is_next=bool(audits))
        audits.append(found)
    remarks = [remark for found in audits for remark in found.remarks if remark.severity == "error"]
    was_left_out = any(remark.code in (NOT_BUILT, NOT_CALLED) for remark in remarks)
    return audits, 2 if was_left_out else code


def _json_lines(audits: Sequence[Audit]) -> str:
    return "".join(f"{json.dumps(found.asdict())}\n" for found in audits)


# ---- benchax checklist -----------------------------------------------------------------------------------------------


@takes_options(
    "seed", max_time_s=MAX_TIME_OF_EACH, timeout_s="End any stage in a worker after this time: 30, 500ms (5min)."
)
def checklist(
    what: What = None,
    *,
    pattern: Pattern = "",
    params: Params = None,
    given: Given,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document per function to stdout.")] = False,
    html: Html = None,
) -> None:
    """Go through a checklist of optimisations, and tick off each one by a measurement.

    The exit code is 0 also if there is something to gain. It is 2 after an error, such as a function that does not
    trace, or that benchax could not call.
    """
    from benchax.auditing.checklist import walk_checklist

    limits = _limits_of_functions(given)
    cases, code = collect_cases(what or ["."], pattern, params or [])
    was_left_out, documents = False, []
    for case in cases:
        each, trial = with_progress(lambda report, case=case: walk_checklist(case, **limits, report=report))
        documents.append(document_of_checklist(each))
        show(json.dumps(each.asdict()) if as_json else documents[-1])
        was_left_out |= trial.obstacle is not None or trial.is_unbuilt
    write_documents(html, list_parts(f"Checklists of {plural(len(documents), 'function')}", documents))
    raise typer.Exit(2 if was_left_out else code)
