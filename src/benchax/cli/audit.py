"""`benchax audit`: finds what makes a function or a program slower or larger than necessary, with evidence.

`benchax checklist`: takes the advice of all guides to fast JAX, and ticks it off by measuring a function.

The exit code is 0 also with findings. It is 1 if a finding has the severity of --fail-on or a worse one. It is 2 after
an error, or if a function does not trace, does not end within --timeout, or kills its process. Then a lack of findings
means nothing. After a program, the exit code is the program's, or the audit's if the program's is 0. If --timeout ended
the program, the exit code shows the signal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.console import (
    collect_cases,
    line,
    note,
    printing_to_stderr,
    show,
    show_list,
    while_read,
)
from benchax.cli.options import (
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
    takes_options,
)
from benchax.cli.output_files import check_writable, write_documents, write_text
from benchax.cli.waiting import at_terminal
from benchax.errors import UsageError, one_of
from benchax.units import plural

if TYPE_CHECKING:
    from benchax.results.audit import Audit


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
        Path | None, typer.Option(metavar="FILE", help="Write SARIF to FILE; code hosts show it next to the lines.")
    ] = None,
    html: Html = None,
    is_verbose: Verbose = False,
    list_them: Annotated[bool, typer.Option("--list", help="List the rules and end.")] = False,
) -> None:
    """Find what makes a function or a program slow, large or wrong, and show a measurement for each finding."""
    if list_them:
        _list()
        return
    command: list[str] = ctx.meta.get(COMMAND, [])
    _check(fail_on, (output, sarif, html))
    _check_command(command, what or [], as_json=as_json, output=output)
    from benchax.options import split_names

    ids = split_names(rules)
    show_one = partial(_show, as_json=as_json and not command, is_stdout_free=not command, is_full=is_verbose)
    if command:
        audits, code = _program(command, ids, given["timeout_s"])
        with while_read():
            show_one(audits[0])
    else:
        audits, code = _functions(what or ["."], pattern, params or [], ids, _limits_of_functions(given), show_one)
    _write(audits, output, sarif, html)
    raise typer.Exit(code or int(_reach(audits, fail_on)))


def _limits_of_functions(given: Given) -> dict[str, Any]:
    from benchax.auditing.audit import read_limits
    from benchax.auditing.trial import TIMEOUT_S

    return read_limits(given["max_time_s"], given["timeout_s"] or TIMEOUT_S, given["seed"])


def _reach(audits: Sequence[Audit], fail_on: str | None) -> bool:
    """Is there a finding of the severity that --fail-on names, or of a worse one?"""
    from benchax.results.audit import SEVERITIES

    return any(severity == fail_on and audit.reaches(severity) for audit in audits for severity in SEVERITIES)


def _list() -> None:
    from benchax.auditing.rules import rules

    show_list([(rule.id, rule.pack or rule.severity, rule.title) for rule in rules().values()])


def _check(fail_on: str | None, outputs: Sequence[Path | None]) -> None:
    from benchax.results.audit import SEVERITIES

    if fail_on is not None and fail_on not in SEVERITIES:
        raise UsageError(f"--fail-on {fail_on!r} cannot be", one_of(SEVERITIES, fail_on))
    check_writable(*outputs)


def _check_command(command: list[str], what: list[str], *, as_json: bool, output: Path | None) -> None:
    if command and what:
        raise UsageError(f"{what[0]!r} is given with a command", "one of them")
    if command and as_json and output is None:
        raise UsageError("--json is given with a command, whose standard output is its own", "--output FILE")


def _program(command: list[str], ids: Sequence[str] | None, limit_s: float | None) -> tuple[list[Audit], int]:
    """Audits a program. Returns (the audit, the program's exit code)."""
    from benchax.auditing.audited_program import audit_program

    found = audit_program(command, ids, limit_s=limit_s, on_wait=at_terminal("audit"))
    return [found.audit], found.ended.exit_code


def _functions(
    what: list[str],
    pattern: str,
    params: list[str],
    ids: Sequence[str] | None,
    given: dict[str, Any],
    show_one: Callable[..., None],
) -> tuple[list[Audit], int]:
    """Returns (audits, exit code). The code is 2 if a file is broken, or a function could not be called."""
    from benchax.auditing.audit import audit_case, choose_rules
    from benchax.auditing.evidence import NOT_BUILT, NOT_CALLED
    from benchax.progress import show_progress

    choose_rules(ids)
    cases, code = collect_cases(what, pattern, params)
    audits: list[Audit] = []
    for case in cases:
        # One display for each audit, so that findings appear before the next audit begins. A log gets no line per rule.
        with show_progress(None) as report:
            found = printing_to_stderr(lambda case=case, report=report: audit_case(case, ids, **given, report=report))
        show_one(found, is_first=not audits)
        audits.append(found)
    remarks = [remark for found in audits for remark in found.remarks if remark.severity == "error"]
    was_left_out = any(remark.code in (NOT_BUILT, NOT_CALLED) for remark in remarks)
    return audits, 2 if was_left_out else code


def _write(audits: Sequence[Audit], output: Path | None, sarif: Path | None, html: Path | None) -> None:
    from benchax.reporting.audit import documents_of_all, to_sarif

    for file, text in ((output, _json_lines), (sarif, to_sarif)):
        if file is not None:
            write_text(file, text(audits))
            note(f"written to {file}")
    write_documents(html, documents_of_all(audits))


def _json_lines(audits: Sequence[Audit]) -> str:
    return "".join(f"{json.dumps(found.asdict())}\n" for found in audits)


def _show(found: Audit, *, as_json: bool, is_stdout_free: bool, is_full: bool, is_first: bool = True) -> None:
    """Shows an audit on stdout. For a program, shows it on stderr, because stdout belongs to the program."""
    from benchax.reporting.audit import document

    if as_json:
        line(json.dumps(found.asdict()))
    elif is_stdout_free:
        if not is_first:
            line("")
        show(document(found, is_full))
    else:
        note("")
        show(document(found, is_full), is_aside=True)


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
    from benchax.progress import show_progress
    from benchax.reporting.audit import document_of_checklist as document
    from benchax.reporting.document import list_parts

    check_writable(html)
    limits = _limits_of_functions(given)
    cases, code = collect_cases(what or ["."], pattern, params or [])
    was_left_out, documents = False, []
    for case in cases:
        # A display of its own each: what has ended is shown before the next one begins.
        with show_progress(True) as report:
            each, trial = printing_to_stderr(
                lambda case=case, report=report: walk_checklist(case, **limits, report=report)
            )
        documents.append(document(each))
        line(json.dumps(each.asdict())) if as_json else show(documents[-1])
        was_left_out |= trial.obstacle is not None or trial.is_unbuilt
    write_documents(html, list_parts(f"Checklists of {plural(len(documents), 'function')}", documents))
    raise typer.Exit(2 if was_left_out else code)
