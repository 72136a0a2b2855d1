"""Rows of the CSV file and records of the summary, made by hand: what is not said is plain and successful."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_jax_bench.baseline import judge_metrics
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import KINDS, MISSING, complete, encode_parameters


def a_row(**values: Any) -> dict[str, Any]:
    times = {f"jit_{name}_ms": values.get("jit", 1.0) for name in ("mean", "median", "low", "high", "min")}
    values.pop("jit", None)
    plain = {
        "run_id": 0, "commit": "aaaaaaa", "commit_run": 0, "tag": "base", "parameters": "None", "compile_ms": 40.0,
        "jit_rounds": 20, "jit_peak_bytes": 2**20, "timer": "wall", "status": "ok", "environment": "e", "session": "s",
    }  # fmt: skip
    return complete({**plain, **times, **values})


def a_record(new: dict[str, Any], old: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    verdicts = {k: [j.verdict, j.why] for k, j in judge_metrics(old, new).items()} if old else {}
    plain = {"nodeid": "t.py::test_a", "reference": old, "verdicts": verdicts, "gate": None, "notes": []}
    return {"row": new, **plain, **values}


def a_file(path: Path, *rows: dict[str, Any]) -> dict[str, Any]:
    """Appends them, each with its own session unless it says otherwise; returns the last one as it was stored."""
    for i, row in enumerate(rows):
        given = {k: v for k, v in row.items() if k not in ("run_id", "commit_run")}
        stored = csv_files.append(path, {**given, "session": f"s{i}"}, nodeid="t", backend="cpu", device="cpu")
    return stored


# ---- rows of the plugin's CSV files ---------------------------------------------------------------------------------

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
