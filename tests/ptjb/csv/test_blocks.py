"""A block that NumPy reads means what each of its lines means by itself."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_jax_bench.csv import blocks
from pytest_jax_bench.csv.blocks import Piece, read_block
from pytest_jax_bench.csv.lines import COLUMNS, CURRENT, KINDS, OLD, LineForm, complete, line, parse

GOLDEN = Path(__file__).parents[2] / "golden"

TEXTS = st.text(max_size=6) | st.sampled_from(["base", "fft", "rfft", "x" * 40, "x" * 70])
FLOATS = st.floats() | st.floats(1e-3, 1e4) | st.just(math.nan)
INTS = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-1, 50)
STRATEGIES = {"int": INTS, "float": FLOATS, "text": TEXTS}
ROWS = st.fixed_dictionaries({}, optional={name: STRATEGIES[kind] for name, kind in KINDS.items()}).map(complete)


def quickly(block: bytes, form: LineForm | None) -> list[list[Any]]:
    with patch.object(blocks, "_FEW", 1):
        return as_rows(read_block(block, form))


def slowly(block: bytes, form: LineForm | None) -> list[list[Any]]:
    texts = block.decode("utf-8", "surrogateescape").split("\n")
    found = [parse(text, form) for text in texts if text and not text.startswith("#")]
    return [plain(row.values()) for row in found if row]


def as_rows(piece: Piece) -> list[list[Any]]:
    return [plain(values) for values in zip(*(piece.column(name) for name in COLUMNS), strict=True)]


def plain(values: Any) -> list[Any]:
    """NaN as a text, which equals itself."""
    return ["nan" if isinstance(v, float) and math.isnan(v) else v for v in values]


@given(st.lists(ROWS, min_size=1, max_size=6))
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    block = "".join(f"{line(row)}\n" for row in rows).encode()

    expected = [plain(row.values()) for row in rows]
    assert quickly(block, CURRENT) == expected
    assert as_rows(read_block(block, CURRENT)) == expected


@given(st.data())
def test_a_damaged_block_means_what_its_lines_mean(data: st.DataObject) -> None:
    """Bytes are overwritten, put in and taken out at random."""
    rows = data.draw(st.lists(ROWS, min_size=2, max_size=3))
    block = bytearray("".join(f"{line(rows[i % len(rows)])}\n" for i in range(6)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(block) - 1))
        damage = data.draw(
            st.sampled_from([b" ", b"7", b".", b"-", b"\t", b"\0", b"\n", b"\xff", b"\xc2\xa0", b"%", b'"'])
        )
        length = data.draw(st.sampled_from([0, 1, 1, 1, 12]))
        block[at : at + length] = damage * data.draw(st.sampled_from([0, 1, 1, 12]))
    block += b"\n"

    assert quickly(bytes(block), CURRENT) == slowly(bytes(block), CURRENT)


@pytest.mark.parametrize("damage", [" ", "x", "7"])
def test_damage_where_a_column_begins_or_ends_is_noticed(damage: str) -> None:
    """In one of many lines of the same length. What happens to be a good line afterwards means what it says."""
    whole = line(complete({"tag": "fft", "run_id": 12, "jit_mean_ms": 1.25, "message": "m" * 20}))
    places = {i for end in re.finditer(r"\S(?= |$)", whole) for i in range(end.start() - 1, end.end() + 2)}
    for i in sorted(places & set(range(len(whole)))):
        block = f"{whole}\n{whole[:i]}{damage}{whole[i + 1 :]}\n{whole}\n".encode()

        assert quickly(block, CURRENT) == slowly(block, CURRENT)


def test_a_line_with_another_end_is_damaged() -> None:
    whole = line(complete({"tag": "a"}))

    assert parse(whole, CURRENT) is not None
    assert parse(f"{whole[:-1]}x", CURRENT) is None


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("ptjb-*.csv")), ids=lambda file: file.stem)
def test_lines_of_0_5_0_mean_the_same_at_once(file: Path) -> None:
    block = b"".join(text for text in file.read_bytes().splitlines(True) if not text.startswith(b"#")) * 3
    form = OLD[17 if "17" in file.stem else 18]

    assert quickly(block, form) == slowly(block, form)
    assert len(slowly(block, form)) == block.count(b"\n")


def test_blank_lines_and_comments_are_no_rows() -> None:
    row = line(complete({"tag": "a"}))
    block = f"# comment\n\n   \n{row}\n  # another\n{row}\r\n".encode()

    piece = read_block(block, CURRENT)

    assert piece.column("tag") == ["a", "a"]
    assert piece.damaged == []


def test_damaged_lines_are_named() -> None:
    row = line(complete({"tag": "a"}))
    block = f"{row}\nnonsense\n{row[:-2]}\n{row}\n".encode()

    piece = read_block(block, CURRENT)

    assert piece.column("tag") == ["a", "a"]
    assert piece.damaged == ["nonsense", row[:-2]]


def test_only_the_columns_that_are_wanted_are_read() -> None:
    block = f"{line(complete({'run_id': 7, 'tag': 'a'}))}\n".encode() * 40

    assert set(read_block(block, CURRENT, ("run_id", "tag")).columns) == {"run_id", "tag"}
