"""Identities and diagonal matrices in a traced program, as `jnp.eye` and `jnp.diag` make them."""

from __future__ import annotations

from benchax.auditing.dataflow import Body
from benchax.auditing.traced import TracedEquation, TracedValue

Axes = tuple[int, int]
"""Two axes of an array that is 0 wherever their indices differ."""
KEEPS = ("convert_element_type", "copy", "neg", "real", "stop_gradient")


def is_identity(body: Body, step: TracedEquation) -> bool:
    """Is it the identity matrix, of booleans: `iota == iota`, along either axis?"""
    shape = step.makes[0].shape if step.makes else ()
    if step.name != "eq" or len(shape) != 2 or shape[0] != shape[1]:
        return False
    counted = [_counted_axis(body, value) for value in step.reads]
    return sorted(axis for axis in counted if axis is not None) == [0, 1]


def _counted_axis(body: Body, value: TracedValue) -> int | None:
    """The axis along which this array counts from 0; None where it does not, as in `jnp.eye(n, k=1)`."""
    step = body.maker(value)
    while step is not None and (step.name == "convert_element_type" or (step.name == "add" and _adds_nothing(step))):
        step = body.maker(step.reads[0])
    return step.equation.params["dimension"] if step is not None and step.name == "iota" else None


def _adds_nothing(step: TracedEquation) -> bool:
    return _is_number(step.reads[1], 0)


def _is_number(value: TracedValue, number: int) -> bool:
    return value.literal is not None and not value.shape and bool(value.literal == number)


def is_zero(body: Body, value: TracedValue) -> bool:
    return _is_number(body.through(value, ("broadcast_in_dim", "convert_element_type")), 0)


def diagonal_axes(body: Body, value: TracedValue) -> Axes | None:
    """The axes along which an array is diagonal, and every matrix of a batch is; None where that is not known."""
    step = body.maker(value)
    if step is None:
        return None
    if is_identity(body, step):
        return 0, 1
    if step.name in KEEPS:
        return diagonal_axes(body, step.reads[0])
    if step.name == "select_n" and len(step.reads) == 3:
        return diagonal_axes(body, step.reads[0]) if is_zero(body, step.reads[1]) else None
    if step.name in ("broadcast_in_dim", "transpose"):
        return _moved(step, diagonal_axes(body, step.reads[0]))
    if step.name in ("mul", "div"):
        factors = step.reads if step.name == "mul" else step.reads[:1]
        return next((axes for each in factors if (axes := diagonal_axes(body, each)) is not None), None)
    return None


def identity_of(body: Body, value: TracedValue) -> TracedEquation | None:
    """The identity that makes an array diagonal."""
    step = body.maker(value)
    if step is None or is_identity(body, step):
        return step
    reads = step.reads if step.name == "mul" else step.reads[:1]
    return next((identity_of(body, one) for one in reads if diagonal_axes(body, one) is not None), None)


def _moved(step: TracedEquation, axes: Axes | None) -> Axes | None:
    """Where two axes are after a broadcast or a transposition; None where one of them is repeated."""
    if axes is None:
        return None
    params, before, after = step.equation.params, step.reads[0].shape, step.makes[0].shape
    if step.name == "transpose":
        order = list(params["permutation"])
        return order.index(axes[0]), order.index(axes[1])
    i, j = (int(params["broadcast_dimensions"][axis]) for axis in axes)
    return (i, j) if (before[axes[0]], before[axes[1]]) == (after[i], after[j]) else None
