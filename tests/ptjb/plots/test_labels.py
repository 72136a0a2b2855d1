"""Any name becomes one short line, and two names never the same one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.model import Opaque
from pytest_jax_bench.plots.pictures import as_text, distinct, list_texts, names_of_tests, natural, plain, short

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


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (short(""), "(empty)"),
        (short("a\n b\t c"), "a b c"),
        (short("a\x00b"), "a�b"),
        (short("émile 測"), "émile 測"),
        (short("begin " + "x" * 10_000 + " end", 18), "begin xxxxx…xx end"),
        (plain("$x_1$"), r"\$x_1\$"),
        (plain("_hidden"), " _hidden"),
        (sorted(["n-128", "n-16", "b", 3, 20.5, "n-8"], key=natural), [3, 20.5, "b", "n-8", "n-16", "n-128"]),
        (names_of_tests(["tests/a.py::test_1", "tests/a.py::test_2"]), ["test_1", "test_2"]),
        (names_of_tests(["tests/a.py::test_1", "deep/b.py::T::t"]), ["a.py::test_1", "b.py::T::t"]),
        ([as_text(v) for v in (Opaque("function", "jnp.sin"), None, 0.5)], ["jnp.sin", "None", "0.5"]),
        (list_texts(["a"]), "a"),
        (list_texts(["a", "b", "c"]), "a, b and c"),
        (list_texts(list("abcdef"), 4), "a, b, c, d and 2 more"),
    ],
)
def test_names_are_readable_in_a_picture(found: object, expected: object) -> None:
    assert found == expected
