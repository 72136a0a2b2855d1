"""Rules about programs, asked about the small programs in `programs/<rule>/`: bad ones and good ones.

A line that ends with `# expect: rule` is named by a finding of that rule, as its own line or a related one. A good
program has no finding of the rule that its folder is named after. Further words: `# devices: 4` on a line of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jax_versions import shows_calls

FOLDER = Path(__file__).parent / "programs"
PROGRAMS = [path for path in sorted(FOLDER.glob("*/*.py")) if path.name.startswith(("bad", "good"))]
MINE = [path for path in PROGRAMS if "# runs" in path.read_text(encoding="utf-8").splitlines()[0]]
_EXPECTED = re.compile(r"# expect: ([a-z0-9-]+)")
_DEVICES = re.compile(r"^# devices: (\d+)", re.MULTILINE)
Audited = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def audited() -> Iterator[Audited]:
    command = [sys.executable, str(Path(__file__).with_name("audit_programs.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        asked, answers = server.stdin, server.stdout

        def audit(path: Path, rules: list[str]) -> dict[str, Any]:
            devices = _DEVICES.search(path.read_text(encoding="utf-8"))
            question = {"path": str(path), "rules": rules, "devices": int(devices[1]) if devices else 1}
            asked.write(f"{json.dumps(question)}\n")
            asked.flush()
            found = json.loads(answers.readline())
            assert "error" not in found, found["error"]
            return found

        yield audit
        asked.close()


@pytest.mark.slow
@shows_calls
@pytest.mark.parametrize("path", MINE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_program_gets_the_findings_that_it_asks_for(path: Path, audited: Audited) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    expected = {(rule, i) for i, line in enumerate(lines, 1) for rule in _EXPECTED.findall(line)}
    rule = path.parent.name

    found = audited(path, sorted({rule, *(name for name, _ in expected)}))["findings"]

    named = {(one["rule"], line) for one in found for file, line in places(one) if Path(file).name == path.name}
    assert expected <= named, found
    assert path.name.startswith("bad") == bool(expected)
    if not expected:
        assert [one["title"] for one in found if one["rule"] == rule] == []


def places(finding: dict[str, Any]) -> list[tuple[str, int]]:
    own = [tuple(finding["where"])] if finding["where"] else []
    return [*own, *((file, line) for _, file, line in finding["related"])]
