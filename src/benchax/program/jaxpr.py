"""The program as JAX traced it, before any compiler: equations, primitives with their source lines, captured arrays.

It comes from `Traced.jaxpr` by walking `eqns`, including nested jaxprs, each at its place. A function that is called
twice counts twice, the body of a loop once, and each branch of a cond once.

Lines and scopes come from `eqn.source_info`, which JAX does not document (tried on jax 0.6.2 to 0.12.0.1). Only this
file reads it. If it is missing or different, lines and scopes are empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchax.grouping import group_by
from benchax.program import arguments
from benchax.program.arguments import ArgumentLeaf
from benchax.results.inspection import Argument, JaxprFacts, Primitive
from benchax.source_files import owner_of
from benchax.specs import spec_of

LOOPS = ("scan", "while", "pallas_call")
"""Primitives whose inner jaxprs may run many times."""
MOST_PLACES = 10
"""Lines and scopes that are kept of each primitive."""

# Below these frames is the caller of benchax, not the code that requested the operation.
_END = str(Path(__file__).parents[1] / "measuring")


PROGRAMS: dict[str, str] = {
    "while": "cond_jaxpr body_jaxpr",
    "scan": "jaxpr",
    "cond": "branches",
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "core_closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "custom_linear_solve": "jaxprs",
}
"""Primitives that run programs, and the parameters that hold these. JAX documents this nowhere (tried on 0.6.0, 0.10.2,
0.11.2 and 0.12.0.1)."""
INLINED = {
    name: params for name, params in PROGRAMS.items() if name not in ("while", "scan", "cond", "custom_linear_solve")
}
"""Equations that stand for the program that they hold."""


def names(text: str) -> frozenset[str]:
    """Names of primitives, separated by spaces."""
    return frozenset(text.split())


class Equation(NamedTuple):
    """One equation and its place."""

    equation: Any
    depth: int
    """1 for the outermost."""
    in_loop: bool
    scope: str


def jaxpr_facts(traced: jax.stages.Traced, static: Sequence[int | str] = ()) -> JaxprFacts:
    """Everything that can be read from the jaxpr.

    Args:
        static: positions of static arguments, see `arguments.inputs`.
    """
    jaxpr = traced.jaxpr
    found = list(equations(jaxpr))
    return JaxprFacts(
        text=jaxpr.pretty_print(use_color=False),  # inside IPython `str` has escape codes in it
        equations=len(found),
        outer_equations=sum(each.depth == 1 for each in found),
        equations_in_loops=sum(each.in_loop for each in found),
        depth=max((each.depth for each in found), default=1),
        primitives=count_primitives(found),
        inputs=_describe(arguments.inputs(traced, static), jaxpr.in_avals, "input"),
        outputs=_describe(arguments.outputs(traced), jaxpr.out_avals, "output"),
    )


def equations(jaxpr: Any, depth: int = 1, in_loop: bool = False, scope: str = "") -> Iterator[Equation]:
    """Every equation, each before what is nested in it."""
    for equation in open_program(jaxpr)[0].eqns:
        here = join_scope(scope, equation)
        yield Equation(equation, depth, in_loop, here)
        inside = in_loop or equation.primitive.name in LOOPS
        for nested in nested_in(equation):
            yield from equations(nested, depth + 1, inside, here)


def every_equation(program: Any) -> Iterator[Any]:
    """Every equation of a program, open or closed, and of all programs in the parameters of its primitives."""
    return (each.equation for each in equations(program))


def programs_of(equation: Any) -> list[Any]:
    """The programs that a known primitive runs, in the order of `PROGRAMS`; none for other primitives."""
    found = [
        equation.params[name] for name in PROGRAMS.get(equation.primitive.name, "").split() if name in equation.params
    ]
    if equation.primitive.name == "custom_linear_solve":  # the others serve derivatives only
        found = [programs.solve for programs in found]
    return [program for part in found for program in (part if isinstance(part, tuple) else (part,))]


def nested_in(equation: Any) -> list[Any]:
    """The jaxprs among an equation's parameters, open or closed."""
    return [
        each
        for value in equation.params.values()
        for each in (value if isinstance(value, list | tuple) else (value,))
        if hasattr(each, "eqns")  # open ones and closed ones have it
    ]


class LoopOperands(NamedTuple):
    """One value for each input of a loop's body, in the groups of `jax.lax.scan`."""

    consts: list[Any]
    """Each iteration reads the same ones."""
    carry: list[Any]
    xs: list[Any]
    """Each iteration of a scan reads one row of these; a while loop has none."""


def solve_operands(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """The operands of the program of a `custom_linear_solve` that solves: the others serve derivatives only."""
    matvec, vecmat, solve, transposed = (length or 0 for length in equation.params["const_lengths"])
    first = matvec + vecmat
    return [*operands[first : first + solve], *operands[first + solve + transposed :]]


def split_operands(loop: Any, values: Sequence[Any]) -> LoopOperands:
    """Groups values that belong to the operands of a scan or while equation.

    The inputs of a scan's body come in the same order as its operands. A while loop also has operands that only its
    condition reads: these are left out. JAX does not document the counts (tried on jax 0.6.2 to 0.12.0.1).
    """
    params = loop.params
    if loop.primitive.name == "while":
        values = values[params["cond_nconsts"] :]
        n_consts, n_carry = params["body_nconsts"], len(values)
    elif "ft_in" in params:  # a scan since jax 0.11
        n_consts, n_carry, _ = map(len, params["ft_in"].unpack())
    else:
        n_consts, n_carry = params["num_consts"], params["num_carry"]
    first_x = n_consts + n_carry
    return LoopOperands(list(values[:n_consts]), list(values[n_consts:first_x]), list(values[first_x:]))


def frames_of(equation: Any) -> list[Any]:
    """JAX's frames that led to an equation, innermost first; none where they are not told."""
    try:
        return list(equation.source_info.traceback.frames)
    except AttributeError:  # another JAX, see the head of this module: an equation without a line is still one
        return []


def user_line(equation: Any) -> str:
    """file:line of the innermost frame that is neither JAX's nor Python's; empty where it is not told."""
    frames = takewhile(lambda frame: not frame.file_name.startswith(_END), frames_of(equation))
    # An installed package can be the user's own, too, and so can a benchax workload.
    return next(
        (_place(frame) for frame in frames if owner_of(frame.file_name) not in ("jax", "python")),
        "",
    )


def own_line(equation: Any) -> str:
    """Returns file:line of the innermost frame in the user's own files, which the user can change. It is empty if there
    is no such frame."""
    return next((_place(frame) for frame in frames_of(equation) if _is_own(frame.file_name)), "")


def call_by_user(equation: Any) -> str:
    """Returns the last name of the function of JAX or a package that the user's own file calls on the way to an
    equation. It is empty if unknown."""
    outside = list(takewhile(lambda frame: not _is_own(frame.file_name), frames_of(equation)))
    is_own = len(outside) < len(frames_of(equation))
    return outside[-1].function_name.rpartition(".")[2] if outside and is_own else ""


def is_users_own(*inwards: Any) -> bool:
    """Returns whether the user's own file asked for an equation, and not a package that it calls. The arguments include
    the equations of the inner jits around it, innermost first."""
    owners = (owner_of(frame.file_name) for each in inwards for frame in frames_of(each))
    return next((owner for owner in owners if owner not in ("jax", "python", "benchax")), "") == "user"


class OwnFrame(NamedTuple):
    """A frame in the user's own files."""

    file: str
    function: str
    line: int


def own_frames(equation: Any) -> list[OwnFrame]:
    """Those that led to an equation, outermost first; none where it is not told."""
    return [
        OwnFrame(frame.file_name, frame.function_name, frame.line_num)
        for frame in reversed(frames_of(equation))
        if _is_own(frame.file_name)
    ]


def line_apart(equation: Any, other: Any) -> str:
    """Returns file:line of the user's code at which the way to an equation leaves the way to another equation. For two
    calls in one function, it is the line of this call. If both came by one line, it is that line. It is empty if
    unknown."""
    here, there = own_frames(equation), own_frames(other)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(here, there, strict=False)))
    is_apart = len(here) > common and (len(there) == common or here[common][:2] == there[common][:2])
    frame = here[common] if is_apart else here[common - 1] if common else None
    return f"{frame.file}:{frame.line}" if frame is not None else ""


def frames_inside(equation: Any, loop: Any) -> list[OwnFrame]:
    """Those from the function that is the body of a loop to an equation in it; none where it is not told."""
    here, around = own_frames(equation), own_frames(loop)
    # In JAX 0.10, the frames of an equation start at the body. In other versions, they also contain the frames of the
    # loop.
    return here[len(around) :] if here[: len(around)] == around else here


def line_of_vmap(equation: Any) -> str:
    """Returns file:line of the user's code that calls the innermost function made by `jax.vmap` on the way to an
    equation. It is empty if there is no such call, or if JAX calls it differently (tried on 0.10.2)."""
    outside = dropwhile(lambda frame: not frame.function_name.endswith("vmap_f"), frames_of(equation))
    return next((_place(frame) for frame in outside if _is_own(frame.file_name)), "")


def _place(frame: Any) -> str:
    return f"{frame.file_name}:{frame.line_num}"


def _is_own(file: str) -> bool:
    return owner_of(file) == "user"


def scope_of(equation: Any) -> str:
    return str(getattr(getattr(equation, "source_info", None), "name_stack", "") or "")


def join_scope(around: str, equation: Any) -> str:
    """The scope of an equation inside a program whose own scope is `around`."""
    return "/".join(part for part in (around, scope_of(equation)) if part)


def is_program(value: Any) -> bool:
    """Is it a jaxpr, open or closed? Told by what it has: `jax.extend`, where the classes are, loads Pallas (20 ms)."""
    return hasattr(value, "eqns")


def is_closed(program: Any) -> bool:
    """Has it constants? Before JAX 0.11, an open jaxpr has none."""
    return hasattr(program, "consts")


def is_literal(atom: Any) -> bool:
    return hasattr(atom, "val")


def open_program(program: Any) -> tuple[Any, Sequence[Any]]:
    """(the jaxpr, its constants)."""
    return (program.jaxpr, program.consts) if is_closed(program) else (program, ())


def count_primitives(found: list[Equation]) -> tuple[Primitive, ...]:
    """How often each operation is there, and where; most frequent first."""
    by_name = group_by(found, lambda each: each.equation.primitive.name)
    listed = [
        Primitive(
            name,
            count=len(group),
            in_loops=sum(each.in_loop for each in group),
            lines=_frequent(user_line(each.equation) for each in group),
            scopes=_frequent(each.scope for each in group),
        )
        for name, group in by_name.items()
    ]
    return tuple(sorted(listed, key=lambda p: (-p.count, p.name)))


def _frequent(texts: Iterator[str]) -> tuple[str, ...]:
    counted = Counter(text for text in texts if text)
    return tuple(text for text, _ in counted.most_common(MOST_PLACES))


def _describe(leaves: list[ArgumentLeaf], avals: Sequence[Any], what: str) -> tuple[Argument, ...]:
    """The jaxpr knows weak types, the tree of the call knows names. Without names where the two do not fit."""
    fits = len(leaves) == len(avals)
    paths = [leaf.path for leaf in leaves] if fits else [f"{what}[{i}]" for i in range(len(avals))]
    return tuple(
        Argument(
            path,
            spec=spec_of(aval),
            size_bytes=arguments.size_bytes(aval.shape, aval.dtype),
            is_weak=bool(getattr(aval, "weak_type", False)),
        )
        for path, aval in zip(paths, avals, strict=True)
        if hasattr(aval, "shape") and hasattr(aval, "dtype")
    )
