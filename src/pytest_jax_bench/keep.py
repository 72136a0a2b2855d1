"""What is kept of a measurement: its row in the CSV file, its graph, its record for the summary, and the result.

The row comes first. What follows it may fail without costing it, and without failing the test: then a note says so.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from benchax import codec
from benchax.comparing.stored import Judged
from pytest_jax_bench import drawers, graphs, history, measure
from pytest_jax_bench.context import BenchContext
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import complete
from pytest_jax_bench.csv.text import encode_parameters
from pytest_jax_bench.measure import MeasureCall, Overrides, Rounds, StepResults
from pytest_jax_bench.result import BenchData
from pytest_jax_bench.rows import other_timers, row_of, wrong_results

if TYPE_CHECKING:
    from pytest_jax_bench import gate


def keep_measurement(
    call: MeasureCall,
    measured: StepResults,
    rounds: Rounds,
    overrides: Overrides,
    context: BenchContext,
    *,
    write: bool,
) -> BenchData:
    """Raises `StoreError` where the CSV file cannot be written."""
    row = _make_row(call, measured, rounds, context)
    notes = [text for text in (*measured.notes, wrong_results(measured), *other_timers(measured)) if text]
    if write and context.csv is not None and jax.process_index() == 0:
        row = _append(context.csv, row, context.nodeid, notes)
        old = history.find_reference(row, context.csv, context.settings)
        verdicts = history.judge_metrics(old, row) if old else {}
        notes += graphs.save_if_wanted(call, measured, overrides, context, row)
        gated = _run_gate(call, measured, context, old, row)
        notes += gated.notes if gated else ()
        context.keep(_make_record(row, old, verdicts, gated, notes, measured, context))
    return BenchData(complete(row), measured.jit, measured.eager, context.nodeid, tuple(notes))


def make_unmeasured(call: MeasureCall, context: BenchContext) -> BenchData:
    note = "not measured, because it was not asked for (--ptjb-disable, --ptjb-only, --ptjb-skip)"
    return BenchData(complete({"tag": call.tag}), name=context.nodeid, notes=(note,))


def _make_row(call: MeasureCall, measured: StepResults, rounds: Rounds, context: BenchContext) -> dict[str, Any]:
    leaves = jax.tree.leaves((call.args, call.kwargs))
    return row_of(
        measured,
        rounds,
        tag=call.tag,
        parameters=encode_parameters(context.params),
        session=context.session,
        # An array that is given twice is there once.
        argument_bytes=sum({id(leaf): leaf.nbytes for leaf in leaves if hasattr(leaf, "nbytes")}.values()),
    )


def _append(csv: Path, row: dict[str, Any], nodeid: str, notes: list[str]) -> dict[str, Any]:
    device = jax.devices()[0]
    with measure.warnings_into(notes):
        return csv_files.append(csv, row, nodeid=nodeid, backend=device.platform, device=device.device_kind)


def _run_gate(
    call: MeasureCall, measured: StepResults, context: BenchContext, old: dict[str, Any] | None, new: dict[str, Any]
) -> gate.GateResult | None:
    """None where nobody asked, or there is nothing to compare with."""
    limits = context.settings.fail_slower
    if limits is None or old is None or new["status"] != "ok":
        return None
    # Here, because comparing needs more than measuring does, and few sessions compare.
    from pytest_jax_bench import gate

    case = None if call.fn_jit is None else measure.make_case_of(call, call.fn_jit, context, jit=True)
    return gate.check(old, new, measured.jit, case, limits)


def _make_record(
    row: dict[str, Any],
    old: dict[str, Any] | None,
    verdicts: dict[str, Judged],
    gated: gate.GateResult | None,
    notes: list[str],
    measured: StepResults,
    context: BenchContext,
) -> dict[str, Any]:
    """What the summary is told, in plain values: it may be in another process."""
    is_exported = context.settings.json is not None
    return {
        "nodeid": context.nodeid,
        "csv": str(context.csv),
        "row": row,
        "reference": old,
        "verdicts": {metric: [judged.verdict, judged.why] for metric, judged in verdicts.items()},
        "gate": asdict(gated) if gated else None,
        "notes": notes,
        "only_last": bool(context.marker.get("only_last")),
        "plots": drawers.list_addresses(context.marker),
        "measurements": [codec.to_document(m) for m in measured.rows] if is_exported else [],
    }
