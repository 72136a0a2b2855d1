"""`benchax audit -- python program.py`: a real program with the real JAX, as its user would start it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python

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


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A program that ends well, under --fail-on."""
    folder = tmp_path_factory.mktemp("program")
    words = ["--fail-on", "warning", "--output", "o.jsonl", "--sarif", "o.sarif", "--", sys.executable, "train.py", "0"]
    return audit(folder, *words), folder


def test_fail_on_makes_the_exit_code(failing: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    assert failing[0].returncode == 1


def test_standard_output_is_the_programs_and_findings_are_on_standard_error(
    failing: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, _ = failing

    assert done.stdout == "ended\n"
    assert "sends operations one at a time: 120 from one line" in done.stderr
    assert "train.py:6" in done.stderr


def test_findings_are_written_as_data(failing: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, folder = failing

    (line,) = (folder / "o.jsonl").read_text(encoding="utf-8").splitlines()
    (finding,) = json.loads(line)["findings"]
    assert (finding["rule"], finding["where"]) == ("eager-operations", [str(folder / "train.py"), 6])
    (result,) = json.loads((folder / "o.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert result["ruleId"] == "eager-operations"


@pytest.mark.slow
def test_without_fail_on_the_exit_code_is_the_programs(tmp_path: Path) -> None:
    assert audit(tmp_path, "--", sys.executable, "train.py", "7").returncode == 7


def test_a_program_is_ended_after_its_time(tmp_path: Path) -> None:
    done = audit(tmp_path, "--timeout", "0.5", "--", sys.executable, "-c", "while True: pass")

    assert done.returncode == 128 + signal.SIGTERM
    said = " ".join(done.stderr.split())
    assert "and was ended when its time was up, after" in said
    assert "what it does later was not seen" in said
