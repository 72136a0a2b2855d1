"""Finds a precision of matrix products that is asked for, and changes nothing on this device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import jax

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, probe, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, flow, loops_and_all
from benchax.errors import NotMeasured
from benchax.experiments.rewriting import Rewritten, WithParameters
from benchax.results.audit import Finding

PRODUCTS = ("dot_general", "conv_general_dilated")
PLAIN = ("DEFAULT", "None")


@rule("precision-setting-idle", "does the precision that it asks for do anything?", "info")
def precision_setting_idle(e: Evidence) -> Iterable[Finding]:
    closed = closed_jaxpr(e)
    asking = [step for step in loops_and_all(closed) if step.name in PRODUCTS and _asks(step)]
    if not asking:
        raise NotApplicable("no matrix product or convolution asks for a precision")
    # `flow` holds the steps that can be rewritten; those inside of loops and branches are in the other list only.
    if sum(step.name in PRODUCTS and _asks(step) for step in flow(closed).steps) < len(asking):
        raise NotMeasured("some of its products stand in loops and branches, where they cannot be changed")
    params = {name: {"precision": None} for name in PRODUCTS}
    without = replace(e.plain_case, fn=Rewritten(e.plain_case.fn, WithParameters(params)))
    now, plain = probe(e, "without a precision", without)
    if not now.digest or not plain.digest:
        raise NotMeasured("the compiled programs cannot be read")
    if now.digest != plain.digest:
        return
    wanted = sorted({_requested_precision(step) for step in asking})
    lines = list(dict.fromkeys(step.line for step in asking if step.line))
    yield precision_setting_idle.finding(
        f"precision {', '.join(wanted)} changes nothing on {e.platform}",
        [
            f"it is asked for by {len(asking)} × {asking[0].name}{f', first at {lines[0]}' if lines else ''}",
            "the compiled program is the same without it",
        ],
        "Nothing needs to be done here. What it costs and gains on another device has to be measured there"
        + ("; on CPU, products are computed in the type of their operands." if e.platform == "cpu" else "."),
        where=where_of(lines[0]) if lines else e.def_where,
    )


def _asks(step: TracedEquation) -> bool:
    return any(each not in PLAIN for each in _names(step))


def _names(step: TracedEquation) -> tuple[str, ...]:
    precision = step.equation.params.get("precision")
    both = precision if isinstance(precision, tuple) else (precision,)
    return tuple(p.name if isinstance(p, jax.lax.Precision) else str(p) for p in both)


def _requested_precision(step: TracedEquation) -> str:
    return "/".join(dict.fromkeys(name.lower() for name in _names(step)))
