"""`auditing/audit.py`: real programs with the real JAX, run as their users start them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jax_versions import shows_calls

from benchax.auditing.audit import Audited, audit_program
from benchax.errors import UsageError
from benchax.results.audit import Checked, Finding

# Its line numbers are told in the tests.
TRAINING = """
import pathlib, sys
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def gradient(w, x):
    return x.T @ (x @ w)

w = jnp.ones(4)
for rows in [8] * 40:
    slope = gradient(w, np.ones((rows, 4), np.float32))
    # clip, multiply, subtract
    w = w - 1e-3 * jnp.clip(slope, -1, 1)
    w = jax.jit(lambda a: a * 0.5)(w)
with pathlib.Path("runs.txt").open("a") as file:
    file.write("run\\n")
print("loss", float(w.sum()) > 0)
sys.exit(5)
"""
CLEAN = """
import jax, jax.numpy as jnp

@jax.jit
def step(w):
    return w * 0.5

w = jnp.ones(4)
for _ in range(300):
    w = step(w)
w.block_until_ready()
"""
PARENT = """
import subprocess, sys
import jax, jax.numpy as jnp
jnp.ones(3) + 1
subprocess.run([sys.executable, "child.py"], check=True)
"""
CHILD = """
import jax.numpy as jnp
x = jnp.ones(3)
for _ in range(150):
    x = x + 1
"""
START = (
    "import sys; from benchax.auditing.audit import audit_program; "
    "sys.exit(audit_program(sys.argv[1:]).ended.exit_code)"
)


def audited_in(folder: Path, text: str, **settings: float) -> Audited:
    """The program, in that folder."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return audit_program([sys.executable, "train.py"], **settings)  # pyright: ignore[reportArgumentType]


def checked(found: Audited, rule: str) -> Checked:
    return next(one for one in found.audit.checked if one.rule == rule)


def findings(found: Audited, rule: str) -> list[Finding]:
    return [finding for finding in found.audit.findings if finding.rule == rule]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audited, Path]:
    folder = tmp_path_factory.mktemp("training")
    return audited_in(folder, TRAINING), folder


@pytest.mark.slow
def test_the_program_runs_once_and_keeps_its_exit_code(training: tuple[Audited, Path]) -> None:
    found, folder = training

    assert found.ended.exit_code == 5
    assert (folder / "runs.txt").read_text(encoding="utf-8") == "run\n"
    assert any("ran once, unchanged, and ended with 5" in remark.message for remark in found.audit.remarks)


@pytest.mark.slow
def test_output_is_the_programs_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys, jax; print('out'); print('err', file=sys.stderr)", encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-c", START, sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")


@pytest.mark.slow
@shows_calls
def test_the_line_that_sends_operations_one_by_one_is_found(training: tuple[Audited, Path]) -> None:
    (finding,) = findings(training[0], "eager-operations")

    assert finding.where == (str(training[1] / "train.py"), 13)
    assert finding.seen[0] == "120 from train.py:13"


@pytest.mark.slow
@shows_calls
def test_calls_of_the_programs_own_functions_are_told_apart_from_operations(training: tuple[Audited, Path]) -> None:
    (finding,) = findings(training[0], "eager-operations")

    assert any(text.endswith("calls of jitted functions: 80") for text in finding.seen)


def test_rules_of_one_function_are_answered_by_the_functions_of_the_program(training: tuple[Audited, Path]) -> None:
    found = training[0]

    assert checked(found, "captured-constants").outcome == "fine"
    assert (checked(found, "not-jitted").outcome, checked(found, "not-jitted").why) == (
        "not applicable",
        "it is jitted",
    )
    assert any("gradient" in r.message and "inspected" in r.message for r in found.audit.remarks)


@pytest.mark.slow
def test_of_a_program_that_fails_no_function_is_looked_at(tmp_path: Path) -> None:
    found = audited_in(tmp_path, f"{CLEAN}\nraise RuntimeError('lost')")

    assert found.ended.exit_code == 1
    answer = checked(found, "captured-constants")
    assert (answer.outcome, answer.why) == (
        "not applicable",
        "a program is audited, not one function with its inputs",
    )


def test_the_environment_is_that_of_the_program(training: tuple[Audited, Path]) -> None:
    environment = training[0].audit.environment

    assert environment is not None
    assert environment.backend == "cpu"


@pytest.mark.slow
@shows_calls
def test_a_program_in_one_jitted_loop_sends_no_operations(tmp_path: Path) -> None:
    found = audited_in(tmp_path, CLEAN)

    assert checked(found, "eager-operations").outcome == "fine"
    assert checked(found, "compile-share").outcome == "fine"


@pytest.mark.slow
@shows_calls
def test_each_process_is_looked_at_and_named(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD, encoding="utf-8")

    found = audited_in(tmp_path, PARENT)

    (finding,) = findings(found, "eager-operations")
    assert finding.where == (str(tmp_path / "child.py"), 5)
    assert finding.seen[-1].startswith("in process ")
    assert finding.seen[-1].endswith("child.py")


@pytest.mark.slow
@shows_calls
def test_counting_ends_with_its_time_and_leaves_calls_as_quick_as_before(tmp_path: Path) -> None:
    text = CHILD.replace("jnp.ones(3)", "jnp.ones(3) + 0; from jax._src import pjit, array; held.wait()")
    # The first call starts the time; the program calls until enough was seen and JAX is as it was.
    before = "import jax, threading, types\nfrom jax._src import pjit\nwas = pjit._get_fastpath_data.__name__\n"
    wait = (
        "def wait():\n    f = jax.jit(lambda x: x + 1)\n    while pjit._get_fastpath_data.__name__ == was: f(1.0)\n"
        "held = types.SimpleNamespace(wait=wait)\n"
    )

    found = audited_in(tmp_path, before + wait + text, calls_s=0.01, limit_s=60)

    assert found.ended.reports[0].result["counts"].get("operation", 0) < 10
    assert found.ended.exit_code == 0


UNJITTED = """
import time
import jax, jax.numpy as jnp

@jax.jit
def slow_to_trace(x):
    time.sleep(3.0)
    return x + 1

def step(x, i):
    y = x[i]
    for _ in range(6):
        y = jnp.tanh(y * 2 + 1)
    return x.at[0].set(y)

x = slow_to_trace(jnp.ones(4))
for i in range(30):
    x = step(x, i % 4)
for i in jnp.asarray([[0, 1]] * 90):
    jax.block_until_ready(x[i])
"""


@pytest.mark.slow
@shows_calls
def test_a_function_that_was_never_jitted_is_found_however_long_compiling_took(tmp_path: Path) -> None:
    # A window of 2 s, which tracing alone would fill.
    found = audited_in(tmp_path, UNJITTED, calls_s=4.0)

    (finding,) = findings(found, "eager-operations")
    assert finding.where == (str(tmp_path / "train.py"), 10)
    assert finding.title.startswith("step, called at line 18, sends ")
    # Parts of arrays are taken between calls, also by many an operation: 90 times at line 20.
    assert not any("train.py:20" in text for text in finding.seen)


ENDLESS = """
import jax, jax.numpy as jnp

def settle(x):
    shrink = lambda x: jax.lax.while_loop(lambda x: x != 0.0, lambda x: x / 2 + 1, x)
    return jax.lax.cond(x > 0, shrink, jnp.sin, x)

print(jax.jit(jax.vmap(settle))(jnp.ones(4)))
"""


@pytest.mark.slow
def test_a_program_that_never_comes_back_from_compiled_code_is_audited_when_its_time_is_up(tmp_path: Path) -> None:
    found = audited_in(tmp_path, ENDLESS, limit_s=6.0)

    assert found.ended.is_timed_out
    (finding,) = findings(found, "vmapped-cond")
    assert finding.where == (str(tmp_path / "train.py"), 5)
    assert "also runs for rows that take another branch" in finding.title


def test_a_program_without_jax_is_not_called_fine(tmp_path: Path) -> None:
    found = audited_in(tmp_path, "print('no jax here')")

    assert {answer.outcome for answer in found.audit.checked} == {"not checked"}
    assert "jax was never imported" in found.audit.checked[0].why
    assert found.audit.findings == ()


@pytest.mark.slow
@shows_calls
def test_a_program_that_calls_nothing_is_not_called_fine(tmp_path: Path) -> None:
    found = audited_in(tmp_path, "import jax")

    assert checked(found, "eager-operations").why == "no call was seen"


def test_no_program_runs_for_a_rule_that_does_not_exist(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    with pytest.raises(UsageError, match="no rule 'eager-operation'"):
        audit_program([sys.executable, "-c", f"open({str(mark)!r}, 'w')"], ["eager-operation"])

    assert not mark.exists()
