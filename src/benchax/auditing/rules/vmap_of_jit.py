"""Finds vmap(jit(f)) and grad(jit(f)) outside of jit: Python transforms the function again in each call."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterable
from functools import cache
from time import perf_counter
from typing import Any

import jax
import numpy as np

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import Gain, NotApplicable, grade, measured_gain, median_s, require_decided, rule
from benchax.auditing.syntax import callee_name, calls, check_readable, where_of
from benchax.comparing.break_even import break_even, of_comparison
from benchax.results.audit import Finding, Where
from benchax.units import count, seconds

# Finds a function that runs operation by operation, though compiled as a whole it would be faster.

WORTH_ASKING = 1.1
"""Only where the medians are this far apart is a comparison made."""
FEW_CALLS = 1000
"""Advice that pays only after more calls is a hint: most programs call few functions as often."""


@rule("not-jitted", "is it compiled as a whole?", "warning")
def not_jitted(e: Evidence) -> Iterable[Finding]:
    if e.is_jitted:
        raise NotApplicable("it is jitted")
    rows = break_even(e.eager, e.measurement)
    # The two medians are of different moments: enough to ask by, since a comparison takes 5 to 20 s, not to say by.
    if rows.speedup < WORTH_ASKING:
        return
    c = require_decided(e.compare("jax.jit", e.case, e.eager_case), "jax.jit")
    gain, pays = measured_gain(c), of_comparison(rows.build_s, c)
    # What pays later than `trivial-jit` allows is no advice to jit: the two rules never contradict one another.
    if gain is None or pays is None or not pays.pays_soon:
        return
    seen = [str(pays)]
    if e.inspection.jaxpr is not None and not pays.is_same_program:
        seen.append(f"{e.inspection.jaxpr.equations} operations, sent to the device one by one")
    yield not_jitted.finding(
        "starts its one operation from Python" if pays.is_same_program else "runs operation by operation",
        seen,
        pays.advice,
        where=e.def_where,
        gain=gain,
        severity="info" if pays.calls is None or pays.calls > FEW_CALLS else None,
    )


MANY = 20
ONE = np.ones(1, np.float32)
ADVICE = "Write jax.jit(jax.vmap(f)) instead of jax.vmap(jax.jit(f)), and jax.jit(jax.grad(f))."


@rule("vmap-of-jit", "is vmap outside of jit?", "warning", of="both")
def vmap_of_jit(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    if isinstance(e, ProgramEvidence):
        yield from _of_program(e)
        return
    if e.is_jitted:
        raise NotApplicable("it is jitted as a whole")
    where = _mapped_jit(e)
    if where is None:
        raise NotApplicable("it maps nothing jitted with vmap, as far as its source says")
    eager_s, jitted_s = median_s(e.eager), median_s(e.measurement)
    if eager_s < WORTH_ASKING * jitted_s:
        return
    # Word for word the comparison of not-jitted, so that it need not be made twice.
    gain = measured_gain(require_decided(e.compare("jax.jit", e.case, e.eager_case), "jax.jit"))
    if gain is None:
        return
    yield vmap_of_jit.finding(
        "maps a jitted function with vmap, and is not jitted itself",
        [
            "vmap is a transformation in Python: outside of jit, it is done again in each call",
            "compared as it is with jit around all of it, in pairs, in new processes",
        ],
        ADVICE,
        where=where,
        gain=gain,
    )


def _of_program(e: ProgramEvidence) -> Iterable[Finding]:
    """Jitted functions that lines of the program call under vmap or a derivative, outside of jit."""
    for line in e.lines:
        n = sum(event.note == "batched" for event in line.events)
        if n < MANY:
            continue
        lost_s = n * outside_s()
        severity = grade(lost_s, e.watch.wall_s)
        if severity is not None:
            yield vmap_of_jit.finding(
                f"{line.name} is called {count(n)} times under vmap or a derivative, outside of jit",
                [
                    "vmap, grad and the like are transformations in Python: outside of jit, each call does them again",
                    f"for a function that does next to nothing that takes {seconds(lost_s / n)} more here",
                ],
                ADVICE,
                related=[
                    ("called here", where_of(line.where)),
                    ("defined here", where_of(e.log.functions[line.function].defined)),
                ],
                gain=Gain(f"estimated: at least {seconds(lost_s)} of this run"),
                severity=severity,
            )


@cache
def outside_s() -> float:
    """The seconds that a call of jax.vmap(jax.jit(f)) takes longer than one of jax.jit(jax.vmap(f)), adding two
    numbers."""
    add = jax.jit(lambda a: a + 1)
    best = {}
    for name, call in (("outside", jax.vmap(add)), ("inside", jax.jit(jax.vmap(add)))):
        call(ONE).block_until_ready()
        rounds = []
        for _ in range(5):
            begun = perf_counter()
            for _ in range(20):
                call(ONE)
            rounds.append((perf_counter() - begun) / 20)
        best[name] = min(rounds)
    return max(0.0, best["outside"] - best["inside"])


def _mapped_jit(e: Evidence) -> Where | None:
    """Where it maps something jitted; None where it does not, as far as can be seen."""
    if is_vmap(e.fn) and _is_jitted(getattr(e.fn, "__wrapped__", None)):
        return e.def_where
    check_readable(e.fn)
    if e.source is None:  # not written in Python
        return None
    names = _names(e.fn)
    for call in calls(e.source.tree, "vmap"):
        target = call.args[0] if call.args else None
        is_call = isinstance(target, ast.Call) and callee_name(target) == "jit"
        if is_call or (isinstance(target, ast.Name) and _is_jitted(names.get(target.id))):
            return e.source.file, call.lineno
    return None


def is_vmap(fn: Callable[..., Any]) -> bool:
    """By the first words of the docstring that jax.vmap gives (jax 0.6 to 0.10.2); it leaves no other mark."""
    return (getattr(fn, "__doc__", None) or "").startswith("Vectorized version of ")


def _is_jitted(fn: Any) -> bool:
    return callable(fn) and hasattr(fn, "lower")


def _names(fn: Callable[..., Any]) -> dict[str, Any]:
    """Returns the values of its names: globals, and the variables that it closes over."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        variables = inspect.getclosurevars(inspect.unwrap(fn))
    except (TypeError, ValueError):  # no Python function, or a name that is not set yet
        return {}
    return {**variables.globals, **variables.nonlocals}
