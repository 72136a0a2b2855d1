"""`benchax watch -- python program.py`: a real program with the real JAX, as its user would start it."""

from __future__ import annotations

import json
import os
import re
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


def test_a_program_keeps_its_output_and_code_and_what_compiled_was_kept_or_moved_is_told_with_lines(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    words = ["watch", "--transfers", "--output", "o.json", "--", sys.executable, "train.py", "5"]
    environ = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}

    done = warm_python.run([sys.executable, "-m", "benchax.cli.main", *words], cwd=tmp_path, env=environ)

    document = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
    assert (done.returncode, document["exit_code"], done.stdout) == (5, 5, "loss True\n")
    (process,) = document["processes"]
    compiled = [(c["is_first"], c["where"]) for c in process["watch"]["compiles"] if c["function"] == "step"]
    assert compiled == [(True, "train.py:11"), (False, "train.py:11")]
    steps = process["watch"]["steps"]
    assert (steps["function"], [one["again"] for one in steps["steps"]]) == ("step", [0, 0, 1])
    assert {program["fate"] for program in process["cache"]["programs"]} == {"too quick"}
    listed = {(t["where"], t["what"]): t["count"] for t in process["transfers"]["transfers"]}
    assert (listed["train.py:11", "NumPy f32[8,4]"], listed["train.py:12", "f32[]"]) == (2, 1)
    share = process["main_thread_share"]
    assert 0 < share <= 1
    for text in (
        "to stderr\n",
        "f32[8,4] → f32[16,4]",
        "3 steps, each a call of step train.py:5",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0",
        "train.py:11: step, NumPy f32[8,4]",
        f"spent {percent(share)} of its time after the import of jax on tracing and compiling",
    ):
        assert text in done.stderr


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


def test_a_program_that_was_killed_or_whose_time_is_up_is_said_to_have_been_ended(benchax: Benchax) -> None:
    killed = benchax("watch", "--", "sh", "-c", "kill -9 $$")
    late = benchax("watch", "--timeout", "300ms", "--", "sleep", "1000")

    assert (killed.code, late.code) == (137, 143)
    assert "was ended by SIGKILL after" in killed.err
    assert re.search("was ended after .*, when its time was up", late.err)


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
