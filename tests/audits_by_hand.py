"""Audits without an audit, for tests of what shows them."""

from __future__ import annotations

from pathlib import Path

from benchax.model import Remark
from benchax.results.audit import Audit, Checked, Finding, Suppressed

HOSTILE = "a[red]b</td><script>alert(1)</script>\n✗ \u202e'\"&"


def finding(rule: str = "not-jitted", severity="warning", where=None, **more) -> Finding:
    page = f"docs/reference/rules/{rule}.md"
    return Finding(rule, severity, f"the title of {rule}", ("seen one", "seen two"), "do this", page, where, **more)


def audit(folder: Path) -> Audit:
    """One of everything."""
    slow = finding(
        where=(str(folder / "a dir" / "träin.py"), 12), gain="measured: 2 ms → 1 ms per call (2×)", gain_s=1e-3
    )
    grave = finding("branch-on-value", "error", where=("/elsewhere/b.py", 3))
    silent = Suppressed(finding("cache-off", "info"), "new machines", "[tool.benchax.audit] of pyproject.toml")
    in_code = Suppressed(finding("trivial-jit", "info"), "called by others", "b.py:3")
    checked = (
        Checked("not-jitted", "is it jitted?", "finding"),
        Checked("branch-on-value", "does it branch?", "finding", "only one branch was seen"),
        Checked("cache-off", "is the cache on?", "finding"),
        Checked("donation-unused", "is it used?", "fine"),
        Checked("small-batch", "is it large?", "not applicable", "it has no batch"),
        Checked("mesh-mismatch", "does it fit?", "not applicable", "it has no batch"),
        Checked("numpy-inputs", "NumPy?", "not checked", "the time was used up"),
    )
    remarks = (Remark("how", "info", "it was traced"),)
    return Audit("step", "f32[8]", (grave, slow), checked, (silent, in_code), remarks, 31.2)


def clean() -> Audit:
    checked = (
        Checked("not-jitted", "is it jitted?", "fine"),
        Checked("small-batch", "?", "not applicable", "no batch"),
    )
    return Audit("clean", "f32[8]", checked=checked, elapsed_s=2.0)


def hostile() -> Audit:
    """A user's text wherever one can be."""
    found = Finding(HOSTILE, "info", HOSTILE, (HOSTILE,), HOSTILE, HOSTILE, (HOSTILE, 1), f"measured: {HOSTILE}")
    checked = (Checked(HOSTILE, HOSTILE, "not checked", HOSTILE),)
    silent = (Suppressed(found, HOSTILE, HOSTILE),)
    return Audit(HOSTILE, HOSTILE, (found,), checked, silent, (Remark(HOSTILE, "info", HOSTILE),))
