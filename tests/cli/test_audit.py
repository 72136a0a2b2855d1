"""`benchax audit` of functions; that of programs is in tests/auditing/test_audit.py."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import warm_python
from command_line import Benchax

from benchax.auditing.evidence import TrialCall
from benchax.model import Failure
from benchax.results.audit import Checklist, Tick

CODE = """
import numpy as np

TABLE = np.random.default_rng(0).standard_normal((1024, 2048)).astype(np.float32)

def folded(x):
    return x @ TABLE

def silent(x):  # benchax: ignore[captured-constants] the table never changes
    return x @ TABLE

def never_ends(x):
    while True:
        x = x + 0

def clean(x):
    print("hello from clean")
    return x + 1
"""
STUCK = """
import os, pathlib

def stuck(x):
    pathlib.Path("worker").write_text(str(os.getpid()))
    while True:
        pass
"""
ONE = ("--rules", "captured-constants")
INPUT = "f32[8,1024]"


@pytest.fixture
def code(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (project / "audited_code.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(project)
    monkeypatch.delitem(sys.modules, "audited_code", raising=False)
    return project


def test_findings_go_to_stdout_and_a_log_gets_no_line_for_each_rule(code: Path, benchax: Benchax) -> None:
    done = benchax("audit", "audited_code:folded", INPUT, *ONE)

    assert done.code == 0
    assert "warning  closes over 1 array of 8.00 MiB  audited_code.py:6" in done.out
    assert done.err == ""


def test_what_the_function_prints_does_not_reach_stdout(code: Path, benchax: Benchax) -> None:
    done = benchax("audit", "audited_code:clean", INPUT, *ONE)

    assert "hello from clean" not in done.out
    assert "hello from clean" in done.err
    assert "nothing found: 1 rule fine" in done.out


@pytest.mark.parametrize(
    ("function", "severity", "expected"),
    [("folded", "warning", 1), ("folded", "info", 1), ("folded", "error", 0), ("silent", "info", 0)],
)
def test_the_exit_code_tells_of_findings_that_are_grave_enough(
    code: Path, benchax: Benchax, function: str, severity: str, expected: int
) -> None:
    assert benchax("audit", f"audited_code:{function}", INPUT, *ONE, "--fail-on", severity).code == expected


def test_a_function_that_does_not_end_is_an_error_that_says_where(code: Path, benchax: Benchax) -> None:
    done = benchax("audit", "audited_code:never_ends", INPUT, "--timeout", "1", "--fail-on", "info")

    assert done.code == 2
    said = "".join(done.out.split())  # lines are folded, paths too
    assert "notchecked" in said
    assert re.search(r"tracetooklongerthan1\.00s;theprocesswaskilled\(at\S+audited_code\.py:1[34]\)", said)


@pytest.mark.slow
def test_an_interrupt_while_it_is_tried_ends_the_audit_and_the_worker(tmp_path: Path) -> None:
    """As a terminal does it, the signal goes to the whole process group."""
    (tmp_path / "stuck.py").write_text(STUCK, encoding="utf-8")
    os.mkfifo(tmp_path / "worker")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchax.cli.main", "audit", "stuck:stuck", "f32[]"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": "."}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    with (tmp_path / "worker").open() as reached:
        worker = int(reached.read())

    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert not psutil.pid_exists(worker)


def test_all_outputs_say_the_same(code: Path, benchax: Benchax) -> None:
    words = ("--json", "--output", "o.jsonl", "--sarif", "o.sarif", "--html", "o.html")
    done = benchax("audit", "audited_code:folded", INPUT, *ONE, *words)

    document = json.loads(done.out)
    assert document == json.loads((code / "o.jsonl").read_text(encoding="utf-8"))
    (finding,) = document["findings"]
    (result,) = json.loads((code / "o.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("audited_code.py", finding["where"][1])
    assert finding["title"] in (code / "o.html").read_text(encoding="utf-8")


def test_the_rules_are_listed(benchax: Benchax) -> None:
    done = benchax("audit", "--list")

    assert done.code == 0
    assert "captured-constants" in done.out
    assert "does it close over large arrays?" in done.out


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("return jnp.concatenate([x] * n)", "branch-on-value"),
        ("return x[:n]", "branch-on-value"),
        ("return x @ jnp.ones((n.ndim, 3))", "not-traceable"),
    ],
    ids=["repeated list", "slice", "shapes that do not fit"],
)
def test_what_does_not_trace_is_a_finding_and_an_error_of_the_command(
    project: Path, benchax: Benchax, body: str, rule: str
) -> None:
    source = f"import jax, jax.numpy as jnp\n\n\n@jax.jit\ndef f(x, n):\n    {body}\n"
    (project / "untraceable.py").write_text(source, encoding="utf-8")

    done = benchax("audit", "untraceable.py:f", "f32[8]", "i32[]", "--rules", "branch-on-value,not-traceable")

    assert done.code == 2
    assert f"rule  {rule}" in done.out
    assert "1 finding (1 error)" in done.out


# ---- checklist -------------------------------------------------------------------------------------------------------


Given = list[dict[str, Any]]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, project: Path) -> Given:
    """What the library was given; `never` does not end."""
    calls: Given = []

    def walk(case: Any, **options: Any) -> tuple[Checklist, TrialCall]:
        calls.append(options)
        obstacle = Failure("timeout", "first run", "it took too long") if case.id.name == "never" else None
        ticks = (Tick("Compilation", "Use jit", "yes", "nothing found by not-jitted", ("not-jitted",)),)
        return Checklist(case.id.label, "f32[8]", ticks), TrialCall("compiled", obstacle)

    monkeypatch.setattr("benchax.auditing.checklist.walk_checklist", walk)
    (project / "code.py").write_text("def plus(x):\n    return x + 1\nnever = lambda x: x\n")
    return calls


def test_it_has_the_defaults_of_the_function(benchax: Benchax, given: Given) -> None:
    done = benchax("checklist", "code.py:plus", "f32[8]")

    assert done.code == 0
    assert "Use jit" in done.out
    assert [{**each, "report": None} for each in given] == [
        {"max_time_s": 60.0, "timeout_s": 300.0, "seed": 0, "report": None}
    ]


def test_it_passes_its_options_on(benchax: Benchax, given: Given) -> None:
    done = benchax("checklist", "code.py:plus", "f32[8]", "--max-time", "500ms", "--seed", "3", "--json")

    assert (json.loads(done.out)["name"], given[0]["max_time_s"], given[0]["seed"]) == ("plus", 0.5, 3)


def test_what_could_not_be_called_is_an_error(benchax: Benchax, given: Given) -> None:
    assert benchax("checklist", "code.py:never", "f32[8]").code == 2


# ---- programs --------------------------------------------------------------------------------------------------------


PROGRAM = """
import sys
import jax.numpy as jnp
x = jnp.ones(3)
for _ in range(120):
    x = x + 1
print("ended")
sys.exit(int(sys.argv[1]))
"""


def audit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "benchax.cli.main", "audit", "--rules", "eager-operations", *words]
    return warm_python.run(command, cwd=folder)


def test_standard_output_is_the_programs_and_findings_are_on_standard_error_in_files_and_in_the_exit_code(
    tmp_path: Path,
) -> None:
    files = ("--output", "o.jsonl", "--sarif", "o.sarif")

    done = audit(tmp_path, "--fail-on", "warning", *files, "--", sys.executable, "train.py", "0")

    assert (done.returncode, done.stdout) == (1, "ended\n")
    assert "sends operations one at a time: 120 from one line" in done.stderr
    assert "train.py:6" in done.stderr
    (line,) = (tmp_path / "o.jsonl").read_text(encoding="utf-8").splitlines()
    (finding,) = json.loads(line)["findings"]
    assert (finding["rule"], finding["where"]) == ("eager-operations", [str(tmp_path / "train.py"), 6])
    (result,) = json.loads((tmp_path / "o.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert result["ruleId"] == "eager-operations"


@pytest.mark.slow
def test_without_fail_on_the_exit_code_is_the_programs(tmp_path: Path) -> None:
    assert audit(tmp_path, "--", sys.executable, "train.py", "7").returncode == 7


def test_a_program_is_ended_after_its_time(tmp_path: Path) -> None:
    done = audit(tmp_path, "--timeout", "0.5", "--", sys.executable, "-c", "while True: pass")

    assert done.returncode == 128 + signal.SIGTERM
    said = " ".join(done.stderr.split())
    assert "and was stopped at its time limit, after" in said
    assert "what it does later is not known" in said
