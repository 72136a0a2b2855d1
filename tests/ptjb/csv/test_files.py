"""The CSV file of a test: what is written comes back, is numbered, and can be read by eye."""

from __future__ import annotations

import enum
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchax.errors import FormatError, StoreError, UsageError
from pytest_jax_bench.csv.files import append, file_for, newest_heads, read
from pytest_jax_bench.csv.lines import COLUMNS, KINDS, decode_parameters, encode_parameters, one_line, unword, word

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


# ---- the file of a test: readable, safe on every system, and its own ------------------------------------------------


FOLDER = Path("out")
RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)

# Few letters, so that names that differ in one of them are often drawn together.
NODEIDS = st.text("aA/-:.[]~_ ", max_size=8).map(lambda s: f"{s}t.py::f") | st.text(st.characters(), max_size=12)
IDS = st.none() | st.text("aA1-/. ", max_size=4) | st.text(st.characters(), max_size=8)
PARAM = (
    st.text("aA1.-~/\\ ", max_size=5)
    | st.integers(-2, 2)
    | st.booleans()
    | st.none()
    | st.sampled_from([1.0, 1e100, "True", "none", "NUL", "x" * 10_000, "X" * 10_000])
    | st.text(st.characters(), max_size=5)
)
PARAMS = st.dictionaries(st.sampled_from(["n", "p"]), PARAM, max_size=2)


def relative(nodeid: str, params: dict[str, Any] | None = None) -> str:
    return file_for(FOLDER, nodeid, params or {}).relative_to(FOLDER).as_posix()


@pytest.mark.parametrize(
    ("nodeid", "params", "expected"),
    [
        ("tests/test_x.py::test_full", {}, "tests-test_x.py--test_full/main.csv"),
        ("tests/test_x.py::test_n[128]", {"n": 128}, "tests-test_x.py--test_n/n-128.csv"),
        ("tests/test_x.py::test_n[128-f32]", {"n": 128, "dtype": "f32"}, "tests-test_x.py--test_n/n-128,dtype-f32.csv"),
        ("t.py::f[True]", {"p": True}, "t.py--f/p-True.csv"),
        ("t.py::f[None]", {"p": None}, "t.py--f/p-None.csv"),
        ("t.py::f[-0.5]", {"x": -0.5}, "t.py--f/x--0.5.csv"),
        ("t.py::f", {"n": 128}, "t.py--f/n-128.csv"),
    ],
)
def test_ordinary_tests_have_the_names_of_0_5_0(nodeid: str, params: dict[str, Any], expected: str) -> None:
    assert relative(nodeid, params) == expected


@pytest.mark.parametrize(
    ("nodeid", "params", "readable"),
    [
        ("t.py::TestA::f", {}, "t.py--TestA--f~*/main"),  # not TestA and Testa in one folder of macOS
        ("my-tests/t.py::f", {}, "my-tests-t.py--f~*/main"),  # not that of my/tests/t.py
        ("../t.py::f", {}, "-t.py--f~*/main"),
        ("nul.py::f", {}, "_nul.py--f~*/main"),  # Windows takes it for the device
        ("t.py::f[small]", {"n": 128}, "t.py--f/n-128~*"),  # ids=: there may be another one with this value
        ("t.py::f[A]", {"p": "A"}, "t.py--f/p-A~*"),
        ("t.py::f[a/b]", {"p": "a/b"}, "t.py--f/p-a_b~*"),
        ("t.py::f[x/../../../../escaped]", {"p": "x/../../../../escaped"}, "t.py--f/p-x_.._.._.._.._escaped~*"),
        ("t.py::f[p0]", {"p": (1, 2)}, "t.py--f/p-_1,2_~*"),
        ("t.py::f[a.]", {"p": "a."}, "t.py--f/p-a.~*"),
        ("t.py::f[x]", {}, "t.py--f/main~*"),
    ],
)
def test_other_names_stay_readable(nodeid: str, params: dict[str, Any], readable: str) -> None:
    pattern = re.escape(f"{readable}.csv").replace(r"\~\*", "~[0-9a-f]{12}")

    assert re.fullmatch(pattern, relative(nodeid, params))


@given(NODEIDS, IDS, PARAMS)
@example("con.py::f", None, {"n": "nul"})
@example("..", "..", {})
@example("", None, {})
def test_a_name_is_safe_on_every_system(test: str, id: str | None, params: dict[str, Any]) -> None:
    file = file_for(FOLDER, test if id is None else f"{test}[{id}]", params)

    parts = file.relative_to(FOLDER).parts
    assert len(parts) == 2
    for part in parts:
        assert re.fullmatch(r"[A-Za-z0-9_.,+=~-]+", part)
        assert len(part) <= 110  # with room for the endings of pictures
        assert not part.startswith(".")
        assert not part.endswith((".", " "))
        assert not RESERVED.fullmatch(part)


@given(st.lists(st.tuples(NODEIDS, IDS, PARAMS), min_size=2, max_size=12))
def test_two_tests_never_share_a_file(drawn: list[tuple[str, str | None, dict[str, Any]]]) -> None:
    """Not even where "a" and "A" are one name. With and without brackets is one test: pytest writes them, or not."""
    files: dict[str, tuple[str, str]] = {}
    for test, id, params in drawn:
        usual = f"[{'-'.join(map(str, params.values()))}]" if params else ""
        brackets = usual if id is None else f"[{id}]"
        identity = (test + brackets, encode_parameters(params))
        name = relative(test if id is None else f"{test}[{id}]", params).casefold()
        assert files.setdefault(name, identity) == identity


# ---- files that 0.5.0 has begun ---------------------------------------------------------------------------------


def begun(path: Path, nodeid: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# pytest-jax-bench\n# created: 2025-10-16T19:58:11Z\n# test_nodeid: {nodeid}\n")
    return path


@pytest.mark.parametrize(
    ("nodeid", "params", "name"),
    [
        ("t.py::TestA::f", {}, "t.py--TestA--f/main.csv"),
        ("my-tests/t.py::f[float32]", {"p": float}, "my-tests-t.py--f/p-<class 'float'>.csv"),
        ("t.py::f[a/b]", {"p": "a/b"}, "t.py--f/p-a/b.csv"),
        ("t.py::f[True0]", {"p": True}, "t.py--f/p-True.csv"),
    ],
)
def test_a_file_of_0_5_0_is_continued(tmp_path: Path, nodeid: str, params: dict[str, Any], name: str) -> None:
    old = begun(tmp_path / name, nodeid)

    assert file_for(tmp_path, nodeid, params) == old


def test_the_file_of_the_readme_is_continued_under_its_name_and_keeps_its_rows(tmp_path: Path) -> None:
    nodeid = "tests/test_interface.py::test_full"
    file = tmp_path / "tests:test_interface::test_full.csv"
    file.write_text((GOLDEN / "ptjb-readme-17-columns.csv").read_text())
    before = read(file)

    for _ in range(2):
        append(file_for(tmp_path, nodeid, {}), {"jit_mean_ms": 1.5}, nodeid=nodeid, backend="cpu", device="cpu")

    assert [path.name for path in tmp_path.rglob("*.csv")] == [file.name]
    assert read(file)["jit_mean_ms"].tolist() == [*before["jit_mean_ms"].tolist(), 1.5, 1.5]
    assert read(file)["run_id"].tolist()[-2:] == [int(before["run_id"][-1]) + 1, int(before["run_id"][-1]) + 2]


def test_the_file_of_the_readme_is_left_alone_where_it_is_anothers_or_a_later_one_is_there(tmp_path: Path) -> None:
    nodeid = "tests/test_interface.py::test_full"
    text = (GOLDEN / "ptjb-readme-17-columns.csv").read_text()
    foreign = tmp_path / "foreign" / "tests:test_interface::test_full.csv"
    late = tmp_path / "late" / "tests:test_interface::test_full.csv"
    for file, content in ((foreign, text.replace("test_full", "test_half")), (late, text)):
        file.parent.mkdir()
        file.write_text(content)
    ours = tmp_path / "late" / "tests-test_interface.py--test_full" / "main.csv"
    append(ours, {}, nodeid=nodeid, backend="cpu", device="cpu")

    assert file_for(foreign.parent, nodeid, {}).name == "main.csv"
    assert file_for(late.parent, nodeid, {}) == ours


def test_nothing_outside_of_the_folder_is_ever_continued(tmp_path: Path) -> None:
    nodeid = "t.py::f[x/../../../escaped]"
    begun(tmp_path / "escaped.csv", nodeid)
    folder = tmp_path / "out" / "here"

    assert folder in file_for(folder, nodeid, {"p": "x/../../../escaped"}).parents

    folder.mkdir(parents=True)
    begun(tmp_path / "main.csv", "..")

    assert ".." not in file_for(tmp_path / "out", "..", {}).parts


# ---- any text as one word, and any parameters as one text -----------------------------------------------------------

ANY_TEXT = st.text(st.characters())  # lone surrogates as well
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT
NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
TYPED = st.dictionaries(st.from_regex(r"[a-zé_][a-z_0-9]{0,3}", fullmatch=True), NESTED, max_size=4)


def typed(value: object) -> object:
    """Told apart where == does not: 1, 1.0 and True; 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(typed, value))
    return type(value), math.copysign(1, value) if isinstance(value, float) else None, value


def all_typed(params: dict[str, object]) -> list[tuple[str, object]]:
    return [(name, typed(value)) for name, value in params.items()]


@given(ANY_TEXT)
def test_a_text_is_one_word_and_comes_back(text: str) -> None:
    made = word(text)

    assert made.split() == [made]
    assert made.isprintable()
    assert "#" not in made
    assert unword(made) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("base", "base"),
        ("two words", "two%20words"),
        ("a,b/c-d=ü", "a,b/c-d=ü"),
        ("50%", "50%25"),
        ("line\nbreak", "line%0Abreak"),
        ("#1", "%231"),
        ("", '""'),
        ('""', '%22"'),
        ("x" * 10_000, "x" * 10_000),
    ],
)
def test_ordinary_texts_stay_readable(text: str, expected: str) -> None:
    assert word(text) == expected


def test_a_word_that_was_edited_by_hand_is_left_as_it_is() -> None:
    assert unword("50%FF") == "50%FF"


@given(ANY_TEXT)
def test_a_comment_is_one_line(text: str) -> None:
    assert one_line(text).splitlines() in ([], [one_line(text)])
    assert unword(one_line(text)) in (text, "")


# ---- parameters -------------------------------------------------------------------------------------------------


@given(TYPED)
def test_parameters_come_back_with_their_types(params: dict[str, object]) -> None:
    assert all_typed(decode_parameters(encode_parameters(params))) == all_typed(params)


@given(TYPED, TYPED)
def test_distinct_parameters_have_distinct_texts(one: dict[str, object], other: dict[str, object]) -> None:
    assert (encode_parameters(one) == encode_parameters(other)) == (all_typed(one) == all_typed(other))


def a_function() -> None: ...


class Mode(enum.Enum):
    FAST = 1


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, "None"),
        ({"n": 128}, "n-128"),
        ({"n": -128, "x": -0.5, "name": "alpha"}, "n--128,x--0.5,name-alpha"),
        ({"p": True}, "p-True"),
        ({"p": "True"}, 'p-"True"'),
        ({"p": None}, "p-None"),
        ({"p": "None"}, 'p-"None"'),
        ({"p": "none"}, 'p-"none"'),
        ({"p": "128"}, 'p-"128"'),
        ({"p": "a,b"}, 'p-"a,b"'),
        ({"p": ""}, 'p-""'),
        ({"p": "a b#c-d"}, "p-a b#c-d"),
        ({"shape": (2, 3)}, "shape-[2,3]"),
        ({"dtype": jnp.float32}, "dtype-@_ScalarMeta:jax.numpy.float32"),
        ({"f": a_function}, f"f-@function:{__name__}.a_function"),
        ({"mode": Mode.FAST}, "mode-@Mode:<Mode.FAST: 1>"),
        ({"x": np.int64(5)}, "x-@int64:int64(5)"),
        ({"p": "@function:f"}, 'p-"@function:f"'),
        ({"x": float("nan")}, 'x-{"$float":"nan"}'),
    ],
)
def test_what_the_text_looks_like(params: dict[str, object], expected: str) -> None:
    assert encode_parameters(params) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("None", {}),
        ("", {}),
        ("n-128", {"n": 128}),
        ("p-True,q-none", {"p": True, "q": None}),
        ("x-1e-06,y-.5,z--3", {"x": 1e-6, "y": 0.5, "z": -3}),
        ("p-(1, 2)", {"p": "(1, 2)"}),
        ("p-(1, -2),n-3", {"p": "(1, -2)", "n": 3}),
        ("p-[1, 2]", {"p": (1, 2)}),
        ("p-{}", {"p": "{}"}),
        ("p-{'a': 1}", {"p": "{'a': 1}"}),
        ("p-" + "[" * 100_000, {"p": "[" * 100_000}),
        ("p-[broken,n-3", {"p": "[broken", "n": 3}),
        ("p-<class 'jax.numpy.float32'>", {"p": "<class 'jax.numpy.float32'>"}),
        ("f-a-b-c", {"f": "a-b-c"}),
    ],
)
def test_what_0_5_0_wrote_is_read_as_it_read_it_or_better(text: str, expected: dict[str, object]) -> None:
    assert decode_parameters(text) == expected


@given(st.text('np-,"[]{}@:0.\\ \n', max_size=12))
def test_any_text_in_the_column_can_be_read(text: str) -> None:
    assert isinstance(decode_parameters(text), dict)
