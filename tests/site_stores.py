"""Stores of which sites are made, and what lies in a site."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from comparisons_by_hand import CASE, HOST, commit_of, counted, series, stepping
from measurement_strategies import measured

from benchax.model import CaseId, Failure, Measurement
from benchax.store import comparisons
from benchax.store.database import DatabaseStore, open_store

HOSTILE = CaseId("</script><script>alert(1)</script>'\"&\0\ud800\u202e", (("x", "<img src=x onerror=alert(1)>"),))
LONG = CaseId("long" * 2500)
FFT = CaseId("fft")
JAX_060 = replace(HOST, jax="0.6.0", jaxlib="0.6.0")
GPU = replace(HOST, backend="gpu", device_kind="NVIDIA H100")


def row(n: int, case: CaseId = CASE, environment: Any = HOST, scale: float = 1.0, **changed: Any) -> Measurement:
    """Of commit number n, with a median of 10 µs times `scale`."""
    times = tuple(scale * 1e-5 * (1 + 0.01 * (k % 5 - 2)) for k in range(20))
    made = measured(elapsed_s=times, run=f"run-{n}")
    where = replace(environment, commit=commit_of(n), is_dirty=False)
    day = f"2026-01-{1 + n:02}T03:10:00.000000+00:00"
    return replace(made, case=case, environment=where, started_at=day, **changed)


def failed(n: int, case: CaseId = CASE) -> Measurement:
    return replace(row(n, case), samples=(), failure=Failure("timeout", "compile", "took too long"))


def make_store(folder: Path) -> DatabaseStore:
    return fill(open_store(folder))


def fill(store: DatabaseStore) -> DatabaseStore:
    """A case that got slower and one that got faster and takes more memory; names that are odd; three environments."""
    with store.held_open():
        comparisons.append(store, series(stepping([(12, 1.0), (12, 1.12)], sd=0.005)))
        comparisons.append(store, series(stepping([(8, 1.0), (8, 0.8)], sd=0.005), case=FFT))
        comparisons.append(store, [counted(n, size, case=FFT) for n, size in enumerate([2.0**20, 2.0**20, 2.0**21])])
        comparisons.append(store, series([*stepping([(14, 1.0)], sd=0.005), 1.3], case=LONG))
        for n in range(4):
            for case in (CASE, FFT, HOSTILE):
                store.append(row(n, case, scale=1 + n))
        store.append(row(3, CASE, JAX_060))
        store.append(row(3, CASE, GPU))
        store.append(failed(3, LONG))
    return store


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def times_of(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def page_of(folder: Path, case: CaseId) -> Path:
    from benchax.store.schema import case_key

    (found,) = (folder / "cases").glob(f"*{case_key(case)[:16]}.html")
    return found


def script_of(file: Path) -> Any:
    """The value that a script of data/ hands over last."""
    text = file.read_text(encoding="ascii")
    return json.loads("[" + text[text.index("(") + 1 : text.rindex(")")] + "]")[-1]
