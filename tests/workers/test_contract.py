"""What every executor promises, wherever it runs a case; and what is special about a worker process."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import psutil
import pytest
import warm_python

import benchax
from benchax.case import Case, make_case
from benchax.measuring.record import quiet
from benchax.model import Measurement
from benchax.options import DEFAULTS, resolve
from benchax.workers.executors import Executor, Inline, Isolated, Replicated, executor_for
from benchax.workers.pool import Pool
from benchax.workers.ranks import Launched
from benchax.workers.task import stage_limit

QUICK = resolve(
    {"max_time_s": 0.02, "min_time_s": 0.01, "max_warmup_s": 0.02, "memory": False, "timer": "wall", "store": "off"},
    environ={},
)
EXECUTORS = {
    "inline": Inline(),
    "isolated": Isolated(),
    "cold": Isolated(cold=True),
}


def talkative() -> Case:
    """Prints at all levels while it is traced, also what could be taken for an answer of a child."""

    def talk(x: Any) -> Any:
        sys.stdout.write('hello from Python\n{"measurement": 1}\n')
        os.write(1, b"hello from C\n")
        return x * 2

    return make_case(talk, ("f32[8]",), tag="loud")


def failing() -> Case:
    def fail(x: Any) -> Any:
        raise ValueError("it is broken")

    return make_case(fail, ("f32[8]",))


@pytest.fixture(scope="module", params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    executor = EXECUTORS[request.param]
    yield executor
    if isinstance(executor, Isolated):
        executor.pool.close()


@pytest.fixture(scope="module")
def stages() -> list[str]:
    """What the executor's progress callback was told."""
    return []


@pytest.fixture(scope="module")
def row(executor: Executor, stages: list[str]) -> Iterator[Measurement]:
    """One measurement by each executor, with a setting of JAX that was made in this program."""
    before = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    jax.config.update("jax_default_matmul_precision", "float32")
    stages.clear()
    yield executor.run(talkative(), QUICK, run_id="run-1", progress=lambda stage, share: stages.append(stage))
    jax.config.update("jax_default_matmul_precision", before)


@pytest.fixture(scope="module")
def failed(executor: Executor) -> Measurement:
    return executor.run(failing(), QUICK, run_id="run-1", progress=quiet)


# ---- the contract -----------------------------------------------------------------------------------------------


def test_the_row_is_of_the_case_that_was_given_whatever_it_prints(row: Measurement, executor: Executor) -> None:
    assert (row.case, row.options, row.run_id) == (talkative().id, QUICK, "run-1")
    assert (row.status, row.signature) == ("ok", "f32[8]")
    assert [s.timer for s in row.samples] == ["wall"]
    assert None not in (row.stages.trace_s, row.stages.lower_s, row.stages.compile_s, row.stages.first_run_s)
    assert row.numerics.agrees
    # A setting of the program holds wherever it runs.
    assert row.environment.config["jax_default_matmul_precision"] == "float32"
    # In a worker that is not new, operations may be used for the first time.
    is_new = getattr(executor, "cold", "function") == "process"
    assert row.stages.cold in (("process",) if is_new else ("operations", "function"))


def test_progress_is_told_in_the_order_of_work(row: Measurement, stages: list[str]) -> None:
    assert row.status == "ok"
    assert list(dict.fromkeys(stages)) == [
        "inputs", "trace", "lower", "compile", "artifacts", "first run", "verify", "transfer", "warm-up", "dispatch",
        "wall",
    ]  # fmt: skip


def test_a_failing_function_gives_a_failed_row(failed: Measurement) -> None:
    assert (failed.failure.kind, failed.failure.stage) == ("error", "trace")
    assert failed.failure.message.startswith(f"ValueError: it is broken (at {__file__}:")
    assert 'raise ValueError("it is broken")' in failed.failure.traceback
    assert (failed.case, failed.signature) == (failing().id, "f32[8]")


def test_an_interrupt_passes_through_and_leaves_no_process(executor: Executor) -> None:
    def interrupt(stage: str, share: float) -> None:
        raise KeyboardInterrupt

    before = set(psutil.Process().children(recursive=True))  # of pools that other tests share

    with pytest.raises(KeyboardInterrupt):
        executor.run(failing(), QUICK, run_id="run-1", progress=interrupt)

    assert set(psutil.Process().children(recursive=True)) <= before
    if isinstance(executor, Isolated):
        assert executor.pool._keeper is None


# ---- the choice -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "cold"),
    [
        ({}, Inline, None),
        ({"isolate": True}, Isolated, "function"),
        ({"timeout_s": 3.0}, Isolated, "function"),
        ({"memory_limit_bytes": 2**30}, Isolated, "function"),
        ({"cold_process": True}, Isolated, "process"),
        ({"cold_process": True, "timeout_s": 3.0}, Isolated, "process"),
        ({"processes": 0}, Replicated, None),
        ({"processes": 4, "timeout_s": 30.0}, Replicated, None),
    ],
)
def test_the_options_choose_the_executor(options: dict[str, Any], kind: type, cold: str | None) -> None:
    """A limit that only a process can keep to implies one."""
    executor = executor_for(replace(DEFAULTS, **options))

    assert type(executor) is kind
    assert getattr(executor, "cold", None) == cold
    if isinstance(executor, Replicated):
        assert isinstance(executor.first, Isolated) == ("timeout_s" in options)


def test_a_case_that_changes_the_working_folder_changes_it_for_itself(executor: Executor, tmp_path: Path) -> None:
    """Results would be stored there, and further cases would look for their files there."""
    before = Path.cwd()

    executor.run(make_case(lambda x: (os.chdir(tmp_path), x)[1], ("f32[4]",)), QUICK, run_id="run-1", progress=quiet)

    assert Path.cwd() == before


# ---- worker processes -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def isolated() -> Iterator[Isolated]:
    with Pool() as pool:
        yield Isolated(pool=pool)


def test_inputs_that_cannot_travel_give_a_failed_row(isolated: Isolated) -> None:
    """Not an exception: the other cases of the run go on."""
    case = make_case(lambda lock: 1, (threading.Lock(),), name="locked")

    failures = [one.run(case, QUICK, run_id="run-1", progress=quiet).failure for one in (isolated, Launched())]

    assert failures[0] == failures[1]
    assert (failures[0].kind, failures[0].stage) == ("error", "start")
    assert failures[0].message.startswith(
        "case 'locked' cannot be sent to a worker process: TypeError: cannot pickle '_thread.lock' object; "
        "expected a function and inputs that cloudpickle can pickle"
    )
    assert failures[0].advice.startswith("give inputs as specs (f32[8,128]) or as a function that makes them")


def test_a_row_that_is_killed_keeps_what_was_measured_before(isolated: Isolated) -> None:
    endless = jax.jit(lambda x: jax.lax.while_loop(lambda x: (x < 2).all(), lambda x: x * 0.5, x))

    row = isolated.run(make_case(endless, ("f32[8]",)), replace(QUICK, timeout_s=1.0), run_id="run-1", progress=quiet)

    assert (row.failure.kind, row.failure.stage) == ("timeout", "first run")
    assert row.failure.message.startswith("first run took longer than 1.00 s; the process was killed")
    assert (row.signature, row.run_id) == ("f32[8]", "run-1")
    assert row.environment.backend == "cpu"  # told by the worker, before it was killed
    assert row.environment.config["jax_enable_x64"] is False
    assert all((row.stages.trace_s, row.stages.lower_s, row.stages.compile_s))
    assert row.cost is not None
    assert row.memory.predicted_peak_bytes


def test_sampling_may_take_what_its_options_grant_on_top() -> None:
    options = replace(DEFAULTS, timeout_s=2.0, max_time_s=3.0, max_warmup_s=5.0)
    expected = {
        **dict.fromkeys(("trace", "compile", "first run", "verify"), 2.0), "warm-up": 7.0, "wall": 5.0, "loop": 5.0,
        "start": 60.0,
    }  # fmt: skip

    assert {stage: stage_limit(stage, options) for stage in expected} == expected
    assert stage_limit("trace", replace(options, timeout_s=None)) is None


# ---- a run --------------------------------------------------------------------------------------------------------

FILE = """
import os, signal
import benchax, jax

@benchax.benchmark(args=("f32[8]",))
def first(x):
    return x + 1

@benchax.benchmark(args=("f32[8]",))
def hangs_in_python(x):
    while True:
        pass

@benchax.benchmark(args=("f32[8]",))
def hangs_in_xla(x):
    return jax.lax.while_loop(lambda x: x.sum() > -1e30, lambda x: x * 0.5, x)

@benchax.benchmark(args=("f32[8]",))
def crashes(x):
    os.kill(os.getpid(), signal.SIGSEGV)

@benchax.benchmark(args=lambda: (jax.numpy.ones(2**29),))
def takes_too_much(x):
    return x

@benchax.benchmark(args=("f32[8]",))
def last(x):
    return x * 2
"""


@pytest.mark.slow
def test_every_case_has_its_row_whatever_the_others_do(project: Path) -> None:
    words = ("--isolate", "--timeout", "1.5", "--memory-limit", "1GiB")
    short = ("--max-time", "0.02", "--min-time", "0.01", "--no-memory", "--timer", "wall")
    (project / "bench_it.py").write_text(FILE)

    done = warm_python.run([sys.executable, "-m", "benchax.cli.main", "run", *short, *words], cwd=project, timeout=300)

    rows = {row.case.name: row for row in benchax.load(project / ".benchmarks")}

    assert done.returncode == 2
    failures = {name: (row.failure.kind, row.failure.stage) for name, row in rows.items() if row.failure}
    assert failures == {
        "hangs_in_python": ("timeout", "trace"),
        "hangs_in_xla": ("timeout", "first run"),
        "crashes": ("crashed", "trace"),
        "takes_too_much": ("out_of_memory", "inputs"),
    }
    # Where it hangs: at `while`, or in its body.
    assert re.search(r"bench_it\.py:1[12]\)", rows["hangs_in_python"].failure.message)
    assert [rows[name].summary("wall") is not None for name in ("first", "last")] == [True, True]
    assert (rows["last"].options.timeout_s, rows["last"].options.memory_limit_bytes) == (1.5, 2**30)
