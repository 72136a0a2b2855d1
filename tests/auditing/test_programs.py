"""Every program of `programs/`: rules find what is marked in the bad ones, and nothing in the good ones.

A file `programs/<rule>/bad_*.py` marks each line that a finding names by `# expect: <rule>`, or `<rule>:info`. Each
function without a leading underscore is audited; its inputs are the defaults of its parameters. Files that begin with
"# runs" are programs that run as a whole: `test_programs_that_ran.py`.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import benchax
from benchax.results.audit import Audit

FOLDER = Path(__file__).parent / "programs"
FILES = [file for file in sorted(FOLDER.glob("*/*.py")) if not file.read_text(encoding="utf-8").startswith("# runs")]
MARK = re.compile(r"# expect: ([a-z0-9-]+)(?::(\w+))?")


def functions_of(file: Path) -> Iterator[Callable[..., Any]]:
    name = f"programs_{file.parent.name}_{file.stem}".replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = (value for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
    yield from (value for value in own if getattr(value, "__module__", name) == name)


def audited(fn: Callable[..., Any], rule: str) -> Audit:
    inputs = [parameter.default for parameter in inspect.signature(fn).parameters.values()]
    return benchax.audit(fn, *inputs, rules=[rule], max_time_s=1e-3, timeout_s=None, progress=False)


def ids(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


@pytest.mark.slow
@pytest.mark.parametrize("file", [file for file in FILES if file.stem.startswith("bad")], ids=ids)
def test_each_marked_line_of_a_bad_program_has_its_finding_and_no_other(file: Path) -> None:
    rule, lines = file.parent.name, file.read_text(encoding="utf-8").splitlines()
    marked = {(n, *found.groups()) for n, line in enumerate(lines, 1) if (found := MARK.search(line))}
    named = set[tuple[int, str, str]]()
    for fn in functions_of(file):
        findings = audited(fn, rule).findings
        assert findings, getattr(fn, "__name__", fn)
        named |= {(f.where[1], f.rule, f.severity) for f in findings if f.where}
    graded = {(n, name) for n, name, severity in marked if severity is None}
    assert {(n, name) for n, name, _ in named} == {(n, name) for n, name, _ in marked}
    assert named >= {(n, name, severity) for n, name, severity in marked if (n, name) not in graded}


@pytest.mark.slow
@pytest.mark.parametrize("file", [file for file in FILES if file.stem.startswith("good")], ids=ids)
def test_a_good_program_has_no_finding(file: Path) -> None:
    for fn in functions_of(file):
        found = audited(fn, file.parent.name)
        assert not found.findings, (getattr(fn, "__name__", fn), found.findings)
        assert found.checked[0].outcome in ("fine", "not applicable"), (fn, found.checked[0].why)
