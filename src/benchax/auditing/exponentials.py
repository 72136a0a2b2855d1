"""Exponentials and logarithms that overflow or underflow where a stable form would not, in a traced program.

Found by what the user's own lines make: a logarithm of a sum of exponentials, of a softmax or of a sigmoid, and a
softmax or sigmoid by hand. JAX's own functions take off the maximum first, and are left out by that and by their files.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import numpy as np

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.traced import TracedEquation, TracedValue
from benchax.program.jaxpr import frames_of, is_users_own
from benchax.source_files import is_generated, owner_of

Form = Literal[
    "log-sum-exp", "log-add-exp", "log-softmax", "log-sigmoid", "log-one-minus-sigmoid", "softplus", "softmax",
    "sigmoid",
]  # fmt: skip

PASSES = (
    "convert_element_type", "copy", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "stop_gradient",
    "transpose",
)  # fmt: skip
PARTS = (*PASSES, "gather", "slice", "dynamic_slice", "rev")
"""What takes some of the probabilities, as those of the labels."""
WALKED = (*PARTS, "add", "sub", "mul", "div", "neg", "reduce_sum", "select_n", "dot_general")
BOUNDS = (
    "max", "min", "clamp", "reduce_max", "reduce_min", "argmax", "cummax", "sort", "tanh", "logistic", "erf", "sin",
    "cos", "abs", "square", "log", "log1p", "cumlogsumexp", "sqrt", "exp", "sign",
)  # fmt: skip
"""Operations in an exponent that keep it small, or show that its size was thought of."""
MOST_WALKED = 60
OWN_FILES = ("/nn/", "/scipy/", "/ops/", "random", "/image/", "special")
"""Parts of the paths of JAX's files whose functions are stable as they are."""


class Exponential(NamedTuple):
    """A form that can be had otherwise."""

    form: Form
    body: Body
    step: TracedEquation
    """The logarithm, or the division."""
    exponent: TracedValue
    """What is too large, or too small, for it."""
    weights: tuple[TracedValue, ...]
    """Factors of the exponentials in a sum."""
    is_bounded: bool
    """Does something keep the exponent from being large?"""


def exponentials(closed: Any) -> Iterator[Exponential]:
    """Those of the user's own lines, derivatives aside."""
    for body in bodies(closed):
        for step in body.program.steps:
            if step.name not in ("log", "log1p", "div") or GRADIENT in step.scope or not is_by_hand(step):
                continue
            found = _of_division(body, step) if step.name == "div" else _of_logarithm(body, step)
            if found is not None:
                yield found


def is_by_hand(step: TracedEquation) -> bool:
    """Did a line of the user's ask for this very operation? A call of `jax.nn.softmax` asks for another."""
    files = (frame.file_name for each in step.inwards for frame in frames_of(each))
    inside = takewhile(lambda file: is_generated(file) or owner_of(file) not in ("user", "package"), files)
    inside_jax = (file.replace("\\", "/").partition("jax/_src")[2] for file in inside)
    is_of_jax = any(part in file for file in inside_jax for part in OWN_FILES)
    return is_users_own(*step.inwards) and not is_of_jax


def _of_logarithm(body: Body, step: TracedEquation) -> Exponential | None:
    inner = body.maker(body.through(step.reads[0], PARTS))
    if inner is None:
        return None
    if step.name == "log1p":
        return _of_log1p(body, step, inner)
    if inner.name == "logistic":
        return _found("log-sigmoid", body, step, inner.reads[0])
    if inner.name == "sub" and _number(inner.reads[0]) == 1 and (sigmoid := _maker(body, inner.reads[1], "logistic")):
        return _found("log-one-minus-sigmoid", body, step, sigmoid.reads[0])
    if inner.name == "div" and (logits := _logits_of_softmax(body, inner)) is not None:
        return _found("log-softmax", body, step, logits)
    if inner.name == "add":
        return _of_log_of_sum(body, step, inner)
    summed = _unscaled(body, inner)
    if summed is not None and summed.name == "reduce_sum":
        return _of_sum(body, step, summed)
    return None


def _of_log1p(body: Body, step: TracedEquation, inner: TracedEquation) -> Exponential | None:
    if inner.name == "exp" and is_by_hand(inner):
        return _found("softplus", body, step, inner.reads[0])
    sigmoid = _maker(body, inner.reads[0], "logistic") if inner.name == "neg" else None
    return _found("log-one-minus-sigmoid", body, step, sigmoid.reads[0]) if sigmoid else None


def _of_log_of_sum(body: Body, step: TracedEquation, added: TracedEquation) -> Exponential | None:
    """log(1 + exp(x)), log(exp(x) + exp(y))."""
    exps = [_exp_by_hand(body, one) for one in added.reads]
    known = [one for one in exps if one is not None]
    if len(known) == 2:
        return _found("log-add-exp", body, step, known[0].reads[0], also=known[1].reads[0])
    if len(known) == 1 and any(_number(one) == 1 for one in added.reads):
        return _found("softplus", body, step, known[0].reads[0])
    return None


def _of_sum(body: Body, step: TracedEquation, summed: TracedEquation) -> Exponential | None:
    inner = body.maker(body.through(summed.reads[0], PASSES))
    if inner is None or inner.name not in ("exp", "mul"):
        return None
    sides = [inner.makes[0]] if inner.name == "exp" else [*inner.reads]
    exps = [(one, made) for one in sides if (made := _exp_by_hand(body, one)) is not None]
    if len(exps) != 1:
        return None
    weights = tuple(one for one in sides if one is not exps[0][0])
    return _found("log-sum-exp", body, step, exps[0][1].reads[0], weights)


def _of_division(body: Body, step: TracedEquation) -> Exponential | None:
    """exp(x) / sum(exp(x)), exp(x) / (1 + exp(x))."""
    above = _exp_by_hand(body, step.reads[0])
    below = body.maker(body.through(step.reads[1], PASSES))
    if above is None or below is None:
        return None
    if below.name == "reduce_sum" and _is_same(body, below.reads[0], above):
        return _found("softmax", body, step, above.reads[0])
    is_sigmoid = below.name == "add" and any(_number(one) == 1 for one in below.reads)
    if is_sigmoid and any(_is_same(body, one, above) for one in below.reads):
        return _found("sigmoid", body, step, above.reads[0])
    return None


def _logits_of_softmax(body: Body, divided: TracedEquation) -> TracedValue | None:
    """What the exponentials of a division by their sum are of, whoever wrote it."""
    above, below = (body.maker(body.through(one, PASSES)) for one in divided.reads)
    if above is None or below is None or above.name != "exp" or below.name != "reduce_sum":
        return None
    return above.reads[0] if _is_same(body, below.reads[0], above) else None


def _found(
    form: Form,
    body: Body,
    step: TracedEquation,
    exponent: TracedValue,
    weights: tuple[TracedValue, ...] = (),
    also: TracedValue | None = None,
) -> Exponential:
    # Taking off the maximum does not help a softmax whose logarithm is taken.
    is_bounded = form != "log-softmax" and any(_is_bounded(body, one) for one in (exponent, also) if one is not None)
    return Exponential(form, body, step, exponent, weights, is_bounded)


def _is_bounded(body: Body, exponent: TracedValue) -> bool:
    seen, waiting = set[int](), [exponent]
    while waiting and len(seen) < MOST_WALKED:
        value = waiting.pop()
        step = body.maker(value)
        if step is None or id(value) in seen:
            continue
        seen.add(id(value))
        is_square = step.name == "mul" and step.reads[0] is step.reads[1]
        if step.name in BOUNDS or is_square or step.name in ("integer_pow", "pow") or "custom" in step.name:
            return True
        waiting += step.reads if step.name in WALKED else ()
    return len(seen) >= MOST_WALKED


def _exp_by_hand(body: Body, value: TracedValue) -> TracedEquation | None:
    step = _maker(body, value, "exp")
    return step if step is not None and is_by_hand(step) else None


def _is_same(body: Body, value: TracedValue, exp: TracedEquation) -> bool:
    made = body.maker(body.through(value, PASSES))
    return made is not None and made.name == "exp" and (made is exp or made.reads[0] is exp.reads[0])


def _unscaled(body: Body, step: TracedEquation) -> TracedEquation | None:
    """What a mean divides, or the step itself."""
    if step.name == "div" and _number(step.reads[1]) is not None:
        return body.maker(body.through(step.reads[0], PASSES))
    return step


def _maker(body: Body, value: TracedValue, name: str) -> TracedEquation | None:
    step = body.maker(body.through(value, PASSES))
    return step if step is not None and step.name == name else None


def _number(value: TracedValue) -> float | None:
    return float(value.literal) if value.literal is not None and np.ndim(value.literal) == 0 else None
