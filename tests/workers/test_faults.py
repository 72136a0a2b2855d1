"""Each way in which a function can spoil a run, with a real process: it ends in time, says what happened, leaves no
process behind, and the next job works."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import pytest
from workers.conftest import Ended, answer, ask, strays, within

from benchax.workers.pool import Pool

Say = Callable[..., None]
LATE_S = 5.0
"""On a machine that is busy; benchmarks/isolation.py measures how late a limit really is."""


def stuck_in_python(say: Say) -> Any:
    say("run")
    while True:
        pass


def stuck_while_tracing(say: Say) -> Any:
    import time

    import jax

    def forever(x: Any) -> Any:
        while True:
            time.sleep(0.01)

    say("trace")
    jax.jit(forever).trace(1.0)


def compiles_too_long(say: Say) -> Any:
    import jax

    def long(x: Any) -> Any:
        for i in range(4000):
            x = jax.numpy.sin(x) @ x + i
        return x

    say("trace")
    lowered = jax.jit(long).lower(jax.ShapeDtypeStruct((3, 3), "float32"))
    say("compile")
    lowered.compile()


def never_leaves_a_loop(say: Say) -> Any:
    import jax

    say("run")
    jax.block_until_ready(jax.jit(lambda x: jax.lax.while_loop(lambda x: x < 1, lambda x: x * 0.5, x))(0.5))


def one_giant_operation(say: Say) -> Any:
    import jax.numpy as jnp

    x = jnp.ones((6000, 6000))
    say("run")
    (x @ x @ x @ x @ x).block_until_ready()


def ignores_sigterm(say: Say) -> Any:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stuck_in_python(say)


def prints_without_end(say: Say) -> Any:
    say("run")
    while True:
        sys.stdout.write("and again " * 1000 + "\n")


def announces_without_end(say: Say) -> Any:
    while True:
        say("run")


def crashes_while_tracing(say: Say) -> Any:
    import jax

    say("trace")
    jax.jit(lambda x: os.kill(os.getpid(), signal.SIGSEGV)).trace(1.0)


def crashes_in_a_callback(say: Say) -> Any:
    import ctypes

    import jax

    call = jax.jit(lambda x: jax.pure_callback(lambda x: ctypes.string_at(0), x, x))
    say("run")
    jax.block_until_ready(call(1.0))


def exits_at_once(say: Say) -> Any:
    say("run")
    os._exit(3)


def exits(say: Say) -> Any:
    say("run")
    sys.exit(4)


def interrupts_itself(say: Say) -> Any:
    say("run")
    raise KeyboardInterrupt


def raises(say: Say) -> Any:
    say("run")
    raise ValueError("it is broken")


def raises_at_length(say: Say) -> Any:
    say("run")
    raise ValueError("y" * 50_000_000)


def raises_what_has_no_text(say: Say) -> Any:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    say("run")
    raise Mute


def allocates_in_numpy(say: Say) -> Any:
    import numpy as np

    say("run")
    np.ones(2**37)


def allocates_in_jax(say: Say) -> Any:
    import jax.numpy as jnp

    say("run")
    jnp.ones((2**19, 2**19)).block_until_ready()


def closes_all_descriptors(say: Say) -> Any:
    say("run")
    os.closerange(3, 4096)
    stuck_in_python(lambda stage: None)


def writes_to_all_descriptors(say: Say) -> Any:
    say("run")
    for fd in range(3, 100):
        with contextlib.suppress(OSError):
            os.write(fd, b"x" * 100)
    stuck_in_python(lambda stage: None)


def answers_with_an_object(say: Say) -> Any:
    say("run")
    return {"answer": object()}, ()


def answers_enormously(say: Say) -> Any:
    import numpy as np

    say("run")
    return {}, (np.broadcast_to(np.float64(0), (2**37,)),)


FAULTS: list[tuple[Callable[[Say], Any], dict[str, float], str, str, str]] = [
    (stuck_in_python, {"run": 0.2}, "timeout", "run", "run took longer than 200 ms; the process was killed"),
    (stuck_while_tracing, {"trace": 0.2}, "timeout", "trace", "trace took longer than 200 ms; the process was killed"),
    (compiles_too_long, {"compile": 0.5}, "timeout", "compile", "compile took longer than 500 ms"),
    (never_leaves_a_loop, {"run": 0.5}, "timeout", "run", "run took longer than 500 ms"),
    (one_giant_operation, {"run": 0.3}, "timeout", "run", "run took longer than 300 ms"),
    (ignores_sigterm, {"run": 0.2}, "timeout", "run", "run took longer than 200 ms"),
    (prints_without_end, {"run": 0.5}, "timeout", "run", "run took longer than 500 ms"),
    (announces_without_end, {"run": 0.5}, "timeout", "run", "run took longer than 500 ms"),
    (crashes_while_tracing, {}, "crashed", "trace", "the process was killed by SIGSEGV in trace"),
    (crashes_in_a_callback, {}, "crashed", "run", "the process was killed by SIGSEGV in run"),
    (exits_at_once, {}, "crashed", "run", "the process ended with exit code 3 in run, without an answer"),
    (exits, {}, "error", "run", "SystemExit: 4"),
    (interrupts_itself, {}, "error", "run", "KeyboardInterrupt"),
    (raises, {}, "error", "run", "ValueError: it is broken"),
    (raises_at_length, {}, "error", "run", "[50,000,012 characters in all]"),
    (raises_what_has_no_text, {}, "error", "run", "Mute, which cannot be shown as text"),
    (allocates_in_numpy, {}, "out_of_memory", "run", "Unable to allocate 1.00 TiB"),
    (allocates_in_jax, {}, "out_of_memory", "run", "RESOURCE_EXHAUSTED"),
    (closes_all_descriptors, {}, "crashed", "run", "the function closed the connection of its process in run"),
    (writes_to_all_descriptors, {}, "crashed", "run", "the function wrote to the connection of its process in run"),
    (answers_with_an_object, {}, "error", "run", "Object of type object is not JSON serializable"),
    (answers_enormously, {}, "out_of_memory", "run", "1.00 TiB"),
]


def check_that_the_next_job_works(pool: Pool) -> None:
    ended = ask(pool, answer)

    assert (ended.document, ended.failure) == ({"n": 3}, None)
    assert ended.arrays[0].tolist() == [0, 2, 4]
    assert strays(pool) == []


@pytest.mark.parametrize(("fault", "limits", "kind", "stage", "message"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_a_fault_costs_one_job(
    fault: Callable[[Say], Any], limits: dict[str, float], kind: str, stage: str, message: str, pool: Pool
) -> None:
    pool.prepare()
    begun = perf_counter()

    ended = ask(pool, by_value(fault), limits=within(**limits))

    elapsed_s = perf_counter() - begun
    assert ended.failure is not None
    assert ended.document is None
    assert (ended.failure.kind, ended.failure.stage) == (kind, stage)
    assert message in ended.failure.message
    assert elapsed_s < sum(limits.values()) + 10 + LATE_S
    check_that_the_next_job_works(pool)


def by_value(function: Callable[[Say], Any]) -> Callable[[Say], Any]:
    """A function that cloudpickle sends with all that it is made of."""
    import cloudpickle

    module = sys.modules[function.__module__]
    cloudpickle.register_pickle_by_value(module)
    return function


# ---- what is left behind ----------------------------------------------------------------------------------------


def leaves_a_child_of_its_own_session(say: Say) -> Any:
    import time

    say("run")
    pid = os.fork()
    if pid == 0:
        os.setsid()
        while True:
            time.sleep(10)
    return {"pid": pid}, ()


def leaves_a_daemon(say: Say) -> Any:
    """Its parent has ended: nobody's child any more."""
    import time

    say("run")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        grandchild = os.fork()
        if grandchild == 0:
            while True:
                time.sleep(10)
        os.write(writing, str(grandchild).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return {"pid": int(os.read(reading, 20))}, ()


def leaves_a_child_and_exits(say: Say) -> Any:
    """The child keeps the connection open."""
    import time

    if os.fork() == 0:
        while True:
            time.sleep(10)
    say("run")
    os._exit(5)


def leaves_a_child_that_answers_too(say: Say) -> Any:
    say("run")
    os.fork()
    return {"pid": os.getpid()}, ()


def leaves_a_computation(say: Say) -> Any:
    """Returns while XLA computes; nobody waits for the result."""
    import jax
    import jax.numpy as jnp

    say("run")
    jax.jit(lambda x: jax.lax.while_loop(lambda x: x.sum() < 1e9, lambda x: x * 0.5, x))(jnp.ones((1000, 100)))
    return {"pid": os.getpid()}, ()


def leaves_a_thread(say: Say) -> Any:
    import threading
    import time

    def spin() -> None:
        while True:
            time.sleep(0.001)

    say("run")
    threading.Thread(target=spin, daemon=True).start()
    return {"pid": os.getpid()}, ()


LEFT = [
    leaves_a_child_of_its_own_session,
    leaves_a_daemon,
    leaves_a_child_that_answers_too,
    leaves_a_thread,
    leaves_a_computation,
]


@pytest.mark.parametrize("fault", LEFT)
def test_what_is_left_behind_is_ended_and_a_worker_that_still_does_something(
    fault: Callable[[Say], Any], pool: Pool
) -> None:
    ended = ask(pool, by_value(fault))

    assert ended.document is not None
    assert not psutil.pid_exists(ended.document["pid"])
    check_that_the_next_job_works(pool)


def test_a_death_is_noticed_although_a_child_keeps_the_connection(pool: Pool) -> None:
    ended = ask(pool, by_value(leaves_a_child_and_exits))

    assert ended.failure is not None
    assert ended.failure.message == "the process ended with exit code 5 in run, without an answer"
    check_that_the_next_job_works(pool)


# ---- memory -----------------------------------------------------------------------------------------------------


def takes_gibibytes(say: Say) -> Any:
    import numpy as np

    say("run")
    np.empty(2**28)  # 2 GiB of addresses, which are limited; to fill them takes seconds
    return {}, ()


def takes_gibibytes_in_jax(say: Say) -> Any:
    import jax.numpy as jnp

    say("run")
    jnp.ones(2**29).block_until_ready()  # 2 GiB
    return {}, ()


def takes_mebibytes(say: Say) -> Any:
    import numpy as np

    say("run")
    np.ones(2**23)
    return {}, ()


@pytest.mark.parametrize("fault", [takes_gibibytes, takes_gibibytes_in_jax])
def test_more_memory_than_permitted_is_refused(fault: Callable[[Say], Any], pool: Pool) -> None:
    ended = ask(pool, by_value(fault), memory_limit_bytes=2**30)

    assert ended.failure is not None
    assert (ended.failure.kind, ended.failure.stage) == ("out_of_memory", "run")
    check_that_the_next_job_works(pool)


@pytest.mark.slow
def test_as_much_memory_as_permitted_is_given(pool: Pool) -> None:
    assert ask(pool, by_value(takes_mebibytes), memory_limit_bytes=2**30).failure is None
    assert ask(pool, by_value(takes_gibibytes)).failure is None  # the limit was of that job alone


# ---- output -----------------------------------------------------------------------------------------------------


def prints(say: Say) -> Any:
    import ctypes

    say("run")
    sys.stdout.write("from Python\n")
    os.write(1, b"from C\n")
    ctypes.CDLL(None).puts(b"from the C library")
    sys.stderr.write("to stderr\n")
    return {}, ()


def test_what_a_job_prints_goes_to_stderr(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    ask(pool, by_value(prints))

    captured = capsys.readouterr()
    assert captured.out == ""
    assert set(captured.err.splitlines()) == {"from Python", "from C", "from the C library", "to stderr"}


def says_why_and_dies(say: Say) -> Any:
    say("run")
    sys.stdout.write("x" * 10_000 + "\nthe reason\n")
    os.abort()


def test_a_crash_keeps_the_last_output(pool: Pool) -> None:
    failure = ask(pool, by_value(says_why_and_dies)).failure

    assert failure is not None
    assert failure.message.startswith(f"the process was killed by SIGABRT in run (at {__file__}:")
    assert "line" in failure.traceback.splitlines()[1]
    assert "in says_why_and_dies" in failure.traceback.splitlines()[1]
    assert failure.traceback.endswith("xxx\nthe reason")
    assert len(failure.traceback) < 4000


def reads(say: Say) -> Any:
    say("run")
    return {"read": sys.stdin.read()}, ()


def test_a_job_that_asks_for_input_gets_none(pool: Pool) -> None:
    assert ask(pool, by_value(reads)).document == {"read": ""}


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
    import subprocess

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
        assert program.stdout is not None
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
def test_an_interrupt_leaves_no_process_and_the_pool_works_again() -> None:
    def interrupt(message: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    before = set(psutil.Process().children(recursive=True))  # of the pool that the other tests share
    with Pool() as pool:
        with pytest.raises(KeyboardInterrupt):
            ask(pool, by_value(stuck_in_python), interrupt)

        assert pool._keeper is None
        assert set(psutil.Process().children(recursive=True)) <= before
        check_that_the_next_job_works(pool)


@pytest.mark.slow
def test_two_pools_at_once_do_not_know_each_other(pool: Pool) -> None:
    import threading

    found: dict[str, Ended] = {}

    with Pool() as other:
        other.prepare()
        thread = threading.Thread(target=lambda: found.update(slow=ask(pool, by_value(stuck_in_python), total_s=1.0)))
        thread.start()
        found["quick"] = ask(other, answer)
        thread.join()

    assert found["quick"].document == {"n": 3}
    assert found["slow"].failure is not None
    assert found["slow"].failure.message.startswith("the job as a whole took longer than 1.00 s; the process was kill")
    check_that_the_next_job_works(pool)
