"""Lines that are found by names."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.auditing.rules.randomness import named_again_at

AGAIN = "def draw(key, n):\n    {binding}\n    z = normal({first}, n)\n    w = normal({second}, n)\n"


@pytest.mark.parametrize(
    ("binding", "first", "second", "line"),
    [
        ("k, l = key, key", "k", "l", 2),
        ("l = key", "key", "l", 2),
        ("k, l = split(key)", "k", "l", None),
        ("l = n", "key", "l", None),
        ("k = key", "k", "k", None),
    ],
)
def test_the_line_that_gives_one_value_two_names_is_found(
    tmp_path: Path, binding: str, first: str, second: str, line: int | None
) -> None:
    file = tmp_path / "train.py"
    file.write_text(AGAIN.format(binding=binding, first=first, second=second))

    found = named_again_at((str(file), 3), (str(file), 4))

    assert found == (None if line is None else (str(file), line))
    assert named_again_at(None, (str(file), 4)) is None
