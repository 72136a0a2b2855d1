"""Finds vmap(jit(f)), which Python maps anew in each call where it is not jitted as a whole, as jit(vmap(f)) is."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, measured_gain, median_s, require_decided, rule
from benchax.auditing.rules.not_jitted import WORTH_ASKING
from benchax.auditing.syntax import callee_name, calls, check_readable
from benchax.results.audit import Finding, Where


@rule("vmap-of-jit", "is vmap outside of jit?", "warning")
def vmap_of_jit(e: Evidence) -> Iterable[Finding]:
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
            "compared as it stands with jit around all of it, in pairs, in fresh processes",
        ],
        "Write jax.jit(jax.vmap(f)) in place of jax.vmap(jax.jit(f)).",
        where=where,
        gain=gain,
    )


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
    """What its names stand for: globals, and what it closes over."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        variables = inspect.getclosurevars(inspect.unwrap(fn))
    except (TypeError, ValueError):  # no Python function, or a name that is not set yet
        return {}
    return {**variables.globals, **variables.nonlocals}
