"""`kinds.py`: what the annotation of an option allows, and the words for what it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from benchax.errors import UsageError
from benchax.kinds import check_kinds


def takes(
    name: str | None = None,
    count: int = 1,
    mode: Literal["a", "b"] = "a",
    rules: Iterable[str] = (),
    given: Mapping[str, Any] | None = None,
    fn: Callable[..., Any] | None = None,
    folder: Path | None = None,
    anything: Any = None,
) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"name": "x"},
        {"name": None},
        {"count": 3},
        {"count": "500"},
        {"count": np.int32(3)},
        {"count": np.zeros(())},
        {"rules": ["a", "b"]},
        {"rules": "a,b"},
        {"given": {"a": 1}},
        {"folder": "here"},
        {"anything": object()},
        {"unknown": 3},
    ],
)
def test_what_an_annotation_allows_passes(options: dict[str, Any]) -> None:
    check_kinds(takes, options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": 3}, "option 'name' in the call cannot be 3\nexpected a text or None"),
        ({"count": [1]}, "option 'count' in the call cannot be [1]\nexpected a whole number"),
        ({"count": np.zeros(2)}, "option 'count' in the call cannot be array([0., 0.])\nexpected a whole number"),
        ({"mode": 3}, "option 'mode' in the call cannot be 3\nexpected 'a' or 'b'"),
        ({"rules": 3}, "option 'rules' in the call cannot be 3\nexpected a list of texts"),
        ({"given": [1]}, "option 'given' in the call cannot be [1]\nexpected a dict or None"),
    ],
)
def test_what_it_excludes_is_quoted_with_what_is_expected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as error:
        check_kinds(takes, options)

    assert str(error.value).strip() == text


def test_a_long_value_is_cut() -> None:
    with pytest.raises(UsageError, match=r"characters\)\nexpected a whole number"):
        check_kinds(takes, {"count": ["x" * 10_000]})
