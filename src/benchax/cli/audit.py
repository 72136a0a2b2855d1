"""`benchax audit`: what makes a function or a program slower or larger than it must be, each finding with its evidence.

Exit codes: 0, also with findings; 1 where --fail-on asks for it and there are some of that severity or a graver one; 2
for an error, and where a function did not end within --timeout or killed its process, so that it could not be looked
at: that there are no findings means nothing then. The exit code of a program that is audited is the audit's where that
is 0; of one that --timeout ended it tells of the signal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.profile import COMMAND
from benchax.errors import UsageError, one_of
from benchax.results.audit import SEVERITIES

if TYPE_CHECKING:
    from benchax.auditing.audit import AuditStep
    from benchax.case import Case
    from benchax.results.audit import Audit


def audit(
    ctx: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE:FUNCTION [INPUT...] | PATH... | -- COMMAND...]",
            help="A function and its inputs (jax.numpy:sort f32[1000000]), benchmark files (bench_*.py), or, after two "
            "dashes, a command that runs a program: -- python train.py.",
        ),
    ] = None,
    rules: Annotated[str | None, typer.Option(metavar="IDS", help="not-jitted,…; default: all (see --list).")] = None,
    pattern: Annotated[str, typer.Option("--filter", "-k", help="Of the benchmarks in files those named so.")] = "",
    params: Annotated[list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUES")] = None,
    max_time: Annotated[
        str | None, typer.Option(help="Begin no comparison after this long, of each function: 30, 2min.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            help="End it after so long: a function in any stage (default 5min), or a program (default never)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the data made from specs.")] = 0,
    checklist: Annotated[
        bool, typer.Option("--checklist", help="Instead, go through a checklist of optimisations, each measured.")
    ] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="SEVERITY", help="Exit with 1 at a finding of this or more: info, warning, error."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per function on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all of it there, as JSON lines.")] = None,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write SARIF there, which code hosts show beside the lines.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page there.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the rules and end.")] = False,
) -> None:
    """Look for what makes a function or a program slow, large or wrong; every finding with what was measured."""
    if list_them:
        _list()
        return
    command: list[str] = ctx.meta.get(COMMAND, [])
    _check(fail_on, (output, sarif, html), checklist)
    _check_command(command, what or [], checklist, as_json)
    given = _given_options(max_time, timeout, seed)
    ids = None if rules is None else [rule.strip() for rule in rules.split(",") if rule.strip()]
    if command:
        audits, code = _program(command, ids, given.get("timeout_s"))
    elif checklist:
        _checklists(what or ["."], pattern, params or [], given, as_json=as_json)
        return
    else:
        audits, code = _functions(what or ["."], pattern, params or [], ids, given)
    _write(audits, output, sarif, html)
    _show(audits, as_json=as_json, is_stdout_free=not command)
    failed = any(severity == fail_on and a.reaches(severity) for a in audits for severity in SEVERITIES)
    raise typer.Exit(code or int(failed))


def _list() -> None:
    from benchax.auditing.rules import rules
    from benchax.cli.console import line

    known = rules()
    width = max(map(len, known))
    for rule in known.values():
        line(f"{rule.id:{width}}  {rule.severity:7}  {rule.title}")


def _check(fail_on: str | None, outputs: Sequence[Path | None], checklist: bool) -> None:
    if fail_on is not None and fail_on not in SEVERITIES:
        raise UsageError(f"--fail-on {fail_on!r} cannot be", one_of(SEVERITIES, fail_on))
    if checklist and (any(outputs) or fail_on):
        raise UsageError("--checklist is given with an output of findings", "--checklist alone, or with --json")
    for output in outputs:
        if output is not None and (output.is_dir() or not output.absolute().parent.is_dir()):
            raise UsageError(f"cannot write to {str(output)!r}", "a file in a folder that exists")


def _check_command(command: list[str], what: list[str], checklist: bool, as_json: bool) -> None:
    if command and (what or checklist):
        raise UsageError(f"{(what or ['--checklist'])[0]!r} is given beside a command", "one of them")
    if command and as_json:
        raise UsageError("--json is given with a command, whose standard output is its own", "--output FILE")


def _given_options(max_time: str | None, timeout: str | None, seed: int) -> dict[str, Any]:
    """The options of an audit that were given; the others have their defaults there."""
    from benchax.auditing.trial import limit_of
    from benchax.units import parse_seconds

    max_time_s = None if max_time is None else parse_seconds(max_time)
    options = {"max_time_s": max_time_s, "timeout_s": limit_of(timeout), "seed": seed}
    return {name: value for name, value in options.items() if value is not None}


def _program(command: list[str], ids: Sequence[str] | None, limit_s: float | None) -> tuple[list[Audit], int]:
    """(the audit, the program's exit code)"""
    from benchax.auditing.audited_program import audit_program

    found = audit_program(command, ids, limit_s=limit_s)
    return [found.audit], found.ended.exit_code


def _functions(
    what: list[str], pattern: str, params: list[str], ids: Sequence[str] | None, given: dict[str, Any]
) -> tuple[list[Audit], int]:
    """(audits, exit code): 2 where a file is broken, or a function could not be called."""
    from benchax.auditing.audit import audit_case, choose_rules
    from benchax.auditing.live_evidence import NOT_CALLED
    from benchax.cli.run import printing_to_stderr

    choose_rules(ids)
    cases, code = _cases(what, pattern, params)
    with _progress(len(cases)) as tell:
        audits = [
            printing_to_stderr(lambda case=case: audit_case(case, ids, **given, progress=tell(case))) for case in cases
        ]
    was_left_out = any(remark.code == NOT_CALLED for found in audits for remark in found.remarks)
    return audits, 2 if was_left_out else code


def _checklists(what: list[str], pattern: str, params: list[str], given: dict[str, Any], *, as_json: bool) -> None:
    from benchax.auditing.checklist import go_through
    from benchax.cli.console import line, show
    from benchax.cli.run import printing_to_stderr
    from benchax.reporting.checklist import document

    cases, code = _cases(what, pattern, params)
    with _progress(len(cases)) as tell:
        found = [printing_to_stderr(lambda case=case: go_through(case, **given, progress=tell(case))) for case in cases]
    for checklist, _ in found:
        line(json.dumps(checklist.asdict())) if as_json else show(document(checklist))
    was_left_out = any(trial.obstacle is not None for _, trial in found)
    raise typer.Exit(2 if was_left_out else code)


def _cases(what: list[str], pattern: str, params: list[str]) -> tuple[list[Case], int]:
    """(cases, exit code): 2 where a file is broken; the others are audited."""
    from benchax.cli.run import printing_to_stderr, show_broken
    from benchax.discovery import collect

    cases, broken = printing_to_stderr(lambda: collect(what, pattern, params))
    show_broken(broken)
    return cases, 2 if broken else 0


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Gives, for a case, what is told each step of its audit: a bar on a terminal, a line for each rule elsewhere.

    Redrawn only when something is told, so that nothing runs beside what is measured.
    """
    from benchax.cli.console import note

    if not sys.stderr.isatty():
        yield lambda case: lambda step: None if step.doing else note(_describe_step(case, step))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=total)

        def tell(case: Case) -> Any:
            def tell_step(step: AuditStep) -> None:
                bar.update(task, completed=step.done, total=step.total, description=_describe_step(case, step))
                bar.refresh()

            return tell_step

        yield tell


def _describe_step(case: Case, step: AuditStep) -> str:
    name = " ".join(case.id.label.split())
    return " · ".join(filter(None, (name[:40], f"{step.done + 1}/{step.total} {step.rule}", step.doing)))


def _write(audits: Sequence[Audit], output: Path | None, sarif: Path | None, html: Path | None) -> None:
    from benchax.cli.console import note
    from benchax.reporting import audit as drawing
    from benchax.reporting import sarif as exchange

    for file, text in ((output, _json_lines), (sarif, exchange.text), (html, drawing.render_page)):
        if file is not None:
            file.write_text(text(audits), encoding="utf-8")
            note(f"written to {file}")


def _json_lines(audits: Sequence[Audit]) -> str:
    return "".join(f"{json.dumps(found.asdict())}\n" for found in audits)


def _show(audits: Sequence[Audit], *, as_json: bool, is_stdout_free: bool) -> None:
    """On stdout; beside a program, which has that to itself, on stderr."""
    from benchax.cli.console import line, note, show
    from benchax.reporting.audit import document
    from benchax.reporting.terminal import to_text

    for i, found in enumerate(audits):
        if as_json:
            line(json.dumps(found.asdict()))
        elif is_stdout_free:
            if i:
                line("")
            show(document(found))
        else:
            note(f"\n{to_text(document(found))}")
