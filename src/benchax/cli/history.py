"""`benchax history`: shows a case commit by commit, against one baseline. It measures nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from benchax.cli.console import check_drawable, check_writable, line, note, show, write_documents, write_figure
from benchax.cli.options import Html, Plot, Store
from benchax.cli.store import open_listed_store
from benchax.codec import encode_params
from benchax.comparing.history import History
from benchax.comparing.history import history as history_of
from benchax.errors import UsageError, one_of
from benchax.model import METRICS
from benchax.reporting.document import Document
from benchax.reporting.history import document, documents_of_all, figure, overview
from benchax.store.comparisons import Series, list_series
from benchax.store.comparisons import history as stored
from benchax.store.database import DatabaseStore, name_matcher


def history(
    case: Annotated[
        str | None, typer.Argument(help="Name or label of a case; it can contain * and ?. Default: all.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Show comparisons with this baseline (default: the newest).")
    ] = None,
    metric: Annotated[str, typer.Option(help="Show run, compile, peak, constants or flops.")] = "run",
    store: Store = None,
    plot: Plot = None,
    html: Html = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per history to stdout.")] = False,
) -> None:
    """Show comparisons with a baseline from commit to commit, and where the level changed."""

    check_drawable(plot)
    check_writable(html)
    database = open_listed_store(store)
    every = _series(database, metric)
    chosen = _choose_series(every, case, baseline, metric)
    if plot is not None and len(chosen) > 1:
        raise UsageError(
            f"--plot {str(plot)!r} draws one case, and these are {len(chosen)}", one_of({s.case.label for s in chosen})
        )
    histories = [history_of(stored(database, s.case, s.metric, s.baseline)) for s in chosen]
    if as_json:
        for found in histories:
            line(json.dumps(_document(found), allow_nan=False))
    elif len(histories) == 1:
        show(document(histories[0]))
        shown = chosen[0]
        if others := [s.baseline for s in every if s.case == shown.case and s.baseline != shown.baseline]:
            note(f"also compared with: {', '.join(others)}; choose by --baseline")
    else:
        show(Document((overview(histories),)))
    if plot is not None:
        write_figure(plot, figure(histories[0]))
        note(f"history drawn to {plot}")
    write_documents(html, documents_of_all(histories) if html else ())


def _series(store: DatabaseStore, metric: str) -> list[Series]:
    """Lists all series of that metric.

    Raises:
        UsageError: there is no such metric, or the store has no comparison by it.
    """

    if metric not in METRICS:
        raise UsageError(f"there is no metric {metric!r}", one_of(METRICS, metric))
    every = list_series(store)
    if not every:
        raise UsageError(
            f"no comparisons yet in {store.where}",
            "comparisons with a baseline",
            "name a run with `benchax baseline set NAME`, then run `benchax compare NAME` at each commit",
        )
    found = [series for series in every if series.metric == metric]
    if not found:
        raise UsageError(f"nothing in {store.where} was compared by {metric!r}", one_of({s.metric for s in every}))
    return found


def _choose_series(every: Sequence[Series], case: str | None, baseline: str | None, metric: str) -> list[Series]:
    """Returns one series for each chosen case: with the requested baseline, or with that of its newest comparison.

    Raises:
        UsageError: no such case, or it was never compared with that baseline.
    """
    found = [series for series in every if case is None or _is_meant(series, case)]
    if not found:
        labels = {s.case.label for s in every} | {s.case.name for s in every}
        raise UsageError(
            f"no comparison of a case {case!r} by {metric!r}",
            one_of(labels, case),
            "`benchax compare NAME` compares the cases that NAME, a baseline, has",
        )
    if baseline is not None:
        names = {series.baseline for series in found}
        found = [series for series in found if series.baseline == baseline]
        if not found:
            raise UsageError(
                f"{case or 'no case'} was {'never ' if case else ''}compared with a baseline {baseline!r}",
                one_of(names, baseline),
            )
    newest = {series.case: series for series in found}  # the last of each case: listed oldest first
    return sorted(newest.values(), key=lambda series: series.case.label)


def _is_meant(series: Series, case: str) -> bool:

    matches = name_matcher(case)
    return case == series.case.label or matches(series.case.name) or matches(series.case.label)


def _document(h: History) -> dict[str, Any]:
    """Returns a history for programs. Places are indices of `points`."""

    case = {"name": h.case.name, "params": json.loads(encode_params(h.case.params)), "variant": h.case.variant}
    return {
        "case": {**case, "tag": h.case.tag, "label": h.case.label},
        "metric": h.metric,
        "baseline": h.baseline,
        "points": [
            {
                "compared_at": c.compared_at, "commit": c.candidate.commit, "is_dirty": c.candidate.is_dirty,
                "ratio": c.ratio, "low": c.low, "high": c.high, "verdict": c.verdict, "why": c.why,
                "confirmed": c.confirmed, "value": c.candidate_value, "work": dict(c.work), "method": c.method,
                "jax": c.candidate.jax,
                "fingerprint": c.environment.fingerprint if c.environment else None,
            }
            for c in h.points
        ],
        "breaks": [vars(found) for found in h.breaks],
        "stretches": [vars(stretch) for stretch in h.stretches],
        "changes": [vars(change) | {"factor": change.factor} for change in h.changes],
        "jump": h.jump,
    }  # fmt: skip
