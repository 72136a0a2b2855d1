"""What an audit by all rules finds in each program of the corpus, one section for each."""

from __future__ import annotations

import atexit
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from auditing import corpus
from auditing.corpus import Auditor, Audits, Program

from benchax.results.audit import Where

TIMED = ("cache-off", "compile-share", "page-faulting-output")
"""Rules whose answer depends on how long something takes on this machine: their lines can be missing."""

_idle: SimpleQueue[Auditor] = SimpleQueue()
_started = ExitStack()
atexit.register(_started.close)


def sections() -> dict[str, Callable[[], str]]:
    return {program.name: partial(describe, program) for program in corpus.programs()}


def describe(program: Program) -> str:
    """One line for each severity and rule, with the lines of the program: "warning key-reuse 7, 12"."""
    if program.missing:
        return f"not audited: {', '.join(program.missing)} is not installed"
    try:
        audit = _idle.get_nowait()
    except Empty:
        audit = _started.enter_context(corpus.auditor())
    try:
        found = _found(audit(program, None)) or ["nothing"]
    finally:
        _idle.put(audit)
    return "\n".join("~ " * any(f" {rule} " in line for rule in TIMED) + line for line in found)


def _found(audits: Audits) -> list[str]:
    places = defaultdict[str, set[str]](set)
    for audit in audits.values():
        for f in audit.findings:
            places[f"{f.severity} {f.rule}"].add(_line(f.where))
        for one in audit.suppressed:
            places[f"silenced {one.finding.rule}"].add(_line(one.finding.where))
        for c in audit.outcomes("not checked"):
            if "failed" in c.why:
                places[f"failed {c.rule}"].add(_plain(c.why))
    in_order = {what: sorted(lines, key=lambda line: (len(line), line)) for what, lines in places.items()}
    return [f"{what} {', '.join(lines)}" for what, lines in sorted(in_order.items())]


def _line(where: Where | None) -> str:
    """Lines of packages differ from version to version."""
    if where is None:
        return "-"
    return str(where[1]) if "/programs/" in Path(where[0]).absolute().as_posix() else Path(where[0]).name


def _plain(why: str) -> str:
    """Without numbers and folders, which differ from run to run."""
    return re.sub(r"\d[\d.,]*", "N", re.sub(r"/\S*/", "", why))
