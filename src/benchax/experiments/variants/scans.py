"""Loops of `jax.lax.scan` (and `fori_loop`, which is one where its length is known): some iterations written out, and
what needs no carry computed before the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments.functions import plain
from benchax.experiments.rewriting import Change, Rewritten, WithParameters, inner_program
from benchax.experiments.variant import ChangedCase
from benchax.measuring.prepare import prepare
from benchax.program.index import index
from benchax.program.jaxpr import split_operands
from benchax.units import count, plural

# Moves work out of a scan that needs only its inputs, and computes it for all iterations at once.
#
# An equation of the body that depends on no carry can run before the loop: once if it depends only on constants, or as
# one batch for all iterations if it depends on the scanned inputs. The products `x_t @ W` of a recurrent network then
# become one large product. The loop scans over these results instead of their inputs.

WORTHWHILE = ("dot_general", "conv_general_dilated")
"""If none of these is taken out, XLA does as well by itself, and the batch costs memory."""
KEPT = ("random_bits", "random_split", "debug_callback", "debug_print", "io_callback", "pure_callback")
"""Effects stay where they are; and so do random numbers, which other shapes would change."""


@dataclass(frozen=True)
class SplitScan:
    """The body of a scan, in two."""

    before: Any
    """A jaxpr of (constants, what is scanned over) that gives `passed`."""
    loop: Any
    """A jaxpr of (constants, carries, what is scanned over, `passed`) that gives what the body gives."""
    taken: int
    """Products that are no longer in the loop."""


def hoist(equation: Any, operands: list[Any], evaluate: Callable[[Any], list[Any]]) -> list[Any]:
    """A change for `rewriting.Rewritten`."""
    parts = split(equation) if equation.primitive.name == "scan" else None
    if parts is None:
        return evaluate(equation)
    params = equation.params
    consts, carry, xs = split_operands(equation, operands)
    n_carry = len(carry)
    body_consts = params["jaxpr"].consts
    passed = jax.vmap(lambda *x: eval_jaxpr(parts.before, body_consts, *consts, *x))(*xs)

    def step(state: list[Any], x: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
        results = eval_jaxpr(parts.loop, body_consts, *consts, *state, *x[0], *x[1])
        return results[:n_carry], results[n_carry:]

    carry, ys = jax.lax.scan(
        step, carry, (xs, passed), length=params["length"], reverse=params["reverse"], unroll=params.get("unroll", 1)
    )
    return [*carry, *ys]


def split(equation: Any) -> SplitScan | None:
    """Returns None if nothing worthwhile can be taken out."""
    body = equation.params["jaxpr"].jaxpr
    consts, carries, xs = split_operands(equation, body.invars)
    if not xs:
        return None
    bound = set(carries)
    early: list[Any] = []
    late: list[Any] = []
    for eqn in body.eqns:
        needs_carry = any(v in bound for v in _variables(eqn.invars))
        if needs_carry or eqn.primitive.name in KEPT or eqn.effects:
            late.append(eqn)
            bound.update(eqn.outvars)
        else:
            early.append(eqn)
    taken = sum(eqn.primitive.name in WORTHWHILE for eqn in early)
    if not taken:
        return None
    made = {v for eqn in early for v in eqn.outvars}
    wanted = [*(v for eqn in late for v in _variables(eqn.invars)), *_variables(body.outvars)]
    passed = list(dict.fromkeys(v for v in wanted if v in made))
    before = body.replace(invars=[*consts, *xs], outvars=passed, eqns=early)
    loop = body.replace(invars=[*body.invars, *passed], eqns=late)
    return SplitScan(before, loop, taken)


def _variables(atoms: Any) -> list[Any]:
    return [v for v in atoms if not isinstance(v, core.Literal)]


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
