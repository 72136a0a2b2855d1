"""Loops of `jax.lax.scan` (and `fori_loop`, which is one where its length is known): some iterations written out, and
what needs no carry computed before the loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments.functions import plain
from benchax.experiments.hoisting import hoist, split
from benchax.experiments.rewriting import Change, Rewritten, WithParameters, inner_program
from benchax.experiments.variant import ChangedCase
from benchax.measuring.prepare import prepare
from benchax.program.index import index
from benchax.units import count, plural

USUAL = 4
NO_SCAN = "it has no loop of scan, or of fori_loop of a known length"


@dataclass(frozen=True)
class UnrolledScan:
    name: str = "unroll"
    title: str = f"loops of scan with {USUAL} iterations written out (unroll=8)"
    needs: str = ""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        n = _parse_iterations(given)
        unjitted = plain(case, seed)
        lengths = [scan.params["length"] for scan in _scans(unjitted, seed) if scan.params["length"] > 1]
        if not lengths:
            raise NotMeasured(NO_SCAN)
        longest = max(lengths)
        return _rewrite(
            unjitted,
            WithParameters({"scan": {"unroll": min(n, longest)}}),
            f"{min(n, longest)} at a time, in {plural(len(lengths), 'loop')}; the longest has {count(longest)}",
            self.name,
        )


@dataclass(frozen=True)
class HoistedScan:
    name: str = "hoist"
    title: str = "products in a scan that need no carry computed before it, for all iterations at once"
    needs: str = ""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        if given is not None:
            raise UsageError(f"hoist={given!r}", "nothing: what can be taken out is found")
        unjitted = plain(case, seed)
        scans = _scans(unjitted, seed)
        if not scans:
            raise NotMeasured(NO_SCAN)
        taken = sum(parts.taken for scan in scans if (parts := split(scan)) is not None)
        if not taken:
            raise NotAvailable("each product in its loops needs what the iteration before has made")
        return _rewrite(unjitted, hoist, f"{plural(taken, 'product')} of each iteration", self.name)


def _rewrite(unjitted: Case, change: Change, what: str, family: str) -> ChangedCase:
    return ChangedCase(
        replace(unjitted, fn=Rewritten(unjitted.fn, change)),
        facts=lambda before, now, c: ((family, what),),
    )


def _scans(unjitted: Case, seed: int) -> list[Any]:
    """The outermost loops; what is in them is not changed."""
    traced = prepare(replace(unjitted, jit=True), seed).trace().reach_trace()
    scans = (op for op in index(traced.jaxpr).body.ops if op.name == "scan")
    return [op.equation for op in scans if all(map(inner_program, op.calls))]


def _parse_iterations(given: Any) -> int:
    text = str(USUAL if given is None else given)
    if not (text.isdecimal() and text.isascii() and int(text) > 1):
        raise UsageError(f"unroll={given!r}", "a number of iterations above 1, such as 4")
    return int(text)


MEMBERS = (UnrolledScan(), HoistedScan())
