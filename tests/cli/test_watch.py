"""`benchax watch -- python program.py`: a real program with the real JAX, as its user would start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from command_line import Benchax

from benchax.units import percent

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def step(w, x):
    return w - 0.1 * (x.T @ (x @ w))

w = jnp.ones(4)
for rows in (8, 8, 16):
    w = step(w, np.ones((rows, 4), np.float32))
print("loss", float(w.sum()) < 0)
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], dict]:
    """What was printed, and the document, of one program with everything on."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    words = ["watch", "--transfers", "--output", "o.json", "--", sys.executable, "train.py", "5"]
    done = warm_python.run(
        [sys.executable, "-m", "benchax.cli.main", *words],
        cwd=folder,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")},
    )
    return done, json.loads((folder / "o.json").read_text(encoding="utf-8"))


Watched = tuple[subprocess.CompletedProcess[str], dict]


def test_standard_output_and_the_exit_code_are_the_programs(watched: Watched) -> None:
    done, document = watched

    assert done.stdout == "loss True\n"
    assert "to stderr\n" in done.stderr
    assert (done.returncode, document["exit_code"]) == (5, 5)


def test_the_recompile_is_told_with_its_reason_and_line(watched: Watched) -> None:
    done, document = watched

    (process,) = document["processes"]
    steps = [c for c in process["watch"]["compiles"] if c["function"] == "step"]
    assert [c["is_first"] for c in steps] == [True, False]
    assert steps[1]["where"] == "train.py:11"
    assert "f32[8,4] → f32[16,4]" in done.stderr


def test_the_share_of_compiling_is_told(watched: Watched) -> None:
    done, document = watched

    share = document["processes"][0]["main_thread_share"]
    assert 0 < share <= 1
    assert f"spent {percent(share)} of its time after the import of jax on tracing and compiling" in done.stderr


def test_the_cache_is_told(watched: Watched) -> None:
    done, document = watched

    assert {program["fate"] for program in document["processes"][0]["cache"]["programs"]} == {"too quick"}
    assert "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0" in done.stderr


def test_the_transfers_are_told_with_their_lines(watched: Watched) -> None:
    done, document = watched

    listed = {(t["where"], t["what"]): t["count"] for t in document["processes"][0]["transfers"]["transfers"]}
    assert listed["train.py:11", "NumPy f32[8,4]"] == 2
    assert listed["train.py:12", "f32[]"] == 1
    assert "train.py:11: step, NumPy f32[8,4]" in done.stderr


def test_the_steps_that_compile_are_told(watched: Watched) -> None:
    done, document = watched

    steps = document["processes"][0]["watch"]["steps"]
    assert (steps["function"], [one["again"] for one in steps["steps"]]) == ("step", [0, 0, 1])
    assert "3 steps, each a call of step train.py:5" in done.stderr


def test_words_after_the_program_are_the_programs_also_without_dashes(benchax: Benchax, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit(sys.argv[1:] != ['--output', 'x', '--help'])", encoding="utf-8")

    done = benchax("watch", sys.executable, str(program), "--output", "x", "--help")

    assert done.code == 0
    assert done.out == ""


def test_a_program_without_jax_is_said_to_have_none(benchax: Benchax) -> None:
    done = benchax("watch", "--", sys.executable, "-c", "print()")

    assert done.code == 0
    assert "note: jax was never imported by" in done.err


def test_a_program_that_was_killed_is_said_to_have_been(benchax: Benchax) -> None:
    done = benchax("watch", "--", "sh", "-c", "kill -9 $$")

    assert done.code == 137
    assert "was ended by SIGKILL after" in done.err


def test_a_program_whose_time_is_up_is_ended(benchax: Benchax) -> None:
    done = benchax("watch", "--timeout", "300ms", "--", "sleep", "1000")

    assert done.code == 143
    assert "was ended after" in done.err
    assert "when its time was up" in done.err


FORKSERVER = """
import multiprocessing
import jax, jax.numpy as jnp

def work(n):
    return float(jax.jit(lambda x: (x * n).sum())(jnp.ones(4)))

if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")
    with multiprocessing.Pool(1) as pool:
        print(pool.map(work, [2]))
"""


@pytest.mark.slow
def test_processes_of_a_forkserver_report_and_the_program_ends(benchax: Benchax, project: Path) -> None:
    (project / "forks.py").write_text(FORKSERVER)

    done = benchax("watch", "--timeout", "100", "--", sys.executable, "forks.py")

    assert done.code == 0
    assert "ended with 0" in done.err
