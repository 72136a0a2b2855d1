"""A site from a store: what is written, what is left as it is, and what happens where something is wrong."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from functools import partial
from html import unescape
from pathlib import Path

import psutil
import pytest
from comparisons_by_hand import CASE, commit_of, compared, series, stepping
from rendered_documents import Reader
from site_jobs import end, multiply
from site_stores import (
    FFT,
    HOSTILE,
    JAX_060,
    LONG,
    contents,
    failed,
    make_store,
    page_of,
    row,
    script_of,
    times_of,
)

from benchax.errors import BenchaxError, NotAvailable, StoreError, UsageError
from benchax.model import CaseId
from benchax.reporting import html
from benchax.reporting.site import pages as site_pages
from benchax.reporting.site import publishing
from benchax.reporting.site.pages import file_of
from benchax.reporting.site.publishing import map_in_processes, publish
from benchax.store import comparisons
from benchax.store.comparisons import CaseActivity
from benchax.store.database import DatabaseStore, open_store


def text_of(file: Path) -> str:
    return " ".join(
        Reader(file.read_text(encoding="utf-8").replace("<link", "<br").replace("<!doctype html>", "")).texts
    )


# ---- what is written again ----------------------------------------------------------------------------------------


def test_a_second_time_writes_nothing(store: DatabaseStore, site: Path) -> None:
    first = publish(store, site)
    before = times_of(site)

    again = publish(store, site)

    assert (first.written, first.cases, again.written, again.versions_written, again.others) == (4, 4, 0, 0, 0)
    assert times_of(site) == before


def test_a_new_row_changes_the_page_of_its_case_and_the_result_is_as_if_made_at_once(
    store: DatabaseStore, site: Path, tmp_path: Path
) -> None:
    publish(store, site)
    before = times_of(site)
    store.append(row(4, FFT))
    comparisons.append(store, [compared(16, 0.81, case=FFT)])

    done = publish(store, site)

    after = times_of(site)
    changed = {name for name in after if after[name] != before.get(name) and name.startswith("cases/")}
    assert (done.written, done.versions_written, changed) == (1, 2, {f"cases/{page_of(site, FFT).name}"})
    publish(store, tmp_path / "fresh")
    assert contents(site) == contents(tmp_path / "fresh")


def test_another_store_leaves_nothing_of_the_first(store: DatabaseStore, site: Path, tmp_path: Path) -> None:
    publish(store, site)
    other = open_store(tmp_path / "other")
    other.append(row(9, CaseId("elsewhere")))

    publish(other, site)
    publish(other, tmp_path / "fresh")

    assert contents(site) == contents(tmp_path / "fresh")


def stop(store: DatabaseStore, site: Path) -> None:
    """A build that ends early."""
    store.append(row(3, FFT, scale=9.0))
    with pytest.MonkeyPatch.context() as stopped:
        stopped.setattr(publishing, "render_feed", lambda cases, store: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish(store, site)


def change_numbers(store: DatabaseStore, site: Path) -> None:
    (site / "data" / file_of(commit_of(3))).write_text("nonsense")
    store.append(row(4, FFT))


def write_state(text: str, store: DatabaseStore, site: Path) -> None:
    page_of(site, FFT).write_text("nonsense")
    (site / "site.json").write_text(text, encoding="latin-1")


DAMAGES: dict[str, Callable[[DatabaseStore, Path], object]] = {
    "a page was deleted": lambda store, site: page_of(site, FFT).unlink(),
    "a build was stopped": stop,
    "a file of numbers was changed": change_numbers,
} | {f"the state is {text!r}": partial(write_state, text) for text in ("", "{", "[]", '{"store":1}', "\xff")}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_site_that_was_damaged_is_as_if_made_at_once(
    name: str, store: DatabaseStore, site: Path, tmp_path: Path
) -> None:
    publish(store, site)
    DAMAGES[name](store, site)

    assert publish(store, site).written <= 1
    publish(store, tmp_path / "fresh")
    assert contents(site) == contents(tmp_path / "fresh")


# ---- what is said ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that nobody changes."""
    folder = tmp_path_factory.mktemp("published")
    publish(make_store(folder / "store"), folder / "site")
    return folder / "site"


def test_what_changed_is_said_with_how_sure_that_is(published: Path) -> None:
    said = " ".join(text_of(published / "index.html").split())

    assert "3 changes among the newest 30 comparisons" in said
    assert "Among 46 comparisons with noise, expect 0.046 to 0.32 by chance; 2 were found." in said
    slower, faster = said.index("Slower, or more of it"), said.index("Faster, or less of it")
    assert slower < said.index("12 % slower") < faster < said.index("20 % less time")
    assert slower < said.index("2.00 MiB instead of 1.00 MiB") < faster
    assert said.index("First signs") < said.index("% above the median before it")
    assert "p < 0.001" in said
    assert [words(entry, "title") for entry in entries(published)] == [
        f"matmul[n=256]: 12 % slower from {commit_of(12)[:8]} on",
        f"fft: 2.00 MiB instead of 1.00 MiB from {commit_of(2)[:8]} on",
    ]


def test_a_case_has_its_times_commits_and_environments(published: Path) -> None:
    said = text_of(page_of(published, CASE))

    assert all(text in said for text in (commit_of(3)[:8], "jax 0.6.0", "NVIDIA H100", "40.0 µs"))
    assert "run time against v1.2 · 24 comparisons" in said
    assert "not to be compared with one another, and not judged" in said


def test_names_of_strangers_are_text_and_nothing_outside_the_site_is_asked_for_or_told(published: Path) -> None:
    """A site is for everybody, and a URL of a store may hold a password."""
    for name, content in contents(published).items():
        assert name.isascii()
        assert len(name) < 80
        if name.endswith((".html", ".xml")):
            assert b"<img" not in content
            assert b"alert(1)</script>" not in content
        if name.endswith(".html"):
            assert b"default-src 'none'" in content
            assert b"http://" not in content
            assert b"https://" not in content
    hostile = unescape(page_of(published, HOSTILE).read_text())
    assert HOSTILE.name.replace("\ud800", "\\ud800") in hostile
    assert LONG.name in page_of(published, LONG).read_text()
    assert str(published.parent) not in json.dumps(json.loads((published / "site.json").read_text()))


def test_of_histories_too_short_for_a_change_none_is_expected_by_chance(site: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    comparisons.append(store, series([1.0, 1.01, 0.99]))

    publish(store, site)

    said = text_of(site / "index.html")
    assert "A change takes 2 comparisons on either side of it: no case has enough yet" in said
    assert "by chance" not in said


def test_lists_of_many_cases_lead_to_one_another(
    store: DatabaseStore, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_pages, "CASES_ON_A_PAGE", 3)

    publish(store, site)

    first, second = ((site / name).read_text() for name in ("cases.html", "cases-2.html"))
    assert "page 1 of 2: 3 of 4 cases" in first
    assert "page 2 of 2: 1 of 4 cases" in second
    assert "href='cases-2.html'>page 2</a>" in first
    assert "href='cases.html'>page 1</a>" in second


def test_without_comparisons_nothing_is_judged(site: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.append(row(0))
    store.append(row(1, scale=3.0))

    publish(store, site)

    said = text_of(site / "index.html") + text_of(page_of(site, CASE))
    assert "No case was compared with a baseline yet" in said
    assert "nothing was compared with a baseline yet" in said
    assert not {"slower", "faster", "p < 0.001"} & set(said.replace(",", " ").split())


def test_a_store_of_failures_says_so(site: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.append(failed(0))

    publish(store, site)

    assert "Without a time in their newest row" in text_of(site / "index.html")
    assert "not measured: timeout" in text_of(page_of(site, CASE))


def test_a_version_has_the_numbers_of_its_rows(published: Path) -> None:
    store, site = open_store(published.parent / "store"), published
    index = script_of(site / "data" / "index.js")
    numbers = script_of(site / "data" / file_of(commit_of(3)))

    ids = {label: int(id) for id, (label, _) in index["cases"].items()}
    (here,) = [key for key, each in index["environments"].items() if "jax 0.6.0" in each["name"]]
    (expected,) = [
        r for r in store.rows(commit=commit_of(3)) if r.case == CASE and r.fingerprint == JAX_060.fingerprint
    ]
    (entry,) = [entry for entry in numbers["times"][here] if entry[0] == ids["matmul[n=256]"]]
    assert entry[2:] == pytest.approx((expected.median_s, expected.low_s, expected.high_s), rel=1e-5)
    (ratio,) = [entry for listed in numbers["ratios"].values() for entry in listed if entry[0] == ids["matmul[n=256]"]]
    (compared_then,) = [c for c in comparisons.history(store, CASE) if c.candidate.commit == commit_of(3)]
    assert ratio[3:] == pytest.approx((compared_then.ratio, compared_then.low, compared_then.high), rel=1e-5)
    assert ratio[2] == compared_then.verdict


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_where_nothing_is_stored_nothing_is_written(site: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no database at"):
        publish(open_store(tmp_path / "none"), site)

    assert not site.exists()


def test_a_folder_of_somebody_else_is_left_alone(store: DatabaseStore, site: Path) -> None:
    site.mkdir()
    (site / "index.html").write_text("mine")

    with pytest.raises(UsageError, match=r"has an index\.html that benchax did not write\nexpected a new folder"):
        publish(store, site)

    assert contents(site) == {"index.html": b"mine"}


def test_a_file_is_no_folder(store: DatabaseStore, site: Path) -> None:
    site.write_text("mine")

    with pytest.raises(UsageError, match="site is a file\nexpected a folder"):
        publish(store, site)


def test_a_full_disk_leaves_whole_files_and_the_next_time_makes_it_good(
    store: DatabaseStore, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, rename = iter([True] * 7), Path.replace

    def replace_while_there_is_room(self: Path, target: Path) -> None:
        if not next(room, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(self, target)

    with monkeypatch.context() as full:
        full.setattr(html.Path, "replace", replace_while_there_is_room)
        with pytest.raises(UsageError, match="No space left on device"):
            publish(store, site)
    assert len([name for name in contents(site) if not name.startswith(".")]) == 7
    assert not (site / "site.json").exists()

    publish(store, site)
    publish(store, tmp_path / "fresh")

    assert contents(site) == contents(tmp_path / "fresh")


def test_two_at_once_wait_for_each_other(store: DatabaseStore, site: Path, tmp_path: Path) -> None:
    errors: list[BenchaxError] = []

    def write() -> None:
        try:
            publish(open_store(tmp_path / "store"), site)
        except BenchaxError as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    publish(store, tmp_path / "fresh")
    assert errors == []
    assert contents(site) == contents(tmp_path / "fresh")


ATOM = "{http://www.w3.org/2005/Atom}"


def entries(site: Path) -> list[ET.Element]:
    return ET.parse(site / "feed.xml").getroot().findall(f"{ATOM}entry")


def words(entry: ET.Element, tag: str) -> str:
    return entry.findtext(f"{ATOM}{tag}") or ""


def test_an_entry_keeps_its_id_and_leads_to_its_page(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    publish(store, tmp_path / "site")
    before = {words(entry, "id") for entry in entries(tmp_path / "site")}
    comparisons.append(store, [compared(24, 1.12), compared(16, 0.8, case=FFT)])

    publish(store, tmp_path / "site")

    assert {words(entry, "id") for entry in entries(tmp_path / "site")} == before
    assert len(before) == 2
    for entry in entries(tmp_path / "site"):
        link = entry.find(f"{ATOM}link")
        assert link is not None
        assert (tmp_path / "site" / link.attrib["href"]).is_file()
        assert words(entry, "updated").startswith("2026-01-")


def test_names_that_xml_cannot_hold_leave_a_feed_that_can_be_read(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    comparisons.append(store, series(stepping([(9, 1.0), (9, 1.3)], sd=0.005), case=HOSTILE))

    publish(store, tmp_path / "site")

    (title,) = [text for entry in entries(tmp_path / "site") if "alert" in (text := words(entry, "title"))]
    assert title.startswith("</script><script>alert(1)</script>'\"&\\x00")


# ---- several processes --------------------------------------------------------------------------------------------


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


def test_where_no_others_can_be_had_this_one_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(publishing, "ProcessPoolExecutor", refuse)

    assert list(map_in_processes(partial(multiply, 3), [5], processes=2)) == [(15, os.getpid())]


def test_a_process_that_was_ended_is_told_of() -> None:
    expected = (
        r"a process that was writing pages has ended before its time\n\nhint: the system might have run out of mem"
    )
    with pytest.raises(NotAvailable, match=expected):
        list(map_in_processes(partial(end, 1), range(4), processes=2))


class Waiting:
    """A program whose two processes wait until they may end."""

    def __init__(self) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        program = (
            "from functools import partial\n"
            "from benchax.reporting.site.publishing import map_in_processes\n"
            "from site_jobs import wait_for_the_end\n"
            f"list(map_in_processes(partial(wait_for_the_end, {server.getsockname()[1]}), range(2), 2))"
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
