"""Results of which a program's text reads single rows alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.auditing.rules.loops import indexed_results

HEAD = "def main(f):\n"


def asked(tmp_path: Path, text: str, n_results: int = 1) -> dict[int, int]:
    """Of the call f(...) in a function whose lines these are."""
    lines = [f"    {line}" for line in text.split("; ")]
    at = next(i for i, line in enumerate(lines, 2) if "f(" in line)
    file = tmp_path / "train.py"
    file.write_text(HEAD + "\n".join(lines) + "\n")
    return indexed_results((str(file), at), n_results)


@pytest.mark.parametrize(
    "text",
    [
        "h = f(0); last = h[-1]",
        "h = f(0); last = h[-1, :, 0]; first = h[0]; print(h.shape, len(h))",
        "h = f(0); jax.block_until_ready(h); g(h[-1])",
        "h = f(0); last = jax.tree.map(lambda leaf: leaf[-1], h)",
        "x = 1; last = f(x)[-1]",
    ],
)
def test_rows_alone_are_found(tmp_path: Path, text: str) -> None:
    assert list(asked(tmp_path, text)) == [0]


def test_the_line_of_the_first_row_is_told_and_names_are_told_apart(tmp_path: Path) -> None:
    assert asked(tmp_path, "x, h = f(0); last = h[-1]; print(x)", 2) == {1: 3}
    assert asked(tmp_path, "h = f(0); last = h[-1]; print(h[0])", 3) == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize(
    "text",
    [
        "h = f(0); last = h[-1]; np.save('h', h)",
        "h = f(0); last = h[i]",
        "h = f(0); part = h[1:]",
        "h = f(0); last = h['loss']",
        "h = f(0); return h",
        "h = f(0); h = 2; last = h[-1]",
        "h = f(0); y = jax.tree.map(lambda leaf: leaf.mean(0), h)",
        "h = f(0); last = h[-1]; other = f(1)",
        "f(0)",
        "h.x = f(0); last = h.x[-1]",
        "(x, y), h = f(0); last = h[-1]",
    ],
)
def test_what_may_be_read_as_a_whole_is_not(tmp_path: Path, text: str) -> None:
    assert asked(tmp_path, text) == {}


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    assert indexed_results(None, 1) == indexed_results((str(tmp_path / "absent.py"), 1), 1) == {}
