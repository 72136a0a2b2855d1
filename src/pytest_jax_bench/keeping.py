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
from benchax.store import csv_files
from benchax.store.csv_rows import complete
from benchax.store.csv_text import encode_parameters
from pytest_jax_bench import drawers, graphs, history, steps
from pytest_jax_bench.place import Place
from pytest_jax_bench.result import BenchData
from pytest_jax_bench.rows import other_timers, row_of, wrong_results
from pytest_jax_bench.steps import Call, Measured, Rounds, Wishes

if TYPE_CHECKING:
    from pytest_jax_bench import gate


def keep(call: Call, measured: Measured, rounds: Rounds, wishes: Wishes, place: Place, *, write: bool) -> BenchData:
    """Raises `StoreError` where the CSV file cannot be written."""
    row = _row(call, measured, rounds, place)
    notes = [text for text in (*measured.notes, wrong_results(measured), *other_timers(measured)) if text]
    if write and place.csv is not None and jax.process_index() == 0:
        row = _append(place.csv, row, place.nodeid, notes)
        old = history.reference_of(row, place.csv, place.settings)
        verdicts = history.judged(old, row) if old else {}
        notes += graphs.save_if_wanted(call, measured, wishes, place, row)
        gated = _gated(call, measured, place, old, row)
        notes += gated.notes if gated else ()
        place.keep(_record(row, old, verdicts, gated, notes, measured, place))
    return BenchData(complete(row), measured.jit, measured.eager, place.nodeid, tuple(notes))


def not_measured(call: Call, place: Place) -> BenchData:
    note = "not measured, because it was not asked for (--ptjb-disable, --ptjb-only, --ptjb-skip)"
    return BenchData(complete({"tag": call.tag}), name=place.nodeid, notes=(note,))


def _row(call: Call, measured: Measured, rounds: Rounds, place: Place) -> dict[str, Any]:
    leaves = jax.tree.leaves((call.args, call.kwargs))
    return row_of(
        measured,
        rounds,
        tag=call.tag,
        parameters=encode_parameters(place.params),
        session=place.session,
        # An array that is given twice is there once.
        argument_bytes=sum({id(leaf): leaf.nbytes for leaf in leaves if hasattr(leaf, "nbytes")}.values()),
    )


def _append(csv: Path, row: dict[str, Any], nodeid: str, notes: list[str]) -> dict[str, Any]:
    device = jax.devices()[0]
    with steps.warnings_into(notes):
        return csv_files.append(csv, row, nodeid=nodeid, backend=device.platform, device=device.device_kind)


def _gated(
    call: Call, measured: Measured, place: Place, old: dict[str, Any] | None, new: dict[str, Any]
) -> gate.Gate | None:
    """None where nobody asked, or there is nothing to compare with."""
    limits = place.settings.fail_slower
    if limits is None or old is None or new["status"] != "ok":
        return None
    # Here, because comparing needs more than measuring does, and few sessions compare.
    from pytest_jax_bench import gate

    case = None if call.fn_jit is None else steps.case_of(call, call.fn_jit, place, jit=True)
    return gate.check(old, new, measured.jit, case, limits)


def _record(
    row: dict[str, Any],
    old: dict[str, Any] | None,
    verdicts: dict[str, Judged],
    gated: gate.Gate | None,
    notes: list[str],
    measured: Measured,
    place: Place,
) -> dict[str, Any]:
    """What the summary is told, in plain values: it may be in another process."""
    is_exported = place.settings.json is not None
    return {
        "nodeid": place.nodeid,
        "csv": str(place.csv),
        "row": row,
        "reference": old,
        "verdicts": {metric: [judged.verdict, judged.why] for metric, judged in verdicts.items()},
        "gate": asdict(gated) if gated else None,
        "notes": notes,
        "only_last": bool(place.marker.get("only_last")),
        "plots": drawers.addresses(place.marker),
        "measurements": [codec.to_document(m) for m in measured.rows] if is_exported else [],
    }
