"""What is kept of a measurement: its row in the CSV file, its graph, its record for the summary, and the result.

The row comes first. What follows it may fail without costing it, and without failing the test: then a note says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from benchax import codec
from benchax.comparing.stored import Judged
from benchax.store import csv_files
from benchax.store.csv_rows import complete
from benchax.store.csv_text import encode_parameters
from pytest_jax_bench import drawers, gate, graphs, history, steps
from pytest_jax_bench.place import Place
from pytest_jax_bench.result import BenchData
from pytest_jax_bench.rows import other_timers, row_of, wrong_results
from pytest_jax_bench.steps import Call, Measured, Rounds, Wishes


def keep(call: Call, measured: Measured, rounds: Rounds, wishes: Wishes, place: Place, *, write: bool) -> BenchData:
    """Raises `StoreError` where the CSV file cannot be written."""
    row = _row(call, measured, rounds, place)
    notes = [text for text in (*measured.notes, wrong_results(measured), *other_timers(measured)) if text]
    if write and place.csv is not None and jax.process_index() == 0:
        row = _append(place.csv, row, place.nodeid, notes)
        old = history.reference_of(row, place.csv, place.settings)
        verdicts = history.judged(old, row) if old else {}
        alarm = _alarm(call, rounds, wishes, place, old, row)
        notes += graphs.save_if_wanted(call, measured, wishes, place, row)
        place.keep(_record(row, old, verdicts, alarm, notes, measured, place))
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


def _alarm(
    call: Call, rounds: Rounds, wishes: Wishes, place: Place, old: history.Row | None, new: history.Row
) -> gate.Gate | None:
    limit = place.settings.fail_slower
    if limit is None or old is None or new["status"] != "ok":
        return None

    def again() -> history.Row | None:
        """In a process of its own, so that nothing of this one is in both readings; here where that cannot be."""
        for fresh in (True, False):
            measured = steps.measure(call, rounds, wishes, place, store=False, fresh=fresh)
            if measured.error is None:
                return complete(_row(call, measured, rounds, place))
        return None

    return gate.check(old, new, limit, again)


def _record(
    row: dict[str, Any],
    old: dict[str, Any] | None,
    verdicts: dict[str, Judged],
    alarm: gate.Gate | None,
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
        "gate": gate.as_record(alarm),
        "notes": notes,
        "only_last": bool(place.marker.get("only_last")),
        "plots": drawers.addresses(place.marker),
        "measurements": [codec.to_document(m) for m in measured.rows] if is_exported else [],
    }
