"""Several processes write the pages of a large site: the same files as one writes, the same errors, and no process that
is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from site_jobs import end, multiply
from site_stores import CASE, FFT, contents, page_of, row

from benchax.errors import NotAvailable, UsageError
from benchax.reporting.site import publishing
from benchax.reporting.site.publishing import open_workers, publish
from benchax.store.comparisons import CaseActivity
from benchax.store.database import DatabaseStore

# ---- a site -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_write_what_one_writes(
    store: DatabaseStore, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as two:
        two.setattr(publishing, "_choose_processes", lambda activity: 2)
        first = publish(store, site)
        for case in (CASE, FFT):
            store.append(row(4, case))
        second = publish(store, site)

    assert (first.written, second.written) == (4, 2)
    publish(store, tmp_path / "by-one")
    assert contents(site) == contents(tmp_path / "by-one")


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_an_error_and_the_next_time_makes_it_good(
    store: DatabaseStore, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, tmp_path / "fresh")
    taken = site / "cases" / page_of(tmp_path / "fresh", FFT).name
    taken.mkdir(parents=True)

    with monkeypatch.context() as two:
        two.setattr(publishing, "_choose_processes", lambda activity: 2)
        with pytest.raises(UsageError, match=r"cannot write to '.*fft.*\.html': it is a folder\nexpected a file that"):
            publish(store, site)
    assert not (site / "site.json").exists()
    assert not [name for name in contents(site) if name.endswith(".part")]

    taken.rmdir()
    publish(store, site)
    assert contents(site) == contents(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("cases", "rows", "expected"), [(1_000, 0, 1), (1_000, 10, 2), (1_000, 1_000, 8), (100_000, 1, 8), (1, 10**6, 1)]
)
def test_a_process_is_started_where_it_has_enough_to_do(
    cases: int, rows: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "count_cores", lambda: 8)
    activity = CaseActivity(1, "key", CASE, rows, rows, 0, 0)

    assert publishing._choose_processes([activity] * cases) == expected


# ---- processes ----------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_items() -> None:
    with open_workers(3, processes=2) as workers:
        found = list(workers.map(multiply, range(100)))

    assert [result for result, _ in found] == [3 * i for i in range(100)]
    assert os.getpid() not in {pid for _, pid in found}


def test_one_process_is_this_one() -> None:
    with open_workers(3, processes=1) as workers:
        assert list(workers.map(multiply, [5])) == [(15, os.getpid())]


def test_where_no_others_can_be_had_this_one_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(publishing, "ProcessPoolExecutor", refuse)

    with open_workers(3, processes=2) as workers:
        assert list(workers.map(multiply, [5])) == [(15, os.getpid())]


def test_a_process_that_was_ended_is_told_of() -> None:
    expected = (
        r"a process that was writing pages has ended before its time\n\nhint: the system might have run out of mem"
    )
    with pytest.raises(NotAvailable, match=expected), open_workers(1, processes=2) as workers:
        list(workers.map(end, range(4)))


class Waiting:
    """A program whose two processes wait until they may end."""

    def __init__(self) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        program = (
            f"from benchax.reporting.site.publishing import open_workers; from site_jobs import wait_for_the_end\n"
            f"with open_workers({server.getsockname()[1]}, 2) as workers: list(workers.map(wait_for_the_end, range(2)))"
        )
        self.program = subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with server:
            self.lines = [server.accept()[0] for _ in range(2)]
        self.others = [psutil.Process(int(line.recv(100))) for line in self.lines]

    def let_them_end(self) -> None:
        for line in self.lines:
            line.close()

    def left(self) -> list[psutil.Process]:
        return psutil.wait_procs(self.others, timeout=60)[1]


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    started = Waiting()
    yield started
    started.let_them_end()
    started.program.kill()
    started.program.communicate()


def test_processes_end_when_the_first_one_was_killed(waiting: Waiting) -> None:
    waiting.program.kill()

    assert waiting.left() == []


def test_ctrl_c_lets_what_was_begun_end_and_speaks_once(waiting: Waiting) -> None:
    os.killpg(waiting.program.pid, signal.SIGINT)
    waiting.let_them_end()

    said, complaints = waiting.program.communicate()

    assert sorted(said.splitlines()) == ["done 0", "done 1"]
    assert complaints.count("Traceback") == 1
    assert complaints.endswith("KeyboardInterrupt\n")
    assert waiting.left() == []
