"""What `report` and `site` make of stores that are old, busy, or empty of numbers, and of very long names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Benchax, Done
from site_stores import contents, failed, row

from benchax import codec
from benchax.model import CaseId
from benchax.store.database import DatabaseStore, open_store

GOLDEN = Path(__file__).parents[1] / "golden"
LONG = 10_000
COMMANDS = [("report", "-o", "out.html"), ("site", "-o", "out")]


@pytest.fixture
def store(project: Path) -> DatabaseStore:
    return open_store(project / ".benchmarks")


def are_fine(done: Sequence[Done]) -> bool:
    return all(each.code in (0, None) for each in done)


def page_of(project: Path) -> str:
    return (project / "out.html").read_text(encoding="utf-8")


def case_pages(project: Path) -> str:
    return "".join(file.read_text(encoding="utf-8") for file in (project / "out" / "cases").glob("*.html"))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rows_of_every_format_that_ever_was_are_shown(
    version: int, project: Path, store: DatabaseStore, benchax: Benchax
) -> None:
    document = (GOLDEN / f"measurement-v{version}.json").read_text(encoding="utf-8")
    store.append(replace(codec.decode(document), run_id="r1"))
    store.place.write(lambda c: c.execute("UPDATE measurements SET document = ?", [document]))

    done = [benchax(*words) for words in COMMANDS]

    assert are_fine(done)
    assert "naïve" in page_of(project)
    assert "naïve" in case_pages(project)


def test_a_file_of_every_format_is_a_page(project: Path, benchax: Benchax) -> None:
    rows = [codec.load((GOLDEN / f"measurement-v{version}.json").read_text(encoding="utf-8")) for version in (1, 2, 3)]
    (project / "old.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")

    done = benchax("report", "old.jsonl", "-o", "out.html")

    assert are_fine([done])
    assert "3 cases" in page_of(project)


WRITER = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from dataclasses import replace
from site_stores import row, CaseId
from benchax.store.database import open_store
store = open_store(Path(sys.argv[1]))
print("begun", flush=True)
n = 0
while True:
    store.append(replace(row(n % 25, CaseId(f"c{{n % 5}}")), run_id=f"run-{{n // 5}}"))
    n += 1
"""


@pytest.mark.slow
def test_a_store_that_is_being_written_gives_whole_pages(project: Path, store: DatabaseStore, benchax: Benchax) -> None:
    store.append(row(0))
    code = WRITER.format(paths=[str(Path(__file__).parents[1])])
    words = [sys.executable, "-c", code, str(project / ".benchmarks")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        done = [benchax(*words) for words in COMMANDS * 3]
        writer.kill()

    assert are_fine(done)
    assert page_of(project).endswith("</html>\n")
    benchax("site", "-o", "out")
    benchax("site", "-o", "fresh")
    assert contents(project / "out").keys() == contents(project / "fresh").keys()


def test_a_run_of_nothing_but_failures_says_why_of_each(project: Path, store: DatabaseStore, benchax: Benchax) -> None:
    for n in range(3):
        store.append(replace(failed(n, CaseId(f"f{n}")), run_id="r1"))

    done = [benchax(*words) for words in COMMANDS]

    assert are_fine(done)
    assert "3 cases, 3 failed" in page_of(project)
    assert page_of(project).count("took too long") >= 3
    assert case_pages(project).count("not measured: timeout") == 3


def test_no_rows_are_a_page_that_says_so_or_an_error(project: Path, benchax: Benchax) -> None:
    (project / "rows.jsonl").write_text("", encoding="utf-8")

    report, site = benchax("report", "rows.jsonl", "-o", "out.html"), benchax("site", "-o", "out")

    assert report.code in (0, None)
    assert "There is nothing in this run." in page_of(project)
    assert site.code == 2
    assert not (project / "out").exists()


def test_names_of_ten_thousand_characters_are_whole_on_a_page_and_short_in_lists(
    project: Path, store: DatabaseStore, benchax: Benchax
) -> None:
    case = CaseId("n" * LONG, (("p", "v" * LONG),))
    store.append(replace(row(0, case), signature="s" * LONG, run_id="r1"))

    done = [benchax(*words) for words in COMMANDS]

    assert are_fine(done)
    assert "n" * LONG in page_of(project)
    assert "s" * LONG in page_of(project)
    assert "n" * LONG in case_pages(project)
    assert max(len(name) for name in contents(project / "out")) < 200
    assert "n" * 200 not in (project / "out" / "cases.html").read_text(encoding="utf-8")
