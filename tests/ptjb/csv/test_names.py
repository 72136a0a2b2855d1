"""The file of a test: readable, safe on every system, and its own."""

from __future__ import annotations

import enum
import math
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchax.model import Opaque
from pytest_jax_bench.csv.files import append, file_for, read
from pytest_jax_bench.csv.lines import decode_parameters, encode_parameters, one_line, unword, word

FOLDER = Path("out")
GOLDEN = Path(__file__).parents[2] / "golden"
RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)

# Few letters, so that names that differ in one of them are often drawn together.
NODEIDS = st.text("aA/-:.[]~_ ", max_size=8).map(lambda s: f"{s}t.py::f") | st.text(st.characters(), max_size=12)
IDS = st.none() | st.text("aA1-/. ", max_size=4) | st.text(st.characters(), max_size=8)
VALUES = (
    st.text("aA1.-~/\\ ", max_size=5)
    | st.integers(-2, 2)
    | st.booleans()
    | st.none()
    | st.sampled_from([1.0, 1e100, "True", "none", "NUL", "x" * 10_000, "X" * 10_000])
    | st.text(st.characters(), max_size=5)
)
PARAMS = st.dictionaries(st.sampled_from(["n", "p"]), VALUES, max_size=2)


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


ONE_FUNCTION = [
    ("[True]", {"p": True}), ("[True]", {"p": "True"}), ("[None]", {"p": None}), ("[None]", {"p": "None"}),
    ("[1]", {"p": 1}), ("[1.0]", {"p": 1.0}), ("[1]", {"p": "1"}), ("[a]", {"p": "a"}), ("[A]", {"p": "A"}),
    ("[p0]", {"p": (1, 2)}), ("[p1]", {"p": (1, 2.0)}), ("[1,2]", {"p": "1,2"}), ("[1_0]", {"p": 1}),
    ("[1_1]", {"p": 1}),
    ("[]", {"p": ""}), ("", {}), ("[a,q-b]", {"p": "a,q-b"}), ("[a-b]", {"p": "a", "q": "b"}), ("[ ]", {"p": " "}),
    ("[" + "x" * 9999 + "y]", {"p": "x" * 9999 + "y"}), ("[" + "x" * 10_000 + "]", {"p": "x" * 10_000}),
    ("[p0]", {"p": float}), ("[p0]", {"p": int}),
]  # fmt: skip


def test_values_that_0_5_0_mixed_up_have_files_of_their_own() -> None:
    files = [relative(f"t.py::f{id}", params).casefold() for id, params in ONE_FUNCTION]

    assert len(set(files)) == len(ONE_FUNCTION)


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


def test_a_file_that_0_5_0_began_keeps_its_name_in_our_form(tmp_path: Path) -> None:
    nodeid = "t.py::TestA::f"
    old = begun(tmp_path / "t.py--TestA--f" / "main.csv", nodeid)
    old.write_text(
        re.sub("# test_nodeid: .*", f"# test_nodeid: {nodeid}", (GOLDEN / "ptjb-0.5.0-tags.csv").read_text())
    )

    for _ in range(2):
        append(file_for(tmp_path, nodeid, {}), {}, nodeid=nodeid, backend="cpu", device="cpu")

    assert len(read(old)) == 6
    assert file_for(tmp_path, "t.py::TestA::g", {}) != old


def test_a_file_of_ours_is_not_taken_for_one_of_0_5_0(tmp_path: Path) -> None:
    """0.5.0 would have called both p-None.csv."""
    nodeid = "t.py::f[None]"
    for value in (None, "None"):
        append(file_for(tmp_path, nodeid, {"p": value}), {}, nodeid=nodeid, backend="cpu", device="cpu")

    assert sorted(len(read(file)) for file in tmp_path.rglob("*.csv")) == [1, 1]
    begun(tmp_path / "t.py--f" / "p-True.csv", "t.py::f[True0]")
    assert file_for(tmp_path, "t.py::f[True1]", {"p": "True"}).name.startswith("p-_True_~")


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


def test_arrays_are_told_apart_by_their_content() -> None:
    one, other = (encode_parameters({"x": np.array([1.0, last])}) for last in (2.0, 3.0))

    assert one != other
    assert isinstance(decode_parameters(one)["x"], Opaque)


@given(st.text('np-,"[]{}@:0.\\ \n', max_size=12))
def test_any_text_in_the_column_can_be_read(text: str) -> None:
    assert isinstance(decode_parameters(text), dict)
