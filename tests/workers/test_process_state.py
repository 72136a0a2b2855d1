"""What workers have of the process that asks them, what a pool adds to it, and that this process stays as it is."""

from __future__ import annotations

import ast
import importlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import psutil
import pytest
from source_tree import PACKAGE
from workers.conftest import ask

from benchax import subprocesses
from benchax.errors import NotAvailable
from benchax.workers import worker
from benchax.workers.channel import Channel, Message
from benchax.workers.pool import Pool
from benchax.workers.worker import ImportedModules

X64 = "jax_enable_x64"


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"warm": False, "reuse": False}])
def test_what_a_pool_adds_reaches_its_workers_and_not_this_process_while_they_work(how: dict[str, Any]) -> None:
    here: list[tuple[Any, Any]] = []

    def look(say: Any) -> Any:
        say("run")
        return {"variable": os.environ.get("SOME_SETTING"), "dtype": str(jnp.zeros(1).dtype)}, ()

    with Pool(environ={"SOME_SETTING": "there"}, jax_config={X64: True}, **how) as pool:
        ended = ask(pool, look, lambda message: here.append((os.environ.get("SOME_SETTING"), jax.config.values[X64])))

    assert ended.document == {"variable": "there", "dtype": "float64"}
    assert here == [(None, False)]


@pytest.mark.slow
def test_flags_that_hold_from_the_start_of_a_process_are_those_of_the_pool() -> None:
    before = os.environ.get("XLA_FLAGS")

    with Pool(warm=False, reuse=False, jax_config={"jax_num_cpu_devices": 3}) as three:
        ended = ask(three, lambda say: ({"devices": jax.device_count(), "flags": os.environ.get("XLA_FLAGS")}, ()))

    assert ended.document == {"devices": 3, "flags": before}


def test_a_setting_that_this_jax_lacks_is_refused() -> None:
    """Workers pass over it, and a measurement would take that for the usual value."""
    with pytest.raises(NotAvailable, match=r"because this JAX has no setting jax_enable_x46$"):
        Pool(jax_config={"jax_enable_x46": True})


def test_a_value_that_jax_refuses_is_a_failure_in_its_words() -> None:
    with Pool(warm=False, jax_config={"jax_default_matmul_precision": "sharp"}) as pool:
        failure = ask(pool, lambda say: ({}, ())).failure

    assert (failure.kind, failure.stage) == ("error", "start")
    assert "sharp" in failure.message


# ---- the rule ---------------------------------------------------------------------------------------------------

CHANGES_ITS_OWN_PROCESS = {
    "cli/main.py": "of a command, before JAX is there: it shares an accelerator with workers of its own",
    "clusters/ray_agents.py": "in the agent, where Ray has set a number of threads, and before Ray reads its settings",
    "workers/worker.py": "in the worker",
    "measuring/jax_settings.py": "in the worker, or while this process lowers or compiles what it measures",
}


def _changes(file: Path) -> list[str]:
    """Statements that set a variable of the environment or a setting of JAX."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        changed = [t.value for t in targets if isinstance(t, ast.Subscript)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            changed.append(node.func.value)
        found += [text for each in changed if (text := ast.unparse(each)) in ("os.environ", "jax.config")]
    return found


CHANGING = {"update", "pop", "clear", "setdefault"}


@pytest.mark.slow
def test_nobody_changes_this_process_to_reach_another_one() -> None:
    """A new file in this list needs a reason that is about its own process: workers are reached by `Pool(environ=)`."""
    changing = {file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py") if _changes(file)}

    assert changing == CHANGES_ITS_OWN_PROCESS.keys()


# ---- what a worker looks at before and after a job: threads, processes, computations, and files of modules ----------


class Clocks:
    wall = 10.0
    processor = 5.0


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(worker, "perf_counter", lambda: clocks.wall)
    monkeypatch.setattr(worker, "process_time", lambda: clocks.processor)
    return clocks


def test_who_computes_between_two_jobs_is_not_idle(clocks: Clocks) -> None:
    """Over a moment nothing can be told."""
    found = []
    for waited_s, computed_s in ((1.0, 0.01), (1.0, 0.9), (0.01, 0.01)):
        clocks.wall, clocks.processor = 10.0 + waited_s, 5.0 + computed_s
        found.append(worker.find_computation(10.0, 5.0))

    assert found == ["", "a computation that an earlier job left", ""]


def test_to_read_a_job_with_large_arrays_is_no_work_that_was_left(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowToRead(Channel):
        jobs = 2

        def receive(self, timeout_s: float | None = None) -> Message | None:
            clocks.wall += 0.1
            clocks.processor += 0.1
            self.jobs -= 1
            return Message({"job": self.jobs, "state": {"environ": {}}}) if self.jobs >= 0 else None

    ours, theirs = socket.socketpair()
    ran: list[int] = []
    monkeypatch.setattr(worker.Running, "run", lambda self, message: ran.append(self.number))
    monkeypatch.setattr(worker, "threadpool_limits", lambda count, user_api: None)
    with ours, theirs:
        theirs.send(b"something to read")
        worker.serve(SlowToRead(ours))

    assert ran == [1, 0]


@pytest.mark.parametrize(
    ("looks", "is_computing"),
    [
        ([set()], False),
        ([{7}] * 25, True),
        ([{7}, {8}] * 12 + [{7}], True),  # from thread to thread
        ([{7}, {7}, set(), {7}, {7}, {7}, {7}, {7}, {8}, {8}, *[{7}] * 15], False),
        ([{7}] * 10 + [set()] + [{7}] * 14, True),
        ([{7}] * 3 + [set()] * 5, False),
    ],
)
def test_threads_that_run_on_are_told_from_those_that_end(
    looks: list[set[int]], is_computing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter(looks)
    monkeypatch.setattr(subprocesses, "running_threads", lambda: next(seen))
    monkeypatch.setattr(worker, "sleep", lambda s: None)

    assert worker._is_computing(looks=25) == is_computing


def test_a_process_with_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their locks would be held for ever in the fork."""
    monkeypatch.setattr(psutil.Process, "num_threads", lambda self: 2)

    assert not worker._can_fork()


# ---- files of modules ------------------------------------------------------------------------------------------------


@pytest.fixture
def module(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(project)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    file = project / "imported_by_a_job.py"
    file.write_text("value = 1")
    return file


@pytest.mark.parametrize("change", [lambda file: os.utime(file, ns=(1, 1)), Path.unlink])
def test_an_edited_or_removed_file_is_named(change, module: Path) -> None:
    imported = ImportedModules()
    importlib.import_module(module.stem)
    later = ImportedModules()  # what is there at its start does not count
    for each in (imported, later):
        each.note_new()
    assert imported.find_changed() == ""

    change(module)

    assert (imported.find_changed(), later.find_changed()) == (str(module), "")
