"""`load` and `Rows`: stored measurements in Python, NumPy and pandas."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from measurement_strategies import RICH, measured

from benchax.codec import encode
from benchax.errors import FormatError, StoreError
from benchax.model import Failure, Opaque, WorkPerCall
from benchax.store.database import open_store
from benchax.store.load import COLUMNS, Rows, load

FAILED = dataclasses.replace(measured("bad", run="2"), samples=(), failure=Failure("timeout", "compile", "too slow"))
THREE = (measured("fft", commit="abc1", n=8), FAILED, measured("sum", commit="def1", elapsed_s=(3.0,) * 6))


@pytest.fixture(params=["folder", "jsonl", "json"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where THREE are stored."""
    if request.param == "folder":
        for m in THREE:
            open_store(tmp_path).append(m)
        return tmp_path
    file = tmp_path / f"rows.{request.param}"
    file.write_text("".join(encode(m) + "\n" for m in THREE) + "\n")
    return file


def test_load_gives_what_was_stored_of_a_case_or_a_commit(path: Path) -> None:
    assert load(path) == Rows(THREE)
    assert list(load(str(path))) == list(THREE)
    assert load(path, case="fft") == Rows(THREE[:1])
    assert load(path, case="?*m") == load(path, commit="def") == Rows(THREE[2:])
    assert load(path, case="fft", commit="def") == Rows()


def test_what_cannot_be_loaded_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{encode(RICH)}\n\n{{"benchax": 7}}\n')

    with pytest.raises(StoreError, match="run `benchax run` first"):
        load(tmp_path)
    with pytest.raises(StoreError, match=r"cannot read .*none\.jsonl: .*No such file"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(FormatError, match=r"line 3 of .*rows\.jsonl: a document was written by a newer benchax"):
        load(file)


def test_rows_are_a_sequence_whose_slices_are_rows() -> None:
    rows = Rows(THREE)

    assert len(rows) == 3
    assert rows[-1] == THREE[2]
    assert rows[1:] == Rows(THREE[1:])
    assert FAILED in rows
    assert list(reversed(rows)) == [THREE[2], THREE[1], THREE[0]]
    assert repr(rows) == "<Rows: 3 measurements, 3 cases, 2025-11-21 to 2025-11-21>"
    assert repr(Rows()) == "<Rows: none>"


def test_numpy_holds_the_scalars_with_nan_for_what_was_not_measured() -> None:
    table = Rows(THREE).to_numpy()

    assert table.shape == (3,)
    assert table["name"].tolist() == ["fft", "bad", "sum"]
    assert table["params"].tolist() == [{"n": 8}, {}, {}]
    assert table["status"].tolist() == ["ok", "failed", "ok"]
    assert table["failure_kind"].tolist() == [None, "timeout", None]
    assert table["commit"].tolist() == ["abc1", "c0ffee", "def1"]
    np.testing.assert_array_equal(table["median_s"], [2.0, math.nan, 3.0])
    np.testing.assert_array_equal(table["n"], [3.0, math.nan, 6.0])
    np.testing.assert_array_equal(table["low_s"], [math.nan, math.nan, 3.0])
    frame = Rows(THREE).to_pandas()
    assert tuple(frame.columns)[: len(COLUMNS)] == table.dtype.names
    assert frame.loc[frame["status"] == "failed", "failure_kind"].tolist() == ["timeout"]
    assert (Rows().to_numpy().shape, Rows().to_numpy().dtype) == ((0,), table.dtype)
    assert list(Rows().to_pandas().columns) == list(COLUMNS)
    uncut = Rows((measured("x" * 10_000), measured("a\0b\0"))).to_numpy()
    assert uncut["name"].tolist() == ["x" * 10_000, "a\0b\0"]


def test_parameters_and_rates_are_columns_of_a_frame() -> None:
    rows = (
        dataclasses.replace(measured("f", n=8, dtype="f32"), work=WorkPerCall({"tokens": 4.0})),
        measured("f", n=16, dtype=Opaque("dtype", "bf16")),
        measured("g"),
    )

    frame = Rows(rows).to_pandas()

    assert list(frame.columns)[len(COLUMNS) :] == ["params.n", "params.dtype", "tokens_per_s"]
    assert frame["params.n"].dropna().tolist() == [8, 16]
    assert frame["params.dtype"].dropna().tolist() == ["f32", "bf16"]
    assert frame["n"].tolist() == [3.0, 3.0, 3.0]
    assert frame["tokens_per_s"].dropna().tolist() == [2.0]
