"""Lines that NumPy reads together mean what each of them means by itself, and numbers are read as Python reads them."""

from __future__ import annotations

import math
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_jax_bench.csv import files
from pytest_jax_bench.csv.lines import KINDS, complete, header, line

TEXTS = st.text(max_size=6) | st.sampled_from(["base", "fft", "rfft", "x" * 40, "x" * 70])
FLOATS = st.floats() | st.floats(1e-3, 1e4) | st.just(math.nan)
INTS = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-1, 50)
STRATEGIES = {"int": INTS, "float": FLOATS, "text": TEXTS}
ROWS = st.fixed_dictionaries({}, optional={name: STRATEGIES[kind] for name, kind in KINDS.items()}).map(complete)
HEADER = "".join(f"{text}\n" for text in header({"test_nodeid": "t"})).encode()

COLUMN = {"float": "jit_mean_ms", "int": "jit_peak_bytes"}
MARK = {"float": "777.25", "int": "77777"}
ALIKE = line(complete({COLUMN["float"]: float(MARK["float"]), COLUMN["int"]: int(MARK["int"])}))


def read(block: bytes, few: int = files.FEW) -> tuple[np.ndarray, str]:
    """The rows of a file with these lines, and what was said of damaged ones."""
    with tempfile.TemporaryDirectory() as folder, patch.object(files, "FEW", few):
        path = Path(folder) / "main.csv"
        path.write_bytes(HEADER + block)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = files.read(path)
    return rows, "\n".join(str(each.message) for each in caught)


def as_rows(block: bytes, few: int = files.FEW) -> list[list[Any]]:
    return [plain(row) for row in read(block, few)[0].tolist()]


def plain(values: Any) -> list[Any]:
    """NaN as a text, which equals itself."""
    return ["nan" if isinstance(v, float) and math.isnan(v) else v for v in values]


def both_ways(block: bytes) -> list[list[Any]]:
    quickly, slowly = as_rows(block, 1), as_rows(block, 10**9)
    assert quickly == slowly
    return quickly


@given(st.lists(ROWS, min_size=1, max_size=6))
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    block = "".join(f"{line(row)}\n" for row in rows).encode()

    assert both_ways(block) == [plain(row.values()) for row in rows]


@given(st.data())
def test_damaged_lines_mean_what_they_mean_by_themselves(data: st.DataObject) -> None:
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

    both_ways(bytes(block) + b"\n")


@pytest.mark.parametrize("damage", [" ", "x", "7"])
def test_damage_where_a_column_begins_or_ends_is_noticed(damage: str) -> None:
    """In one of many lines of the same length. What happens to be a good line afterwards means what it says."""
    whole = line(complete({"tag": "fft", "run_id": 12, "jit_mean_ms": 1.25, "message": "m" * 20}))
    places = {i for end in re.finditer(r"\S(?= |$)", whole) for i in range(end.start() - 1, end.end() + 2)}
    for i in sorted(places & set(range(len(whole)))):
        both_ways(f"{whole}\n{whole[:i]}{damage}{whole[i + 1 :]}\n{whole}\n".encode())


def test_blank_lines_and_comments_are_no_rows_and_damaged_ones_are_named() -> None:
    row = line(complete({"tag": "a"}))
    block = f"# comment\n\n   \n{row}\n  # another\n{row}\r\nnonsense\n{row[:-2]}\n{row[:-1]}x\n{row}\n".encode()

    for few in (1, 100):
        rows, said = read(block, few)

        assert rows["tag"].tolist() == ["a"] * 3
        assert "3 damaged lines are left out, such as 'nonsense'" in said


# ---- numbers ----------------------------------------------------------------------------------------------------


def read_column(kind: str, words: Sequence[str]) -> tuple[list[Any], str]:
    """The values of one column, by NumPy as far as it can, and what was said of damaged lines."""
    lines = [re.sub(rf"(?<= ){MARK[kind]}(?= )", lambda _, word=word: word, ALIKE, count=1) for word in words]
    rows, said = read("".join(f"{text}\n" for text in lines).encode(), 1)
    return rows[COLUMN[kind]].tolist(), said


def read_together(kind: str, words: Sequence[str]) -> list[Any]:
    """Fails where the lines are read one by one."""
    with patch.object(files, "parse", side_effect=AssertionError("read line by line")):
        return read_column(kind, words)[0]


def same(found: Sequence[float], expected: Sequence[float]) -> bool:
    return [math.nan if x != x else x for x in found] == pytest.approx(list(expected), rel=0, abs=0, nan_ok=True)


@given(st.lists(st.floats(width=64), min_size=1, max_size=20))
def test_every_float_comes_back_from_its_repr(values: list[float]) -> None:
    assert same(read_together("float", [repr(v) for v in values]), values)


def test_numbers_halfway_between_two_floats_are_rounded_correctly() -> None:
    """2**53 + 1 and its like, where rounding twice goes wrong; below and above a power of two."""
    texts = [f"{2**53 + k}.0" for k in range(-9, 10)] + [f"{2**54 + k}.0" for k in range(-9, 10)]
    texts += [f"{2**53 + 1}.{'0' * zeros}{end}" for zeros in range(6) for end in "01"]
    texts += ["0.1000000000000000055", "0.3000000000000000166", "4503599627370496.5", "4503599627370497.5"]
    texts += [repr(v) for v in (10 ** np.random.default_rng(0).uniform(-4, 7, 10_000)).tolist()]

    assert read_together("float", texts) == [float(text) for text in texts]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_every_integer_comes_back(values: list[int]) -> None:
    assert read_together("int", [str(v) for v in values]) == values


@pytest.mark.parametrize("text", [".5", "5.", "+1.5", "-0.0", "1e5", "1_0.5", "infinity", "nan", "007.5", "1e999"])
def test_unusual_numbers_are_read_as_python_reads_them(text: str) -> None:
    assert same(read_column("float", [text, "1.0"])[0], [float(text), 1.0])


@pytest.mark.parametrize("kind", ["int", "float"])
@given(words=st.lists(st.text("0123456789.-+eExX nainf_()", min_size=1, max_size=26), min_size=1, max_size=4))
def test_what_is_no_number_is_never_taken_for_one(kind: str, words: list[str]) -> None:
    words = ["".join(word.split()) or "x" for word in words]
    expected: list[float] = []
    for word in words:
        try:
            expected.append({"int": int, "float": float}[kind](word))
        except ValueError:
            continue

    found, said = read_column(kind, words)

    assert same(found, expected)
    assert bool(said) is (len(words) > len(expected))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("float", text) for text in ("1 2.3", ".", "1.2.3", "1,5", "0x1p3", "nan(1)")),
        *(("int", text) for text in ("1 2", ".", "1.0", "1,5", "0x1", "1e3", "9223372036854775808")),
    ],
)
def test_a_damaged_number_costs_its_row_and_no_other(kind: str, text: str) -> None:
    values, said = read_column(kind, ["1", text, "2"])

    assert values == [1, 2]
    assert "1 damaged line is left out" in said
