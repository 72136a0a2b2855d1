"""`benchax grid FILE` and `benchax demo grid`: what a file says, what flags change, exit codes, interruption."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import warm_python
from command_line import Benchax, command, runner
from source_tree import PACKAGE

from benchax import demo
from benchax.grids.grid import GridRun
from benchax.store.load import load

EXAMPLE = PACKAGE.parents[1] / "examples" / "grid_of_functions.py"
FILE = """
import jax

def double(x): return x * 2
def half(x): return x / 2

functions = [double, half]
data = [4, 8]
def make(key, n): return jax.random.normal(key, (n,))
axis = "n_x"
trials = 2
"""
MISHAPS = """
import os, jax

def fine(x): return x
def never_ends(x): return jax.lax.while_loop(lambda x: True, lambda x: x + 1, x)
def exits(x): os._exit(3)

functions = [fine, never_ends]
data = ["f32[4]"]
timeout_s = 0.5
"""


@pytest.fixture
def benchax(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    """Runs the command line in this process, in an empty folder, with a file grid.py."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (project / "grid.py").write_text(FILE)
    (project / "mishaps.py").write_text(MISHAPS)

    return runner(monkeypatch, capsys)


def test_a_file_with_functions_and_data_is_a_grid(benchax: Benchax) -> None:
    done = benchax("grid", "grid.py")

    assert done.code == 0
    lines = [line for line in done.out.splitlines() if line.strip()]
    assert lines[0].startswith("no ranking: ")
    assert lines[1].split() == ["n_x", "inputs", "double", "half"]
    assert [line.split()[0] for line in lines[2:4]] == ["4", "8"]
    assert "4 cells took" in lines[-1]
    assert any(line.startswith("median time of a call by wall · 2 trials") for line in lines)
    assert "4/4 half[n_x=8]" in done.err
    assert [len(row.samples[0].trials or ()) for row in load()] == [2] * 4
    assert {row.case.params for row in load()} == {(("n_x", n), ("grid", "grid")) for n in (4, 8)}


def test_flags_win_over_the_file_and_files_are_written(benchax: Benchax, project: Path) -> None:
    done = benchax(
        "grid", "grid.py", "--trials", "1", "--seed", "3", "--csv", "g.csv", "--plot", "g.png", "--store", "off"
    )  # fmt: skip

    assert done.code == 0
    assert len((project / "g.csv").read_text().splitlines()) == 1 + 2
    assert (project / "g.png").read_bytes().startswith(b"\x89PNG")
    assert not (project / ".benchmarks").exists()


def test_times_that_cannot_be_written_are_named_with_the_reason(benchax: Benchax) -> None:
    done = benchax("grid", "grid.py", "--trials", "1", "--csv", "/proc/g.csv", "--store", "off")

    assert done.code == 2
    assert "error: cannot write to '/proc/g.csv': " in done.err


def test_json_is_one_row_per_cell(benchax: Benchax) -> None:
    rows = benchax("grid", "grid.py", "--json", "--seed", "3").rows

    assert [row.case.name for row in rows] == ["double", "half", "double", "half"]
    assert {row.options.seed for row in rows} == {3}


@pytest.mark.slow
def test_a_time_limit_is_a_result_and_a_crash_is_not(benchax: Benchax, project: Path) -> None:
    limited = benchax("grid", "mishaps.py")
    crashed = benchax("grid", "mishaps.py", "--timeout", "0.4")
    (project / "mishaps.py").write_text(MISHAPS.replace("[fine, never_ends]", "[fine, exits]"))
    crashed = benchax("grid", "mishaps.py")

    assert (limited.code, crashed.code) == (0, 2)
    assert "timeout in run: run took longer than 500 ms" in limited.out
    assert "crashed: exit code 3 in trace" in crashed.out


def test_resume_last_measures_only_what_is_missing(benchax: Benchax, project: Path) -> None:
    benchax("grid", "mishaps.py")
    (project / "mishaps.py").write_text(MISHAPS.replace("[fine, never_ends]", "[fine, never_ends, exits]"))

    done = benchax("grid", "mishaps.py", "--resume", "last")

    assert done.err.splitlines() == ["3/3 exits[data=f32[4]]"]
    assert len({row.run_id for row in load()}) == 1


def test_a_slip_in_a_setting_is_pointed_out_and_functions_and_modules_are_no_settings(
    benchax: Benchax, project: Path
) -> None:
    (project / "grid.py").write_text(f"import time\n{FILE}timout_s = 3\ndef store(): pass\ndef name(): pass\n")

    done = benchax("grid", "grid.py")

    assert done.code == 0
    (slip,) = [line for line in done.err.splitlines() if "isn't a setting of a grid" in line]
    assert "'timout_s', which isn't a setting of a grid; 'timeout_s' is" in slip


def test_ctrl_c_before_the_first_cell_advises_no_resume(benchax: Benchax, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(GridRun, "_begin", stop)

    done = benchax("grid", "grid.py")

    assert done.code == 130
    assert "interrupted: 0 of 4 cells finished" in done.err
    assert "kept" not in done.err
    assert "--resume" not in done.err


@pytest.mark.slow
def test_ctrl_c_shows_and_keeps_what_is_finished_and_leaves_no_process(project: Path) -> None:
    (project / "mishaps.py").write_text(MISHAPS.replace("0.5", "1000"))
    running = subprocess.Popen(
        command("grid", "mishaps.py"), cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert running.stderr is not None
    while "never_ends" not in running.stderr.readline():
        assert running.poll() is None
    workers = psutil.Process(running.pid).children(recursive=True)

    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert running.returncode == 130
    assert "2 cells took" in out
    assert "1 ok, 1 interrupted" in out
    assert "interrupted: 1 of 2 cells finished, and kept; go on with: --resume " in err
    assert "Traceback" not in err
    assert [row.case.name for row in load(project / ".benchmarks")] == ["fine"]
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []


@pytest.mark.slow
def test_the_demo_shows_every_kind_of_end(benchax: Benchax, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "GRID_SIZES", (4, 64))

    done = benchax("demo", "grid")

    assert done.code == 0
    for words in ("timeout in run", "crashed: SIGSEGV in trace", "wrong shape: [3] where f1 gave [4]", "6 ok"):
        assert words in done.out


@pytest.mark.slow
def test_the_example_runs_as_a_program_and_as_a_file_of_the_command(project: Path) -> None:
    settings = os.environ | {"N_X": "[4]", "N_TRIALS": "2", "TIMEOUT_SECONDS": "20"}
    program = warm_python.run([sys.executable, str(EXAMPLE)], cwd=project, env=settings, timeout=120)
    as_file = warm_python.run(
        command("grid", str(EXAMPLE), "--store", "off"), cwd=project, env=settings,
        timeout=120,
    )  # fmt: skip

    assert (program.returncode, as_file.returncode) == (0, 0), program.stderr + as_file.stderr
    assert "f1 elapsed" in program.stdout
    assert " took " in program.stdout
    assert ["n_x", "inputs", "f1", "f2", "f3"] in [line.split() for line in as_file.stdout.splitlines()]


# ---- compiled-grid ---------------------------------------------------------------------------------------------------


@pytest.fixture
def functions(project: Path) -> Path:
    path = project / "waves.py"
    path.write_text(
        "import jax.numpy as jnp\n"
        "def sine(x): return jnp.sin(x)\n"
        "def horner(x): return (x * x / 6 - 1) * -x\n"
        "def broken(x): return x.nothing\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.slow
def test_each_value_of_a_parameter_is_a_call_with_a_time_for_each_function(functions: Path, benchax: Benchax) -> None:
    done = benchax(
        "compiled-grid", "waves.py:sine", "waves.py:horner", "f32[{n}]", "-p", "n=8000,64000", "--repeats", "30"
    )

    assert done.code == 0
    assert re.findall(r"^n=\d+$", done.out, re.MULTILINE) == ["n=8000", "n=64000"]
    assert len(re.findall(r"^(?:sine|horner) +ok +[\d.]+ [nµm]s", done.out, re.MULTILINE)) == 4


def test_beside_it_the_python_loop(functions: Path, benchax: Benchax) -> None:
    words = ("waves.py:sine", "waves.py:horner", "f32[64]")

    done = benchax("compiled-grid", *words, "--python-loop", "--rounds", "2", "--repeats", "10")

    assert done.code == 0
    assert re.search(r"function +data +compiled loop +Python loop", done.out)
    assert "in 2 rounds" in " ".join(done.out.split())
    assert re.search(r"The comparison took \d+\.\d\d seconds\.", done.out)


def test_a_function_that_does_not_trace_is_an_error_and_the_others_are_measured(
    functions: Path, benchax: Benchax
) -> None:
    done = benchax("compiled-grid", "waves.py:sine", "waves.py:broken", "f32[8]", "--repeats", "10")

    assert done.code == 2
    assert "not measured, because it cannot be traced: AttributeError" in done.out
    assert re.search(r"^sine +ok", done.out, re.MULTILINE)
