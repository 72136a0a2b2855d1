"""What users write, in real sessions: the fixture, JaxBench, tags, parameters, the steps and which of them are left
out, the result and the output."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pytest_sessions import Project, rows_in

import benchax
from benchax.errors import UsageError
from pytest_jax_bench import JaxBench
from pytest_jax_bench.fixture import TimeLimitExceeded

STEPS = """
def bench(jax_bench, **rounds):
    return jax_bench(**rounds), jnp.ones((32, 32))

def test_full(jax_bench):
    jb, x = bench(jax_bench, jit_rounds=8, jit_warmup=1, eager_rounds=7, eager_warmup=1)
    res, out = jb.measure(fn=double, fn_jit=jax.jit(double), x=x)
    assert jnp.allclose(out, double(x))
    assert res.jit.failure is None and res.eager.failure is None
    print(res)

def test_only_jit(jax_bench):
    jb, x = bench(jax_bench, jit_rounds=8, eager_rounds=7)
    jb.measure(fn_jit=jax.jit(double), x=x)

def test_only_eager(request):
    jb = JaxBench(request, jit_rounds=8, eager_rounds=7, eager_warmup=1)
    res, out = jb.measure(fn=double, x=jnp.ones((32, 32)))
    assert jnp.allclose(out, double(jnp.ones((32, 32))))

def test_no_rounds(jax_bench):
    jb, x = bench(jax_bench, jit_rounds=0, jit_warmup=1, eager_rounds=0, eager_warmup=1)
    jb.measure(double, jax.jit(double), x)

def test_nothing(jax_bench):
    jb, x = bench(jax_bench)
    res, out = jb.measure(fn=double, fn_jit=jax.jit(double), x=x)
    assert out is None

def test_plain_function_as_fn_jit(jax_bench):
    jb, x = bench(jax_bench, jit_rounds=3)
    jb.measure(fn_jit=double, x=x)

def test_tags(jax_bench):
    jb, x = bench(jax_bench, jit_rounds=3)
    jb.measure(fn_jit=jax.jit(double), x=x, tag="double")
    jb.measure(fn_jit=jax.jit(triple), x=x, tag="triple")

def test_not_written(jax_bench):
    jb, x = bench(jax_bench, jit_rounds=3)
    jb.measure(fn_jit=jax.jit(double), x=x, write=False)

@pytest.mark.parametrize("n", [4, 8])
def test_parameters(jax_bench, n):
    jb, x = bench(jax_bench, jit_rounds=3)
    jb.measure(fn_jit=jax.jit(double), x=jnp.ones(n))

def test_like_pytest_benchmark(jax_bench):
    assert jnp.allclose(jax_bench(jax.jit(double), jnp.ones(4)), double(jnp.ones(4)))

def test_like_pytest_benchmark_plain(jax_bench):
    assert jax_bench(lambda x, tag: x + tag, jnp.ones(4), tag=2)[0] == 3
"""


def test_each_step_is_taken_or_left_out_as_documented(ptjb) -> None:
    ptjb.write(test_steps=STEPS)

    session = ptjb.run("-v", "-s")

    (full,) = session.rows("test_full")
    times = [
        "compile_ms",
        "jit_mean_ms",
        "jit_median_ms",
        "jit_min_ms",
        "eager_mean_ms",
        "eager_min_ms",
        "first_run_ms",
    ]
    assert all(full[name] > 0 for name in times)
    assert (full["jit_rounds"], full["eager_rounds"], full["jit_warmup"]) == (8, 7, 1)
    assert full["jit_low_ms"] <= full["jit_median_ms"] <= full["jit_high_ms"]
    assert full["jit_peak_bytes"] - full["jit_constants_bytes"] == 2 * 4 * 32 * 32
    assert full["jit_temporary_bytes"] == 0
    assert full["jit_loops"] >= 1
    assert (full["timer"], full["status"], full["tag"], full["parameters"]) == ("wall", "ok", "base", "None")
    assert "test_full" in session.text.partition("95 % interval")[0]  # print(res)

    columns = ("compile_ms", "jit_mean_ms", "jit_peak_bytes", "eager_mean_ms", "eager_peak_bytes", "first_run_ms")
    for test, has in {
        "test_only_jit": "compile_ms jit_mean_ms jit_peak_bytes first_run_ms",
        "test_only_eager": "eager_mean_ms first_run_ms",
        "test_no_rounds": "compile_ms jit_peak_bytes first_run_ms",
        "test_nothing": "compile_ms jit_peak_bytes",
    }.items():
        (row,) = session.rows(f"{test}/")
        assert [name for name in columns if row[name] > 0] == has.split(), test
    assert [row["tag"] for row in session.rows("test_tags")] == ["double", "triple"]
    assert session.rows("test_not_written") == []
    assert [row["parameters"] for row in session.rows("test_parameters")] == ["n-4", "n-8"]
    assert [row["jit_rounds"] for row in session.rows("test_like_pytest_benchmark/")] == [20]
    assert [row["eager_rounds"] for row in session.rows("test_like_pytest_benchmark_plain")] == [20]
    lines = session.table
    assert "test_steps.py::test_parameters[4]" in "\n".join(lines)
    assert not any("test_not_written" in line for line in lines)
    assert "Eager-Run" in lines[0]


def test_a_function_is_given_all_of_its_arguments(ptjb) -> None:
    ptjb.write(
        test_arguments="""
        import functools

        def scale(x, tag, write=1, fn=1, spec=""):
            assert isinstance(spec, str), spec  # a text that looks like the spec of an array stays a text
            return x * tag * write * fn

        def test_names_of_ours(jax_bench):
            jb = jax_bench(jit_rounds=3, eager_rounds=3)
            jitted = jax.jit(scale, static_argnames="spec")
            call = {"tag": 2, "write": 3, "fn": 5}
            _, out = jb.measure(fn=scale, fn_jit=jitted, x=jnp.ones(4), spec="f32[3]", kwargs=call, tag="row")
            assert out[0] == 30
            _, out = jb.measure(fn_jit=functools.partial(jitted, tag=7), x=jnp.ones(4))
            assert out[0] == 7
            with pytest.raises(Exception, match="argument of measure and of the function"):
                jb.measure(fn_jit=jitted, x=jnp.ones(4), tag="row")

        def test_donated(jax_bench):
            x = jnp.ones(1000)
            donating = jax.jit(double, donate_argnums=0)
            jb = jax_bench(jit_rounds=5, eager_rounds=5)
            jb.measure(donating, donating, x)
            jb.measure(lambda x: donating(x), donating, x)
            assert x.sum() == 1000

        def test_static(jax_bench):
            f = jax.jit(lambda x, n, mode: x * n, static_argnames=["n", "mode"])
            jax_bench(jit_rounds=3).measure(fn_jit=f, x=jnp.ones(4), n=3, mode="key")
            jax_bench(jit_rounds=3).measure(None, f, jnp.ones(4), 3, "key")

        def test_trees(jax_bench):
            x = {"a": jnp.ones(3), "b": [1.0, jnp.ones(2)]}
            f = lambda x: jax.tree.map(lambda a: a * 2, x)
            _, out = jax_bench(jit_rounds=3, eager_rounds=3).measure(f, jax.jit(f), x)
            assert out["b"][0] == 2
        """
    )

    session = ptjb.run()

    assert [row["tag"] for row in session.rows("names")] == ["row", "base"]
    assert {row["status"] for row in session.rows()} == {"ok"}


def test_jaxbench_works_outside_of_pytest(project) -> None:
    jb = JaxBench(jit_rounds=6, jit_warmup=2, eager_rounds=5, eager_warmup=1)
    res, out = jb.measure(jnp.sin, jax.jit(jnp.sin), jnp.ones(100), write=False)

    assert {"compile", "jit", "eager"} <= {line.split()[0] for line in str(res).splitlines()[1:]}
    with pytest.raises(AttributeError, match="'jit_mean_ms'"):
        res.jit_mean  # noqa: B018
    assert res.asdict()["jit_median_ms"] == res.jit_median_ms == res.jit.summary().median_s * 1e3
    assert out.shape == (100,)
    assert list(project.iterdir()) == []


def test_outside_of_pytest_rows_go_to_the_path(project) -> None:
    for _ in range(2):
        jb = JaxBench(path="sub/x", jit_rounds=3)
        res, _ = jb.measure(None, jax.jit(jnp.sin), jnp.ones(10))

    assert (res.run_id, res.commit) == (1, "unknown")
    assert {p.name for p in (project / "sub").iterdir()} >= {"benchax.db", "x.csv"}


ONE_OF_TWO = """
import sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import jax.numpy as jnp
from pytest_jax_bench import JaxBench

assert jax.process_count() == 2
JaxBench(path="x", jit_rounds=3, eager_rounds=3).measure(jnp.sin, jax.jit(jnp.sin), jnp.ones(10))
print(jax.process_index())
"""


@pytest.mark.slow
def test_of_several_processes_the_first_one_writes(project) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", ONE_OF_TWO, address]
    both = [
        subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for i in range(2)
    ]
    try:
        said = [process.communicate(timeout=120) for process in both]
    finally:
        for process in both:
            process.kill()

    assert [out.strip() for out, _ in said] == ["0", "1"], said
    assert len(rows_in(project / "x.csv")) == 1
    assert len(benchax.load(project)) == 2  # eager and jitted


def test_what_cannot_be_meant_is_refused_before_anything_is_measured(project) -> None:
    from benchax import UsageError

    def never(x):
        raise AssertionError

    for call, message in {
        lambda: JaxBench(jit_rounds=1).measure(fn_jit=never, x=1): "no path to write to",
        lambda: JaxBench(jit_rounds=1).measure(write=False): "no function",
        lambda: JaxBench(jit_rounds=-1): "jit_rounds=-1",
        lambda: JaxBench(jit_rounds=2.5): "jit_rounds=2.5",
        lambda: JaxBench(path=""): "path=''",
        lambda: JaxBench(jit_rounds=1).measure(fn=never, tag=1, write=False): "tag=1",
    }.items():
        with pytest.raises(UsageError, match=message):
            call()


def test_what_a_call_gets_done_is_in_the_row_and_an_argument_of_that_name_stays_the_functions(tmp_path: Path) -> None:
    jb = JaxBench(path=tmp_path / "rows", jit_rounds=3)

    res, _ = jb.measure(fn_jit=jax.jit(jnp.sort), a=jnp.arange(4.0), work={"rows": 4})
    own, out = jb.measure(fn_jit=jax.jit(lambda x, work: x * work), x=jnp.arange(2.0), work=jnp.float32(3.0))

    assert res.jit.work.amounts == {"rows": 4.0}
    assert [rate.what for rate in res.jit.rates()] == ["rows"]
    assert own.jit.work.amounts == {}
    assert out.tolist() == [0.0, 3.0]


# ---- how often a function is called ---------------------------------------------------------------------------------

ONES = jnp.ones(3)


@pytest.mark.parametrize(
    ("per_round", "warmup", "expected"), [(1, 3, 3 + 7), (4, 3, 3 + 4 * 7), (1, 0, 7), (1, 1, 1 + 7), (4, 0, 1 + 4 * 7)]
)
def test_an_eager_function_is_called_for_each_round_and_warm_up(per_round: int, warmup: int, expected: int) -> None:
    """The first run is one of them, but where a round needs several calls and none are warm-ups."""
    calls = []
    jb = JaxBench(eager_rounds=7, eager_warmup=warmup, calls_per_round=per_round)

    res, _ = jb.measure(lambda x: (calls.append(1), x)[1], x=ONES, write=False)

    assert len(calls) == expected
    assert res.eager_rounds == 7
    assert res.eager.headline.iterations == per_round
    assert res.eager_peak_bytes == -1
    if (per_round, warmup) == (1, 3):  # without it, a short function is called as often as its times need
        JaxBench(eager_rounds=7, eager_warmup=3).measure(lambda x: (calls.append(1), x)[1], x=ONES, write=False)
        assert len(calls) > 100


def test_a_jitted_function_is_called_for_each_round_and_warm_up() -> None:
    calls = []

    def count(x):
        calls.append(1)
        return np.asarray(x)

    @jax.jit
    def with_callback(x):
        return jax.pure_callback(count, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    jb = JaxBench(jit_rounds=7, jit_warmup=3, calls_per_round=1)
    res, _ = jb.measure(None, with_callback, ONES, write=False)

    assert len(calls) == 3 + 7
    assert (res.jit_rounds, res.jit_loops) == (7, 1)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "1"])
def test_anything_but_a_number_of_calls_is_refused(wrong) -> None:
    with pytest.raises(UsageError, match=f"invalid calls_per_round={wrong!r}"):
        JaxBench(calls_per_round=wrong)


@pytest.mark.parametrize("number", [3, 3.0, np.int64(3)])
def test_a_whole_number_of_another_type_is_one(number) -> None:
    rounds = JaxBench(jit_rounds=number, calls_per_round=number).rounds

    assert (type(rounds.jit_rounds), rounds.jit_rounds, rounds.calls_per_round) == (int, 3, 3)


# ---- `max_time_ms` and `min_time_ms` of the marker ------------------------------------------------------------------


def measure(marker: dict[str, float]) -> None:
    bench = JaxBench(path="x", jit_rounds=20, jit_warmup=1)
    object.__setattr__(bench.context, "marker", marker)
    bench.measure(None, jnp.sin, jnp.ones(3))


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ({"max_time_ms": 1e-5}, "a jit run took .* more than max_time_ms=1e-05"),
        ({"min_time_ms": 1e5}, "a jit run took .* less than min_time_ms=100000"),
    ],
)
def test_a_time_beyond_its_limit_fails_the_test_after_its_row_was_kept(project, marker, message: str) -> None:
    with pytest.raises(TimeLimitExceeded, match=message):
        measure(marker)

    assert len(rows_in(project / "x.csv")) == 1


def test_a_time_within_its_limits_passes(project) -> None:
    measure({"max_time_ms": 1e5, "min_time_ms": 1e-5})

    assert len(rows_in(project / "x.csv")) == 1


# ---- the marker's `max_compiles` ------------------------------------------------------------------------------------

LIMITED = """
import numpy as np
step = jax.jit(lambda x: x * 2)

@pytest.mark.ptjb(max_compiles=1)
def test_too_many():
    for n in (3, 4):
        step(np.ones(n, np.float32))

@pytest.mark.ptjb(max_compiles=1)
def test_enough():
    step(np.ones(5, np.float32))
    step(np.ones(5, np.float32))

@pytest.mark.ptjb(max_compiles=0)
def test_bench_only(jax_bench):
    jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(lambda x: x * 3), x=np.ones(4, np.float32))

@pytest.mark.ptjb(max_compiles=0)
def test_own_line_beside_a_bench(jax_bench):
    jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(lambda x: x * 5), x=np.ones(4, np.float32))
    step(np.ones(6, np.float32))

@pytest.mark.ptjb(max_compiles=0)
def test_own_failure():
    step(np.ones(7, np.float32))
    raise ZeroDivisionError("mine")

@pytest.mark.ptjb(max_compiles=-1)
def test_wrong_limit():
    pass
"""


def test_a_limit_holds_for_the_lines_of_the_test(ptjb: Project) -> None:
    ptjb.write(test_it=LIMITED)

    text = ptjb.run(code=1).text

    assert "2 programs were compiled inside max_compiles(1)" in text
    assert "x: shape f32[3] → f32[4]" in text
    assert "FAILED test_it.py::test_own_line_beside_a_bench" in text
    assert "1 program was compiled inside max_compiles(0)" in text
    assert "ZeroDivisionError: mine" in text
    assert "invalid max_compiles=-1 of the marker ptjb" in text
    assert "a whole number from 0 up" in text
    assert "3 failed, 2 passed, 1 error" in text
