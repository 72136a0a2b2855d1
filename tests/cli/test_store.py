"""What commands say of stored rows: `list`, `show`, `runs`, `history`, `report`, `site`. Nothing is measured here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Benchax, Done
from comparisons_by_hand import BASELINE, CASE, commit_of, counted, series, stepping
from measurement_strategies import RICH, measured
from site_stores import contents, row

from benchax import codec
from benchax.model import CaseId, Comparison, Failure, Measurement
from benchax.reporting import terminal
from benchax.reporting.measurement import document
from benchax.store import comparisons
from benchax.store.database import DatabaseStore, open_store

ROWS = (
    measured("matmul", n=8),
    measured("matmul", n=16),
    replace(measured("fft", commit="0123456789abcdef"), failure=Failure("error", "trace", "it broke")),
    replace(RICH, failure=None, case=CaseId("ifft", (("n", 256),), tag="new")),
)


@pytest.fixture
def rows(project: Path) -> tuple[Measurement, ...]:
    """Stored in the default folder, with the ids 1 to 4."""
    store = open_store(project / ".benchmarks")
    assert [store.append(m) for m in ROWS] == [1, 2, 3, 4]
    return ROWS


# ---- list -------------------------------------------------------------------------------------------------------


def test_rows_are_listed_with_their_ids_oldest_first(
    benchax: Benchax, rows: tuple[Measurement, ...], snapshot: Any
) -> None:
    done = benchax("list")

    assert (done.code, done.err) == (0, "")
    assert done.out == snapshot


@pytest.mark.parametrize("option", ["--filter", "-k"])
@pytest.mark.parametrize(
    ("pattern", "ids"),
    [("matmul", ["1", "2"]), ("n=8", ["1"]), ("*f*", ["3", "4"]), ("fft", ["3", "4"]), ("fft*", ["3"])],
)
def test_a_filter_is_a_part_of_a_label_or_a_pattern_as_for_a_run(
    option: str, pattern: str, ids: list[str], benchax: Benchax, rows: tuple[Measurement, ...]
) -> None:
    done = benchax("list", option, pattern)

    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ids


def test_json_is_one_document_per_line_of_the_newest_if_there_is_a_limit(
    benchax: Benchax, rows: tuple[Measurement, ...]
) -> None:
    every, newest = benchax("list", "--json"), benchax("list", "--limit", "2", "--json")

    assert (every.code, every.err, every.rows, newest.rows) == (0, "", list(rows), list(rows[2:]))


def test_nothing_found_is_said_and_no_error(benchax: Benchax, rows: tuple[Measurement, ...]) -> None:
    done = benchax("list", "-k", "sort")

    assert (done.code, done.out) == (0, "")
    assert done.err == "no row in .benchmarks/benchax.db is of a case 'sort'\n"


# ---- show -------------------------------------------------------------------------------------------------------


def test_one_row_is_shown_in_full(benchax: Benchax, rows: tuple[Measurement, ...]) -> None:
    done, full = benchax("show", "4"), benchax("show", "4", "-v")

    assert (done.code, done.err, full.code, full.err) == (0, "", 0, "")
    assert done.out == terminal.to_text(document(rows[3])) + "\n"
    assert full.out == terminal.to_text(document(rows[3], is_full=True)) + "\n"
    assert "planned peak" in done.out


def test_the_raw_samples_are_numbers_without_loss(benchax: Benchax, rows: tuple[Measurement, ...]) -> None:
    done = benchax("show", "4", "--samples")

    found = [line.split("\t") for line in done.out.splitlines()]
    expected = [(s.timer, value) for s in rows[3].samples for value in s.per_call_s]
    assert [(timer, float(value)) for timer, value in found] == expected


def test_another_store_can_be_named_also_in_settings(
    benchax: Benchax, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(project / "elsewhere").append(ROWS[0])

    named = benchax("show", "--store", "elsewhere", "--json").rows
    monkeypatch.setenv("BENCHAX_STORE", "elsewhere")

    assert benchax("list", "--json").rows == named == [ROWS[0]]


# ---- runs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(project: Path) -> None:
    store = open_store(project / ".benchmarks")
    for m in (
        measured("matmul", run="a" * 32, n=8),
        measured("matmul", run="a" * 32, n=16),
        replace(measured("fft", run="b" * 32), failure=Failure("error", "trace", "it broke")),
        measured("ifft", run="c" * 32),
    ):
        store.append(m)


def test_runs_are_listed_the_newest_last(benchax: Benchax, runs: None, snapshot: Any) -> None:
    benchax("baseline", "set", "v1", "aaaa")

    done = benchax("runs")

    assert done.code == 0
    assert done.out == snapshot


def test_runs_are_objects_for_programs(benchax: Benchax, runs: None) -> None:
    found = [json.loads(line) for line in benchax("runs", "--json", "-n", "2").out.splitlines()]

    assert [(run["run_id"][0], run["rows"], run["failed"], run["cases"]) for run in found] == [
        ("b", 1, 1, ["fft"]),
        ("c", 1, 0, ["ifft"]),
    ]


@pytest.mark.parametrize(
    ("word", "ids"), [("last", ["4"]), ("last~1", ["3"]), ("last~2", ["1", "2"]), ("aa", ["1", "2"])]
)
def test_the_rows_of_a_run_are_listed(word: str, ids: list[str], benchax: Benchax, runs: None) -> None:
    done = benchax("list", "--run", word)

    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ids


@pytest.mark.parametrize(("word", "name"), [("", "ifft"), ("last", "ifft"), ("last~1", "fft"), ("last~3", "matmul")])
def test_a_row_is_counted_from_the_last(word: str, name: str, benchax: Benchax, runs: None) -> None:
    assert benchax("show", *word.split(), "--json").rows[0].case.name == name


# ---- What `report` and `site` make of stores that are old, busy, or empty of numbers, and of very long names --------

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


# ---- `benchax history`: stored comparisons, shown as a series. Nothing is measured here -----------------------------

LARGE = CaseId("matmul", (("n", 512),))
FFT = CaseId("fft")


@pytest.fixture
def history(benchax: Benchax) -> Benchax:
    return partial(benchax, "history")


def stored(project: Path, *listed: Sequence[Comparison]) -> None:
    store = open_store(project / ".benchmarks")
    for each in listed:
        comparisons.append(store, each)


@pytest.fixture
def three(project: Path) -> None:
    """Histories of three cases; one of them by its peak of memory as well."""
    stored(
        project,
        series(stepping([(20, 1.0), (20, 1.12)], sd=0.001)),
        series([1.0, 1.0], case=LARGE),
        series([1.0], case=FFT),
        [counted(n, size, case=FFT) for n, size in enumerate([2.0**20, 2.0**21])],
    )


# ---- shown ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("matmul[n=256]",), (), ("--metric", "peak")], ids=["a case", "all", "by peak"])
def test_one_case_is_shown_with_its_changes_and_several_as_a_list(
    words: tuple[str, ...], history: Benchax, three: None, snapshot: Any
) -> None:
    done = history(*words)

    assert (done.code, done.err) == (0, "")
    assert done.out == snapshot


@pytest.mark.parametrize("pattern", ["matmul", "mat*", "*[n=*"])
def test_a_name_of_several_cases_lists_them(pattern: str, history: Benchax, three: None) -> None:
    done = history(pattern)

    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["matmul[n=256]", "matmul[n=512]"]


def test_the_baseline_of_the_newest_comparison_is_taken_and_others_are_named(history: Benchax, project: Path) -> None:
    older = replace(BASELINE, label="v1.1")
    stored(project, series([1.0]), series([1.0, 1.1], baseline=older), series([1.0, 1.0, 1.0]))

    done, other = history("matmul"), history("matmul", "--baseline", "v1.1")

    assert "against v1.2 · 4 comparisons" in done.out
    assert done.err == "also compared with: v1.1; choose by --baseline\n"
    assert "against v1.1 · 2 comparisons" in other.out


def test_json_holds_the_whole_history_of_each_case_one_per_line(history: Benchax, three: None) -> None:
    done = history("matmul", "--json")

    one, other = map(json.loads, done.out.splitlines())
    assert one["case"] == {
        "name": "matmul", "params": [["n", 256]], "variant": "", "tag": "", "label": "matmul[n=256]",
    }  # fmt: skip
    assert (one["metric"], one["baseline"], len(one["points"]), one["breaks"]) == ("run", "v1.2", 40, [])
    assert [(c["at"], c["last"]) for c in one["changes"]] == [(20, 19)]
    assert one["changes"][0]["factor"] == pytest.approx(1.12, abs=0.01)
    point = other["points"][1]
    assert (point["commit"], point["ratio"], point["verdict"]) == (commit_of(1), 1.0, "same")
    assert point["fingerprint"] == one["points"][0]["fingerprint"]


@pytest.mark.parametrize(
    "case", [CaseId('a,b\n"c" 🦊', (("gap", float("nan")), ("limit", float("inf")))), CaseId("[*?")]
)
def test_any_case_has_a_history(case: CaseId, history: Benchax, project: Path) -> None:
    stored(project, series([1.0, 1.1], case=case))

    assert [history(*words).code for words in ([], [case.name], [case.label], ["--json"])] == [0, 0, 0, 0]


def test_cases_that_share_a_label_are_both_there(history: Benchax, project: Path) -> None:
    stored(project, series([1.0]), series([1.0], case=replace(CASE, params=(("n", "256"),))))

    assert [line.split()[0] for line in history("matmul[n=256]").out.splitlines()[1:]] == ["matmul[n=256]"] * 2
