"""Finds lines that put the same array on the device again and again."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from typing import Any

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.syntax import calls, holds, loops_around, scopes_around, tree_of, where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding, Where
from benchax.units import count, percent, seconds, size

OFTEN = 5
SMALL_BYTES, LEAST_SHARE = 1 << 20, 0.01
"""Altogether, and of the run; where both are less it is an info."""


@rule("repeated-device-put", "is data that stays the same put on the device once?", "warning", of="program")
def repeated_device_put(e: ProgramEvidence) -> Iterable[Finding]:
    host = e.facts.get("host")
    if host is None:
        raise NotMeasured("what the program puts on devices was not noted")
    by_line: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for put in sorted(host["puts"], key=lambda put: -put["size_bytes"]):
        # The first time it has to be put there; an array that is overwritten in place is other data.
        if put["repeats"] >= OFTEN:
            by_line.setdefault((put["where"], put["by"]), []).append(put)
    together: dict[Where | str, list[dict[str, Any]]] = {}
    lines = {where for where, _ in by_line}
    for (where, _), puts in by_line.items():
        together.setdefault(_placing_call(where, lines) or where, []).extend(puts)
    for where, puts in sorted(together.items(), key=lambda one: -sum(put["elapsed_s"] for put in one[1])):
        yield _finding(puts, where_of(where) if isinstance(where, str) else where, e.watch.wall_s)


def _placing_call(where: str, lines: Collection[str]) -> Where | None:
    """The one call in a loop of a function that puts several arrays there, of which this line puts one: there it would
    not be called again. None where there is no such function, or it is called in several loops."""
    put = where_of(where)
    tree = tree_of(put[0]) if put is not None else None
    scopes = scopes_around(tree, put[1]) if tree is not None and put is not None else []
    if tree is None or put is None or not scopes or not isinstance(scopes[0], ast.FunctionDef):
        return None
    scope = scopes[0]
    inside = [line for other in lines if (line := where_of(other)) and line[0] == put[0] and holds(scope, line[1])]
    if len(inside) < 2 or loops_around(tree, put[1]):
        return None
    called = {call.lineno for call in calls(tree, scope.name) if loops_around(tree, call.lineno)}
    return (put[0], called.pop()) if len(called) == 1 else None


def _finding(puts: list[dict[str, Any]], where: Where | None, wall_s: float | None) -> Finding:
    """Of all arrays that one line puts there, the largest first."""
    by = puts[0]["by"]
    total, elapsed_s = sum(put["size_bytes"] for put in puts), sum(put["elapsed_s"] for put in puts)
    more = f" and {len(puts) - 1} more" if len(puts) > 1 else ""
    of_run = f" of {seconds(wall_s)} ({percent(elapsed_s / wall_s)})" if wall_s else ""
    return repeated_device_put.finding(
        f"{by} puts the same {puts[0]['what']}{more} on the device {count(puts[0]['repeats'] + 1)} times",
        [
            *list_some([_describe(put) for put in puts]),
            f"the host spent {seconds(elapsed_s)}{of_run} in these, in the whole run",
        ],
        "Put it there once, before the loop, and keep what that returns: the array on the device can be given to every "
        "call.",
        where=where,
        gain=Gain(f"estimated: {seconds(elapsed_s)} of this run, which the host spent in them"),
        severity="info" if total < SMALL_BYTES and wall_s and elapsed_s < LEAST_SHARE * wall_s else None,
    )


def _describe(put: dict[str, Any]) -> str:
    new = f", {count(put['copies_on_host'])} times in an array that was made anew" if put["copies_on_host"] else ""
    often = f"{count(put['repeats'])} of {count(put['count'])} times"
    same = f"{put['what']} had the contents of the time before, as far as a sample of it tells"
    return f"{often} {same}{new}: {size(put['size_bytes'])}"
