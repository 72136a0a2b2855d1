"""`benchax explain CODE`: says what the code of a remark, a failure, a finding, or an error means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer

from benchax import errors
from benchax.cli.console import line, show, show_list
from benchax.codes import FAILURES, REMARKS
from benchax.errors import UsageError, one_of


class Explanation(NamedTuple):
    """The meaning of one code."""

    code: str
    kind: str
    """remark, failure, finding, or error."""
    severity: str
    text: str
    said_by: str
    page: str


def explain(
    code: Annotated[
        str,
        typer.Argument(metavar="[CODE]", help="A code, such as folded or not-jitted. Without one: list all of them."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per line.")] = False,
) -> None:
    """Explain the code of a remark, a failure, a finding, or an error."""
    known = list(every_code())
    found = [each for each in known if code in ("", each.code)]
    if not found:
        raise UsageError(f"there is no code {code!r}", one_of({each.code for each in known}, code))
    if as_json:
        for each in found:
            show(json.dumps(each._asdict()))
    elif not code:
        show_list([(each.code, each.kind, each.text) for each in found])
    else:
        for each in found:
            line(f"{each.code}: {each.text}")
            line(f"  {each.kind}, {each.severity}, reported by {each.said_by}; see {each.page}")


def every_code() -> Iterator[Explanation]:
    """All codes of remarks, failures, findings, and errors, in this order."""
    from benchax.auditing.rule import page_of
    from benchax.auditing.rules import rules

    for code, remark in REMARKS.items():
        yield Explanation(code, "remark", remark.severity, remark.text, remark.said_by, "docs/reference/remarks.md")
    for code, text in FAILURES.items():
        yield Explanation(code, "failure", "error", text, "run, bench, grid", "docs/reference/remarks.md")
    for rule in rules().values():
        yield Explanation(rule.id, "finding", rule.severity, rule.title, "audit", page_of(rule.id))
    for error in vars(errors).values():
        if not (isinstance(error, type) and issubclass(error, errors.BenchaxError)):
            continue
        text = " ".join((error.__doc__ or "").partition("\n\n")[0].split())
        yield Explanation(error.__name__, "error", "error", text, "all verbs", "docs/reference/errors.md")
