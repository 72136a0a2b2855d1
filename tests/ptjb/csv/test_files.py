"""The CSV file of a test: what is written comes back, is numbered, and can be read by eye."""

from __future__ import annotations

import enum
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.errors import FormatError, StoreError, UsageError
from pytest_jax_bench.csv.files import append, file_for, files_in, newest_heads, read
from pytest_jax_bench.csv.lines import COLUMNS, KINDS

GOLDEN = Path(__file__).parents[2] / "golden"
NODEID = "tests/test_interface.py::test_full"
DOCUMENTED = """run_id commit commit_run tag parameters compile_ms jit_mean_ms jit_std_ms eager_mean_ms eager_std_ms
jit_peak_bytes jit_constants_bytes jit_temporary_bytes eager_peak_bytes jit_rounds jit_warmup eager_rounds
eager_warmup"""

Add = Callable[..., dict[str, Any]]

TEXTS = st.text(st.characters())
VALUES = {"int": st.integers(-1, 2**63 - 1), "float": st.floats(), "text": TEXTS}
FREE = {name: VALUES[kind] for name, kind in KINDS.items() if name not in ("run_id", "commit_run")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return file_for(tmp_path / ".benchmarks", NODEID, {})


@pytest.fixture
def add(path: Path) -> Add:
    return lambda **row: append(path, row, nodeid=NODEID, backend="gpu", device="NVIDIA GeForce RTX 4070")


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def golden(name: str, path: Path) -> Path:
    path.parent.mkdir(parents=True)
    return Path(shutil.copy(GOLDEN / name, path))


def same(one: Any, other: Any) -> bool:
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


# ---- what comes back --------------------------------------------------------------------------------------------


@given(st.lists(st.fixed_dictionaries({}, optional=FREE), min_size=1, max_size=4))
def test_every_value_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("csv") / "main.csv"

    written = [append(path, row, nodeid=NODEID, backend="cpu", device="cpu") for row in rows]

    found = [dict(zip(COLUMNS, row, strict=True)) for row in read(path).tolist()]
    assert all(same(f[name], w[name]) for f, w in zip(found, written, strict=True) for name in COLUMNS)
    assert all(same(w[name], row[name]) for w, row in zip(written, rows, strict=True) for name in row)


def test_the_array_has_the_documented_columns_first_and_marks_for_what_was_not_measured(add: Add, path: Path) -> None:
    add(tag="base", compile_ms=None, eager_peak_bytes=None)

    (row,) = read(path)

    assert list(row.dtype.names)[:18] == DOCUMENTED.split()
    assert row.dtype.names == COLUMNS
    assert np.isnan([row["compile_ms"], row["eager_mean_ms"]]).all()
    assert (row["eager_peak_bytes"], row["jit_rounds"], row["message"]) == (-1, -1, "")


def test_short_texts_are_of_a_type_that_np_char_understands(add: Add, path: Path) -> None:
    add(commit="6bc9501+", tag="a")
    add(commit="76640ba", tag="longer")

    assert np.char.rstrip(read(path)["commit"], "+").tolist() == ["6bc9501", "76640ba"]
    assert read(path).dtype["tag"] == np.dtype("U6")


def test_one_long_text_does_not_make_every_row_long(add: Add, path: Path) -> None:
    for tag in ("x" * 10_000, *"abc"):
        add(tag=tag)

    assert read(path).dtype.itemsize < 2000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"jit_median": 1.0}, r"no column 'jit_median'\nexpected 'jit_median_ms'\?"),
        ({"compile_ms": "fast"}, r"column 'compile_ms' of the CSV file cannot hold 'fast'"),
        ({"jit_rounds": 1.5}, r"column 'jit_rounds' of the CSV file cannot hold 1.5"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(add: Add, path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        add(**row)

    assert not path.exists()


def test_the_tag_of_an_enum_is_its_text(add: Add) -> None:
    class Tag(str, enum.Enum):  # noqa: UP042  # as users of older Python write it
        A = "alpha"

    assert add(tag=Tag.A)["tag"] == "alpha"


def test_a_text_may_end_in_what_numpy_pads_with(add: Add, path: Path) -> None:
    add(tag="a\0", session="b\0\0")

    assert read(path)["tag"].tolist() == ["a\0"]
    assert read(path)["session"].tolist() == ["b\0\0"]


# ---- lines that are none, and damaged ones ----------------------------------------------------------------------


def test_blank_lines_and_comments_are_no_rows_and_damaged_lines_are_named(add: Add, path: Path) -> None:
    for tag in "abc":
        add(tag=tag)
    *head, a, b, c = lines(path)
    path.write_text(
        "\n".join([*head, a, "# a note", "", "   ", f"{b}\r", "  # another", "<<<<<<< HEAD", c[:-2], c, ""])
    )

    with pytest.warns(UserWarning, match=r"2 damaged lines are left out, such as '<<<<<<< HEAD'"):
        assert read(path)["tag"].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        *(("jit_mean_ms", text) for text in ("1 2.3", ".", "1.2.3", "1,5", "0x1p3", "nan(1)")),
        *(("jit_peak_bytes", text) for text in ("1 2", ".", "1.0", "1,5", "0x1", "1e3", "9223372036854775808")),
    ],
)
def test_a_damaged_number_costs_its_row_and_no_other(add: Add, path: Path, column: str, text: str) -> None:
    for value in (1, 77777, 2):
        add(**{column: value})
    path.write_text(path.read_text().replace("77777.0", text).replace("77777", text))

    with pytest.warns(UserWarning, match="1 damaged line is left out"):
        assert read(path)[column].tolist() == [1, 2]


# ---- for the eye ------------------------------------------------------------------------------------------------


def test_the_header_is_that_of_the_documentation(add: Add, path: Path) -> None:
    add(commit="6bc9501", created="2025-10-16T19:58:11Z")

    head = lines(path)
    assert head[0] == "# pytest-jax-bench"
    assert head[1].startswith("# created: 20")
    assert head[2:6] == [
        f"# test_nodeid: {NODEID}",
        "# backend: gpu",
        "# device: NVIDIA GeForce RTX 4070",
        "# First commit: 6bc9501",
    ]
    assert [text for text in head if text.startswith(("#  (", "# ("))][:35] == [
        f"# {f'({i})':>4} {name}" for i, name in enumerate(COLUMNS, 1)
    ]


def test_columns_stand_below_their_numbers(add: Add, path: Path) -> None:
    add(tag="base", compile_ms=40.65, jit_mean_ms=0.00012345678901234567, jit_peak_bytes=25296896, session="a" * 32)
    add(tag="fft", commit="6bc9501+", compile_ms=math.pi)

    numbers, *rows = lines(path)[-3:]

    ends = [i for i, c in enumerate(numbers) if c == ")"]
    assert len(ends) == len(COLUMNS) + 1
    for row in rows:
        assert [i for i, c in enumerate(row) if c != " " and row[i + 1 : i + 2] in ("", " ")] == ends


def test_other_programs_can_split_the_columns(add: Add, path: Path) -> None:
    add(tag="two words", parameters={"shape": (1, 2)}, message='"quoted" # 100 %', jit_mean_ms=0.5)

    words = np.genfromtxt(path, comments="#", dtype=str, encoding="utf-8").tolist()

    assert dict(zip(COLUMNS, words, strict=False))["jit_mean_ms"] == "0.5"
    assert dict(zip(COLUMNS, words, strict=False))["tag"] == "two%20words"
    assert len(words) == len(COLUMNS) + 1


def test_a_line_break_in_the_header_cannot_make_a_row(tmp_path: Path) -> None:
    path = tmp_path / "main.csv"

    append(path, {}, nodeid="t.py::f[a\n1 2 3]", backend="cpu", device="x\ny")

    assert len(read(path)) == 1
    assert "# test_nodeid: t.py::f[a%0A1 2 3]" in lines(path)


# ---- runs -------------------------------------------------------------------------------------------------------


def test_a_commit_is_known_by_its_own_column(add: Add) -> None:
    for session in "ab":
        add(commit="a b%", session=session)
    add(commit="c3", message="a%20b%25", session="c")

    row = add(commit="a b%+", session="d")

    assert (row["run_id"], row["commit_run"]) == (3, 2)


@pytest.mark.parametrize(
    ("rows", "run_ids", "commit_runs"),
    [
        (
            [("a1", ""), ("a1+", ""), ("a1", ""), ("b2+", ""), ("b2", ""), ("a1", "")],
            [0, 1, 2, 3, 4, 5],
            [0, 1, 2, 0, 1, 3],
        ),
        ([("a1", session) for session in "sstsntn"], [0, 0, 1, 0, 2, 1, 2], [0, 0, 1, 0, 2, 1, 2]),  # at the same time
        ([("b2", "r"), ("a1", "s"), ("b2", "s"), ("a1", "s")], [0, 1, 1, 1], [0, 0, 1, 0]),
    ],
    ids=["without sessions", "sessions are runs", "a commit in the middle of a session"],
)
def test_runs_are_counted_for_the_test_and_for_the_commit(add: Add, rows: Any, run_ids: Any, commit_runs: Any) -> None:
    added = [add(commit=commit, session=session, tag=str(i)) for i, (commit, session) in enumerate(rows)]

    assert [row["run_id"] for row in added] == run_ids
    assert [row["commit_run"] for row in added] == commit_runs


# ---- earlier forms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "ptjb-readme-17-columns.csv",
            {
                "run_id": [0, 1, 2, 3], "commit": ["6bc9501", "6bc9501+", "76640ba", "76640ba"], "parameters": [""] * 4,
                "jit_mean_ms": [1.11, 0.99, 1.14, 0.91], "eager_warmup": [1, 1, 1, 1],
            },
        ),
        (
            "ptjb-0.5.0-tags.csv",
            {
                "tag": ["mul", "add,a/b-ü"] * 2, "compile_ms": [10.10, 50.66, 23.82, 30.63], "parameters": ["None"] * 4,
            },
        ),
        (
            "ptjb-0.5.0-blank-in-parameter.csv",
            {"tag": ["base"] * 2, "parameters": ["p-<class 'jax.numpy.float32'>"] * 2, "compile_ms": [41.13, 26.0]},
        ),
        ("ptjb-0.5.0-blank-in-tag.csv", {"tag": ["two words"], "parameters": ["None"], "compile_ms": [38.33]}),
    ],
)  # fmt: skip
def test_files_of_0_5_0_and_of_its_documentation_are_read(name: str, expected: dict[str, list[Any]]) -> None:
    """Also where blanks have shifted columns."""
    data = read(GOLDEN / name)

    assert {column: data[column].tolist() for column in expected} == expected
    assert np.isnan(data["jit_median_ms"]).all()


@pytest.mark.parametrize("name", sorted(file.name for file in GOLDEN.glob("ptjb-*.csv")))
def test_an_old_file_is_continued_without_loss(path: Path, add: Add, name: str) -> None:
    before = read(golden(name, path))
    facts = [text for text in lines(path) if ": " in text]

    row = add(commit=f"{before['commit'][-1].rstrip('+')}+", tag="new one", jit_mean_ms=1 / 3)

    after = read(path)
    assert str(after[:-1].tolist()) == str(before.tolist())
    assert (after["tag"][-1], after["jit_mean_ms"][-1]) == ("new one", 1 / 3)
    assert (row["run_id"], row["commit_run"]) == (before["run_id"][-1] + 1, before["commit_run"][-1] + 1)
    assert [text for text in lines(path) if ": " in text][: len(facts)] == facts
    assert [file.name for file in path.parent.iterdir()] == ["main.csv"]


def test_notes_and_signs_in_an_old_file_are_kept(path: Path, add: Add) -> None:
    golden("ptjb-readme-17-columns.csv", path)
    text = path.read_text().replace("# backend", "# my own note, ü\n# backend").replace("        base", "  50%20base")
    path.write_text(text + "# at the end\n")

    add(tag="50%20base")

    assert {"# my own note, ü", "# at the end"} <= set(lines(path))
    assert set(read(path)["tag"].tolist()) == {"50%20base"}


@pytest.mark.parametrize("is_old", [True, False])
def test_a_file_with_line_ends_of_windows_is_read_and_continued(path: Path, add: Add, is_old: bool) -> None:
    if is_old:
        golden("ptjb-readme-17-columns.csv", path)
    else:
        for _ in range(4):
            add(eager_warmup=1, tag="base", jax="0.10.2")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))

    add(tag="new", jax="0.10.2")

    assert read(path)["eager_warmup"].tolist() == [1, 1, 1, 1, -1]
    assert read(path)["tag"].tolist() == [*["base"] * 4, "new"]


def test_a_file_without_its_header_is_read_by_the_number_of_columns(path: Path, add: Add) -> None:
    golden("ptjb-0.5.0-tags.csv", path)
    path.write_text("".join(f"{text}\n" for text in lines(path) if not text.startswith("#")), "utf-8")

    assert read(path)["tag"].tolist() == ["mul", "add,a/b-ü"] * 2

    add(tag="new")

    assert read(path)["tag"].tolist() == ["mul", "add,a/b-ü"] * 2 + ["new"]


ROW_OF_0_5 = (0, "a1", 7, "base", "None", "10.10", "0.07", "0.04", "nan", "nan", 32768, 0, 0, -1, 5, 1, 0, 0)


@pytest.mark.parametrize("tag", ["base", "two words"])
def test_a_row_that_0_5_0_appended_to_a_new_file_is_read_and_counted(path: Path, add: Add, tag: str) -> None:
    """In a file of 36 columns it writes its own 18."""
    add(commit="a1", jit_mean_ms=1 / 3)
    values = [*ROW_OF_0_5[:3], tag, *ROW_OF_0_5[4:]]
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f" {value:>11}" for value in values) + "\n")

    row = add(commit="a1")

    assert row["commit_run"] == 8
    assert read(path)["tag"].tolist() == ["", tag, ""]
    assert read(path)["jit_mean_ms"][:2].tolist() == [1 / 3, 0.07]


def test_a_row_of_ours_that_was_cut_off_at_18_columns_is_damaged(path: Path, add: Add) -> None:
    add(tag="a")
    whole = lines(path)[-1]
    cut = re.match(r"(\s+\S+){18}", whole)
    assert cut
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{cut[0]}\n")

    with pytest.warns(UserWarning, match="1 damaged line is left out"):
        assert read(path)["tag"].tolist() == ["a"]


# ---- other files ------------------------------------------------------------------------------------------------


def test_a_file_of_a_newer_benchax_is_neither_read_nor_changed(path: Path, add: Add) -> None:
    add()
    newer = path.read_text().replace("# format: 2", "# format: 3")
    path.write_text(newer)

    for call in (lambda: read(path), lambda: newest_heads(path), add):
        with pytest.raises(
            FormatError, match=r"has format '3'; this benchax reads up to 2\n\nhint: install a newer benchax"
        ):
            call()

    assert path.read_text() == newer


@pytest.mark.parametrize("content", ["a,b,c\n1,2,3\n", "# a note\n", "\0" * 300 + "x", "{}"])
def test_a_foreign_file_is_neither_read_nor_changed(path: Path, add: Add, content: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(content)

    for call in (lambda: read(path), lambda: newest_heads(path), add):
        with pytest.raises(FormatError, match=r"is not the CSV file of a test"):
            call()

    assert path.read_text() == content


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot read .*nowhere\.csv"):
        read(tmp_path / "nowhere.csv")


def test_our_files_are_known_by_their_first_line(add: Add, path: Path, tmp_path: Path) -> None:
    add()
    (tmp_path / "other.csv").write_text("a,b\n")

    (tmp_path / "folder.csv").mkdir()
    old = Path(shutil.copy(GOLDEN / "ptjb-readme-17-columns.csv", tmp_path))

    assert files_in(tmp_path) == [path, old]
