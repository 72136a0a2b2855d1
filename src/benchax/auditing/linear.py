"""Follows values through operations that are linear in them, as directions of a derivative are pushed through it.

What is not known to be linear ends the search: a direction enters every operation of `jax.jvp` linearly, while a point
at which a function is evaluated does not, even where both are rows of an identity matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchax.auditing.traced import TracedEquation, flow

IN_ALL = frozenset(
    [
        "add",
        "add_any",
        "broadcast_in_dim",
        "complex",
        "concatenate",
        "conj",
        "convert_element_type",
        "copy",
        "copy_p",
        "cumsum",
        "expand_dims",
        "fft",
        "imag",
        "neg",
        "pad",
        "psum",
        "real",
        "reduce_precision",
        "reduce_sum",
        "reduce_window_sum",
        "reshape",
        "rev",
        "sharding_constraint",
        "slice",
        "split",
        "squeeze",
        "stack",
        "sub",
        "tile",
        "transpose",
        "unstack",
        "optimization_barrier",
        "name",
    ]
)
"""Linear in all operands together."""
IN_ONE = frozenset(("mul", "dot_general", "conv_general_dilated"))
"""Linear in one operand where the other does not depend on it."""
IN_SOME = {
    "div": (0,),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "gather": (0,),
    "scatter": (0, 2),
    "scatter-add": (0, 2),
    "scatter-mul": (0,),
    "triangular_solve": (1,),
    "tridiagonal_solve": (3,),
}
"""Linear in the operands at these positions, which may depend on it."""


def depend_linearly(step: TracedEquation, depends: Sequence[bool]) -> list[bool] | None:
    """Which results depend on what some operands depend on; None where not all are known to do so linearly."""
    name, positions = step.name, [i for i, one in enumerate(depends) if one]
    if name in _NESTED:
        return _NESTED[name](step, list(depends))
    is_linear = (
        name in IN_ALL
        or (name in IN_ONE and len(positions) == 1)
        or (name == "select_n" and 0 not in positions)
        or set(positions) <= set(IN_SOME.get(name, ()))
    )
    return [True] * len(step.makes) if is_linear else None


def _through(closed: Any, depends: Sequence[bool]) -> list[bool] | None:
    """Of a whole program: its outputs, by its inputs."""
    program = flow(closed)
    known = {id(value) for value, one in zip(program.inputs, depends, strict=True) if one}
    for step in program.steps:
        reads = [id(value) in known for value in step.reads]
        if any(reads):
            makes = depend_linearly(step, reads)
            if makes is None:
                return None
            known |= {id(value) for value, one in zip(step.makes, makes, strict=True) if one}
    return [id(value) in known for value in program.outputs]


def _of_loop(closed: Any, constants: list[bool], carries: list[bool], others: list[bool]) -> list[bool] | None:
    """Carries are followed until no more of them depend on it."""
    while True:
        found = _through(closed, [*constants, *carries, *others])
        if found is None:
            return None
        after = [one or new for one, new in zip(carries, found, strict=False)]
        if after == carries:
            return [*carries, *found[len(carries) :]]
        carries = after


def _of_scan(step: TracedEquation, depends: list[bool]) -> list[bool] | None:
    return _of_loop(step.equation.params["jaxpr"], *step.split_operands(depends))


def _of_while(step: TracedEquation, depends: list[bool]) -> list[bool] | None:
    params = step.equation.params
    condition = params["cond_nconsts"]
    found = _of_loop(params["body_jaxpr"], *step.split_operands(depends))
    if found is None or any(depends[:condition]):
        return None
    # How often it runs may not depend on it either.
    inside = flow(params["cond_jaxpr"])
    carried = inside.inputs[condition:]
    asked = {id(value) for step in inside.steps for value in step.reads}
    is_asked = any(one and id(value) in asked for value, one in zip(carried, found, strict=True))
    return None if is_asked else found


def _of_cond(step: TracedEquation, depends: list[bool]) -> list[bool] | None:
    branches = [_through(branch, depends[1:]) for branch in step.equation.params["branches"]]
    known = [branch for branch in branches if branch is not None]
    if depends[0] or len(known) < len(branches):
        return None
    return [any(each) for each in zip(*known, strict=True)]


_NESTED = {"scan": _of_scan, "while": _of_while, "cond": _of_cond}
