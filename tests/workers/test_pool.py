"""Workers: warm, used again as long as there is no doubt, and in step with the program that sends them work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
import pytest
from workers import entries
from workers.conftest import answer, ask, strays, within

from benchax.model import Failure
from benchax.workers import conversation
from benchax.workers import pool as pools
from benchax.workers.pool import Pool, shared_pool

Say = Callable[..., None]


def told(pool: Pool, look: Callable[[], Any]) -> Any:
    """What `look` returns in a worker."""
    ended = ask(pool, lambda say: ({"answer": look()}, ()))
    return ended.document["answer"]


def pid_of(pool: Pool) -> int:
    return told(pool, os.getpid)


def forever(say: Say) -> Any:
    say("run")
    while True:
        pass


# ---- workers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cold() -> Iterator[Pool]:
    """Its workers do one job, and have not warmed up."""
    with Pool(warm=False, reuse=False) as one:
        yield one


@pytest.mark.slow
@pytest.mark.parametrize("warm", [True, False])
def test_workers_are_born_with_the_modules_that_are_preloaded(warm: bool, pool: Pool, cold: Pool) -> None:
    """Modules that nothing else imports; one that does not exist is left to the job that needs it."""
    names, usual = ("wave", "no_such_module"), pool if warm else cold
    with Pool(warm=warm, preload=names) as other:
        found, without = (
            told(each, lambda: [name for name in names if name in sys.modules]) for each in (other, usual)
        )

    assert found == ["wave"]
    assert without == []


def test_a_worker_is_started_when_it_is_needed_and_used_again_until_it_is_renewed(pool: Pool) -> None:
    before = psutil.Process().children()
    with Pool():
        assert psutil.Process().children() == before
    first, again = pid_of(pool), pid_of(pool)
    pool.renew()

    assert first == again != pid_of(pool)


def test_without_reuse_each_job_has_a_process_of_its_own(cold: Pool) -> None:
    assert len({pid_of(cold) for _ in range(3)}) == 3
    assert strays(cold) == []


def test_a_cold_worker_has_not_started_a_backend(cold: Pool, pool: Pool) -> None:
    def backends() -> bool:
        from jax._src import xla_bridge  # noqa: TID251 - the one question that JAX does not answer

        return bool(xla_bridge._backends)

    assert (told(cold, backends), told(pool, backends)) == (False, True)


def test_preparing_makes_a_standby_that_takes_over(pool: Pool) -> None:
    pool.prepare()
    first, standby = (worker.pid for worker in pool._ready)

    assert pid_of(pool) == first
    ask(pool, lambda say: os._exit(1))

    assert pid_of(pool) == standby
    assert len(pool._ready) == 1  # nothing is started beside a job
    pool.prepare()
    assert len(pool._ready) == 2


def test_a_worker_that_dies_while_it_waits_is_replaced(pool: Pool) -> None:
    first = pid_of(pool)
    os.kill(first, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(first)] if psutil.pid_exists(first) else [], timeout=10)

    assert pid_of(pool) != first
    assert strays(pool) == []


def test_when_the_zygote_is_killed_that_is_told_and_the_next_job_gets_a_new_one(pool: Pool) -> None:
    pool.prepare()

    def kill(*_: Any) -> None:
        os.kill(pool._keeper.process.pid, signal.SIGKILL)
        pool._keeper.process.wait()

    below = psutil.Process(pool._keeper.process.pid).children()
    kill()

    assert pid_of(pool) not in {worker.pid for worker in below}
    assert psutil.wait_procs(below, timeout=10)[1] == []
    failure = ask(pool, forever, kill).failure
    assert failure.message == "the process that keeps the workers was killed in run"
    assert ask(pool, answer).document == {"n": 3}


@pytest.mark.slow
def test_workers_that_are_not_forked_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where there is no fork, or where it is refused: too many processes, say."""
    refuse = "import os\ndef refuse(): raise BlockingIOError\nos.fork = refuse\n"
    monkeypatch.setattr(conversation, "ZYGOTE_BOOT", refuse + conversation.ZYGOTE_BOOT)
    with Pool() as one:
        pid = pid_of(one)
        assert told(one, lambda: psutil.Process().cmdline()) != psutil.Process(one._keeper.process.pid).cmdline()
        failure = ask(one, lambda say: os._exit(7)).failure
        assert failure.message == "the process ended with exit code 7 in start, without an answer"
        assert pid_of(one) != pid
        assert strays(one) == []


def test_a_flag_that_xla_refuses_and_an_interpreter_that_does_not_start_are_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The flag aborts any process that starts a backend: here only a worker."""
    with monkeypatch.context() as patch, Pool() as one:
        patch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
        flag = ask(one, answer).failure
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Pool() as one:
        failure = ask(one, answer).failure

    assert (flag.kind, flag.stage) == ("crashed", "start")
    assert flag.message.startswith("a worker process could not do its first computation: the process ")
    assert "--xla_no_such_flag=1" in flag.message
    assert failure.message == "no worker process could be started: it ended with exit code 1"


# ---- what travels -----------------------------------------------------------------------------------------------


def test_the_program_sees_every_announcement_in_order(pool: Pool) -> None:
    def work(say: Say) -> Any:
        say("trace")
        say("run", share=0.5)
        say("run", share=1.0, again=True)
        return {}, ()

    messages: list[dict[str, Any]] = []

    ask(pool, work, messages.append)

    assert messages == [
        {"stage": "trace"},
        {"stage": "run", "share": 0.5},
        {"stage": "run", "share": 1.0, "again": True},
    ]


def test_the_worker_of_a_call_can_be_chosen_and_stays(pool: Pool) -> None:
    process = lambda say: ({"pid": os.getpid()}, ())  # noqa: E731
    first, second, again = (pool.call(entries.call, process, worker=i)[0]["pid"] for i in (0, 1, 1))

    assert first != second
    assert second == again


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("no.such_module", "No module named 'no'"),
        ("os", "module 'os' has no attribute 'work'"),
    ],
)
def test_a_task_that_a_worker_does_not_find_is_a_failure(module: str, message: str, pool: Pool) -> None:
    def work(argument: None, say: Say) -> None: ...

    work.__qualname__, work.__module__ = "work", module

    failure = pool.call(work, None)

    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == ("error", "start")
    assert message in failure.message


# ---- limits -----------------------------------------------------------------------------------------------------


def test_a_stage_has_its_time_again_only_when_it_says_so(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that every announcement moves on by 10 ms."""
    announced: list[dict[str, Any]] = []
    monkeypatch.setattr(conversation, "perf_counter", lambda: 0.01 * len(announced))

    def begins_again(say: Say) -> Any:
        for _ in range(10_000):  # more than arrive at once: limits are looked at in between
            say("run", again=True)
        return {}, ()

    def goes_on(say: Say) -> Any:
        for _ in range(200_000):
            say("run")
        return {}, ()

    assert ask(pool, begins_again, announced.append, limits=within(run=1.0)).failure is None
    assert len(announced) == 10_000
    failure = ask(pool, goes_on, announced.append, limits=within(run=1.0)).failure
    assert (failure.kind, failure.stage) == ("timeout", "run")


# ---- in step with the program -----------------------------------------------------------------------------------


def test_the_state_of_the_program_holds_in_the_worker_and_what_a_job_changes_is_set_back(
    pool: Pool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SETTING", "here")
    monkeypatch.setattr(sys, "path", [*sys.path, str(project / "lib")])
    monkeypatch.setattr(sys, "argv", ["program", "--flag"])
    (project / "lib").mkdir()
    (project / "lib" / "mine.py").write_text("value = 5")

    def look() -> Any:
        import mine  # type: ignore[import-not-found]

        blas = os.environ.get("OPENBLAS_NUM_THREADS")
        x64 = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        return [os.environ.get("SOME_SETTING"), blas, str(Path.cwd()), sys.path, mine.value, sys.argv, x64, os.getpid()]

    def spoil() -> Any:
        os.environ["SOME_SETTING"] = "spoilt"
        os.chdir("/")
        sys.path.clear()
        jax.config.update("jax_enable_x64", True)
        return os.getpid()

    pid = told(pool, spoil)

    blas = os.environ.get("OPENBLAS_NUM_THREADS")
    assert told(pool, look) == ["here", blas, str(project), sys.path, 5, ["program", "--flag"], False, pid]


@pytest.mark.slow
def test_flags_that_are_read_at_the_start_bring_new_workers(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that only a new interpreter reads: the C library reads its own, and a fork does not start."""
    here, before = jax.device_count(), told(pool, jax.device_count)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")

    assert (before, told(pool, jax.device_count)) == (here, 3)
    keepers = [pool._keeper]
    monkeypatch.setenv("MALLOC_ARENA_MAX", "3")
    for _ in range(2):
        pid_of(pool)
        keepers.append(pool._keeper)
    assert keepers[0] is not keepers[1] is keepers[2]


@pytest.mark.slow
def test_code_that_was_edited_is_run_as_it_is_now(pool: Pool, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(project)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def look() -> Any:
        import edited  # type: ignore[import-not-found]

        return edited.value

    file = project / "edited.py"
    file.write_text("value = 1")
    found = [told(pool, look)]
    file.write_text("value = 22")
    found.append(told(pool, look))

    assert found == [1, 22]


def blas_threads() -> Any:
    from threadpoolctl import threadpool_info

    return {each["filepath"]: each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_linear_algebra_uses_as_many_threads_as_here(pool: Pool) -> None:
    np.linalg.inv(np.eye(2))
    assert told(pool, blas_threads).items() <= blas_threads().items()


def test_linear_algebra_uses_as_many_threads_as_a_variable_says() -> None:
    with Pool(environ={"OMP_NUM_THREADS": "1"}) as pool:
        assert set(told(pool, blas_threads).values()) == {1}


# ---- sharing ----------------------------------------------------------------------------------------------------


def test_a_fork_of_the_program_has_a_pool_of_its_own(pool: Pool) -> None:
    """And leaves that of its parent alone, also when it ends."""
    pid = pid_of(pool)
    mine = shared_pool()
    assert shared_pool() is mine is not shared_pool(warm=False)

    with warnings.catch_warnings(action="ignore"):  # JAX's, of forks
        child = os.fork()
    if child == 0:
        is_new = shared_pool() is not mine and pool._keeper is None
        pools._close_all()
        os._exit(0 if is_new else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert pid_of(pool) == pid


def test_threads_take_turns(pool: Pool) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: ask(pool, answer).document, range(4)))

    assert found == [{"n": 3}] * 4


def test_closing_ends_a_job_that_another_thread_runs() -> None:
    is_running, found = threading.Event(), []
    pool = Pool()
    thread = threading.Thread(
        target=lambda: found.append(ask(pool, forever, lambda m: is_running.set(), limits=lambda stage: None))
    )
    thread.start()
    assert is_running.wait(60)

    pool.close()
    thread.join(30)

    assert found[0].failure is not None
    assert pool._keeper is None
