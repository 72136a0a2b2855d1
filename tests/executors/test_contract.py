"""What every executor promises, wherever it runs a case; and what is special about a fresh process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import psutil
import pytest

from benchax.case import Case, make_case
from benchax.executors import executor_for
from benchax.executors.base import Executor
from benchax.executors.fresh import FreshProcess
from benchax.executors.inline import Inline
from benchax.measuring.engine import quiet
from benchax.model import Measurement
from benchax.options import DEFAULTS, resolve

QUICK = resolve(
    {"max_time_s": 0.02, "min_time_s": 0.01, "max_warmup_s": 0.02, "memory": False, "timer": "wall", "store": "off"},
    environ={},
)
EXECUTORS = {"inline": Inline(), "fresh": FreshProcess()}


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
def executor(request: pytest.FixtureRequest) -> Executor:
    return EXECUTORS[request.param]


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


def test_the_row_is_of_the_case_that_was_given(row: Measurement) -> None:
    assert (row.case, row.options, row.run_id) == (talkative().id, QUICK, "run-1")
    assert (row.status, row.signature) == ("ok", "f32[8]")


def test_it_holds_samples_and_stages(row: Measurement) -> None:
    assert [s.timer for s in row.samples] == ["wall"]
    assert None not in (row.stages.trace_s, row.stages.lower_s, row.stages.compile_s, row.stages.first_run_s)


def test_what_the_function_prints_does_not_spoil_the_row(row: Measurement) -> None:
    assert row.numerics is not None
    assert row.numerics.agrees


def test_progress_is_told_in_the_order_of_work(row: Measurement, stages: list[str]) -> None:
    assert row.status == "ok"
    assert list(dict.fromkeys(stages)) == [
        "inputs", "trace", "lower", "compile", "artifacts", "first run", "verify", "transfer", "warm-up", "dispatch",
        "wall", "memory",
    ]  # fmt: skip


def test_settings_of_the_program_hold_wherever_it_runs(row: Measurement) -> None:
    assert row.environment.config["jax_default_matmul_precision"] == "float32"


def test_a_failing_function_gives_a_failed_row(failed: Measurement) -> None:
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.stage) == ("error", "trace")
    assert failed.failure.message.startswith(f"ValueError: it is broken (at {__file__}:")
    assert 'raise ValueError("it is broken")' in failed.failure.traceback
    assert (failed.case, failed.signature) == (failing().id, "f32[8]")


def test_an_interrupt_passes_through_and_leaves_no_process(executor: Executor) -> None:
    def interrupt(stage: str, share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run(failing(), QUICK, run_id="run-1", progress=interrupt)

    assert psutil.Process().children(recursive=True) == []


def test_the_option_chooses_the_executor() -> None:
    assert isinstance(executor_for(replace(DEFAULTS, cold_process=False)), Inline)
    assert isinstance(executor_for(replace(DEFAULTS, cold_process=True)), FreshProcess)


# ---- a fresh process --------------------------------------------------------------------------------------------


def test_only_a_fresh_process_is_cold(row: Measurement, executor: Executor) -> None:
    assert row.stages.cold == ("process" if isinstance(executor, FreshProcess) else "function")


def test_what_the_function_prints_in_a_fresh_process_goes_to_stderr(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # it is to arrive although it was buffered

    FreshProcess().run(talkative(), QUICK, run_id="run-1", progress=quiet)

    captured = capfd.readouterr()
    assert captured.out == ""
    assert "hello from Python" in captured.err
    assert "hello from C" in captured.err


def test_inputs_that_cannot_travel_give_a_failed_row() -> None:
    """Not an exception: the other cases of the run go on."""
    case = make_case(lambda lock: 1, (threading.Lock(),), name="locked")

    failure = FreshProcess().run(case, QUICK, run_id="run-1", progress=quiet).failure

    assert failure is not None
    assert (failure.kind, failure.stage) == ("error", "start")
    assert failure.message == (
        "case 'locked' cannot be sent to a fresh process: TypeError: cannot pickle '_thread.lock' object; "
        "expected a function and inputs that cloudpickle can pickle"
    )
    assert failure.advice == "give inputs as specs (f32[8,128]) or as a function that makes them"


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the child a shell script, which reads its task, says where it is, and ends in a given way."""

    def child(last_words: str) -> None:
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\ncat > {os.devnull}\n{last_words}\n")
        script.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(script))

    return child


IN_COMPILE = """echo '{"stage": "compile", "share": 0.0}'"""


@pytest.mark.parametrize(
    ("last_words", "message", "advice"),
    [
        ("kill -SEGV $$", "the process was killed by SIGSEGV in start", ""),
        (f"{IN_COMPILE}; kill -ABRT $$", "the process was killed by SIGABRT in compile", ""),
        (
            f"{IN_COMPILE}; kill -KILL $$",
            "the process was killed by SIGKILL in compile",
            "The kernel may have run out of memory: see dmesg.",
        ),
        (f"{IN_COMPILE}; exit 3", "the process ended with exit code 3 in compile, without an answer", ""),
        ("exit 0", "the process ended with exit code 0 in start, without an answer", ""),
        (
            f"""{IN_COMPILE}; printf '{{"measurement": {{"case"'; exit 1""",
            "the process ended with exit code 1 in compile, without an answer",
            "",
        ),
    ],
)
def test_a_child_that_dies_becomes_a_row(last_words: str, message: str, advice: str, dying: Any) -> None:
    dying(last_words)

    row = FreshProcess().run(talkative(), QUICK, run_id="run-1", progress=quiet)

    assert row.failure is not None
    assert (row.failure.kind, row.failure.message, row.failure.advice) == ("crashed", message, advice)
    assert (row.case, row.options, row.run_id) == (talkative().id, QUICK, "run-1")


def test_a_child_that_does_not_even_read_its_task_becomes_a_row(dying: Any, tmp_path: Path) -> None:
    dying("")
    (tmp_path / "python").write_text("#!/bin/sh\nexit 7\n")
    case = make_case(lambda x: x, ("x" * 10**6,))  # more than a pipe holds

    row = FreshProcess().run(case, QUICK, run_id="run-1", progress=quiet)

    assert row.failure is not None
    assert row.failure.message == "the process ended with exit code 7 in start, without an answer"


def test_the_signal_that_killed_the_child_is_named() -> None:
    def crash(x: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    failure = FreshProcess().run(make_case(crash, ("f32[8]",)), QUICK, run_id="run-1", progress=quiet).failure

    assert failure is not None
    assert (failure.kind, failure.stage) == ("crashed", "trace")
    assert failure.message == "the process was killed by SIGSEGV in trace"
