"""`benchax.audit`: every rule asks its question, and each answer has its evidence.

One function is audited in this process, but for comparisons, which take fresh ones. It is called often; but first once
in a worker process (`trial.py`), which may be killed. A rule that fails is a line in the result, and the others go on.
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

from benchax.auditing import suppression
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import NotApplicable, Rule
from benchax.auditing.rules import packs
from benchax.auditing.rules import rules as every_rule
from benchax.auditing.trial import TIMEOUT_S
from benchax.case import Case, make_case
from benchax.environment import capture
from benchax.errors import BenchaxError, UsageError, one_of
from benchax.keywords import guard_keywords
from benchax.measuring.diagnosis import diagnose, user_line
from benchax.model import Remark
from benchax.options import NAMES, read_seed, split_names
from benchax.progress import Listener, Progress, ProgressEvent, quiet, show_progress
from benchax.results.audit import PACK_OFF, SEVERITIES, Audit, Checked, Finding
from benchax.units import read_duration

MAX_TIME_S = 60.0


@guard_keywords(NAMES)
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


def read_limits(
    max_time_s: float | str | None, timeout_s: float | str | None, seed: Any, source: str = "the call"
) -> dict[str, Any]:
    """Converts these options for `audit_case` and `walk_checklist`: seconds and a whole number.

    Raises:
        UsageError: one of them is invalid.
    """
    return {
        "max_time_s": read_duration("max_time_s", max_time_s, source) or MAX_TIME_S,
        "timeout_s": read_duration("timeout_s", timeout_s, source),
        "seed": read_seed(seed, source),
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
    return replace(found, remarks=remarks, elapsed_s=perf_counter() - begun)  # with the trial


def packs_off(names: Sequence[str] | None) -> Iterator[Remark]:
    """Names the packs of rules that are not asked by default, if these names are the default."""
    for pack in sorted(packs()) if names is None else ():
        n = sum(rule.pack == pack for rule in every_rule().values())
        yield Remark(PACK_OFF, "info", f"{n} rules of the pack {pack} are off: benchax audit --rules {pack}")


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
    project = suppression.of_project(folder)
    findings: list[Finding] = []
    checked: list[Checked] = []
    for i, rule in enumerate(asked.values()):
        enter_step(evidence, rule_event(name, rule.id, i, len(asked)), report)
        found, answer = ask(rule, evidence)
        findings += found
        checked.append(answer)
    about = None if isinstance(evidence, ProgramEvidence) else evidence.def_where
    kept, silent = suppression.apply_suppressions(findings, project, [*every_rule(), suppression.ID], about)
    return Audit(
        name,
        signature,
        tuple(sorted(kept, key=rank)),
        tuple(checked),
        tuple(silent),
        tuple(evidence.remarks),
        perf_counter() - begun,
        capture(folder),
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
    with _heeding_interrupts():
        return _ask_rule(rule, evidence)


@contextmanager
def _heeding_interrupts() -> Iterator[None]:
    """Ctrl-C while compiled code calls Python becomes an error of the call (jax 0.10.2), which a rule would explain."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    heard: list[int] = []

    def hear(number: int, frame: object) -> NoReturn:
        heard.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if heard:
        raise KeyboardInterrupt


def _ask_rule(rule: Rule, evidence: Evidence | ProgramEvidence) -> tuple[list[Finding], Checked]:
    found: list[Finding] = []
    try:
        for finding in rule.check(evidence):
            found.append(finding)
    except NotApplicable as error:
        return found, Checked(rule.id, rule.title, "finding" if found else "not applicable", error.problem)
    except BenchaxError as error:
        return found, Checked(rule.id, rule.title, "finding" if found else "not checked", error.problem)
    except Exception as error:  # a mistake of the rule, or the user's function in a way that it did not expect
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if user_line(error) else f" (at {Path(at.filename).name}:{at.lineno})"
        why = f"the rule failed: {diagnose(error, rule.id).message}{where}"
        return found, Checked(rule.id, rule.title, "finding" if found else "not checked", why)
    return found, Checked(rule.id, rule.title, "finding" if found else "fine")


def rank(finding: Finding) -> tuple[int, float, int]:
    return -SEVERITIES.index(finding.severity), -(finding.gain_s or 0.0), -(finding.gain_bytes or 0)
