"""Any name becomes one short line, and two names never the same one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.model import Opaque
from pytest_jax_bench.plots.readings import as_text, distinct, list_texts, names_of_tests, natural, plain, short

ANY = st.text(st.characters())  # with control characters and lone surrogates


@given(ANY, st.integers(8, 60))
def test_a_label_is_one_line_of_printable_characters_and_not_too_long(text: str, longest: int) -> None:
    label = short(text, longest)

    assert 0 < len(label) <= max(longest, len("(empty)"))
    assert label.isprintable()


@given(st.lists(ANY | st.sampled_from(["x" * 99 + "a" + "y" * 99, "x" * 99 + "b" + "y" * 99]), max_size=20))
def test_labels_side_by_side_are_all_different(texts: list[str]) -> None:
    labels = distinct(texts, 24)

    assert len(set(labels)) == len(texts)


def test_of_a_long_name_beginning_and_end_are_kept() -> None:
    label = short("begin " + "x" * 10_000 + " end")

    assert (label.startswith("begin x"), label.endswith("x end"), "…" in label) == (True, True, True)


@pytest.mark.parametrize(
    ("text", "expected"), [("", "(empty)"), ("a\n b\t c", "a b c"), ("a\x00b", "a�b"), ("émile 測", "émile 測")]
)
def test_short_texts_stay_as_they_are_but_for_blanks(text: str, expected: str) -> None:
    assert short(text) == expected


def test_dollars_and_underscores_are_hidden_from_matplotlib() -> None:
    assert plain("$x_1$") == r"\$x_1\$"
    assert plain("_hidden") == " _hidden"


def test_numbers_sort_as_numbers_also_inside_of_names() -> None:
    assert sorted(["n-128", "n-16", "b", 3, 20.5, "n-8"], key=natural) == [3, 20.5, "b", "n-8", "n-16", "n-128"]


def test_tests_of_one_file_are_named_without_it_and_others_without_folders() -> None:
    assert names_of_tests(["tests/a.py::test_1", "tests/a.py::test_2"]) == ["test_1", "test_2"]
    assert names_of_tests(["tests/a.py::test_1", "deep/b.py::T::test_2"]) == ["a.py::test_1", "b.py::T::test_2"]


def test_a_parameter_that_is_no_plain_value_is_named_by_its_text() -> None:
    assert [as_text(v) for v in (Opaque("function", "jnp.sin"), None, 0.5)] == ["jnp.sin", "None", "0.5"]


def test_long_lists_end_in_a_count() -> None:
    assert [list_texts(["a"]), list_texts(["a", "b", "c"]), list_texts(list("abcdef"), 4)] == [
        "a", "a, b and c", "a, b, c, d and 2 more",
    ]  # fmt: skip
