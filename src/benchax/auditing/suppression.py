"""Findings that the author of the code wants no word of, each with the reason.

In the code, on the line that a finding is about or on the `def` of the function around it:

    @jax.jit
    def shift(x):  # benchax: ignore[trivial-jit] called by other programs as a jitted function

For a whole project, in pyproject.toml:

    [tool.benchax.audit]
    ignore = { "cache-off" = "each job runs on a new machine" }

A suppression without a reason, or of a rule that does not exist, is a finding itself.
"""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchax.auditing.rule import page_of
from benchax.auditing.syntax import readable
from benchax.errors import UsageError, one_of
from benchax.options import project_table
from benchax.results.audit import Finding, Suppressed, Where

ID = "suppression-without-reason"
TITLE = "do suppressions have reasons?"
_COMMENT = re.compile(r"#\s*benchax:\s*ignore\s*\[([^\]]*)\]\s*(.*)", re.DOTALL)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Ignore:
    """One rule that is to be silent, somewhere."""

    rule: str
    reason: str
    by: str
    where: Where | None = None
    """None: everywhere in the project."""


def apply_suppressions(
    findings: Iterable[Finding], project: Collection[Ignore], known: Collection[str], about: Where | None = None
) -> tuple[list[Finding], list[Suppressed]]:
    """Returns (the remaining findings, the suppressed ones). Wrong suppressions are among the remaining findings.

    Args:
        project: the suppressions of the project, from `of_project`.
        known: the ids of all rules.
        about: the `def` of the audited function; suppressions there hold for every finding.
    """
    kept: list[Finding] = []
    silent: list[Suppressed] = []
    in_code = _around(about) if about else []
    met = dict.fromkeys((*project, *in_code))
    for finding in findings:
        here = [*(one for line in finding.lines for one in _around(line)), *in_code, *project]
        met |= dict.fromkeys(here)
        ignore = next((i for i in here if i.rule == finding.rule and i.reason), None)
        if ignore is None:
            kept.append(finding)
        else:
            silent.append(Suppressed(finding, ignore.reason, ignore.by))
    return kept + [wrong for ignore in met if (wrong := _wrong(ignore, known))], silent


def _wrong(ignore: Ignore, known: Collection[str]) -> Finding | None:
    if ignore.rule not in known:
        title, advice = f"ignores {ignore.rule!r}, which is no rule", f"There is {one_of(known, ignore.rule)}."
    elif not ignore.reason:
        title = f"ignores {ignore.rule} without a reason, so it is not ignored"
        advice = f"Say why, behind the brackets: # benchax: ignore[{ignore.rule}] because …"
    else:
        return None
    return Finding(ID, "warning", title, (f"said by {ignore.by}",), advice, page_of(ID), ignore.where)


def of_project(folder: Path | None) -> list[Ignore]:
    """What [tool.benchax.audit] of the nearest pyproject.toml ignores.

    Raises:
        UsageError: that table cannot be understood.
    """
    path, table = project_table(folder or Path.cwd())
    settings: Any = table.get("audit", {})
    example = '[tool.benchax.audit]\nignore = { "not-jitted" = "the reason" }'
    if not isinstance(settings, dict) or not set(settings) <= {"ignore"}:
        raise UsageError(f"tool.benchax.audit in {path} is {settings!r}", "a table with the key 'ignore'", example)
    ignored: Any = settings.get("ignore", {})
    if not isinstance(ignored, dict) or not all(isinstance(reason, str) for reason in ignored.values()):
        raise UsageError(f"tool.benchax.audit.ignore in {path} is {ignored!r}", "rules with their reasons", example)
    by = f"[tool.benchax.audit] of {path}"
    return [Ignore(rule, " ".join(reason.split()), by) for rule, reason in ignored.items()]


def _around(where: Where) -> list[Ignore]:
    """Returns the suppressions in comments on a line, and on the headers of the functions around it; the nearest
    first."""
    file, line = where
    nodes = [node for node in ast.walk(readable(file)) if isinstance(node, _FUNCTIONS)]
    # A header may take several lines: all from the first decorator up to the first line of the body.
    firsts = [(min([node.lineno, *(d.lineno for d in node.decorator_list)]), node) for node in nodes]
    around = sorted((first, node.lineno, node) for first, node in firsts if first <= line <= (node.end_lineno or 0))
    headers = [(first, max(at, node.body[0].lineno - 1)) for first, at, node in reversed(around)]
    listed = list(comments("".join(linecache.getlines(file)), file))
    found = [i for first, last in ((line, line), *headers) for i in listed if i.where and first <= i.where[1] <= last]
    return list(dict.fromkeys(found))


def comments(text: str, file: str) -> Iterator[Ignore]:
    """Every `# benchax: ignore[…]` of a Python text; up to where it stops being Python."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (found := _COMMENT.match(token.string)):
                line = token.start[0]
                for rule in (word.strip() for word in found[1].split(",")):
                    yield Ignore(rule, " ".join(found[2].split()), f"{file}:{line}", (file, line))
    except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):  # the second by a bug of Python 3.13.0, at "\r\x80"
        return
