"""Each way in which a function can spoil a run, with a real process: it ends in time, says what happened, leaves no
process behind, and the next job works."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from workers.conftest import Ended, answer, ask, strays, within

from benchax.workers.pool import Pool

Say = Callable[..., None]
LATE_S = 15.0
"""On a machine that is busy; benchmarks/isolation.py measures how late a limit really is."""


def running(function: Callable[[], Any]) -> Callable[[Say], Any]:
    """Does it in the stage "run", in a worker that gets all of it by value."""

    def fault(say: Say) -> Any:
        say("run")
        return function()

    return by_value(fault)


def by_value(function: Callable[[Say], Any]) -> Callable[[Say], Any]:
    """A function that cloudpickle sends with all that it is made of."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return function


def loop_for_ever() -> None:
    while True:
        pass


def compile_for_long(say: Say) -> None:
    def long(x: Any) -> Any:
        for i in range(4000):
            x = jnp.sin(x) @ x + i
        return x

    say("trace")
    lowered = jax.jit(long).lower(jax.ShapeDtypeStruct((3, 3), "float32"))
    say("compile")
    lowered.compile()


def never_leave_a_loop_of_xla() -> None:
    jax.block_until_ready(jax.jit(lambda x: jax.lax.while_loop(lambda x: x < 1, lambda x: x * 0.5, x))(0.5))


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    loop_for_ever()


def print_without_end() -> None:
    while True:
        sys.stdout.write("and again " * 1000 + "\n")


def announce_without_end(say: Say) -> None:
    while True:
        say("run")


def crash_while_tracing(say: Say) -> None:
    say("trace")
    jax.jit(lambda x: os.kill(os.getpid(), signal.SIGSEGV)).trace(1.0)


def crash_in_a_callback() -> None:
    jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(lambda x: ctypes.string_at(0), x, x))(1.0))


def raise_error(error: BaseException) -> None:
    raise error


def raise_what_has_no_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Mute


def close_all_descriptors() -> None:
    os.closerange(3, 4096)
    loop_for_ever()


def write_to_all_descriptors() -> None:
    for fd in range(3, 100):
        with contextlib.suppress(OSError):
            os.write(fd, b"x" * 100)
    loop_for_ever()


LATE = "run took longer than"
FAULTS: dict[str, tuple[Callable[[Say], Any], dict[str, float], str, str, str]] = {
    "stuck in Python": (running(loop_for_ever), {"run": 0.2}, "timeout", "run", f"{LATE} 200 ms; the process was kill"),
    "long to compile": (compile_for_long, {"compile": 0.5}, "timeout", "compile", "compile took longer than 500 ms"),
    "a loop of XLA": (running(never_leave_a_loop_of_xla), {"run": 0.5}, "timeout", "run", f"{LATE} 500 ms"),
    "no SIGTERM": (running(ignore_sigterm), {"run": 0.2}, "timeout", "run", f"{LATE} 200 ms"),
    "prints without end": (running(print_without_end), {"run": 0.5}, "timeout", "run", f"{LATE} 500 ms"),
    "announces without end": (announce_without_end, {"run": 0.5}, "timeout", "run", f"{LATE} 500 ms"),
    "crash": (crash_while_tracing, {}, "crashed", "trace", "the process was killed by SIGSEGV in trace"),
    "crash in a callback": (running(crash_in_a_callback), {}, "crashed", "run", "was killed by SIGSEGV in run"),
    "_exit": (running(lambda: os._exit(3)), {}, "crashed", "run", "ended with exit code 3 in run, without an answer"),
    "exit": (running(lambda: sys.exit(4)), {}, "error", "run", "SystemExit: 4"),
    "interrupt": (running(lambda: raise_error(KeyboardInterrupt())), {}, "error", "run", "KeyboardInterrupt"),
    "a long error": (
        running(lambda: raise_error(ValueError("y" * 50_000_000))), {}, "error", "run", "[50,000,012 characters in",
    ),
    "an error without text": (running(raise_what_has_no_text), {}, "error", "run", "Mute: <exception str() failed>"),
    "no memory, NumPy": (running(lambda: np.ones(2**37)), {}, "out_of_memory", "run", "Unable to allocate 1.00 TiB"),
    "no memory, JAX": (running(lambda: jnp.ones((2**19, 2**19))), {}, "out_of_memory", "run", "RESOURCE_EXHAUSTED"),
    "closes descriptors": (
        running(close_all_descriptors), {}, "crashed", "run", "the function closed the connection of its process",
    ),
    "writes to descriptors": (
        running(write_to_all_descriptors), {}, "crashed", "run", "the function wrote to the connection of its process",
    ),
    "answers with an object": (
        running(lambda: ({"answer": object()}, ())), {}, "error", "run", "type object is not JSON serializable",
    ),
    "answers enormously": (
        running(lambda: ({}, (np.broadcast_to(np.float64(0), (2**37,)),))), {}, "out_of_memory", "run", "1.00 TiB",
    ),
}  # fmt: skip


def check_that_the_next_job_works(pool: Pool) -> None:
    ended = ask(pool, answer)

    assert (ended.document, ended.failure) == ({"n": 3}, None)
    assert ended.arrays[0].tolist() == [0, 2, 4]
    assert strays(pool) == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_one_job(name: str, pool: Pool) -> None:
    fault, limits, kind, stage, message = FAULTS[name]
    pool.prepare()
    begun = time.perf_counter()

    ended = ask(pool, by_value(fault), limits=within(**limits))

    elapsed_s = time.perf_counter() - begun
    assert ended.document is None
    assert (ended.failure.kind, ended.failure.stage) == (kind, stage)
    assert message in ended.failure.message
    assert elapsed_s < sum(limits.values()) + LATE_S
    check_that_the_next_job_works(pool)


# ---- what is left behind ----------------------------------------------------------------------------------------


def sleep_for_ever() -> None:
    while True:
        time.sleep(10)


def leave_a_child_of_its_own_session() -> Any:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        sleep_for_ever()
    return {"pid": pid}, ()


def leave_a_daemon() -> Any:
    """Its parent has ended: nobody's child any more."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        grandchild = os.fork()
        if grandchild == 0:
            sleep_for_ever()
        os.write(writing, str(grandchild).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return {"pid": int(os.read(reading, 20))}, ()


def leave_a_child_that_answers_too() -> Any:
    os.fork()
    return {"pid": os.getpid()}, ()


def leave_a_computation() -> Any:
    """Returns while XLA computes; nobody waits for the result."""
    jax.jit(lambda x: jax.lax.while_loop(lambda x: x.sum() < 1e9, lambda x: x * 0.5, x))(jnp.ones((1000, 100)))
    return {"pid": os.getpid()}, ()


def leave_a_thread() -> Any:
    threading.Thread(target=sleep_for_ever, daemon=True).start()
    return {"pid": os.getpid()}, ()


@pytest.mark.parametrize(
    "leave",
    [
        leave_a_child_of_its_own_session, leave_a_daemon, leave_a_child_that_answers_too, leave_a_thread,
        leave_a_computation,
    ],
)  # fmt: skip
def test_what_is_left_behind_is_ended_and_a_worker_that_still_does_something(
    leave: Callable[[], Any], pool: Pool
) -> None:
    ended = ask(pool, running(leave))

    assert not psutil.pid_exists(ended.document["pid"])
    check_that_the_next_job_works(pool)


def test_a_death_is_noticed_although_a_child_keeps_the_connection(pool: Pool) -> None:
    def leave_a_child_and_exit() -> Any:
        if os.fork() == 0:
            sleep_for_ever()
        os._exit(5)

    failure = ask(pool, running(leave_a_child_and_exit)).failure

    assert failure.message == "the process ended with exit code 5 in run, without an answer"
    check_that_the_next_job_works(pool)


# ---- memory -----------------------------------------------------------------------------------------------------


def take_gibibytes() -> Any:
    np.empty(2**28)  # 2 GiB of addresses, which are limited; to fill them takes seconds
    return {}, ()


@pytest.mark.parametrize("take", [take_gibibytes, lambda: jnp.ones(2**29).block_until_ready()], ids=["NumPy", "JAX"])
def test_more_memory_than_permitted_is_refused(take: Callable[[], Any], pool: Pool) -> None:
    failure = ask(pool, running(take), memory_limit_bytes=2**30).failure

    assert (failure.kind, failure.stage) == ("out_of_memory", "run")
    check_that_the_next_job_works(pool)


@pytest.mark.slow
def test_as_much_memory_as_permitted_is_given(pool: Pool) -> None:
    assert ask(pool, running(lambda: ({"bytes": np.ones(2**23).nbytes}, ())), memory_limit_bytes=2**30).failure is None
    assert ask(pool, running(take_gibibytes)).failure is None  # the limit was of that job alone


# ---- output -----------------------------------------------------------------------------------------------------


def test_what_a_job_prints_goes_to_stderr_and_it_is_given_no_input(
    pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    def print_everywhere() -> Any:
        sys.stdout.write("from Python\n")
        os.write(1, b"from C\n")
        ctypes.CDLL(None).puts(b"from the C library")
        sys.stderr.write("to stderr\n")
        return {"read": sys.stdin.read()}, ()

    assert ask(pool, running(print_everywhere)).document == {"read": ""}

    captured = capsys.readouterr()
    assert captured.out == ""
    assert set(captured.err.splitlines()) == {"from Python", "from C", "from the C library", "to stderr"}


def test_a_crash_keeps_the_last_output(pool: Pool) -> None:
    def say_why_and_die() -> None:
        sys.stdout.write("x" * 10_000 + "\nthe reason\n")
        os.abort()

    failure = ask(pool, running(say_why_and_die)).failure

    assert failure.message.startswith(f"the process was killed by SIGABRT in run (at {__file__}:")
    assert "line" in failure.traceback.splitlines()[1]
    assert "in say_why_and_die" in failure.traceback.splitlines()[1]
    assert failure.traceback.endswith("xxx\nthe reason")
    assert len(failure.traceback) < 4000


# ---- the program that started it all ----------------------------------------------------------------------------

PROGRAM = """
import subprocess, sys
from benchax.workers.pool import Pool
from workers.conftest import ask

def forever(say):
    import os, time
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    say("run")
    time.sleep(1000)

if __name__ == "__main__":
    pool = Pool()
    pool.prepare()
    if "heir" in sys.argv:
        subprocess.Popen(["sleep", "1000"], pass_fds=[pool._keeper.channel.fileno()])
    ask(pool, forever, lambda message: print(message["stage"], flush=True), limits=lambda stage: 600.0)
"""


@pytest.mark.parametrize(
    ("how", "words"),
    [
        pytest.param(signal.SIGINT, [], id="interrupted"),
        pytest.param(signal.SIGTERM, [], id="terminated", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, [], id="killed"),
        pytest.param(signal.SIGKILL, ["heir"], id="killed, with an heir of its connections", marks=pytest.mark.slow),
    ],
)
def test_nothing_outlives_the_program(how: signal.Signals, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    program = subprocess.Popen(
        [sys.executable, "program.py", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with program:
        assert program.stdout.readline() == "run\n"
        below = psutil.Process(program.pid).children(recursive=True)
        heirs = [each for each in below if each.name() == "sleep"]

        program.send_signal(how)
        program.wait(30)

    assert len(below) >= 4  # zygote, worker, standby, what the worker forked
    _, alive = psutil.wait_procs([each for each in below if each not in heirs], timeout=30)
    for heir in heirs:
        heir.kill()
    assert (alive, len(heirs)) == ([], len(words))


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_a_listener_raises_leaves_no_process_and_the_pool_works_again(error: type[BaseException]) -> None:
    def refuse(message: dict[str, Any]) -> None:
        raise error

    before = set(psutil.Process().children(recursive=True))  # of the pool that the other tests share
    with Pool() as pool:
        with pytest.raises(error):
            ask(pool, running(loop_for_ever), refuse)

        assert pool._keeper is None
        assert set(psutil.Process().children(recursive=True)) <= before
        check_that_the_next_job_works(pool)


@pytest.mark.slow
def test_two_pools_at_once_do_not_know_each_other(pool: Pool) -> None:
    found: dict[str, Ended] = {}

    with Pool() as other:
        other.prepare()
        thread = threading.Thread(target=lambda: found.update(slow=ask(pool, running(loop_for_ever), total_s=1.0)))
        thread.start()
        found["quick"] = ask(other, answer)
        thread.join()

    assert found["quick"].document == {"n": 3}
    assert found["slow"].failure.message.startswith("the job as a whole took longer than 1.00 s; the process was kill")
    check_that_the_next_job_works(pool)
