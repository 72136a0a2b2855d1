"""One index of a traced program: each equation with its line, its work, how often it runs, and its neighbors.

Inner jits, custom derivatives and `jax.checkpoint` are inlined, as XLA inlines them. Bodies of loops, branches and
`shard_map` are linked to what they are given: `Value.outer` is what an input of a body is outside of it, so that
`Value.back` and `Value.view` can cross the border.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from benchax.grouping import reach
from benchax.program import arguments
from benchax.program.jaxpr import (
    INLINED,
    LoopOperands,
    is_closed,
    is_literal,
    join_scope,
    names,
    nested_in,
    open_program,
    own_line,
    solve_operands,
    split_operands,
    user_line,
)
from benchax.specs import spec_of

KEEPS = names(
    "copy copy_p reshape squeeze expand_dims transpose stop_gradient sharding_constraint optimization_barrier name"
    " mesh_cast pvary reduce_precision"
)
"""Operations that move all elements and change none. This is the only such list."""
CONVERTS = frozenset({"convert_element_type"})
REPEATS = frozenset({"broadcast_in_dim", "tile"})
MOVES = KEEPS | CONVERTS | REPEATS
TAKES = names("slice dynamic_slice gather rev unstack split index_in_dim")
"""Operations that take some elements of their first operand, or take them in another order."""
ELEMENTWISE = names(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy cos cosh div"
    " eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log log1p logistic lt max min"
    " mul ne neg not or pow real rem round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign"
    " sin sinh sqrt square stop_gradient sub tan tanh xor"
)
"""Operations that make each element of the elements in the same place. This is the only such list."""
BACKWARD = "transpose("
"""Part of the scope of an operation that a reverse-mode derivative has made."""
FORWARD = "jvp("
"""Part of the scope of an operation that any derivative has made."""


class View(NamedTuple):
    """An array as a view of another one: the same elements, moved, repeated, converted, or scaled by a number."""

    source: Value
    axes: tuple[int | None, ...]
    """For each axis, the axis of `source` that it is; None if the elements along it are all the same."""
    way: tuple[Value, ...]
    """The values from the array to `source`, both included."""

    def sources(self, axes: Collection[int]) -> list[int] | None:
        """The axes of `source` that these axes are, sorted; None if one of them only repeats elements."""
        found = [self.axes[axis] for axis in axes]
        return sorted(axis for axis in found if axis is not None) if None not in found else None


@dataclass(eq=False, repr=False)  # they refer to one another
class Value:
    """An array of the program. Two are the same array if they are the same object."""

    aval: Any
    body: Body
    literal: Any = None
    """The number, if it is written in the program."""
    const: Any = None
    """The array, if the program holds it."""
    maker: TracedOp | None = None
    readers: list[TracedOp] = field(default_factory=list["TracedOp"])
    """Operations of the same body that read it, each once."""
    outer: Value | None = None
    """The value outside that an input of a body is. None for carries and rows, which differ in each iteration."""
    inner: list[Value] = field(default_factory=list["Value"])
    """The inputs of bodies that are the same array."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(getattr(self.aval, "shape", ()))

    @property
    def dtype(self) -> Any:
        return getattr(self.aval, "dtype", None)

    @property
    def is_weak(self) -> bool:
        return bool(getattr(self.aval, "weak_type", False))

    @property
    def spec(self) -> str:
        return spec_of(self)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return arguments.size_bytes(self.shape, self.dtype) or 0

    def is_of(self, *kinds: Any) -> bool:
        return any(jnp.issubdtype(self.dtype, kind) for kind in kinds)

    @property
    def number(self) -> float | None:
        """The number that every element is, if it is written in the program."""
        source = self.back(MOVES, out=True)
        if source.literal is None or np.ndim(source.literal) or not source.is_of(jnp.number, jnp.bool_):
            return None
        return float(np.real(source.literal))

    @property
    def is_output(self) -> bool:
        """Does its body return it?"""
        return self in self.body.outputs

    @property
    def uses(self) -> int:
        """How often it is read or returned."""
        return sum(op.reads.count(self) for op in self.readers) + self.body.outputs.count(self)

    def back(self, through: Collection[str] = MOVES, *, out: bool = False) -> Value:
        """The value behind it, back through operations of these names; with `out` also out of loops and branches."""
        value = self
        while True:
            if value.maker is not None and value.maker.name in through:
                value = value.maker.reads[0]
            elif out and value.maker is None and value.outer is not None:
                value = value.outer
            else:
                return value

    def made_by(self, *names: str, through: Collection[str] = MOVES) -> TracedOp | None:
        """The operation that makes it, if it has one of these names."""
        maker = self.back(through).maker
        return maker if maker is not None and maker.name in names else None

    def behind(self, through: Collection[str] | None = None, *, out: bool = False) -> Iterator[Value]:
        """It and what it is made of in its body, each once; `through` limits the operations that are crossed. With
        `out` also what is outside of loops and branches."""

        def before(value: Value) -> Sequence[Value]:
            if value.maker is not None:
                return value.maker.reads if through is None or value.maker.name in through else ()
            return (value.outer,) if out and value.outer is not None else ()

        return reach([self], before)

    @property
    def roots(self) -> set[Value]:
        """Returns the original values that it depends on, outside loops and branches. They are inputs, arrays of the
        program, and values that differ in each iteration."""
        return {one for one in self.behind(out=True) if not (one.maker or one.outer) and one.literal is None}

    def varies_in(self, loop: Body) -> bool:
        """Does it depend on a carry or a row of this loop?"""
        return any(root.body is loop for root in self.roots)

    def view(self, *, scaled: bool = False, out: bool = False) -> View:
        """It as a view of the value behind it; `scaled` also through products with numbers, signs, quotients, and
        sums with 0."""
        axes, way = tuple[int | None, ...](range(len(self.shape))), list[Value]((self,))
        while True:
            value = way[-1]
            step = _step_back(value, scaled)
            if step is not None:
                before, moved = step
                axes = tuple(None if axis is None else moved[axis] for axis in axes)
                way.append(before)
            elif out and value.maker is None and value.outer is not None:
                way.append(value.outer)
            else:
                return View(value, axes, tuple(way))

    @cached_property
    def varying(self) -> frozenset[int]:
        """The axes along which elements can differ, as far as broadcasts and elementwise operations show."""
        return _varying(self, MOST_DEPTH)


def list_ahead(values: Iterable[Value]) -> set[Value]:
    """These values and all that depends on them, also inside of loops and branches. A carry or a row depends on all
    that its loop reads."""

    def after(value: Value) -> list[Value]:
        inside = [one for op in value.readers for body in op.bodies for one in body.inputs if one.outer is None]
        return [*value.inner, *inside, *(one for op in value.readers for one in op.makes)]

    return set(reach(values, after))


MOST_DEPTH = 8
"""Elementwise operations in a row that `Value.varying` looks through, a limit of time. With four, a condition in the
programs of vmapped-cond seems to differ between rows. With 16, rules find the same."""


def _varying(value: Value, depth: int) -> frozenset[int]:
    view = value.view()
    source, maker = view.source, view.source.maker
    own = frozenset(i for i, n in enumerate(source.shape) if n > 1)
    if maker is not None and maker.name == "iota":
        own &= {maker.params["dimension"]}
    elif maker is not None and maker.name in ELEMENTWISE and depth:
        own &= frozenset[int]().union(
            *(_varying(one, depth - 1) for one in maker.reads if len(one.shape) == len(source.shape))
        )
    return frozenset(i for i, axis in enumerate(view.axes) if axis in own)


def _step_back(value: Value, scaled: bool) -> tuple[Value, tuple[int | None, ...]] | None:
    """(what a moving operation reads, for each axis of its result the axis of that); None for other operations."""
    op = value.maker
    if op is None or not op.reads:
        return None
    source, params, n = op.reads[0], op.params, len(value.shape)
    match op.name:
        case "transpose":
            return source, tuple(int(axis) for axis in params["permutation"])
        case "broadcast_in_dim":
            placed = {int(to): i for i, to in enumerate(params["broadcast_dimensions"])}
            kept = [(i, placed.get(i)) for i in range(n)]
            return source, tuple(
                at if at is not None and source.shape[at] == value.shape[i] else None for i, at in kept
            )
        case "tile":
            extra = n - len(source.shape)
            kept = [(i, i - extra) for i in range(n)]
            if any(at >= 0 and source.shape[at] not in (1, value.shape[i]) for i, at in kept):
                return None
            return source, tuple(at if at >= 0 and source.shape[at] == value.shape[i] else None for i, at in kept)
        case "reshape" | "squeeze" | "expand_dims":
            placed = _kept_axes(source.shape, value.shape)
            return None if placed is None else (source, placed)
        case "optimization_barrier":
            return op.reads[op.makes.index(value)], tuple(range(n))
        case "mul" | "div" if scaled and len(op.reads) == 2:
            order = (op.reads, op.reads[::-1]) if op.name == "mul" else (op.reads,)
            scales = (one for one, other in order if one.shape == value.shape and _is_scale(other, value))
            return next(((one, tuple(range(n))) for one in scales), None)
        case "add" | "sub" if scaled and source.shape == value.shape and op.reads[1].number == 0:
            return source, tuple(range(n))
        case "neg" if scaled:
            return source, tuple(range(n))
        case name if name in KEEPS | CONVERTS and source.shape == value.shape:
            return source, tuple(range(n))
    return None


def _is_scale(factor: Value, value: Value) -> bool:
    """Is it one number? A number that is multiplied by another one is scaled only if that is written in the program."""
    return factor.number is not None or (bool(value.shape) and not factor.varying)


def _kept_axes(before: Sequence[int], after: Sequence[int]) -> tuple[int | None, ...] | None:
    """Where each axis was before a reshape that only adds or removes axes of length 1; None for others."""
    long = [i for i, n in enumerate(before) if n != 1], [i for i, n in enumerate(after) if n != 1]
    if [before[i] for i in long[0]] != [after[i] for i in long[1]]:
        return None
    placed = dict(zip(long[1], long[0], strict=True))
    return tuple(placed.get(i) for i in range(len(after)))


@dataclass(eq=False, repr=False)  # they refer to one another
class TracedOp:
    """One equation, with inner jits inlined."""

    equation: Any
    body: Body
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]
    calls: tuple[Any, ...]
    """The equations that it was inlined for, outermost first. JAX keeps the trace of an inner jit without the line that
    calls it."""
    around: str
    """The scope of the outermost of `calls`, and of loops around it."""
    bodies: list[Body] = field(default_factory=list["Body"])
    """The programs that it runs."""

    @property
    def name(self) -> str:
        return self.equation.primitive.name

    @property
    def params(self) -> Mapping[str, Any]:
        return self.equation.params

    @cached_property
    def scope(self) -> str:
        return join_scope(self.around, self.equation)

    @cached_property
    def is_backward(self) -> bool:
        """Has a reverse-mode derivative made it?"""
        return BACKWARD in self.scope

    @property
    def outermost(self) -> Any:
        """The equation of its body that it comes from: an inner jit, or its own."""
        return self.calls[0] if self.calls else self.equation

    @property
    def inwards(self) -> tuple[Any, ...]:
        """Its equation and the equations that it was inlined for, innermost first."""
        return (self.equation, *reversed(self.calls))

    @cached_property
    def line(self) -> str:
        """file:line in the user's own files, or in a library's; empty if JAX doesn't report it."""
        own = next(filter(None, map(own_line, self.inwards)), "")
        return own or next(filter(None, map(user_line, self.inwards)), "")

    @property
    def at(self) -> str:
        """For the end of a sentence: " at file:line", or nothing."""
        return f" at {self.line}" if self.line else ""

    @cached_property
    def work(self) -> float:
        """Operations of one run, with the bodies of its loops and the most expensive of its branches."""
        inside = [body.work * (body.trips or 1) for body in self.bodies if body.kind != "condition"]
        nested = (max(inside) if self.name == "cond" else sum(inside)) if inside else None
        return count_operations(self, nested)

    @property
    def times(self) -> float:
        """How often it runs in a call; a loop of unknown length counts once."""
        return self.body.times

    def split(self, values: Sequence[Any]) -> LoopOperands:
        """Groups values that belong to the operands of this loop."""
        return split_operands(self.equation, values)


@dataclass(eq=False, repr=False)  # they refer to one another
class Body:
    """The program itself, or what a loop, a branch, or a device runs."""

    kind: str = "program"
    """"program", "scan", "while", "condition", "branch", or the name of another primitive."""
    op: TracedOp | None = None
    """The loop or branch that runs it."""
    times: float = 1.0
    """Runs in a call."""
    constants: int = 0
    """This many first inputs of a loop's body are the same in each iteration."""
    trips: int | None = None
    """Iterations of the loop; None for other bodies, and for loops of unknown length."""
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    ops: list[TracedOp] = field(default_factory=list[TracedOp])

    @property
    def is_loop(self) -> bool:
        return self.kind in ("scan", "while")

    @property
    def around(self) -> list[Body]:
        """It and the bodies that it is in, innermost first; the program is the last."""
        return [self, *(self.op.body.around if self.op is not None else ())]

    @property
    def is_repeated(self) -> bool:
        """Does it run in a loop?"""
        return any(body.is_loop for body in self.around)

    @cached_property
    def work(self) -> float:
        """Operations of one run."""
        return sum(op.work for op in self.ops)

    @property
    def carries(self) -> list[tuple[Value, Value, Value]]:
        """Each carry of a loop: (what the loop begins with, what the body takes, what the body returns)."""
        assert self.op is not None
        starts = self.op.split(self.op.reads).carry
        return list(zip(starts, self.inputs[self.constants :], self.outputs, strict=False))

    def position(self, value: Value) -> int | None:
        """Its place among the inputs."""
        return next((i for i, one in enumerate(self.inputs) if one is value), None)


def _in_order(body: Body) -> Iterator[TracedOp]:
    for op in body.ops:
        yield op
        for nested in op.bodies:
            yield from _in_order(nested)


class TracedProgram:
    """A traced program. `bodies` begins with the program itself; each body comes before what is nested in it."""

    def __init__(self, closed: Any) -> None:
        self.bodies: list[Body] = []
        self._consts: dict[int, Value] = {}
        self.body = self._add(Body(), closed, [None] * len(open_program(closed)[0].invars), "")
        self.inputs, self.outputs = self.body.inputs, self.body.outputs

    @property
    def ops(self) -> Iterator[TracedOp]:
        """All operations, in their order; those in loops and branches follow the loop or branch."""
        return _in_order(self.body)

    @property
    def consts(self) -> list[Value]:
        """Arrays that the program holds."""
        return list(self._consts.values())

    def find(self, *names: str) -> Iterator[TracedOp]:
        """Operations of these names, without those of reverse-mode derivatives."""
        return (op for op in self.ops if op.name in names and not op.is_backward)

    @cached_property
    def numbers(self) -> Mapping[Value, Hashable]:
        """A number for each value, the same for values that are computed in the same way from the same values."""
        return _number_values(self.bodies)

    def _add(self, body: Body, program: Any, outers: Sequence[Value | None], scope: str) -> Body:
        self.bodies.append(body)
        jaxpr, consts = open_program(program)
        body.inputs = tuple(Value(v.aval, body, outer=outer) for v, outer in zip(jaxpr.invars, outers, strict=True))
        for value in body.inputs:
            if value.outer is not None:
                value.outer.inner.append(value)
        body.outputs = self._walk(body, jaxpr, consts, body.inputs, scope, ())
        return body

    def _walk(
        self, body: Body, jaxpr: Any, consts: Sequence[Any], given: Sequence[Value], scope: str, calls: tuple[Any, ...]
    ) -> tuple[Value, ...]:
        known: dict[Any, Value] = dict(zip(jaxpr.invars, given, strict=True))
        known |= {v: self._const(v, one) for v, one in zip(jaxpr.constvars, consts, strict=False)}

        def of(atom: Any) -> Value:
            if is_literal(atom):
                return Value(atom.aval, body, literal=atom.val)
            if atom not in known:
                known[atom] = Value(atom.aval, body)
            return known[atom]

        for equation in jaxpr.eqns:
            reads = tuple(of(atom) for atom in equation.invars)
            inner, inner_consts = open_program(equation.params.get(INLINED.get(equation.primitive.name, "")))
            # Otherwise, the inputs of the inner program do not match the operands of the equation one to one.
            if hasattr(inner, "eqns") and len(inner.invars) == len(reads):
                made = self._walk(body, inner, inner_consts, reads, join_scope(scope, equation), (*calls, equation))
                known.update(zip(equation.outvars, made, strict=True))
                continue
            op = TracedOp(equation, body, reads, tuple(of(v) for v in equation.outvars), calls, scope)
            body.ops.append(op)
            for value in op.makes:
                value.maker = op
            for value in dict.fromkeys(reads):
                value.readers.append(op)
            for kind, program, outers, constants, trips in _programs(op):
                nested = Body(kind, op, body.times * (trips or 1), constants, trips)
                op.bodies.append(self._add(nested, program, outers, join_scope(scope, equation)))
        return tuple(of(atom) for atom in jaxpr.outvars)

    def _const(self, variable: Any, const: Any) -> Value:
        """One value for each array, however many inner programs hold it."""
        return self._consts.setdefault(id(const), Value(variable.aval, self.bodies[0], const=const))


def _programs(op: TracedOp) -> Iterator[tuple[str, Any, Sequence[Value | None], int, int | None]]:
    """(kind, program, what its inputs are outside, inputs that stay the same, iterations) of each body."""
    params, reads = op.params, op.reads
    if op.name in ("scan", "while"):
        body = params["jaxpr" if op.name == "scan" else "body_jaxpr"]
        consts, carry, xs = op.split(reads)
        jaxpr, n = open_program(body)[0], len(consts)
        # A carry that the body returns unchanged is the same array.
        same = [before is after for before, after in zip(jaxpr.invars[n:], jaxpr.outvars[: len(carry)], strict=False)]
        kept = [start if is_same else None for start, is_same in zip(carry, same, strict=True)]
        given: list[Value | None] = [*consts, *kept, *[None] * len(xs)]
        yield op.name, body, given, len(consts), params.get("length")
        if op.name == "while":
            n = params["cond_nconsts"]
            yield "condition", params["cond_jaxpr"], [*reads[:n], *kept], n, None
    elif op.name == "cond":
        for branch in params["branches"]:
            yield "branch", branch, reads[1:], 0, None
    elif op.name == "custom_linear_solve":  # its other programs are for derivatives
        given = solve_operands(op.equation, reads)
        yield op.name, params["jaxprs"].solve, given, params["const_lengths"].solve, None
    elif op.name in ("shard_map", "xla_pmap"):
        program = params.get("jaxpr", params.get("call_jaxpr"))
        pairs = zip(open_program(program)[0].invars, reads, strict=True)
        # A part of an array is another array. An array that every device holds in full is the same one.
        yield op.name, program, [r if tuple(v.aval.shape) == r.shape else None for v, r in pairs], 0, None
    else:
        closed = (each for each in nested_in(op.equation) if is_closed(each))
        for program in closed:
            yield op.name, program, [None] * len(program.in_avals), 0, None


class _Numbers(dict[Value, Hashable]):
    """Numbers of literals that are written alike are the same, of other values that are not made here new."""

    def __missing__(self, value: Value) -> Hashable:
        if value.outer is not None:
            self[value] = self[value.outer]
        elif value.literal is not None and not value.shape:
            self[value] = (str(value.literal), value.spec)
        else:
            self[value] = (len(self), "new")
        return self[value]


def _number_values(bodies: Sequence[Body]) -> _Numbers:
    numbers, known = _Numbers(), dict[Hashable, int]()
    for body in bodies:  # each before what is nested in it
        for op in body.ops:
            kept = (
                next((one for one, other in (op.reads, op.reads[::-1]) if other.number == 0), None)
                if op.name == "add"
                else None
            )
            if kept is not None and kept.shape == op.makes[0].shape:
                numbers[op.makes[0]] = numbers[kept]
                continue
            number = known.setdefault((op.name, _params(op), tuple(numbers[value] for value in op.reads)), len(known))
            numbers.update((value, (number, i)) for i, value in enumerate(op.makes))
    return numbers


def _params(op: TracedOp) -> Hashable:
    params = tuple(sorted(op.params.items()))
    try:
        hash(params)
    except TypeError:
        return id(op)
    return params


_indexed: weakref.WeakKeyDictionary[Any, TracedProgram] = weakref.WeakKeyDictionary()


def index(closed: Any) -> TracedProgram:
    """The index of a closed jaxpr, made once for each."""
    if closed not in _indexed:
        _indexed[closed] = TracedProgram(closed)
    return _indexed[closed]


# ---- operations -------------------------------------------------------------------------------------------------
#
# Counted from shapes: rules compare the parts of a program by them. Products and factorizations count as in textbooks
# (Golub and Van Loan, Matrix Computations, 4th ed.). All others count one for each element that they read or make,
# whichever is more; elementary functions count ten, random bits a hundred.

ELEMENTARY = names(
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1 lgamma log log1p"
    " logistic pow sin sinh tan tanh"
)
"""About ten operations each, as vectorized libraries compute them."""
RANDOM = names("random_bits threefry2x32 random_gamma")
"""A word takes 20 rounds of Threefry of five operations each (Salmon et al. 2011)."""


def count_operations(op: TracedOp, nested: float | None) -> float:
    """Operations of one run of `op`, an operation of the index; `nested` are those of the bodies that it runs."""
    if op.name in _COUNTS:
        return float(_COUNTS[op.name](op))
    if nested is not None:
        return nested
    each = 10 if op.name in ELEMENTARY else 100 if op.name in RANDOM else 1
    return float(each * max((value.size for value in (*op.reads, *op.makes)), default=0))


def _of_product(op: TracedOp) -> float:
    (contracted, _), _ = op.params["dimension_numbers"]
    return 2.0 * op.makes[0].size * math.prod(op.reads[0].shape[axis] for axis in contracted)


def _of_convolution(op: TracedOp) -> float:
    """The window and the channels that each output sums over."""
    kernel = op.reads[1]
    features = kernel.shape[op.params["dimension_numbers"].rhs_spec[0]]
    return 2.0 * op.makes[0].size * kernel.size / max(1, features)


def _of_matrix(count: Callable[[int, int], float]) -> Callable[[TracedOp], float]:
    """Counts each matrix of a batch by its longer and its shorter side."""

    def of_op(op: TracedOp) -> float:
        *batch, m, n = op.reads[0].shape
        return math.prod(batch) * count(max(m, n), min(m, n))

    return of_op


def _of_sort(op: TracedOp) -> float:
    n = op.reads[0].shape[op.params.get("dimension", -1)] if op.reads[0].shape else 1
    return sum(value.size for value in op.makes) * math.log2(max(2, n))


def _of_fft(op: TracedOp) -> float:
    made = max(op.makes[0].size, op.reads[0].size)
    return 2.5 * made * math.log2(max(2, math.prod(op.params["fft_lengths"])))


_COUNTS: dict[str, Callable[[TracedOp], float]] = {
    "dot_general": _of_product,
    "conv_general_dilated": _of_convolution,
    "cholesky": _of_matrix(lambda m, n: n**3 / 3),
    "lu": _of_matrix(lambda m, n: n * n * (m - n / 3)),
    "geqrf": _of_matrix(lambda m, n: 2 * n * n * (m - n / 3)),
    "qr": _of_matrix(lambda m, n: 2 * n * n * (m - n / 3)),
    "householder_product": _of_matrix(lambda m, n: 2 * n * n * (m - n / 3)),
    "eigh": _of_matrix(lambda m, n: 4 * n**3 / 3),
    "eig": _of_matrix(lambda m, n: 10 * n**3),
    "svd": _of_matrix(lambda m, n: 4 * m * n * n - 4 * n**3 / 3),
    "triangular_solve": lambda op: op.reads[0].shape[-1] * op.reads[1].size,
    "sort": _of_sort,
    "fft": _of_fft,
}
COSTLY = frozenset(_COUNTS)
"""Primitives that do more than a few operations for each element."""


# ---- patterns ---------------------------------------------------------------------------------------------------
#
# Recognizes arrays of a traced program: identities, one-hot matrices, counts.

Arrays = Mapping[Value, Any]
"""The contents of some values, by value."""
MOST_ELEMENTS = 1 << 24
"""Elements of a known array that are compared with what they could be."""


def counted_axis(value: Value, arrays: Arrays | None = None) -> int | None:
    """The axis along which it counts 0, 1, 2, …, the same everywhere else; None if it isn't known to."""
    view = value.view(out=True)
    source, maker = view.source, view.source.maker
    axis = None
    if maker is not None and maker.name == "iota":
        axis = maker.params["dimension"]
    elif maker is not None and maker.name in ("add", "sub") and maker.reads[1].number == 0:
        axis = counted_axis(maker.reads[0], arrays)
    elif len(source.shape) == 1 and (array := _array(source, arrays)) is not None:
        axis = 0 if np.array_equal(array, np.arange(len(array))) else None
    return next((i for i, one in enumerate(view.axes) if axis is not None and one == axis), None)


def unwrap_index(value: Value) -> Value:
    """The index as written: JAX adds the length of the axis to negative ones."""
    while (maker := value.back(MOVES, out=True).maker) is not None and maker.name == "select_n":
        below = maker.reads[0].made_by("lt")
        if below is None or below.reads[1].number != 0 or len(maker.reads) != 3:
            break
        value = maker.reads[1]
    return value


def identity_axes(value: Value, arrays: Arrays | None = None) -> tuple[int, int] | None:
    """The axes along which it is an identity matrix; None if it isn't known to be one."""
    view = value.view(out=True)
    source, maker = view.source, view.source.maker
    axes = None
    if maker is not None and maker.name == "select_n" and len(maker.reads) == 3:
        is_zero_or_one = maker.reads[1].number == 0 and maker.reads[2].number == 1
        axes = identity_axes(maker.reads[0], arrays) if is_zero_or_one else None
    elif maker is not None and maker.name == "eq" and len(source.shape) == 2 and source.shape[0] == source.shape[1]:
        counted = [counted_axis(one, arrays) for one in maker.reads]
        axes = (0, 1) if sorted(axis for axis in counted if axis is not None) == [0, 1] else None
    elif len(source.shape) == 2 and source.shape[0] == source.shape[1] and source.size <= MOST_ELEMENTS:
        array = _array(source, arrays)
        axes = (0, 1) if array is not None and np.array_equal(array, np.eye(len(array))) else None
    return _placed(view.axes, axes)


def is_one_hot(value: Value, axis: int, arrays: Arrays) -> bool:
    """Are all elements along this axis 0 but one, or is it a sum, a difference, or a multiple of such arrays?"""
    view = value.view(scaled=True, out=True)
    maker, at = view.source.maker, view.axes[axis]
    if maker is None or at is None:
        return False
    match maker.name:
        case "add" | "sub":
            return all(one.shape == view.source.shape and is_one_hot(one, at, arrays) for one in maker.reads)
        case "mul" | "div" | "and":
            factors = maker.reads[:1] if maker.name == "div" else maker.reads
            return any(one.shape == view.source.shape and is_one_hot(one, at, arrays) for one in factors)
        case "select_n" if len(maker.reads) == 3 and maker.reads[1].number == 0:
            return bool(maker.reads[0].shape) and is_one_hot(maker.reads[0], at, arrays)
        case "eq":
            sides = ((maker.reads[0], maker.reads[1]), (maker.reads[1], maker.reads[0]))
            return any(counted_axis(count, arrays) == at and at not in index.varying for count, index in sides)
        case "gather":
            return identity_axes(maker.reads[0], arrays) is not None and _takes_rows(maker, at)
        case "scatter":
            return maker.reads[0].number == 0 and _writes_one_of_each_row(maker, at, arrays)
    return False


def root_of(value: Value) -> Value | None:
    """The value whose square it is; None if it is not written as a square."""
    op = value.maker
    if op is None or op.name not in ("mul", "square", "integer_pow", "pow"):
        return None
    is_product = op.name == "mul" and op.reads[0] is op.reads[1]
    is_power = op.params.get("y") == 2 or (op.name == "pow" and op.reads[1].number == 2)
    return op.reads[0] if is_product or is_power or op.name == "square" else None


def _placed(axes: tuple[int | None, ...], found: tuple[int, int] | None) -> tuple[int, int] | None:
    """Where two axes of a source are in a view of it."""
    placed = [i for i, axis in enumerate(axes) if found is not None and axis in found]
    return (placed[0], placed[1]) if len(placed) == 2 else None


def _takes_rows(gather: TracedOp, axis: int) -> bool:
    """Is this axis of the result a whole axis of the array that is indexed?"""
    numbers, sizes = gather.params["dimension_numbers"], gather.params["slice_sizes"]
    kept = [i for i in range(len(sizes)) if i not in numbers.collapsed_slice_dims]
    whole = [i for i, at in zip(numbers.offset_dims, kept, strict=False) if sizes[at] == gather.reads[0].shape[at]]
    return axis in whole


def _writes_one_of_each_row(scatter: TracedOp, axis: int, arrays: Arrays) -> bool:
    """Does `x.at[arange(n), index].set(1)` write it, with the index along this axis?"""
    numbers, indices = scatter.params["dimension_numbers"], scatter.reads[1].made_by("concatenate", through=())
    written = tuple(numbers.scatter_dims_to_operand_dims)
    if numbers.update_window_dims or len(written) < 2 or axis not in written or indices is None:
        return False
    columns = [unwrap_index(one) for one in indices.reads]
    others = [one for one, at in zip(columns, written, strict=False) if at != axis]
    return len(columns) == len(written) and all(counted_axis(one, arrays) is not None for one in others)


def _array(value: Value, arrays: Arrays | None) -> np.ndarray | None:
    """Its contents, if they are known."""
    array = value.const if value.const is not None else (arrays or {}).get(value)
    array = value.literal if array is None and np.ndim(value.literal) else array
    is_whole = array is not None and getattr(array, "shape", None) == value.shape
    return np.asarray(array) if is_whole and value.size <= MOST_ELEMENTS else None
