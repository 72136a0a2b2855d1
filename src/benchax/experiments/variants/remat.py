"""Recomputing in the backward pass what the forward pass would keep (`jax.checkpoint`, "remat").

Beside the gradient of the function as it is, each policy with what the compiler plans, what a call takes, and what is
kept between the two passes. A policy of `jax.checkpoint_policies` is put around the whole function; "segments" cuts it
into sqrt(n) parts. Whether any of it saves memory is the compiler's doing: XLA:CPU mostly
plans more, not less.

Segments are consecutive, each under `jax.checkpoint`: only what crosses a cut is kept. This is the plan of Chen et al.
2016 (Training Deep Nets with Sublinear Memory Cost, section 3): sqrt(n) segments of a chain of n operations. A
checkpoint around the whole function recomputes all of it at once, and so keeps as much at its worst moment. Bodies of
loops and inner jits are one operation each here.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.ad_checkpoint
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.case import Case
from benchax.errors import NotAvailable, UsageError, one_of
from benchax.experiments.functions import as_function_of_arrays
from benchax.experiments.gradients import Differentiated, differentiate
from benchax.experiments.lab import Lab
from benchax.experiments.variant import ChangedCase, Measure
from benchax.experiments.variant_rows import Candidate, measure_baseline_group, refused_row
from benchax.results.experiment import Facts, VariantRow
from benchax.units import size

POLICIES = (
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
)
SEGMENTS = "segments"
USUAL = ("nothing_saveable", "dots_saveable", SEGMENTS)
_KEPT = re.compile(r"^(?P<dtype>[a-z][a-z0-9_]*)\[(?P<shape>[\d,]*)\] (?P<origin>.*)$")
_SHORT = re.compile(r"^(bf|f|i|u|c)(\d+)$")
_LONG = {"bf": "bfloat", "f": "float", "i": "int", "u": "uint", "c": "complex"}

LEAST_OPERATIONS = 4


@dataclass(frozen=True)
class Remat:
    name: str = "remat"
    title: str = "gradient with jax.checkpoint: recomputed in the backward pass, not kept"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        policies = _parse_policies(given)
        plain = differentiate(case, seed)
        return lambda lab: _rows(self, plain, policies, lab)


def _parse_policies(text: Any) -> tuple[str, ...]:
    if text is None:
        return USUAL
    names = tuple(word.strip() for word in str(text).split(","))
    for name in names:
        if name not in (*POLICIES, SEGMENTS):
            raise UsageError(f"remat={text!r} holds {name!r}", one_of((*POLICIES, SEGMENTS), name))
    return names


@dataclass(frozen=True)
class Checkpointed:
    """The policy by its name, which another process can look up."""

    fn: Callable[..., Any]
    policy: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, arrays = as_function_of_arrays(self.fn, args, kwargs)
        return jax.checkpoint(call, policy=getattr(jax.checkpoint_policies, self.policy))(*arrays)


def _rows(variant: Remat, plain: Differentiated, policies: tuple[str, ...], lab: Lab) -> tuple[VariantRow, ...]:
    candidates: list[Candidate] = []
    refused: list[VariantRow] = []
    for policy in policies:
        name = f"{variant.name}:{policy}"
        try:
            candidates.append(_entry(name, plain, policy))
        except NotAvailable as error:
            refused.append(refused_row(name, variant.title, "not_available", error.problem))
    rows = measure_baseline_group(f"{variant.name}:none", plain.title, plain.case, candidates, lab)
    return (_with_kept(rows[0], plain), *rows[1:], *refused)


def _entry(name: str, plain: Differentiated, policy: str) -> Candidate:
    loss: Callable[..., Any] = plain.gradient.loss
    loss = Segmented(loss) if policy == SEGMENTS else Checkpointed(loss, policy)
    kept = saved_residuals(loss, plain)
    title = "gradient with a checkpoint around " + (
        "each of sqrt(n) segments" if policy == SEGMENTS else f"the whole function, policy {policy}"
    )
    return Candidate(name, title, ChangedCase(plain.with_loss(loss), facts=lambda before, now, c: kept))


def _with_kept(row: VariantRow, plain: Differentiated) -> VariantRow:
    return row if row.status != "ok" else replace(row, facts=saved_residuals(plain.gradient.loss, plain))


def saved_residuals(loss: Callable[..., Any], plain: Differentiated) -> Facts:
    """What the forward pass keeps for the backward one, by JAX's own list; arguments, which are there anyway, apart.

    Empty where JAX prints what cannot be read (0.6 to 0.12 print alike).
    """
    listed = io.StringIO()
    with contextlib.redirect_stdout(listed):
        call, arrays = as_function_of_arrays(loss, plain.inputs.args, plain.inputs.kwargs)
        # The documented function prints; the one that returns a list is private.
        jax.ad_checkpoint.print_saved_residuals(call, *arrays)
    found = [_KEPT.match(line) for line in listed.getvalue().splitlines()]
    kept = [match for match in found if match and not match["origin"].startswith("from the argument")]
    sizes = [_bytes(match["dtype"], match["shape"]) for match in kept]
    if not all(found) or None in sizes:
        return ()
    total = sum(each or 0 for each in sizes)
    if not sizes:
        return (("kept between the passes", "nothing but arguments"),)
    largest = kept[max(range(len(kept)), key=lambda i: sizes[i] or 0)]
    what = f"{largest['dtype']}[{largest['shape']}] {largest['origin']}".strip()
    return (("kept between the passes", f"{len(sizes)} arrays, {size(total)}; the largest: {what}"),)


def _bytes(dtype: str, shape: str) -> int | None:
    short = _SHORT.match(dtype)
    name = f"{_LONG[short[1]]}{short[2]}" if short else dtype
    try:
        width = jax.numpy.dtype(name).itemsize
    except TypeError:  # a key, or another type that is none of NumPy's
        return None
    return width * math.prod(int(n) for n in shape.split(",") if n)


MEMBERS = (Remat(),)


@dataclass(frozen=True)
class Segmented:
    fn: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, arrays = as_function_of_arrays(self.fn, args, kwargs)
        closed, shapes = jax.make_jaxpr(call, return_shape=True)(*arrays)
        return jax.tree.unflatten(jax.tree.structure(shapes), _run(closed, arrays))


def _run(closed: Any, arguments: Sequence[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    if len(jaxpr.eqns) < LEAST_OPERATIONS:
        raise NotAvailable(f"too few operations for segments, outside of loops and inner jits: {len(jaxpr.eqns)}")
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arguments], strict=True))
    length = math.ceil(math.sqrt(len(jaxpr.eqns)))
    for start in range(0, len(jaxpr.eqns), length):
        inside = jaxpr.eqns[start : start + length]
        later = [*(v for eqn in jaxpr.eqns[start + length :] for v in eqn.invars), *jaxpr.outvars]
        taken, made = _crossing(inside, later)
        part = jaxpr.replace(constvars=[], invars=taken, outvars=made, eqns=list(inside))
        results = jax.checkpoint(_evaluate_segment(part))(*(values[v] for v in taken))
        values.update(zip(made, results, strict=True))
    return [v.val if isinstance(v, core.Literal) else values[v] for v in jaxpr.outvars]


def _crossing(inside: Sequence[Any], later: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """(what the segment takes, what it makes for later ones)"""
    made = dict.fromkeys(v for eqn in inside for v in eqn.outvars)
    taken = dict.fromkeys(v for eqn in inside for v in eqn.invars if not isinstance(v, core.Literal) and v not in made)
    wanted = {v for v in later if not isinstance(v, core.Literal)}
    return list(taken), [v for v in made if v in wanted]


def _evaluate_segment(part: Any) -> Callable[..., list[Any]]:
    return lambda *values: eval_jaxpr(part, (), *values)
