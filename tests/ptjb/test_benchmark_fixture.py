"""The fixture `benchmark` of pytest-benchmark and pytest-codspeed, for JAX, in real sessions with --benchax-fixture."""

from __future__ import annotations

import argparse
import json
import math

import pytest

from benchax.comparing import gate
from benchax.errors import FormatError, UsageError
from pytest_jax_bench import benchmark_plugin, benchmark_reports, options
from pytest_jax_bench.options import BenchmarkSettings

ALONE = ("--benchax-fixture", "-p", "no:benchmark", "-p", "no:codspeed")

USES = """
import numpy as np

X = jnp.ones((32, 32))
f = jax.jit(lambda x: jnp.sin(x) @ x)
many = pytest.mark.parametrize("n", [8, 16])

def test_call(benchmark):
    out = benchmark(f, X)
    assert out.shape == (32, 32)
    assert benchmark.stats["mean"] == benchmark.stats.stats.mean > 0
    assert benchmark.stats.stats.rounds == len(benchmark.stats.stats.data) == 20
    benchmark.extra_info["size"] = X.size
    benchmark.extra_info["object"] = object()

@pytest.mark.benchmark(group="waits", min_rounds=25)
@many
def test_lambda(benchmark, n):
    x = jnp.ones((n, n))
    assert benchmark(lambda: f(x).block_until_ready()).shape == (n, n)
    assert benchmark.stats.stats.rounds == 25 and benchmark.params == {"n": n} and benchmark.param == str(n)

def test_decorator(benchmark):
    @benchmark
    def found():
        return sorted([3, 1, 2])

    assert found == [1, 2, 3]

def test_as_it_stands(benchmark):
    given = np.ones(3)
    assert benchmark(lambda x: x is given, given)  # neither placed nor copied

def test_pedantic(benchmark):
    calls = []
    benchmark.pedantic(calls.append, args=(1,), rounds=7, warmup_rounds=2, iterations=3)
    assert len(calls) == 3 * (7 + 2)
    assert benchmark.stats.stats.rounds == 7 and benchmark.stats.iterations == 3

def test_setup(benchmark):
    made, over = [], []

    def setup():
        made.append(len(made))
        return ([3, 1, 2],), {}

    def target(values):
        assert values == [3, 1, 2]
        values.sort()

    benchmark.pedantic(target, setup=setup, teardown=over.append, rounds=5, warmup_rounds=1)
    assert len(made) == len(over) == 5 + 1 and all(values == [1, 2, 3] for values in over)

@pytest.mark.parametrize("warmup, iterations, calls", [(0, 1, 4), (1, 1, 5), (0, 3, 13), (2, 3, 18)])
def test_counted(benchmark, warmup, iterations, calls):
    called, over = [], []
    benchmark.pedantic(
        called.append, (1,), rounds=4, warmup_rounds=warmup, iterations=iterations, teardown=over.append
    )
    assert len(called) == calls
    assert len(over) == 4 + (warmup or iterations > 1)

def test_compilation(benchmark):
    built = benchmark.compilation(lambda x: jnp.sin(x) @ x, X, rounds=3)
    assert isinstance(built, jax.stages.Compiled) and benchmark.stats.stats.rounds == 3

def test_kept(benchmark):
    benchmark(lambda: f.lower(X).compile())

def test_woven(benchmark_weave):
    import textwrap
    benchmark_weave(textwrap.indent)
    assert textwrap.indent("a", "b") == "ba"

class Counter:
    def plus(self, n):
        return n + 1

def test_method_woven(benchmark):
    benchmark.weave(Counter.plus)
    assert Counter().plus(2) == 3

def test_sleep_woven(benchmark):
    import time
    benchmark.weave(time.sleep)
    time.sleep(1e-7)

def test_setup_of_a_jitted_function(benchmark):
    takes = jax.jit(lambda x, y: x + y, donate_argnums=0)
    out = benchmark.pedantic(takes, setup=lambda: ((X + 1, np.ones((32, 32), np.float32)), {}), rounds=5)
    assert isinstance(out, jax.Array)

@pytest.mark.benchmark(group="whole", max_time=0.2, warmup=False)
@many
def test_whole(n):
    jnp.ones(n).block_until_ready()

def test_both_fixtures(benchmark, jax_bench):
    benchmark(f, X)
    jax_bench(jit_rounds=3).measure(fn_jit=f, x=X, tag="other")

def test_plain():
    pass
"""


ASPECTLIB = """
import sys
from types import SimpleNamespace

def weave(function, aspect):
    owner = sys.modules[function.__module__]
    for name in function.__qualname__.split(".")[:-1]:
        owner = getattr(owner, name)
    setattr(owner, function.__name__, aspect(function))
    return SimpleNamespace(rollback=lambda: setattr(owner, function.__name__, function))
"""
"""As much of that package as is needed here."""


def test_what_people_write_runs_unchanged(ptjb) -> None:
    ptjb.write(test_uses=USES)
    ptjb.pytester.makepyfile(aspectlib=ASPECTLIB)

    session = ptjb.run(*ALONE, "--benchmark-json=out.json", "--benchmark-save=first", "-rs")

    (compilation,) = session.rows("test_compilation")
    assert (compilation["status"], compilation["message"]) == ("ok", "")
    assert compilation["eager_median_ms"] > 5 * session.rows("test_kept")[0]["eager_median_ms"]
    assert "nothing compiled" in session.line("test_kept")
    assert "JAX kept the compiled program" in session.text
    for name in ("test_woven", "test_method_woven", "test_sleep_woven"):
        (woven,) = session.rows(name)
        assert woven["eager_mean_ms"] > 0
    rows = {row["parameters"] + row["tag"]: row for row in session.rows("test_lambda")}
    assert all(row["compile_ms"] > 0 and row["jit_rounds"] == 25 for row in rows.values())  # the jitted one inside
    assert all(row["eager_mean_ms"] > 0 and math.isnan(row["jit_mean_ms"]) for row in session.rows("test_whole"))
    assert "group waits: 2 measurements" in session.text
    document = json.loads((ptjb.path / "out.json").read_text())
    named = {each["fullname"].rpartition("::")[2]: each for each in document["benchmarks"]}
    assert named["test_call"]["extra_info"]["size"] == 1024
    assert named["test_call"]["extra_info"]["object"].startswith("UNSERIALIZABLE[<object object")
    assert named["test_lambda[8]"]["group"] == "waits"
    assert named["test_lambda[8]"]["params"] == {"n": 8}
    assert len(named["test_pedantic"]["stats"]["data"]) == 7
    assert "test_both_fixtures#other" in named
    assert "test_plain" not in named
    assert [file.name for file in session.output.rglob("0001_*.json")] == ["0001_first.json"]

    session = ptjb.run(
        *ALONE, "--benchmark-compare=0001", "--benchmark-columns=min,median,rounds", "--benchmark-sort=name",
        "--benchmark-only", "--benchmark-group-by=func", "--benchmark-name=short", "-k", "lambda or plain or whole",
    )  # fmt: skip

    assert "1 skipped" in session.text
    assert session.text.index("group test_lambda: 2 measurements") < session.text.index("group test_whole")
    assert "lambda[16] (now)" in session.text
    assert "lambda[16] (saved)" in session.text
    assert "min (µs)" in session.text
    assert "Compile" not in session.text


HOOKS = """
from pathlib import Path

def pytest_benchmark_update_machine_info(config, machine_info):
    machine_info["cpu"]["x"] = config.rootpath.name

def pytest_benchmark_generate_commit_info(config):
    return {"id": "r17"}

def pytest_benchmark_group_stats(config, benchmarks, group_by):
    return [(f"{group_by} {one['name']}", [one]) for one in benchmarks if one.stats.min <= one["mean"]]

def pytest_benchmark_update_json(config, benchmarks, output_json):
    output_json["foo"] = [one["extra_info"]["k"] for one in benchmarks]

def pytest_benchmark_scale_unit(config, unit, benchmarks, best, worst, sort):
    return "m", 1e3
"""


def test_hooks_of_pytest_benchmark_are_called_with_what_they_expect(ptjb) -> None:
    ptjb.pytester.makeconftest(HOOKS)
    ptjb.write(
        test_one="""
        @pytest.mark.parametrize("n", [1, 2])
        def test_one(benchmark, n):
            benchmark.extra_info["k"] = n
            benchmark(jax.jit(double), jnp.ones(n))
        """
    )

    session = ptjb.run(*ALONE, "--benchmark-json=out.json")

    document = json.loads((ptjb.path / "out.json").read_text())
    assert document["foo"] == [1, 2]
    assert document["commit_info"] == {"id": "r17"}
    assert document["machine_info"]["cpu"]["x"] == ptjb.path.name
    assert "group group test_one[2]: 1 measurement" in session.text
    assert "benchax: the hook pytest_benchmark_scale_unit isn't called" in session.text


WRONG = """
x = jnp.ones(3)
f = jax.jit(lambda x: x + 1)

def test_twice(benchmark):
    benchmark(f, x)
    benchmark(f, x)

def test_unused(benchmark):
    pass

def test_no_rounds(benchmark):
    benchmark.pedantic(f, args=(x,), rounds=0)

def test_setup_and_iterations(benchmark):
    benchmark.pedantic(f, setup=lambda: ((x,), {}), iterations=2)

def test_setup_and_args(benchmark):
    benchmark.pedantic(f, args=(x,), setup=lambda: ((x,), {}))

def test_setup_of_nothing_known(benchmark):
    benchmark.pedantic(f, setup=lambda: 3)

def test_third_call(benchmark):
    calls = []

    def fails():
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("in round 3")

    benchmark.pedantic(fails, rounds=5)

async def work(x):
    return f(x)

def steps(x):
    yield f(x)

def test_coroutine(benchmark):
    benchmark(lambda: work(x))

def test_generator(benchmark):
    benchmark(lambda: steps(x))

def test_other_fixture(jax_bench):
    jax_bench(work, x)

@pytest.mark.benchmark(speed=3)
def test_keyword(benchmark):
    benchmark(f, x)

@pytest.mark.benchmark
def test_whole_fails():
    assert 1 == 2

@pytest.mark.benchmark
def test_whole_skips():
    pytest.skip("not here")

def test_good(benchmark):
    benchmark(f, x)
"""


def test_what_goes_wrong_fails_its_own_test_in_words(ptjb) -> None:
    ptjb.write(test_wrong=WRONG)

    session = ptjb.run(*ALONE, "-W", "error::RuntimeWarning", "--benchmark-json=out.json", code=1)

    assert "10 failed, 2 passed, 1 skipped, 1 warning, 1 error" in session.text
    assert "benchmark was used in this test before, as benchmark(...)" in session.text
    assert "the fixture benchmark was not used at all in this test" in session.text
    assert "invalid rounds=0" in session.text
    assert "benchmark.pedantic was given a setup and iterations=2" in session.text
    assert "given args or kwargs, and its setup returns them as well" in session.text
    assert "the setup of benchmark.pedantic returned 3" in session.text
    assert "RuntimeError: in round 3" in session.text
    assert "the call returns a coroutine of work: its body hasn't run" in session.text
    assert "lambda x: list(steps(x))" in session.text
    assert "work is a coroutine function: calling it doesn't run its body" in session.text
    assert "the marker benchmark has no keyword 'speed'" in session.text
    names = [each["name"] for each in json.loads((ptjb.path / "out.json").read_text())["benchmarks"]]
    assert names == ["test_good"]  # as pytest-benchmark leaves out what has failed, also test_twice
    for ours in ("_use", "benchmark_fixture.py", "held"):  # tracebacks show where the test called, and where it failed
        assert ours not in session.text


def test_without_the_option_there_is_no_fixture_and_the_marker_measures_nothing(ptjb) -> None:
    ptjb.write(test_one="def test_one(benchmark):\n    pass\n\n@pytest.mark.benchmark\ndef test_two():\n    pass")

    session = ptjb.run("-p", "no:benchmark", "-p", "no:codspeed", "-W", "ignore", code=1)

    assert "fixture 'benchmark' not found" in session.text
    assert "1 passed, 1 error" in session.text


def test_the_option_may_stand_in_the_configuration(ptjb) -> None:
    ptjb.pytester.makeini("[pytest]\nbenchax_fixture = true\naddopts = --benchmark-disable --benchmark-timer=time.time")
    ptjb.write(test_one="def test_one(benchmark):\n    assert benchmark(lambda: 3) == 3 and benchmark.stats is None")

    session = ptjb.run("-p", "no:benchmark", "-p", "no:codspeed")

    assert "1 passed" in session.text
    assert "benchax: --benchmark-timer does nothing here; the nearest: --ptjb-timer" in session.text
    assert not session.output.exists()


STAND_IN = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--benchmark-only", action="store_true")

@pytest.fixture
def benchmark():
    return "theirs"

def pytest_collection_modifyitems(config, items):
    for item in items:
        if config.getoption("benchmark_only") and "benchmark" not in item.fixturenames:
            item.add_marker(pytest.mark.skip)
"""
"""What pytest-benchmark 5.3.1 does of interest here. It is not installed for the tests: all sessions would load it."""


def test_beside_pytest_benchmark_its_fixture_stays_and_what_it_leaves_out_is_counted(ptjb) -> None:
    ptjb.write(
        test_theirs="def test_theirs(benchmark):\n    assert benchmark == 'theirs'",
        test_ours="def test_ours(jax_bench):\n    jax_bench(jit_rounds=3).measure(fn_jit=double, x=jnp.ones(3))",
    )
    ptjb.pytester.mkpydir("pytest_benchmark").joinpath("plugin.py").write_text(STAND_IN)
    theirs = ("-p", "no:benchmark", "-p", "pytest_benchmark.plugin", "--benchmark-only")

    session = ptjb.run("--benchax-fixture", *theirs)

    assert "1 passed, 1 skipped" in session.text
    assert "the fixture benchmark is that of pytest-benchmark; for ours: -p no:benchmark" in session.text
    assert "1 test with jax_bench did not run, because --benchmark-only of pytest-benchmark" in session.text


ASYNC_CONFTEST = """
import asyncio, inspect
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        named = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
        asyncio.run(pyfuncitem.obj(**named))
        return True
"""
"""As much of pytest-asyncio as is needed here."""

ASYNC = """
import asyncio
f = jax.jit(jnp.sin)
loops = set()

async def work(x):
    loops.add(asyncio.get_running_loop())
    await asyncio.sleep(0.005)
    return f(x)

async def fails():
    await asyncio.sleep(0)
    raise RuntimeError("in the coroutine")

async def test_awaited(benchmark):
    loops.clear()
    assert (await benchmark(work, jnp.ones(3))).shape == (3,)
    assert loops == {asyncio.get_running_loop()}
    assert benchmark.enabled is False or benchmark.stats["min"] >= 0.005

async def test_pedantic(benchmark):
    calls = []
    async def call():
        calls.append(1)
    await benchmark.pedantic(call, rounds=3, iterations=2, warmup_rounds=1)
    assert len(calls) == (8 if benchmark.enabled else 1)

def test_plain(benchmark):
    assert benchmark(work, jnp.ones(3)).shape == (3,)
    assert benchmark.enabled is False or benchmark.stats["min"] >= 0.005

async def test_fails(benchmark):
    with pytest.raises(RuntimeError, match="in the coroutine"):
        await benchmark(fails)
"""


def test_the_body_of_a_coroutine_function_runs_in_the_loop_of_the_test(ptjb) -> None:
    ptjb.pytester.makeconftest(ASYNC_CONFTEST)
    ptjb.write(test_async=ASYNC)

    session = ptjb.run(*ALONE, "-W", "error")

    assert "4 passed" in session.text
    assert "Run" in session.table[0]
    assert "for starting the coroutine" in session.text

    assert "4 passed" in ptjb.run(*ALONE, "-W", "error", "--benchmark-disable").text


# ---- what the options `--benchmark-*` permit ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit"), [("min:5%", "run=5%"), ("mean:0.001", "run=1000us"), ("stddev:2e-6", "run=2us")]
)
def test_a_limit_is_one_of_run_times(text: str, limit: str) -> None:
    assert benchmark_plugin._limit(text) == limit
    assert gate.parse(limit)["run"] is not None


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (benchmark_plugin._limit, "speed:5%"),
        (benchmark_plugin._limit, "min"),
        (options.count_from_1, "0"),
        (options.count_from_1, "2.5"),
        (options.read_seconds, "-1"),
        (options.read_seconds, "nan"),
        (benchmark_plugin._file_name, "a/b"),
        (benchmark_plugin._folder, "elasticsearch+http://host/index"),
        (benchmark_plugin._lower_case(benchmark_plugin.UNITS), "h"),
        (benchmark_plugin._list_of("columns", benchmark_plugin.COLUMNS), "min,speed"),
    ],
)
def test_a_value_that_is_not_permitted_is_quoted(read, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected"):
        options.for_argparse(read)(text)


def record(nodeid: str, times_s: list[float], group: str | None = None, **params: object) -> dict[str, object]:
    own = {"group": group, "param_names": params or None, "param": "-".join(map(str, params.values())) or None}
    row = {"status": "ok", "message": "", "tag": "base"}
    return {"nodeid": nodeid, "row": row, "readings": {"times_s": times_s, "iterations": 1}, "benchmark": own}


A = record("tests/test_x.py::test_a[8]", [3e-6, 1e-6, 2e-6], "g", n=8)
B = record("tests/test_x.py::test_b[8]", [1e-3] * 3, None, n=8)
C = record("tests/test_x.py::test_a[16]", [5e-6] * 3, "g", n=16)


@pytest.mark.parametrize(
    ("by", "titles"),
    [
        (("group",), ["", "g"]),
        (("func",), ["test_a", "test_b"]),
        (("param:n",), ["n=16", "n=8"]),
        (("group", "param"), ["8", "g 16", "g 8"]),
        (("fullfunc",), ["tests/test_x.py::test_a", "tests/test_x.py::test_b"]),
    ],
)
def test_records_are_grouped(by: tuple[str, ...], titles: list[str]) -> None:
    assert [title for title, _ in benchmark_reports.group([A, B, C], BenchmarkSettings(group_by=by))] == titles


@pytest.mark.parametrize(
    ("by", "expected"),
    [("min", [A, C, B]), ("name", [C, A, B]), (None, [B, C, A])],
    ids=["a time", "a name", "neither"],
)
def test_records_are_sorted(by: str | None, expected: list[object]) -> None:
    assert benchmark_reports.sort([B, C, A], by) == expected


@pytest.mark.parametrize(
    ("wanted", "saved", "lines"),
    [
        (
            {"columns": ("min", "median", "ops", "rounds"), "name": "short"},
            None,
            [["Test", "min (µs)", "median (µs)", "ops", "rounds"], ["a[8]", "1.00", "2.00", "500000", "3"]],
        ),
        (
            {"columns": ("min", "iqr")},
            {"tests/test_x.py::test_a[8]": {"min": 2e-6, "median": 4e-6}},
            [
                ["Test", "min (µs)", "iqr (µs)"],
                ["tests/test_x.py::test_a[8] (now)", "1.00", "1.50"],
                ["tests/test_x.py::test_a[8] (saved)", "2.00", ""],
                ["tests/test_x.py::test_a[16] (now)", "5.00", "0"],
            ],
        ),
    ],
)
def test_columns_are_in_one_unit_and_a_saved_run_stands_beside(wanted, saved, lines) -> None:
    found = benchmark_reports.tabulate([A, C], BenchmarkSettings(**wanted), saved)

    shown = [[*found.names], *([cell.text for cell in row] for row in found.rows)]
    assert [line[: len(lines[0])] for line in shown[: len(lines)]] == lines


def test_files_are_numbered_and_found_again(tmp_path) -> None:
    document = {"commit_info": {"id": "abc"}, "benchmarks": []}

    paths = [benchmark_reports.save(tmp_path, BenchmarkSettings(save="one"), document) for _ in range(2)]

    assert [path.name for path in paths] == ["0001_one.json", "0002_one.json"]
    assert benchmark_reports.find(tmp_path, "") == paths[1]
    assert benchmark_reports.find(tmp_path, "0001") == paths[0]
    with pytest.raises(UsageError, match="0003"):
        benchmark_reports.find(tmp_path, "0003")


@pytest.mark.parametrize(
    "document",
    ["{", "[]", {"benchmarks": [{"fullname": "a"}]}, {"benchmarks": [{"fullname": "a", "stats": {"min": 1.0}}]}, {}],
)
def test_a_file_of_another_form_is_refused_in_words(tmp_path, document: object) -> None:
    path = tmp_path / "0001_x.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))

    with pytest.raises(FormatError, match="expected"):
        benchmark_reports.read(path)
