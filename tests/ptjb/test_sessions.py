"""Whole sessions: what is compared with what, what fails and what does not, other plugins, other folders."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from pytest_sessions import rows_in

ONE = """
def test_one(jax_bench):
    jb = jax_bench(jit_rounds=20)
    jb.measure(fn_jit=jax.jit(double), x=jnp.ones(64))
"""

TWO = """
def test_two(jax_bench):
    jb = jax_bench(jit_rounds=3)
    jb.measure(fn_jit=jax.jit(double), x=jnp.ones(64))
"""


def c_run(line: str) -> str:
    """The second column."""
    return re.split(r"\s{2,}", line)[1]


def test_a_history_that_is_none_of_ours_fails_the_test_in_words_and_stays(ptjb) -> None:
    ptjb.write(test_a=TWO)
    file = ptjb.output / "test_a.py--test_two" / "main.csv"
    file.parent.mkdir(parents=True)
    file.write_text("a,b,c\n1,2,3\n")

    session = ptjb.run(code=1)

    assert "main.csv is not the CSV file of a test: it begins with 'a,b,c'" in session.text
    assert "reading.py" not in session.text
    assert "keep.py" not in session.text
    assert file.read_text() == "a,b,c\n1,2,3\n"


def test_a_session_holds_its_store_open_and_leaves_one_file(ptjb) -> None:
    """Rows are there for everybody as soon as their test has ended, and wait less for the disk meanwhile."""
    ptjb.write(
        test_a=TWO
        + """
def test_what_is_there():
    import sqlite3
    from pathlib import Path
    connection = sqlite3.connect(".benchmarks/benchax.db")
    assert connection.execute("SELECT count(*) FROM measurements").fetchone() == (1,)
    connection.close()
    assert Path(".benchmarks/benchax.db-wal").exists()

def test_three(jax_bench):
    jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(triple), x=jnp.ones(64))
"""
    )

    session = ptjb.run()

    assert "3 passed" in session.text
    assert sorted(file.name for file in ptjb.output.glob("benchax.db*")) == ["benchax.db", "benchax.db-lock"]
    with contextlib.closing(sqlite3.connect(ptjb.output / "benchax.db")) as connection:
        assert connection.execute("SELECT count(*) FROM measurements").fetchone() == (2,)


def test_a_run_is_compared_with_the_first_of_its_commit_and_before_that_with_the_previous_commit(ptjb) -> None:
    ptjb.write(test_a=ONE)
    first = ptjb.commit()

    assert c_run(ptjb.run().line("test_one")) == "0"
    assert c_run(ptjb.run().line("test_one")) == "0->1"
    (ptjb.path / "new.txt").touch()  # not known to git: dirty
    assert c_run(ptjb.run().line("test_one")) == "0->2"
    second = ptjb.commit("next")
    session = ptjb.run()
    assert c_run(session.line("test_one")) == f"{first}:1->0"  # the newest clean one
    assert [row["commit"] for row in session.rows()] == [first, first, first + "+", second]
    assert [row["commit_run"] for row in session.rows()] == [0, 1, 2, 0]
    assert [row["run_id"] for row in session.rows()] == [0, 1, 2, 3]

    assert c_run(ptjb.run("--ptjb-pin", f"{first}:1").line("test_one")) == f"{first}:1->1"
    unknown = ptjb.run("--ptjb-pin", "abcdef0")
    assert c_run(unknown.line("test_one")) == "2"
    assert "no run abcdef0 to compare with (--ptjb-pin): 1 of 1 measurement" in unknown.text


def test_the_commit_is_that_of_the_tests_wherever_pytest_is_started(ptjb, monkeypatch, tmp_path_factory) -> None:
    ptjb.write(test_a=TWO)
    commit = ptjb.commit()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    assert ptjb.pytester.path != Path.cwd()

    # pytester runs in its own folder, so that this session is started by hand.
    result = ptjb.pytester.run(
        "env",
        "-C",
        str(elsewhere),
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        str(ptjb.path),
        timeout=120,
    )

    assert result.ret == 0, result.stdout.str()
    (row,) = [row for file in ptjb.output.rglob("*.csv") for row in rows_in(file)]
    assert row["commit"] == commit
    assert list(elsewhere.iterdir()) == []


def test_without_git_the_commit_is_unknown(ptjb, monkeypatch) -> None:
    ptjb.write(test_a=TWO)
    python = Path(shutil.which("python") or "")
    monkeypatch.setenv("PATH", str(python.parent))

    session = ptjb.run()

    assert shutil.which("git") is None
    assert [row["commit"] for row in session.rows()] == ["unknown"]


FAILURES = """
import os

def bad(x):
    raise ValueError("no good")

def test_raises(jax_bench):
    jax_bench(jit_rounds=3).measure(fn_jit=bad, x=jnp.ones(3))

def test_raises_eagerly(jax_bench):
    jax_bench(jit_rounds=3, eager_rounds=3).measure(fn=bad, fn_jit=jax.jit(double), x=jnp.ones(3))

def test_wrong_argument(jax_bench):
    jax_bench(jit_rounds=3).measure(fn_jit=double, y=1)

@pytest.mark.ptjb(timeout_s='2s')
def test_forever(jax_bench):
    def forever(x):
        return jax.lax.while_loop(lambda x: x >= 0, lambda x: jnp.sin(x) ** 2, x)
    jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(forever), x=jnp.float32(1))

@pytest.mark.ptjb(timeout_s=60)
def test_dies(jax_bench):
    def dies(x):
        os._exit(3)
    jax_bench(jit_rounds=3).measure(fn_jit=dies, x=jnp.ones(3))

@pytest.mark.ptjb(timeout_s=60)
def test_in_time(jax_bench):
    res, out = jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(double), x=jnp.ones(3))
    assert out[0] == double(jnp.ones(3))[0]

def test_wrong_result(jax_bench):
    jb = jax_bench(jit_rounds=3, eager_rounds=3)
    res, _ = jb.measure(fn=double, fn_jit=jax.jit(triple), x=jnp.ones(3))
    assert "differs" in res.message

def test_fine(jax_bench):
    jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(double), x=jnp.ones(3))
"""


def test_a_failure_is_a_row_and_fails_its_test_alone(ptjb) -> None:
    ptjb.write(test_f=FAILURES)

    session = ptjb.run(code=1)

    assert "5 failed, 3 passed" in session.text
    status = {re.search(r"--(\w+)", str(f))[1]: row["status"] for f in ptjb.output.rglob("*.csv") for row in rows_in(f)}
    assert status == {
        "test_raises": "error",
        "test_raises_eagerly": "error",
        "test_wrong_argument": "error",
        "test_forever": "timeout",
        "test_dies": "crashed",
        "test_in_time": "ok",
        "test_wrong_result": "ok",
        "test_fine": "ok",
    }
    assert "timeout in first run" in session.line("test_forever")
    assert "error in trace" in session.line("test_raises ")
    assert "wrong result" in session.line("test_wrong_result ")
    assert "no good" in session.text
    # What fails is shown in the user's own lines, not in ours.
    assert "engine.py" not in session.text.partition("test_forever")[0]


def test_measurements_are_selected_by_test_and_tag(ptjb) -> None:
    ptjb.write(
        test_s="""
        @pytest.mark.parametrize("n", [1, 2])
        def test_s(jax_bench, n):
            for tag in ("a", "b"):
                res, out = jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(double), x=jnp.ones(n), tag=tag)
                assert out.shape == (n,)
        """
    )

    only = ptjb.run("--ptjb-only", "[1]#a")
    assert [(row["parameters"], row["tag"]) for row in only.rows()] == [("n-1", "a")]
    skipped = ptjb.run("--ptjb-skip", "*#a")
    assert [(row["parameters"], row["tag"]) for row in skipped.rows()] == [("n-1", "a"), ("n-1", "b"), ("n-2", "b")]
    assert len(ptjb.run("--ptjb-disable").rows()) == 3


def test_rows_are_in_the_database_too_and_can_be_written_as_json(ptjb) -> None:
    import benchax

    ptjb.write(
        test_a=ONE,
        test_d="""
        @pytest.mark.parametrize("n", [7])
        def test_d(jax_bench, n):
            jb = jax_bench(jit_rounds=3, eager_rounds=3)
            jb.measure(double, jax.jit(double), jnp.ones(n), tag="t")
        """,
    )

    ptjb.run("--ptjb-json", "out/results.json", "-q")

    one, eager, jit = benchax.load(ptjb.output)
    assert {eager.case.name, jit.case.name} == {"test_d.py::test_d"}
    assert (eager.case.params, eager.case.tag) == ((("n", 7),), "t")
    assert (eager.case.variant, jit.case.variant) == ("eager", "")
    assert one.run_id == eager.run_id == jit.run_id
    document = json.loads((ptjb.path / "out" / "results.json").read_text())
    result, _ = document["results"]
    assert document["format"] == "ptjb-json"
    assert result["nodeid"] == "test_a.py::test_one"
    assert result["row"]["jit_median_ms"] > 0
    assert result["row"]["eager_mean_ms"] is None
    assert len(result["measurements"][0]["samples"][0]["elapsed_s"]) == 20


def test_a_file_that_cannot_be_written_fails_the_session_in_a_line_and_costs_no_other_file(ptjb) -> None:
    """It ended in a traceback of ours, without the failures of the session."""
    ptjb.write(test_a=ONE)

    options = ("--ptjb-fixture", "--ptjb-json=/proc/results.json", "--benchmark-json=found.json")
    text = ptjb.run(*options, "-q", code=pytest.ExitCode.USAGE_ERROR).text

    assert "ptjb: cannot write to '/proc/results.json': " in text
    assert "Traceback" not in text
    assert (ptjb.path / "found.json").exists()


def test_the_table_is_alone_with_q_left_out_with_qq_explained_with_v_and_coloured_where_colours_show(ptjb) -> None:
    ptjb.write(test_a=ONE)

    assert "PTJB" not in ptjb.run("-qq").text
    coloured = ptjb.run("-q", "--color=yes")
    assert "PTJB" in coloured.text
    assert any("\x1b[" in line for line in coloured.table)
    assert "unclear (" not in coloured.text
    explained = ptjb.run("-v", "--color=no")
    assert "unclear (" in explained.text
    assert "\x1b[" not in explained.text


def test_workers_of_xdist_measure_one_at_a_time_and_find_plot_functions_of_markers(ptjb) -> None:
    pytest.importorskip("matplotlib")
    ptjb.write(
        test_x="""
        import os, pathlib

        def draw(data):
            import matplotlib.pyplot as plt
            assert list(data["n"]) == [1, 2, 3, 4]
            return plt.figure()

        @pytest.mark.ptjb(plot_summary=draw)
        @pytest.mark.parametrize("n", [1, 2, 3, 4])
        def test_x(jax_bench, n):
            inside = pathlib.Path("inside")
            def f(x):  # runs eagerly, under the lock
                os.mkdir(inside)
                os.rmdir(inside)
                return x
            jb = jax_bench(eager_rounds=20, eager_warmup=1)
            jb.measure(fn=f, x=jnp.ones(n))

        def inside():
            lock = __import__("threading").Lock()
            return lambda data: lock

        @pytest.mark.ptjb(plot=inside())
        def test_v(jax_bench):
            jax_bench(jit_rounds=1).measure(fn_jit=double, x=jnp.ones(3))
        """
    )

    session = ptjb.run("-n", "2", "--ptjb-plot")

    assert "2 workers measured one at a time" in session.text
    assert len([line for line in session.table if "test_x[" in line]) == 4
    assert len({row["session"] for row in session.rows()}) == 1
    assert (ptjb.output / "test_x.py--test_x" / "custom.png").exists()
    assert (
        "test_x.py::test_v: plot was not drawn, because ValueError: it cannot be sent from the process" in session.text
    )


def test_forked_tests_are_in_the_table(ptjb) -> None:
    pytest.importorskip("pytest_forked")
    ptjb.write(
        test_k="""
        def test_k(jax_bench):
            x = jnp.ones((512, 512))
            jax_bench(jit_rounds=3, eager_rounds=3, eager_warmup=1).measure(double, jax.jit(double), x)

        def test_fails(jax_bench):
            assert False
        """
    )

    session = ptjb.run("--forked", code=1)

    assert "1 failed, 1 passed" in session.text
    assert "Eager-Peak" in session.table[0]
    assert "test_k.py::test_k" in session.line("test_k ")


@pytest.mark.parametrize("how", ["option", "marker"])
def test_where_jax_has_started_benchmarks_run_without_a_fork_and_the_session_says_so(ptjb, how) -> None:
    pytest.importorskip("pytest_forked")
    ptjb.write(
        test_k=f"""
        import os
        X, PROCESS = jnp.ones(3), os.getpid()
        {"pytestmark = pytest.mark.forked" * (how == "marker")}

        def test_k(request):
            assert os.getpid() == PROCESS
            JaxBench(request, jit_rounds=3).measure(fn_jit=jax.jit(double), x=X)

        def test_plain():
            assert os.getpid() != PROCESS

        @pytest.fixture
        def bench(request):
            with pytest.raises(ValueError, match="JAX had started before this test was forked"):
                return JaxBench(request)

        def test_hidden(bench):
            pass
        """
    )

    session = ptjb.run(*["--forked"] * (how == "option"))

    assert "test_k.py::test_k" in session.line("test_k ")
    assert "ptjb: 1 of 1 measurement ran without a fork, because JAX had started before" in session.text


def test_each_attempt_of_a_test_that_is_rerun_is_a_run_of_its_own(ptjb) -> None:
    pytest.importorskip("pytest_rerunfailures")
    ptjb.write(
        test_r="""
        attempts = []

        def test_r(jax_bench):
            jax_bench(jit_rounds=1).measure(fn_jit=double, x=1.0)
            attempts.append(1)
            assert len(attempts) == 3
        """
    )

    rows = ptjb.run("--reruns", "2").rows()

    assert [(row["run_id"], row["commit_run"]) for row in rows] == [(0, 0), (1, 1), (2, 2)]


def test_options_of_benchax_and_of_the_plugin_stand_in_configurations_in_either_spelling(ptjb) -> None:
    ptjb.write(test_a=ONE)
    (ptjb.path / "pyproject.toml").write_text('[tool.benchax]\ntimer = "pipelined"\nstore = "off"\n')

    assert [row["timer"] for row in ptjb.run().rows()] == ["pipelined"]
    assert list(ptjb.output.glob("*.db")) == []
    assert ptjb.run("--benchax-timer", "wall").rows()[-1]["timer"] == "wall"
    shutil.rmtree(ptjb.output)

    lines = ("ptjb_output_dir = results", "benchax_timer = in_graph,wall", "ptjb_no_compare = true")
    ptjb.pytester.makeini("\n".join(["[pytest]", "addopts = --strict-markers", *lines, ""]))

    ptjb.run()

    (file,) = (ptjb.path / "results").rglob("*.csv")
    assert rows_in(file)[0]["timer"] in ("in_graph", "wall")
    assert not ptjb.output.exists()

    ptjb.pytester.makeini("[pytest]\nptjb_plot_xaxis = commits\n")
    assert "ptjb_plot_xaxis" in ptjb.run(code=4).text


@pytest.mark.serial  # a neighbour may hide the difference
def test_jit_loops_times_the_function_inside_a_program(ptjb) -> None:
    ptjb.write(
        test_l="""
        def test_l(jax_bench):
            f = jax.jit(lambda x: jax.lax.fori_loop(0, 5000, lambda i, x: x * 0.999999 + 1e-6, x))
            for loops in (1, 100):
                jax_bench(jit_rounds=20, jit_loops=loops).measure(None, f, jnp.ones(()), tag=str(loops))

        def test_refused(jax_bench):
            jax_bench(jit_rounds=3, timer="in_graph,wall").measure(None, jax.jit(lambda: 1.0))
        """
    )

    session = ptjb.run()

    called, inside = session.rows("test_l/")
    assert called["timer"] == "wall"
    assert inside["timer"] in ("in_graph", "loop")
    # 5000 dependent steps take 5 µs and more: nothing was hoisted out of the loop.
    assert 0.005 < inside["jit_min_ms"] < called["jit_median_ms"]
    (refused,) = session.rows("test_refused")
    assert refused["timer"] == "wall"
    assert "timed by wall, because in_graph could not serve: " in session.text


def test_the_environment_variable_of_a_test_run_is_left_alone(ptjb) -> None:
    """What a test sees of pytest and of JAX is the same with a benchmark before it."""
    ptjb.write(
        test_e="""
        import os
        BEFORE = dict(os.environ)

        def test_first(jax_bench):
            jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(double), x=jnp.ones(3))

        def test_then():
            changed = {k for k in os.environ if os.environ[k] != BEFORE.get(k)} - {"PYTEST_CURRENT_TEST"}
            assert changed == set()
        """
    )

    assert "2 passed" in ptjb.run().text
    assert os.environ.get("PYTEST_CURRENT_TEST")


# ---- what a session says of good rows, of few rounds, and on which terminals: in real sessions ----------------------

RIGHT = """
import numpy as np

inner = jax.jit(double)
x = jnp.ones(100)

def outer(x):
    return inner(x) + 1

def callback(x):
    return jax.pure_callback(lambda v: np.asarray(v) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

def test_jit_inside(jax_bench):
    jax_bench(jit_rounds=5, eager_rounds=5).measure(fn=outer, fn_jit=jax.jit(outer), x=x)

def test_callback(jax_bench):
    jax_bench(jit_rounds=5, eager_rounds=5).measure(fn=callback, fn_jit=jax.jit(callback), x=x)

def test_lambda(jax_bench):
    assert jax_bench(lambda: jax.block_until_ready(inner(x)))[0] == double(x)[0]
"""


def test_rows_whose_results_were_right_are_not_called_wrong(ptjb) -> None:
    ptjb.write(test_a=RIGHT)

    session = ptjb.run()

    assert "wrong result" not in session.text
    assert "compiled while timed" in session.line("test_callback")
    lambda_row = next(row for row in session.rows() if row["jit_rounds"] == 20)
    assert lambda_row["compile_ms"] > 0
    assert lambda_row["eager_median_ms"] != lambda_row["eager_median_ms"]
    assert "–" in session.line("test_jit_inside")  # of 5 rounds


IN_A_TERMINAL = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.pluginmanager.get_plugin("terminalreporter").isatty = lambda: True
"""


def test_the_table_fits_the_terminal_and_is_there_with_q(ptjb, monkeypatch) -> None:
    ptjb.write(test_a=RIGHT)
    ptjb.run()

    ptjb.pytester.makeconftest(IN_A_TERMINAL)
    for width in (80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        session = ptjb.run("-q")

        assert any("test_lambda" in line for line in session.table)
        table = [line for line in session.table if not line.startswith("ptjb")]  # how to ask for more may be longer
        assert [line for line in table if len(line) > width] == []
        assert "the machine was busy" not in session.text  # the table alone
