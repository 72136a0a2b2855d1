"""What a worker looks at before and after a job: threads, processes, computations, and files of modules."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from benchax import subprocesses
from benchax.workers import worker
from benchax.workers.channel import Channel, Message
from benchax.workers.worker import ImportedModules


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
