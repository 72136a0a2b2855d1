"""--ptjb-save-graph: the compiled program as an SVG, beside the CSV file, if it differs from the last one saved.

Whether it differs is decided on the normalised program, whose digest stands in each picture; so one that is drawn
differently by a newer benchax is no change. A graph that cannot be drawn is a note, and costs nothing else.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import jax

from pytest_jax_bench.context import BenchContext
from pytest_jax_bench.measure import MeasureCall, Overrides, StepResults

_READABLE_TAG = re.compile(r"[a-z0-9_][a-z0-9_.=-]{0,39}")


def save_if_wanted(
    call: MeasureCall, measured: StepResults, overrides: Overrides, context: BenchContext, row: dict[str, Any]
) -> list[str]:
    """Notes, most often none."""
    asked = (overrides.save_graph, context.marker.get("save_graph"), context.settings.save_graph)
    wanted = next(answer for answer in asked if answer is not None)
    if not wanted or measured.jit is None or measured.error is not None or context.csv is None:
        return []
    try:
        lowered, hlo = (measured.lowered, measured.hlo) if measured.hlo else _compile(call)
        _save(hlo, lowered.as_text() if lowered is not None else "", context.csv, row, f"{context.nodeid} {call.tag}")
    except Exception as error:  # whatever it is: the row is there, and a picture is no reason to fail
        first_line = (str(error).splitlines() or [""])[0]
        return [f"the graph was not saved ({type(error).__name__}: {first_line})"]
    return []


def _save(hlo: str, stablehlo: str, csv: Path, row: dict[str, Any], title: str) -> None:
    """Writes `main-3-base.svg` (file, run, tag), unless the last graph of this tag shows the same program."""
    from benchax.program import graph

    tag = tag_in_name(row["tag"])
    if _last_digest(csv, tag) != graph.digest(hlo, stablehlo=stablehlo):
        text = graph.svg(hlo, title=title, stablehlo=stablehlo)
        csv.with_name(f"{csv.stem}-{row['run_id']}-{tag}.svg").write_text(text, encoding="utf-8")


def _last_digest(csv: Path, tag: str) -> str | None:
    from benchax.program.graph import read_digest

    runs = re.compile(re.escape(csv.stem) + r"-(\d+)-" + re.escape(tag) + r"\.svg")
    found = {int(match[1]): path for path in csv.parent.glob("*.svg") if (match := runs.fullmatch(path.name))}
    return read_digest(found[max(found)].read_text(encoding="utf-8", errors="replace")) if found else None


def tag_in_name(tag: str) -> str:
    """The tag where it can be part of a file's name on every system, alone under that name; else a digest of it."""
    if _READABLE_TAG.fullmatch(tag) and not tag.endswith("."):
        return tag
    return hashlib.sha256(tag.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _compile(call: MeasureCall) -> tuple[Any, str]:
    """(lowered, program) once more, where it was compiled in another process."""
    fn: Any = call.fn_jit if hasattr(call.fn_jit, "lower") else jax.jit(call.fn_jit)  # pyright: ignore
    lowered = fn.lower(*call.args, **call.kwargs)
    return lowered, lowered.compile().as_text()
