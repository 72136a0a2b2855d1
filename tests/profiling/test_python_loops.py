"""What a file says of a line: in which function and loop it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.profiling.compile_costs import place_of

TEXT = """\
def f(x):
    for i in range(
        len(x)
    ):
        x = g(x)
        def inner(y):
            return y
    else:
        x = h(x)
    while True:
        x = k(x)
    return x
def g(x): return [x + i for i in range(3)]
z = 1
"""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (3, ("f", None)),  # what is iterated over is computed once
        (5, ("f", 2)),
        (7, ("inner", None)),  # it runs when it is called
        (9, ("f", None)),
        (11, ("f", 10)),
        (12, ("f", None)),
        (13, ("g", 13)),
        (14, ("", None)),
        (99, ("", None)),
    ],
)
def test_a_line_stands_in_a_function_and_a_loop_of_it(line: int, place: tuple[str, int | None], tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(TEXT)

    assert place_of(f"{file}:{line}") == place


@pytest.mark.parametrize("content", [None, "def f(:\n", "\0"])
def test_of_a_file_that_cannot_be_read_nothing_is_said(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    if content is not None:
        file.write_text(content)

    assert place_of(f"{file}:1") is None
