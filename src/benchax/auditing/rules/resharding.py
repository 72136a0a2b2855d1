"""Finds arrays that are moved between devices, or cut in another way, in each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.origins import made_by
from benchax.auditing.passed_values import declared_at
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, seconds, size

OFTEN = 5
LARGE_BYTES = 1 << 18
"""Of an argument that is moved inside of a function: between four devices of a CPU, one of 256 KiB took 0.1 ms of 0.25,
one of 4 MiB 0.2 to 0.6 ms (jaxlib 0.10.2, two cores)."""
ADVICE = (
    "Place the array once as the function wants it: jax.device_put(x, sharding) before the loop, or give the function "
    "that makes it out_shardings (or a jax.lax.with_sharding_constraint) so that its result lies there from the start."
)


@rule("resharding", "do arrays stay where they are from step to step?", "warning", of="program")
def resharding(e: ProgramEvidence) -> Iterable[Finding]:
    host, lines = e.facts.get("host"), e.facts.get("lines")
    if host is None or lines is None:
        raise NotMeasured("where arrays lie was not noted")
    yield from (_put_anew(put) for put in host["puts"] if put["moves"] >= OFTEN)
    for line in lines:
        moved = [move for move in line["moved"] if move[-1] >= OFTEN]
        if moved:
            yield _lies_otherwise(line, moved)
    for move in e.facts.get("inner_layouts", ()):
        if move["count"] >= OFTEN and move["size_bytes"] >= LARGE_BYTES:
            yield _inner_move(move, host["puts"])


def _put_anew(put: Mapping[str, Any]) -> Finding:
    # What is new in each step, made on one device, has to be dealt out, though whoever makes it might do that.
    is_dealt_out = " over " not in put["moved_from"]
    return resharding.finding(
        f"{put['by']} places {put['what']} anew in each step",
        [
            f"{count(put['moves'])} times, {size(put['size_bytes'])} together",
            f"from {put['moved_from']} to {put['moved_to']}",
            f"the host spent {seconds(put['elapsed_s'])} in these calls; the copies may take longer",
        ],
        ADVICE,
        where=where_of(put["where"]),
        gain=Gain(f"estimated: at least {seconds(put['elapsed_s'])} of this run"),
        severity="info" if is_dealt_out else None,
    )


def _lies_otherwise(line: Mapping[str, Any], moved: Sequence[tuple[str, str, str, int]]) -> Finding:
    called, function = where_of(line["where"]), line["function"]
    placed = {made_by(called, function, name) for name, *_ in moved}
    seen = [f"{name}: from {old} to {new}, {count(n)} times" for name, old, new, n in moved]
    return resharding.finding(
        f"{function} gets arguments that do not lie as it wants them",
        [f"it is called at {line['where']}", *list_some(seen)],
        ADVICE,
        where=(placed.pop() if len(placed) == 1 else None) or called,
    )


def _inner_move(move: Mapping[str, Any], puts: Iterable[Mapping[str, Any]]) -> Finding:
    defined, wanted = where_of(move["defined"]), where_of(move["where"])
    # Placed once it would come back as before, if that is what the function is told to give.
    given_back = declared_at(defined, move["function"], "out_shardings") if move["is_carried"] else None
    so_again = [f"out_shardings give it back so for the next call; it is wanted otherwise at {move['where']}"]
    put_at = {
        f"{put['by']} places {put['what']} so at {put['where']}"
        for put in puts
        if (put["what"], put.get("lies")) == (move["what"], move["from"])
    }
    return resharding.finding(
        f"{move['function']} moves {move['name']} to another layout in each call",
        [
            f"{move['what']}, {size(move['size_bytes'])}, from {move['from']} to {move['to']}",
            f"so in {count(move['count'])} calls while they were counted; nothing else in it reads it as it comes",
            *list_some(sorted(put_at)),
            *(so_again if given_back else ()),
        ],
        f"Place {move['name']} as the function wants it before the calls: jax.device_put with the sharding that it "
        "gets there, and out_shardings that give it back so. Or leave the constraint out, if the function does as well "
        "with the layout in which it comes.",
        where=given_back or wanted,
    )
