"""`benchax.audit`: every rule asks its question, and each answer has its evidence.

One function is audited in this process, but for comparisons, which take fresh ones. It is called often; but first once
in a worker process (`evidence.try_case`), which may be killed. A rule that fails is a line in the result, and the
others go on.

A program that has ended is audited inside its process, with each of its functions. These are read, not called. The few
that took longest to compile are compiled again. For all others, rules get the trace that JAX made.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import re
import shlex
import sys
import tokenize
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from benchax.auditing.evidence import TIMEOUT_S, Can, Evidence, ProgramEvidence
from benchax.auditing.recorder.functions import RecordedFunction
from benchax.auditing.recorder.log import Log, use_of
from benchax.auditing.rule import NotApplicable, Rule, list_some, page_of
from benchax.auditing.rules import packs
from benchax.auditing.rules import rules as every_rule
from benchax.auditing.syntax import first_line, readable
from benchax.case import Case, make_case
from benchax.environment import capture
from benchax.errors import BenchaxError, UsageError, one_of
from benchax.grouping import group_by
from benchax.hooks.command import EndedCommand, Report, run
from benchax.json_values import decode_value
from benchax.keywords import guard_keywords
from benchax.measuring.diagnosis import diagnose, user_line
from benchax.model import Remark, Severity
from benchax.options import project_table, read_seed, split_names
from benchax.printable import truncate
from benchax.progress import Listener, Progress, ProgressEvent, quiet, show_progress
from benchax.results.audit import PACK_OFF, SEVERITIES, Audit, Checked, Finding, Outcome, Suppressed, Where
from benchax.source_files import owner_of, without_folders
from benchax.units import read_duration, seconds

MAX_TIME_S = 60.0
"""The default limit. We chose how long to wait; no measurement gives it."""


@guard_keywords()
def audit(
    fn: Callable[..., Any],
    *args: Any,
    rules: Sequence[str] | str | None = None,
    max_time_s: float | str = MAX_TIME_S,
    timeout_s: float | str | None = TIMEOUT_S,
    name: str | None = None,
    static: Iterable[int | str] | int | str = (),
    donate: Iterable[int | str] | int | str = (),
    seed: int | None = None,
    progress: Progress = None,
    **kwargs: Any,
) -> Audit:
    """Looks for problems that make `fn(*args, **kwargs)` wrong, or slower or larger than necessary, and measures each.

    Nothing of the user's files is changed. A function that does not trace is a finding, not an exception. A function
    that does not end, or that kills its process, does so in a worker: then the rules that would call it are "not
    checked".

    Args:
        fn, args, kwargs, name, static, donate, seed: as for `bench`. A plain function is audited unchanged.
        rules: ids of rules, or names of packs (`benchax audit --list`): "not-jitted,cache-off", "numerics". Default:
            all rules but those of packs.
        max_time_s: comparisons, which take most of the time, are begun only in its first three quarters.
        timeout_s: limit of each stage (inputs, trace, lower, compile, first run, eager call) in a worker process. The
            worker calls the function once before this process does. None: this process calls it at once, without a
            limit.
        progress: as for `bench`.

    Raises:
        UsageError: a rule that does not exist, inputs that cannot be made, or suppressions that cannot be read.

    Example:
        >>> f = lambda key: jax.random.normal(key) + jax.random.normal(key)
        >>> [finding.rule for finding in benchax.audit(f, "key", rules=["key-reuse"]).findings]
        ['key-reuse']
    """
    case = make_case(fn, args, kwargs, name=name, static=static, donate=donate)
    options = read_limits(max_time_s, timeout_s, seed)
    with show_progress(progress) as report:
        return audit_case(case, split_names(rules), **options, report=report)


def read_limits(max_time_s: float | str | None, timeout_s: float | str | None, seed: Any) -> dict[str, Any]:
    """Converts these options for `audit_case` and `walk_checklist`: seconds and a whole number.

    Raises:
        UsageError: one of them is invalid.
    """
    return {
        "max_time_s": read_duration("max_time_s", max_time_s) or MAX_TIME_S,
        "timeout_s": read_duration("timeout_s", timeout_s),
        "seed": read_seed(seed),
    }


def audit_case(
    case: Case,
    rules: Sequence[str] | None = None,
    *,
    max_time_s: float = MAX_TIME_S,
    timeout_s: float | None = TIMEOUT_S,
    seed: int = 0,
    report: Listener = quiet,
) -> Audit:
    """The same for a case, such as the command line finds in files."""
    begun = perf_counter()
    asked = choose_rules(rules)
    evidence = Evidence(case, max_time_s=max_time_s, seed=seed, timeout_s=timeout_s)
    evidence.tell = lambda doing: report(rule_event(case.id.label, next(iter(asked), ""), 0, len(asked), doing))
    signature = evidence.signature  # made first: what is wrong with the inputs is no finding
    found = run_rules(evidence, asked, case.id.label, signature, folder=case.folder, report=report)
    remarks = (*found.remarks, *packs_off(rules))
    elapsed_s = perf_counter() - begun  # with the trial
    return replace(found, remarks=remarks, elapsed_s=elapsed_s, environment=capture(case.folder))


def packs_off(names: Sequence[str] | None) -> Iterator[Remark]:
    """Names the packs of rules that are not asked by default, if these names are the default."""
    for pack in sorted(packs()) if names is None else ():
        n = sum(rule.pack == pack for rule in every_rule().values())
        yield Remark(PACK_OFF, "info", f"{n} rules of the pack {pack} did not run: benchax audit --rules {pack}")


def choose_rules(names: Sequence[str] | None) -> Mapping[str, Rule]:
    """The rules of these names, or packs of rules, by id; default: all but those of packs. The gravest come first,
    since time can run out.

    Raises:
        UsageError: an unknown name.
    """
    known = every_rule()
    for name in names or ():
        if name not in known and name not in packs():
            raise UsageError(f"there is no rule {name!r}", one_of([*known, *packs()], name), "benchax audit --list")
    asked = [
        rule
        for rule in known.values()
        if (rule.id in names or rule.pack in names if names is not None else not rule.pack)
    ]
    return {rule.id: rule for rule in sorted(asked, key=lambda rule: -SEVERITIES.index(rule.severity))}


def run_rules(
    evidence: Evidence | ProgramEvidence,
    asked: Mapping[str, Rule],
    name: str,
    signature: str = "",
    *,
    folder: Path | None = None,
    report: Listener = quiet,
) -> Audit:
    """Asks rules for what they find in the evidence; also that of a program."""
    begun = perf_counter()
    project = of_project(folder)
    findings: list[Finding] = []
    checked: list[Checked] = []
    for i, rule in enumerate(asked.values()):
        enter_step(evidence, rule_event(name, rule.id, i, len(asked)), report)
        found, answer = ask(rule, evidence)
        findings += found
        checked.append(answer)
    about = None if isinstance(evidence, ProgramEvidence) else evidence.def_where
    kept, silent = apply_suppressions(findings, project, [*every_rule(), SUPPRESSION], about)
    return Audit(
        name,
        signature,
        tuple(sorted(kept, key=rank)),
        tuple(checked),
        tuple(silent),
        tuple(evidence.remarks),
        perf_counter() - begun,
    )


def rule_event(name: str, rule: str, done: int, total: int, doing: str = "") -> ProgressEvent:
    return ProgressEvent(f"{rule} · {name}", doing, done, total)


def enter_step(evidence: Evidence | ProgramEvidence, event: ProgressEvent, report: Listener) -> None:
    """From now on the evidence tells what it does as part of this event."""
    report(event)
    if not isinstance(evidence, ProgramEvidence):  # there everything is done
        evidence.tell = lambda doing: report(replace(event, doing=doing))


def ask(rule: Rule, evidence: Evidence | ProgramEvidence) -> tuple[list[Finding], Checked]:
    """Returns the findings of one rule, and its outcome. Findings from before a failure are kept.

    Raises:
        KeyboardInterrupt: after Ctrl-C.
    """
    found, outcome, why = list[Finding](), cast("Outcome", "fine"), ""
    try:
        for finding in rule.check(evidence):
            found.append(finding)
    except Exception as error:
        # Ctrl-C while compiled code calls Python becomes an error of the call (jax 0.10.2).
        if "KeyboardInterrupt" in f"{error} {error.__cause__}":
            raise KeyboardInterrupt from error
        outcome, why = _explain(rule, error)
    return found, Checked(rule.id, rule.title, "finding" if found else outcome, why)


def _explain(rule: Rule, error: Exception) -> tuple[Outcome, str]:
    if isinstance(error, BenchaxError):
        return "not applicable" if isinstance(error, NotApplicable) else "not checked", error.problem
    # A mistake of the rule, or the user's function in a way that it did not expect.
    at = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if user_line(error) else f" (at {Path(at.filename).name}:{at.lineno})"
    return "not checked", f"the rule failed: {diagnose(error, rule.id).message}{where}"


def rank(finding: Finding) -> tuple[int, float, int]:
    return -SEVERITIES.index(finding.severity), -(finding.gain_s or 0.0), -(finding.gain_bytes or 0)


READ_S = 20.0
"""The most seconds that compiling functions again can take, together."""
LONGEST = 120
"""Characters of a signature that are shown: the signature of a model has thousands."""
MOST_BUILT = 3
"""The number of functions that are compiled again."""
BUILDS = 2
"""As it is, and with its arguments donated."""
RANKS: Sequence[Outcome] = ("finding", "not checked", "fine", "not applicable")
"""The first of these among several answers is the answer of all: what was not seen of one function is not fine."""


def audit_run(
    evidence: ProgramEvidence,
    functions: Sequence[RecordedFunction],
    rules: Sequence[str],
    *,
    is_built: bool = True,
) -> Audit:
    """The audit of a program and of its functions.

    Args:
        functions: those that were recorded, the longest to compile first.
        rules: ids to ask.
        is_built: may functions be compiled again?
    """
    asked = choose_rules(rules)
    with _silence():
        audit = run_rules(evidence, asked, "")
    begun = perf_counter()
    if functions and sys.stderr is not None and sys.stderr.isatty():
        # The program has ended, so its terminal shows nothing while the audit goes on.
        names = ", ".join(one.place.name for one in functions[:MOST_BUILT])
        sys.stderr.write(f"benchax audit: the program has ended; inspecting {names}\n")
    found, left = _read_functions(evidence.log, functions, asked, is_built)
    return _join_functions(audit, found, left, perf_counter() - begun)


def evidence_of(log: Log, one: RecordedFunction, can: Can) -> Evidence:
    """Everything that the log knows of one function of a program."""
    return Evidence(one.case, can=can, recorded=one, use=use_of(log, one.serial))


def _read_functions(
    log: Log, functions: Sequence[RecordedFunction], asked: Mapping[str, Rule], is_built: bool
) -> tuple[list[tuple[Audit, Can]], list[str]]:
    """(the audit of each function, why some of the first were not compiled again)"""
    found, left, rest_s = list[tuple[Audit, Can]](), list[str](), READ_S
    for i, one in enumerate(functions):
        need_s = BUILDS * one.compile_s
        why = one.why_not or (f"compiling it again takes {seconds(one.compile_s, 2)}" if need_s > rest_s else "")
        can: Can = "compile" if is_built and i < MOST_BUILT and not why else "trace"
        rest_s -= need_s if can == "compile" else 0.0
        try:
            with _silence():
                found.append((_audit_function(evidence_of(log, one, can), one, asked), can))
        except BenchaxError as error:
            why = error.problem
        if why and i < MOST_BUILT and is_built:
            left.append(f"{one.place.name}: {why}")
    return found, left


def _audit_function(evidence: Evidence, one: RecordedFunction, asked: Mapping[str, Rule]) -> Audit:
    rules = {id: rule for id, rule in asked.items() if rule.traced or evidence.can == "compile"}
    signature = "" if evidence.can == "trace" and one.jaxpr is None else evidence.signature
    return run_rules(evidence, rules, one.place.name, signature, folder=Path.cwd())


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Hides the output of a function during tracing: it was printed when the program traced the function."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


# ---- one audit of all -------------------------------------------------------------------------------------------


def _join_functions(
    audit: Audit, functions: Sequence[tuple[Audit, Can]], left: Sequence[str], elapsed_s: float
) -> Audit:
    """A rule without an answer for the program takes the answers for its functions."""
    known = every_rule()
    # Some rules, such as key-reuse, look at a whole program and also at each of its functions.
    is_open = {c.rule for c in audit.checked if c.outcome == "not applicable" or known[c.rule].traced}
    found = _join_findings(f for one, _ in functions for f in _findings_of(one, one.findings) if f.rule in is_open)
    answers = group_by((*(c for one, _ in functions for c in one.checked), *audit.checked), lambda c: c.rule)
    silent = (
        replace(s, finding=f) for one, _ in functions for s in one.suppressed for f in _findings_of(one, [s.finding])
    )
    return replace(
        audit,
        findings=tuple(sorted((*audit.findings, *found), key=rank)),
        checked=tuple(best_answer(answers[c.rule]) if c.rule in is_open else c for c in audit.checked),
        suppressed=(*audit.suppressed, *silent),
        remarks=(*audit.remarks, *_remarks([one.name for one, can in functions if can == "compile"], left, elapsed_s)),
        elapsed_s=audit.elapsed_s + elapsed_s,
    )


def _join_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Joins findings. Each rule has one info, for the function that took longest to compile, with a line for each other
    function. A line that several functions run has one finding. A package's own functions get no infos."""
    groups: dict[Any, list[Finding]] = {}
    for i, finding in enumerate(findings):
        if finding.severity == "info" and finding.where and owner_of(finding.where[0]) == "package":
            continue
        line = None if finding.severity == "info" else finding.where or i
        groups.setdefault((finding.rule, line), []).append(finding)
    return [_with_others(first, others) for first, *others in groups.values()]


def _with_others(first: Finding, others: Sequence[Finding]) -> Finding:
    if first.severity == "info":
        lines = [f"{each.where[0]}:{each.where[1]}" if each.where else "elsewhere" for each in others]
        told = [f"also {without_folders(line)}: {each.title}" for line, each in zip(lines, others, strict=True)]
    else:
        texts = dict.fromkeys(text for each in others for text in (each.title, each.seen[0], each.seen[-1]))
        told = [f"also {text}" for text in texts if text not in (first.title, *first.seen)]
    return replace(first, seen=(*first.seen, *list_some(told, what="functions")))


def best_answer(answers: Iterable[Checked]) -> Checked:
    """Returns the answer that says most: a finding is more than "fine"."""
    return min(answers, key=lambda checked: RANKS.index(checked.outcome))


def _findings_of(function: Audit, findings: Iterable[Finding]) -> list[Finding]:
    of = f"of {function.name}({truncate(function.signature, LONGEST)}), as the program called it"
    return [replace(one, seen=(*one.seen, of)) for one in findings]


def _remarks(built: Sequence[str], left: Iterable[str], elapsed_s: float) -> Iterator[Remark]:
    if built:
        what = "was" if len(built) == 1 else "were"
        text = (
            f"When the program had ended, {' and '.join(built)} {what} inspected as JAX compiles them, and not called "
            f"({seconds(elapsed_s, 2)})."
        )
        yield Remark("read", "info", text)
    yield from (Remark("not-read", "info", f"not inspected as a function: {text}") for text in left)


# ---- a program: benchax audit -- python train.py ---------------------------------------------------------------------
#
# Runs a program once, unchanged, and audits it.
#
# The program keeps its output and its exit code (`hooks/command.py`). Each of its processes audits itself when it ends
# (`recording.py`); if there are several, a finding says which one it is about.


HOOK = "benchax.auditing.recording:begin"
"""Watches one process of the program, from inside."""
CALLS_S = 20.0
"""For how long calls and transfers are watched, which slows calls down."""


@dataclass(frozen=True)
class Audited:
    """The findings, and how the program ended."""

    audit: Audit
    ended: EndedCommand


def audit_program(
    command: Sequence[str],
    rules: Sequence[str] | None = None,
    *,
    limit_s: float | None = None,
    calls_s: float = CALLS_S,
    on_wait: Callable[[float], None] | None = None,
) -> Audited:
    """Runs `command` once, to its end, and audits it.

    Args:
        rules: ids of those to ask; default: all.
        limit_s: the program is ended after this time.
        calls_s: for how long calls and transfers are watched, in seconds from the first call.
        on_wait: called once a second with the seconds that the program has run.

    Raises:
        UsageError: a rule that does not exist, or no such program.
    """
    asked = choose_rules(rules)
    ended = run(command, HOOK, {"calls_s": calls_s, "rules": list(asked)}, limit_s=limit_s, on_wait=on_wait)
    found = [replace(decode_value(one.result["audit"], Audit), name=shlex.join(one.argv)) for one in ended.reports]
    why = "; ".join(ended.remarks) or "no process left a report"
    unseen = tuple(Checked(rule.id, rule.title, "not checked", why) for rule in asked.values())
    joined = _join(found, ended.reports) if found else Audit("", checked=unseen)
    remarks = (*joined.remarks, *_remarks_on_run(ended), *packs_off(rules))
    return Audited(replace(joined, name=shlex.join(command), remarks=remarks, elapsed_s=ended.elapsed_s), ended)


def _join(found: Sequence[Audit], reports: Sequence[Report]) -> Audit:
    if len(found) == 1:
        return found[0]
    named = [(one, f"in process {by.pid}: {shlex.join(by.argv)}") for one, by in zip(found, reports, strict=True)]
    return replace(
        found[0],
        findings=tuple(replace(f, seen=(*f.seen, process)) for audit, process in named for f in audit.findings),
        checked=tuple(best_answer(answers) for answers in zip(*(audit.checked for audit in found), strict=True)),
        suppressed=tuple(dict.fromkeys(one for audit in found for one in audit.suppressed)),
        remarks=tuple(dict.fromkeys(remark for audit in found for remark in audit.remarks)),
    )


def _remarks_on_run(ended: EndedCommand) -> Iterable[Remark]:
    severity: Severity = "warning" if ended.is_timed_out or ended.exit_code else "info"
    yield Remark("ran-once", severity, f"The program ran once, unchanged, {_end(ended)}.")
    for report in ended.reports:
        of = f" of process {report.pid}, one of {len(ended.reports)}" if len(ended.reports) > 1 else ""
        yield Remark(
            "calls-window",
            "info",
            f"Calls and transfers were watched for {seconds(report.result['seen_s'])} from the first call on{of}, "
            "during which calls take longer. Compilations and the cache were watched to the end.",
        )
    yield from (Remark("process", "warning", text) for text in ended.remarks)


def _end(ended: EndedCommand) -> str:
    if ended.is_timed_out:
        return f"and was stopped at its time limit, after {seconds(ended.elapsed_s)}: what it does later is not known"
    return f"and ended with {ended.exit_code} after {seconds(ended.elapsed_s)}"


# ---- suppressions ----------------------------------------------------------------------------------------------------
#
# Findings that the author of the code has silenced, each with the reason.
#
# In the code, on the line that a finding is about or on the `def` of the function around it:
#
#     @jax.jit
#     def shift(x):  # benchax: ignore[trivial-jit] called by other programs as a jitted function
#
# For a whole project, in pyproject.toml:
#
#     [tool.benchax.audit]
#     ignore = { "cache-off" = "each job runs on a new machine" }
#
# A suppression without a reason, or of a rule that does not exist, is a finding itself.


SUPPRESSION = "suppression-without-reason"
_COMMENT = re.compile(r"#\s*benchax:\s*ignore\s*\[([^\]]*)\]\s*(.*)", re.DOTALL)


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
        title, advice = f"ignores {ignore.rule!r}, which isn't a rule", f"There is {one_of(known, ignore.rule)}."
    elif not ignore.reason:
        title = f"ignores {ignore.rule} without a reason, so it is not ignored"
        advice = f"State the reason after the brackets: # benchax: ignore[{ignore.rule}] because …"
    else:
        return None
    return Finding(SUPPRESSION, "warning", title, (f"said by {ignore.by}",), advice, page_of(SUPPRESSION), ignore.where)


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
    nodes = [node for node in ast.walk(readable(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [node for node in nodes if first_line(node) <= line <= (node.end_lineno or 0)]
    around.sort(key=first_line, reverse=True)
    # A header may take several lines: all from the first decorator up to the first line of the body.
    headers = [(first_line(node), max(node.lineno, node.body[0].lineno - 1)) for node in around]
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
