"""`benchax run`: what can be asked for, and what bad input gets: a message, the right exit code, no lost row."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import warm_python
from command_line import Benchax, Done, command, read_terminal, runner
from measurement_strategies import measured
from source_tree import PACKAGE

import benchax as package
from benchax import codec
from benchax.model import Measurement
from benchax.store.database import open_store

QUICK = ("--max-time", "0.02", "--min-time", "0.01")
SHORT = (*QUICK, "--timer", "wall", "--no-memory", "--verify", "off")


@pytest.fixture
def benchax(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    """Runs the command line in this process, in an empty folder; its output has no width of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))  # files that are measured put their folders there
    monkeypatch.setattr(tempfile, "tempdir", str(project))  # where rows are rescued to

    return runner(monkeypatch, capsys)


def environment(**settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("BENCHAX_", "COLUMNS"))}
    own = {"PYTHONPATH": str(PACKAGE.parent), "PYTHONIOENCODING": "utf-8", "BENCHAX_PROCESSES": "1"}
    return inherited | own | settings


def process(*words: str, cwd: Path, **settings: str) -> Done:
    """Runs the command line in a process of its own."""
    done = warm_python.run(command(*words), cwd=cwd, env=environment(**settings), timeout=120)
    return Done(done.returncode, done.stdout, done.stderr)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("import os, signal\nimport benchax, jax, jax.numpy as jnp\n" + text)
    return file


GOOD = """
@benchax.benchmark(args=lambda n: (f"f32[{n},{n}]",), n=[4, 8])
def matmul(x):
    return x @ x
"""

BAD = """
@benchax.benchmark(args=("f32[8]",))
def raises(x):
    raise ValueError("it is broken")

@benchax.benchmark(args=("f32[8]",))
def says_hello(x):
    return "hello"

@benchax.benchmark(args=("f32[8]", 3))
def branches(x, limit):
    return x if limit > 2 else -x

@benchax.benchmark(args=("f32[8]",))
def hungry(x):
    return jnp.zeros((10**15,), jnp.int8) + x[0].astype(jnp.int8)

@benchax.benchmark(args=("f33[8]",))
def misspelt(x):
    return x

@benchax.benchmark(args=lambda: 1 / 0)
def without_inputs(x):
    return x

@benchax.benchmark(args=("f32[8]",))
def last(x):
    return x + 1
"""


# ---- good files beside bad ones: one run for many tests ---------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    write(folder / "bench_1_good.py", GOOD)
    write(folder / "bench_2_bad.py", BAD)
    write(folder / "below" / "bench_0_broken.py", "def f(:\n")
    write(folder / "bench_3_exits.py", "import sys\nsys.exit(5)\n")
    write(folder / ".hidden" / "bench_hidden.py", "raise AssertionError('hidden folders are left out')")
    write(folder / "other.py", "raise AssertionError('only bench_*.py are read')")
    return folder


@pytest.fixture(scope="module")
def mixed(folder: Path) -> Done:
    return process("run", *SHORT, cwd=folder)


@pytest.fixture(scope="module")
def stored(folder: Path, mixed: Done) -> dict[str, Measurement]:
    return {m.case.label: m for m in package.load(folder / ".benchmarks")}


FAILING = ["raises", "says_hello", "branches", "hungry", "misspelt", "without_inputs"]
CASES = ["matmul[n=4]", "matmul[n=8]", *FAILING, "last"]


def test_every_case_of_every_file_becomes_a_row_whatever_fails(stored: dict[str, Measurement], mixed: Done) -> None:
    lines = mixed.out.splitlines()

    assert (mixed.code, list(stored)) == (2, CASES)
    assert len({m.run_id for m in stored.values()}) == 1
    assert [label for label, m in stored.items() if m.status == "ok"] == ["matmul[n=4]", "matmul[n=8]", "last"]
    assert stored["last"].summary("wall") is not None
    announced = [line for line in mixed.err.splitlines() if "/9 " in line]
    assert announced == [f"{i}/9 {label}" for i, label in enumerate(CASES, 1)]
    assert lines[0].startswith("case ")
    assert [line.split("  ")[0] for line in lines[1:10]] == CASES
    assert "Traceback" not in mixed.out


def test_a_broken_file_is_reported_with_its_traceback(mixed: Done) -> None:
    broken = Path("below") / "bench_0_broken.py"

    assert f"error: {broken} cannot be imported: SyntaxError: invalid syntax" in mixed.err
    assert 'bench_0_broken.py", line 3\n    def f(:\n' in mixed.err
    assert "error: bench_3_exits.py cannot be imported: SystemExit: 5\n" in mixed.err


@pytest.mark.parametrize(
    ("label", "kind", "stage", "message"),
    [
        ("raises", "error", "trace", r"ValueError: it is broken \(at .*bench_2_bad.py:6\)"),
        ("says_hello", "wrong_output", "trace", r"TypeError: .*returned a value of type <class 'str'>.*"),
        ("branches", "error", "trace", r"TracerBoolConversionError: .*\(at .*bench_2_bad.py:14\)"),
        ("hungry", "out_of_memory", "first run", r".*Out of memory allocating 1000000000000000 bytes.*"),
        ("misspelt", "error", "inputs", r"unknown dtype 'f33' in 'f33\[8\]'; expected one of: bool, i8, .*"),
        ("without_inputs", "error", "inputs", r"ZeroDivisionError: division by zero \(at .*bench_2_bad.py:24\)"),
    ],
)
def test_a_failure_says_what_where_and_which_line(
    label: str, kind: str, stage: str, message: str, stored: dict[str, Measurement], mixed: Done
) -> None:
    failure = stored[label].failure

    assert failure is not None
    assert (failure.kind, failure.stage) == (kind, stage)
    assert re.fullmatch(message, failure.message)
    assert f"{label} {kind.replace('_', ' ')} in {stage}: {failure.message}" in " ".join(mixed.out.split())


def test_a_function_that_does_not_trace_is_given_three_remedies(stored: dict[str, Measurement], mixed: Done) -> None:
    failure = stored["branches"].failure

    assert failure is not None
    assert failure.advice == (
        "The value of the argument limit is not known while tracing. Three remedies: declare the argument limit "
        "static, if it takes few values (static_argnames=...); decide inside the compiled program with jax.lax.cond, "
        "jax.lax.while_loop or jnp.where; or jit only the inner part that does not depend on it."
    )
    assert "A jitted function may return arrays, numbers, and dicts, lists and tuples of them." in mixed.out


# ---- what can be asked for --------------------------------------------------------------------------------------


def test_a_function_is_measured_without_a_file(benchax: Benchax, project: Path) -> None:
    done = benchax("run", "jax.numpy:sort", "f32[100]", *QUICK)

    assert done.code == 0
    assert re.match(r"sort +[\d.]+ [µm]s ", done.out)
    assert "\n  wall " in done.out
    assert done.err.splitlines()[0] == "1/1 sort"
    assert [m.signature for m in package.load(".benchmarks")] == ["f32[100]"]


@pytest.mark.parametrize(
    ("words", "signature"),
    [
        (["jax.numpy:sum", "f32[4,8]", "axis=0"], "f32[4,8], axis=0"),
        (["jax.numpy:power", "f32[4,8]", "1.5"], "f32[4,8], 1.5"),
        (["jax.nn:relu", "x=f32[4]"], "x=f32[4]"),
        (["jax.random:uniform", "key", "(4,)"], "key, (4,)"),
        (["jax.numpy:linalg.norm", "f32[8]"], "f32[8]"),
        (["mine.py:double", "f32[{n}]", "-p", "n=4"], "f32[4]"),
    ],
)
def test_inputs_are_data_or_static_values(words: list[str], signature: str, benchax: Benchax, project: Path) -> None:
    write(project / "mine.py", "def double(x):\n    return 2 * x\n")

    (row,) = benchax("run", *words, *SHORT, "--store", "off", "--json").rows

    assert (row.failure, row.signature) == (None, signature)


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        ([], ["matmul[n=4]", "matmul[n=8]", "add"]),
        (["-p", "n=3"], ["matmul[n=3]", "add"]),
        (["--param", "n=2,3"], ["matmul[n=2]", "matmul[n=3]", "add"]),
        (["--filter", "matmul"], ["matmul[n=4]", "matmul[n=8]"]),
        (["-k", "*n=8*"], ["matmul[n=8]"]),
        (["-k", "n=8", "-p", "n=8,9"], ["matmul[n=8]"]),
        (["--break-even", "-k", "add"], ["add eager", "add"]),
        (["--no-jit", "-k", "add"], ["add eager"]),
    ],
)
def test_a_dry_run_lists_the_chosen_cases_and_does_nothing(
    words: list[str], labels: list[str], benchax: Benchax, project: Path
) -> None:
    write(project / "bench_it.py", GOOD + '\n@benchax.benchmark(args=("f32[8]",))\ndef add(x):\n    return x + x\n')

    done = benchax("run", "--dry-run", *words)

    assert (done.code, done.out.splitlines(), done.err) == (0, labels, "")
    assert not (project / ".benchmarks").exists()


def test_a_file_that_changes_the_working_folder_is_told_with_the_place_of_the_results(
    benchax: Benchax, project: Path
) -> None:
    (project / "data").mkdir()
    write(project / "bench_it.py", "import os\nos.chdir('data')\n" + GOOD)

    done = benchax("run", "--dry-run")

    where = project / "data"
    assert done.err == f"note: a benchmark file has changed the working folder to {where}: results and files go there\n"


def test_json_is_all_that_is_on_stdout(benchax: Benchax, project: Path) -> None:
    """Also where the measured code prints, while it is imported and while it is traced."""
    write(
        project / "bench_it.py",
        'print("imported")\n@benchax.benchmark(args=("f32[8]",))\ndef f(x):\n    print("traced")\n    return x\n',
    )

    done = benchax("run", *SHORT, "--json")

    assert [m.case.name for m in done.rows] == ["f"]
    assert "imported\n" in done.err
    assert "traced\n" in done.err
    assert list(package.load(".benchmarks")) == done.rows


@pytest.mark.slow
def test_json_goes_to_stdout_also_where_stderr_is_a_terminal(tmp_path: Path) -> None:
    """The progress bar of rich takes what is printed meanwhile to its own stream."""
    ours, theirs = pty.openpty()

    done = subprocess.run(
        command("run", "jax.numpy:sin", "f32[8]", *SHORT, "--json"),
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=theirs, timeout=120,
    )  # fmt: skip
    os.close(theirs)
    os.close(ours)

    assert codec.decode(done.stdout.decode()).case.name == "sin"


@pytest.mark.slow
def test_a_terminal_sees_a_bar_that_leaves_nothing_on_stdout(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()

    with subprocess.Popen(
        command("run", "jax.numpy:sin", "f32[8]", *SHORT),
        cwd=tmp_path, env=environment(TERM="xterm"), stdout=subprocess.PIPE, stderr=theirs, encoding="utf-8",
    ) as run:  # fmt: skip
        os.close(theirs)
        drawn = read_terminal(ours).decode()
        out = run.stdout.read() if run.stdout else ""

    assert run.returncode == 0
    assert re.search(r"1/1 sin .*━.* compile", drawn)
    assert "\x1b" not in out
    assert out.startswith("sin ")


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_what_was_not_measured_is_one_line_and_the_reasons_follow_on_request(benchax: Benchax, option: str) -> None:
    ran = benchax("run", "jax.numpy:sin", "f32[8]", "--quick", option).out
    brief, full = benchax("show").out, benchax("show", option).out

    named = " ".join(brief.splitlines()[-2:])
    assert re.search(r"not measured: .*memory during a call, .*dispatch, call floor \(-v says why\)$", named)
    assert "switched off" not in brief
    for text in (ran, full):
        assert re.search(r"memory during a call +switched off\n", text)
        assert re.search(r"dispatch +only stages='samples' was requested\n", text)
        assert "-v says why" not in text


def test_settings_of_the_project_and_the_environment_are_overruled_by_words(
    benchax: Benchax, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text('[tool.benchax]\nmax_samples = 7\nseed = 1\nstore = "off"\n')
    monkeypatch.setenv("BENCHAX_SEED", "2")
    monkeypatch.setenv("BENCHAX_RELATIVE_WIDTH", "0.5")

    (row,) = benchax("run", "jax.numpy:sin", "f32[8]", *SHORT, "--relative-width", "3%", "--json").rows

    options = row.options
    assert (options.max_samples, options.seed, options.relative_width) == (7, 2, 0.03)
    assert not (project / ".benchmarks").exists()


# ---- eager against jitted ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_eager_measures_both_and_says_when_compiling_pays(benchax: Benchax, project: Path) -> None:
    write(project / "bench_it.py", "@benchax.benchmark(args=('f32[8]',))\ndef f(x):\n    return jnp.tanh(x) * x + 1\n")

    done = benchax("run", *SHORT, "--break-even")

    eager, jitted = package.load(".benchmarks")
    assert [eager.case.label, jitted.case.label] == ["f eager", "f"]
    assert "\nCompiling (" in done.out


def test_a_jitted_function_is_unwrapped_to_be_measured_eagerly(benchax: Benchax, project: Path) -> None:
    """Else the same compiled call would be measured twice, and the comparison mean nothing."""
    write(
        project / "bench_it.py",
        """
@benchax.benchmark(args=("f32[8]",))
@jax.jit
def f(x):
    if not isinstance(x, jax.core.Tracer):
        print("eager")
    return x + 1
""",
    )

    done = benchax("run", *SHORT, "--break-even", "--json")

    eager, jitted = done.rows
    assert eager.case == replace(jitted.case, variant="eager")
    assert (eager.failure, jitted.failure) == (None, None)
    assert "eager" in done.err


# ---- stores that take nothing -----------------------------------------------------------------------------------


def newer_database(project: Path) -> str:
    open_store(project / "newer").append(measured())
    connection = sqlite3.connect(project / "newer" / "benchax.db")
    connection.executescript("UPDATE meta SET value = '9' WHERE name = 'schema'")
    connection.close()
    return "newer"


def file_in_place_of_a_folder(project: Path) -> str:
    (project / "taken").write_text("a file")
    return "taken"


@pytest.mark.parametrize(
    ("make_store", "message"),
    [
        (lambda project: "/proc/nowhere", "cannot write /proc/nowhere/benchax.db: "),
        (file_in_place_of_a_folder, "cannot write taken/benchax.db: taken is a file\n"),
        (newer_database, "database newer/benchax.db was written by a newer benchax (schema 9; this one knows 3)\n"),
    ],
    ids=["not writable", "a file", "newer"],
)
def test_rows_that_cannot_be_stored_are_shown_and_rescued(
    make_store: Callable[[Path], str], message: str, benchax: Benchax, project: Path
) -> None:
    write(project / "bench_it.py", GOOD)

    done = benchax("run", *SHORT, "--json", "--store", make_store(project))

    (rescued,) = project.glob("benchax-*.jsonl")
    assert done.code == 2
    assert f"error: {message}" in done.err
    assert f"2 rows kept in {rescued}; benchax.load({str(rescued)!r}) reads them\n" in done.err
    assert [m.case.label for m in done.rows] == ["matmul[n=4]", "matmul[n=8]"]
    assert list(package.load(rescued)) == done.rows


@pytest.mark.slow
def test_on_a_full_disk_the_rows_are_still_shown(tmp_path: Path) -> None:
    """A limit on file sizes: then neither the database nor a file of rescued rows can be written."""

    limited = ["/bin/sh", "-c", 'ulimit -f 0 && exec "$@"', "sh", *command("run", "jax.numpy:sin", "f32[8]", *SHORT)]

    done = subprocess.run(
        limited, cwd=tmp_path, env=environment(TMPDIR=str(tmp_path)), capture_output=True, encoding="utf-8", timeout=120
    )

    assert done.returncode == 2
    assert done.stdout.startswith("sin ")
    assert "  wall " in done.stdout
    assert "error: cannot write .benchmarks/benchax.db: " in done.stderr
    assert "error: 1 row not stored anywhere: " in done.stderr
    assert "Traceback" not in done.stderr


# ---- interrupted, killed, crashed -------------------------------------------------------------------------------

# The second case would be measured for a minute. It speaks when its function is called, in whichever process.
ENDLESS = """
@benchax.benchmark(args=("f32[8]",))
def quick(x):
    return x + 1

@benchax.benchmark(args=("f32[8]",), options={"max_time_s": 60, "relative_width": 1e-9, "max_samples": 10**9})
def endless(x):
    os.write(2, b"inside the second case\\n")
    return x + 2
"""


@pytest.fixture
def until_second_case(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a run of ENDLESS and gives it back as soon as the second case runs. Nothing of it is left afterwards."""
    write(tmp_path / "bench_it.py", ENDLESS)
    mark = {"MARK_OF_THIS_TEST": str(tmp_path)}

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command("run", *SHORT[2:], *words),
            cwd=tmp_path, env=environment(**mark), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            start_new_session=True,
        )  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if line == "inside the second case\n":
                return process
        raise AssertionError(f"ended with {process.wait()} before the second case")

    yield start
    for left in marked(tmp_path):
        left.kill()


def marked(mark: Path) -> list[psutil.Process]:
    """Living processes that were started, by whomever, in the run that has this mark in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARK_OF_THIS_TEST") == str(mark) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


Started = Callable[..., subprocess.Popen[str]]


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--cold-process"]], ids=["inline", "cold process"])
def test_an_interrupt_keeps_and_shows_what_is_finished(
    words: list[str], until_second_case: Started, tmp_path: Path
) -> None:
    """As a terminal does it, the signal goes to the whole process group, children included."""
    process = until_second_case(*words)

    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted: 1 of 2 cases finished, and kept"
    assert "Traceback" not in err
    assert out.startswith("quick ")
    assert [m.case.name for m in package.load(tmp_path / ".benchmarks")] == ["quick"]
    assert marked(tmp_path) == []


def test_an_interrupt_before_the_first_case_ends_with_130_too(tmp_path: Path) -> None:
    write(tmp_path / "bench_it.py", "os.kill(os.getpid(), signal.SIGINT)\n" + GOOD)

    done = process("run", *SHORT, cwd=tmp_path)

    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err


# ---- a first answer, and where it is -----------------------------------------------------------------------------

LOSSES = """
import benchax
@benchax.benchmark(args=("f32[64]",), work=lambda x: {"rows": len(x)})
def loss(x):
    return (x * x).sum()
"""


def test_quick_is_one_timer_in_one_process_and_says_what_it_leaves_out(benchax: Benchax, project: Path) -> None:
    (project / "bench_loss.py").write_text(LOSSES)

    done = benchax("run", "--quick", "--json")

    (row,) = done.rows
    assert (done.code, row.failure) == (0, None)
    assert [s.timer for s in row.samples] == ["wall"]
    assert (row.options.processes, row.memory.compiled_rise_bytes, row.stages.dispatch_s) == (1, None, None)
    assert row.numerics is not None
    assert "without memory, transfers, or dispatch" in done.err
    (stored,) = open_store(project / ".benchmarks").rows()
    told = f"run {stored.run_id[:12]}: 1 row in .benchmarks/benchax.db, on {stored.host} · cpu"
    assert done.err.splitlines()[-2].startswith(told)


def test_what_is_said_beside_quick_holds(benchax: Benchax, project: Path) -> None:
    (project / "bench_loss.py").write_text(LOSSES)

    (row,) = benchax("run", "--quick", "--timer", "pipelined,wall", "--max-time", "0.02", "--json").rows

    assert [s.timer for s in row.samples] == ["pipelined", "wall"]
    assert row.options.max_time_s == 0.02


def test_a_run_that_is_not_stored_says_so(benchax: Benchax, project: Path) -> None:
    (project / "bench_loss.py").write_text(LOSSES)

    assert benchax("run", *SHORT, "--store", "off").err.splitlines()[-1].startswith("not stored, on ")


def test_a_mode_and_amounts_are_given_for_all_cases(benchax: Benchax, project: Path) -> None:
    (project / "bench_loss.py").write_text(LOSSES)

    done = benchax("run", *SHORT, "--mode", "grad", "--work", "tokens=8", "--work", "bytes=1e3")

    (row,) = open_store(project / ".benchmarks").query()
    assert row.case.label == "loss[mode=grad]"
    assert row.work.amounts == {"tokens": 8.0, "bytes": 1000.0}
    assert "tokens" in done.out
