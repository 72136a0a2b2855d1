"""Rows of the plugin's CSV files, made by hand: a structured array with all columns, as `load_bench_data` gives it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import KINDS, MISSING, encode_parameters

DTYPE = np.dtype([(name, {"int": np.int64, "float": np.float64, "text": object}[kind]) for name, kind in KINDS.items()])


def rows(count: int = 1, **columns: Any) -> np.ndarray:
    """`count` runs with nothing measured; each column as one value for all, or one value per run."""
    made = np.zeros(count, dtype=DTYPE)
    usual = {"run_id": np.arange(count), "commit": "76640ba", "tag": "base", "status": "ok", "timer": "wall",
             "environment": "ab12cd34", "jax": "0.10.2", "parameters": "None"}  # fmt: skip
    for name, kind in KINDS.items():
        made[name] = MISSING[kind]
    for name, values in {**usual, **columns}.items():
        made[name] = values
    return made


def measured(count: int = 1, jit_ms: Any = 1.1, eager_ms: Any = 0.8, **columns: Any) -> np.ndarray:
    """The same with times and memory; intervals are 2 % wide to either side."""
    made = rows(count, compile_ms=45.0, jit_peak_bytes=25296896, jit_constants_bytes=4, jit_temporary_bytes=8519680,
                eager_peak_bytes=33816576)  # fmt: skip
    for what, value in (("jit", np.asarray(jit_ms, float)), ("eager", np.asarray(eager_ms, float))):
        for column, factor in (("median", 1), ("low", 0.98), ("high", 1.02), ("mean", 1.05), ("std", 0.1)):
            made[f"{what}_{column}_ms"] = value * factor
    for name, values in columns.items():
        made[name] = values
    return made


def in_runs(*parts: np.ndarray) -> np.ndarray:
    """Several tags of the same runs, in the order of the file: run by run."""
    merged = np.concatenate(parts)
    return merged[np.argsort(merged["run_id"], kind="stable")]


def store(csv: Path, data: np.ndarray, nodeid: str, params: Mapping[str, Any] | None = None) -> Path:
    """Appends rows to a CSV file, a session for each run; returns the file."""
    names = [name for name in data.dtype.names if name not in ("run_id", "commit_run", "session", "parameters")]
    csv.parent.mkdir(parents=True, exist_ok=True)
    for one in data:
        row = {name: one[name] for name in names}
        row |= {"session": f"session {one['run_id']}", "parameters": encode_parameters(params or {})}
        csv_files.append(csv, row, nodeid=nodeid, backend="cpu", device="cpu")
    return csv
