"""Rows of the CSV file and records of the summary, made by hand: what is not said is plain and successful."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_jax_bench.baseline import judge_metrics
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import complete


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
