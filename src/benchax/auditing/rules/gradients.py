"""Derivatives that are wrong, or that take more time or memory than they need."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, Match, NotApplicable, list_some, rule
from benchax.auditing.rules.compiled import LARGE_BYTES
from benchax.auditing.syntax import Place, named_at
from benchax.errors import NotMeasured
from benchax.grouping import reach
from benchax.program.index import (
    ELEMENTWISE,
    FORWARD,
    KEEPS,
    Body,
    TracedOp,
    TracedProgram,
    Value,
    identity_axes,
)
from benchax.program.jaxpr import is_users_own, names, own_line
from benchax.units import count, number, percent, size

# ---- where-gradient --------------------------------------------------------------------------------------------------
#
# Gradients of `jnp.where`, and of products with masks, that are NaN where the value is finite.
#
# The elementwise operations behind each are computed by themselves, at a few points.

SINGULAR = names("sqrt rsqrt cbrt log log1p div pow acos asin atanh acosh integer_pow")
STACKS = {"stack": "axis", "concatenate": "dimension"}
ALONG_FIRST = {**STACKS, "argmax": "axes"}
"""The operations that `jnp.select` makes of its conditions, and the parameter that names the axis: the first one lists
them."""
SPREADS = KEEPS | {"broadcast_in_dim"}
MOST_OPS = 40
"""Operations behind a choice, a limit of time. With half or twice of it, rules find the same in the clean programs and
the programs of where-gradient."""
POINTS = (0.0, 1.0, -1.0, 0.5, 2.0, 4.0, -4.0, 10.0, -10.0)
"""Numbers at which elementary functions begin, end, or have no derivative (0 and ±1), and some on both sides of
them."""
APART = 0.77, 0.39
"""The first of several inputs, and the distance from each to the next: no two are alike, or one of `POINTS`."""


class BadWhere(NamedTuple):
    """A choice that a gradient goes through."""

    op: TracedOp
    singular: Sequence[TracedOp]
    """The operations that have no finite derivative where the value is finite and its gradient NaN."""
    seen: Sequence[str]
    """Such points."""

    @property
    def line(self) -> str:
        """The line of the operation, since its input needs a safe value. The line of `jnp.where` is another one."""
        return self.singular[0].line or self.op.line


def differentiated_lines(program: TracedProgram) -> set[str]:
    return {op.line for op in program.ops if op.is_backward and op.line}


def bad_wheres(program: TracedProgram) -> Iterator[BadWhere]:
    """The first of each line of your own code. You can't change a choice inside of a package, such as diffrax."""
    differentiated, told = differentiated_lines(program), set[str]()
    for op in program.find("select_n", "mul", "dot_general"):
        if op.line in differentiated - told and (found := _bad_where(op, differentiated)):
            told.add(op.line)
            yield from [found] if is_users_own(*found.singular[0].inwards) else []


@dataclass(frozen=True)
class _Elementwise:
    """The elementwise operations behind one result, in their order, and the values that they begin with."""

    ops: list[TracedOp]
    roots: list[Value]

    @property
    def floats(self) -> list[Value]:
        return [root for root in self.roots if root.is_of(jnp.floating)]


def _bad_where(choice: TracedOp, differentiated: set[str]) -> BadWhere | None:
    """The part of the program between the inputs of a choice and its result is computed by itself."""
    deciding = _deciding(choice)
    if deciding is None:
        return None
    part = _behind(choice.reads if choice.name == "dot_general" else choice.makes, differentiated)
    if choice.name == "dot_general":
        part.ops.append(choice)
    if not part.floats or len(part.ops) > MOST_OPS or not any(op.name in SINGULAR for op in part.ops):
        return None
    decisive = _behind([deciding], differentiated).roots
    literals = [v.number for op in part.ops for v in op.reads if v.literal is not None and v.number is not None]
    signed = {sign * x for x in literals for sign in (1, -1) if np.isfinite(x)}
    points = list(dict.fromkeys([*POINTS, *sorted(signed)]))
    singular, seen = list[TracedOp](), list[str]()
    for root in (one for one in part.floats if one in decisive):
        # Inputs that are all 1 can cause NaN themselves: 1 / (a - b).
        value, bad = _evaluate(part, root, points)
        _, bad_apart = _evaluate(part, root, points, are_apart=True)
        for i in np.flatnonzero(bad) if bad_apart.any() else ():
            singular.append(_first_singular(part, root, points[i]) or choice)
            at, made = (number(one) if one else "0" for one in (points[i], float(value[i])))
            seen.append(
                f"where the {root.spec} behind it is {at}, the value is {made} and the gradient NaN (computed here)"
            )
    return BadWhere(choice, singular, seen) if singular else None


def _deciding(choice: TracedOp) -> Value | None:
    """The condition of a choice; of a product the factor that is a mask of zeros and ones, if one is."""
    if choice.name == "select_n":
        return choice.reads[0]
    return next((read for read in choice.reads if _is_mask(read)), None)


def _is_mask(value: Value) -> bool:
    source = value.back()
    if source.maker is not None and source.maker.name == "select_n":
        return {0.0, 1.0} == {read.number for read in source.maker.reads[1:]}
    return source.is_of(jnp.bool_) and source.literal is None


def _behind(values: Sequence[Value], differentiated: set[str]) -> _Elementwise:
    """A value that no derivative goes through is an input: distances between points that are data, for instance."""
    taken, roots, waiting = set[TracedOp](), dict[Value, None](), list(values)
    while waiting and len(taken) <= MOST_OPS:
        value = waiting.pop().back(SPREADS)
        maker = value.maker
        is_data = (
            maker is not None and value.is_of(jnp.floating) and bool(maker.line) and maker.line not in differentiated
        )
        if maker is not None and not is_data and _is_elementwise(maker):
            waiting += maker.reads if maker not in taken else ()
            taken.add(maker)
        elif value.literal is None:
            roots[value] = None
    return _Elementwise([op for op in values[0].body.ops if op in taken], list(roots))


def _is_elementwise(op: TracedOp) -> bool:
    if op.name in ALONG_FIRST:
        is_one_each = op.name != "concatenate" or all(value.shape[0] == 1 for value in op.reads)
        return is_one_each and op.params[ALONG_FIRST[op.name]] in (0, (0,))
    return op.name in ELEMENTWISE and len(op.makes) == 1


def _evaluate(
    part: _Elementwise, varied: Value, points: list[float], *, are_apart: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(the result at each point of one input, is it finite while a derivative is NaN?). The other inputs are 1, or
    different numbers if they `are_apart`."""
    others = [APART[0] + APART[1] * i if are_apart else 1.0 for i in range(len(part.floats))]
    known = {root: jnp.full(len(points), other, root.dtype) for root, other in zip(part.floats, others, strict=True)}

    # The gradient for another input, such as a factor in front, may be NaN although nothing uses it.
    def compute(x: jax.Array) -> jax.Array:
        return [made for _, _, made in _run(part, known | {varied: x}, len(points))][-1]

    value, pull = jax.vjp(compute, jnp.asarray(points, varied.dtype))
    is_nan = np.isnan(np.asarray(pull(jnp.ones_like(value))[0], float))
    return np.asarray(value, float), np.isfinite(np.asarray(value, float)) & is_nan


def _first_singular(part: _Elementwise, varied: Value, point: float) -> TracedOp | None:
    """The first operation whose own derivative is not finite there."""
    known = {root: jnp.full(1, point if root is varied else 1.0, root.dtype) for root in part.floats}
    for op, operands, made in _run(part, known, 1):
        if op.name in SINGULAR and jnp.issubdtype(made.dtype, jnp.floating):
            _, pull = jax.vjp(functools.partial(op.equation.primitive.bind, **op.params), *operands)
            if not all(np.all(np.isfinite(g)) for g in pull(jnp.ones_like(made))):
                return op
    return None


def _run(part: _Elementwise, known: dict[Value, Any], n: int) -> Iterator[tuple[TracedOp, list[jax.Array], jax.Array]]:
    """Each operation with its operands and its result, at n points; what is not known is 1."""
    known = {root: jnp.ones(n, root.dtype) for root in part.roots} | known
    for op in part.ops:
        read = [value.back(SPREADS) for value in op.reads]
        operands = [known[v] if v.literal is None else jnp.full(n, v.literal, v.dtype) for v in read]
        if op.name in STACKS:
            made = jnp.stack(operands)
        elif op.name == "dot_general":
            made = operands[0] * operands[1]
        else:
            made = op.equation.primitive.bind(*operands, **op.params)
        known[op.makes[0]] = made
        yield op, operands, made


NOT_MEASURED = "gain not measured, because the differentiated function is not known by itself"


@rule(
    "where-gradient",
    "is the gradient of each jnp.where finite?",
    "warning",
    traced=True,
    advice=(
        "Both sides of jnp.where are computed, and 0 × inf is NaN. Give the operation a harmless number where its "
        "result is not used: safe = jnp.where(x > 0, x, 1.0), then jnp.where(x > 0, jnp.sqrt(safe), 0.0)."
    ),
)
def where_gradient(e: Evidence) -> Iterator[Match]:
    """Finds `jnp.where` around an operation without a finite derivative: its gradient is NaN where it isn't used."""
    if not differentiated_lines(e.program):
        raise NotApplicable("no gradient is taken in it")
    for found in bad_wheres(e.program):
        names = " and ".join(dict.fromkeys(op.name for op in found.singular))
        yield Match(
            f"the gradient is NaN where jnp.where leaves out {names}",
            list_some([*[f"jnp.where is{found.op.at}"] * (found.op.line != found.line), *found.seen]),
            op=found.op,
            where=found.line,
        )


# ---- whole derivatives -----------------------------------------------------------------------------------------------
#
# Whole derivatives in a traced program: an identity matrix whose rows are pushed through as directions.
#
# `jax.jacfwd`, `jax.jacrev` and `jax.hessian` make the identity, and so does a hand-written `jax.vmap` of a `jax.jvp`.
# A direction enters every operation of a derivative linearly. A point at which a function is evaluated does not, even
# if it is a row of an identity matrix too.

MOVES = {*KEEPS, "convert_element_type", "neg", "split"}
"""Operations that can come between an identity and a derivative, or between its last operation and its reader."""
FORWARD_MODE, REVERSE_MODE = "vmap(jvp(", "vmap(transpose("
"""How the scope of a derivative along many directions begins, seen from its identity."""
MAKERS = ("hessian", "jacfwd", "jacrev", "jacobian")
"""Functions of JAX that make whole derivatives."""
LINEAR = names(
    "add add_any broadcast_in_dim complex concatenate conj convert_element_type copy copy_p cumsum expand_dims fft imag"
    " neg pad psum real reduce_precision reduce_sum reduce_window_sum reshape rev sharding_constraint slice split "
    "squeeze stack sub tile transpose unstack optimization_barrier name"
)
"""Operations that are linear in all operands together."""
LINEAR_IN_ONE = frozenset(("mul", "dot_general", "conv_general_dilated"))
"""Operations that are linear in one operand if the other does not depend on it."""
LINEAR_IN = {
    "div": {0}, "dynamic_slice": {0}, "dynamic_update_slice": {0, 1}, "gather": {0}, "scatter": {0, 2},
    "scatter-add": {0, 2}, "scatter-mul": {0}, "triangular_solve": {1}, "tridiagonal_solve": {3}, "select_n": {1, 2},
    "select_and_gather_add": {0}, "select_and_scatter_add": {0},
}  # fmt: skip
"""Operations that are linear in the operands at these positions."""


def bases(body: Body) -> list[TracedOp]:
    """Comparisons that make an identity matrix."""
    return [op for op in body.ops if op.name == "eq" and identity_axes(op.makes[0]) is not None]


def whole_derivative(basis: TracedOp) -> tuple[bool, int, float] | None:
    """A derivative along the rows of an identity, linear in them as far as each operation shows.

    Returns:
        (is it in forward mode?, the elements that come out of it for each direction, operations that depend on the
        directions)
    """
    waiting, inside = {basis.makes[0]}, set[Value]()
    """Values that the directions are in before the derivative, and in it."""
    exits, modes, work, rows = set[Value](), set[str](), 0.0, basis.makes[0].shape[0]
    around = basis.scope.rstrip(")")
    for op in basis.body.ops:
        depends = [value in waiting or value in inside for value in op.reads]
        if not any(depends):
            continue
        # The scope of the operation, relative to the scope of the identity.
        here = op.scope.removeprefix(around).lstrip("/") if op.scope.startswith(around) else ""
        mode = next((mode for mode in (FORWARD_MODE, REVERSE_MODE) if here.startswith(mode)), None)
        if mode is not None:
            if not _is_linear(op, depends):
                return None
            modes |= {mode} if waiting.intersection(op.reads) else set()
            work += op.work
            # A loop also makes values that are the same along all directions.
            inside.update(value for value in op.makes if not op.bodies or rows in value.shape)
        elif op.name in MOVES and op.reads[0] in waiting:
            waiting.update(op.makes)
        else:
            exits |= inside.intersection(op.reads)
    exits |= inside.intersection(basis.body.outputs)
    if len(modes) != 1 or not exits or not rows:
        return None
    return modes == {FORWARD_MODE}, sum(value.size for value in exits) // rows, work


def _is_linear(op: TracedOp, depends: Sequence[bool]) -> bool:
    """Is it linear in what depends on the directions? A loop or branch of a derivative is."""
    positions = {i for i, one in enumerate(depends) if one}
    is_of_one = op.name in LINEAR_IN_ONE and len(positions) == 1
    return bool(op.bodies) or op.name in LINEAR or is_of_one or positions <= LINEAR_IN.get(op.name, set())


def count_vectors(matrix: Value) -> float:
    """How many vectors a matrix is multiplied with at most, in loops and solvers too; infinite if anything else reads
    it."""
    is_read = bool(matrix.readers) and not matrix.is_output
    return sum(_count_in(op, matrix) for op in matrix.readers) if is_read else math.inf


def _count_in(op: TracedOp, matrix: Value) -> float:
    inside = [value for value in matrix.inner if value.body.op is op]
    places = [i for i, read in enumerate(op.reads) if read is matrix]
    if op.name == "dot_general" and len(places) == 1 and not any(op.params["dimension_numbers"][1]):
        contracted = op.params["dimension_numbers"][0][places[0]]
        return op.reads[1 - places[0]].size // math.prod(matrix.shape[i] for i in contracted)
    if inside and (len(inside) == len(places) or op.name == "custom_linear_solve"):
        return sum(_most_trips(value.body) * count_vectors(value) for value in inside)
    return math.inf


def _most_trips(body: Body) -> float:
    """Iterations of a loop at most. A `while` can go on as long as a count in its carry is below a constant."""
    if body.kind != "while" or body.op is None:
        return body.trips or 1
    below = [op.reads for op in body.op.bodies[1].ops if op.name == "lt" and op.reads[0].is_of(jnp.integer)]
    return min((bound.number for _, bound in below if bound.number is not None), default=math.inf)


# ---- derivative-mode -------------------------------------------------------------------------------------------------

LEAST_RATIO = 32
"""Directions for each one that the other mode takes. A gradient costs at most 5 evaluations of its function (Baur and
Strassen 1983; Griewank and Walther, Evaluating Derivatives, 2nd ed., section 4.6). This ratio is six times as large."""


@rule("derivative-mode", "are derivatives taken in the cheaper mode?", "warning", traced=True)
def derivative_mode(e: Evidence) -> Iterator[Match]:
    """Finds whole derivatives in the more expensive mode: forward for few outputs, reverse for few inputs."""
    for basis in (basis for body in e.program.bodies for basis in bases(body)):
        is_forward, each, work = whole_derivative(basis) or (True, 0, 0.0)
        n, m = basis.makes[0].shape[0], max(1, each)
        if n < LEAST_RATIO * m:
            continue
        (many, few, mode), other = (
            (("inputs", "outputs", "forward"), "reverse")
            if is_forward
            else (("outputs", "inputs", "reverse"), "forward")
        )
        few = few if m > 1 else few[:-1]
        ends = (f"{m} {few}", f"{n} {many}") if is_forward else (f"{n} {many}", f"{m} {few}")
        costs = (
            "in reverse mode each costs at most 5 evaluations of the function, and memory for what it keeps"
            if is_forward
            else "in forward mode each costs about two evaluations of the function"
        )
        advice = (
            "Use jax.jacfwd instead of jax.jacrev (jax.jacobian): it takes one pass for each input."
            if not is_forward
            else "Use jax.jacrev instead of jax.jacfwd: it takes one pass for each output."
            if m > 1
            else "Use jax.grad instead of jax.jacfwd (jax.jacrev for an output that is no scalar): one pass for all "
            "inputs."
        )
        yield Match(
            f"differentiates {ends[0]} by {ends[1]} in {mode} mode",
            [
                (
                    f"{n} directions are pushed through, one for each of the {many}; {other} mode takes {count(m)}: "
                    f"{count(work)} operations, counted from the shapes"
                ),
                costs,
                NOT_MEASURED,
            ],
            advice,
            op=basis,
            work=(work * basis.times, e.program.body.work),
            related=_makers(basis),
        )


def _makers(basis: TracedOp) -> list[Place]:
    return named_at(basis.line, "a derivative is made here", *MAKERS)


# ---- hessian-vector --------------------------------------------------------------------------------------------------

FEW = 4
"""With a quarter as many vectors as columns, a Jacobian takes longer than the products. With 8 columns it takes 1.4
times as long, and with 32 to 256 columns 3 to 14 times (float32, jaxlib 0.12.0, CPU, two busy cores)."""


@rule(
    "hessian-vector",
    "is a Jacobian made only if all of it is used?",
    "warning",
    traced=True,
    advice=(
        "Compute the product itself. jax.jvp(f, (x,), (v,))[1] is the Jacobian times v, and jax.vjp(f, x)[1](v) is "
        "v times the Jacobian. jax.jvp(jax.grad(f), (x,), (v,))[1] is the Hessian times v."
    ),
)
def hessian_vector(e: Evidence) -> Iterator[Match]:
    """Finds whole Jacobians and Hessians, if only their product with a vector is used."""
    for body in e.program.bodies:
        identities = {basis.makes[0]: basis for basis in bases(body)}
        for matrix in (value for op in body.ops for value in op.makes) if identities else ():
            vectors = count_vectors(matrix) if len(matrix.shape) > 1 else math.inf
            basis = _basis(matrix, identities) if math.isfinite(vectors) else None
            columns = basis.makes[0].shape[0] if basis is not None else 0
            are_few = FEW * vectors <= columns
            is_of_solver = any(op.name == "custom_linear_solve" for op in matrix.readers)
            if basis is None or FORWARD in matrix.readers[0].scope or not (are_few or is_of_solver):
                continue
            n, last = count(vectors), matrix.readers[-1]
            what, needs = (
                ("an iterative solver", f"solver needs one for each of its iterations, which are {n} at most")
                if is_of_solver
                else ("one product with it", "product needs one")
                if vectors == 1
                else (f"products with {n} vectors", f"products need {n}")
            )
            yield Match(
                f"makes {matrix.spec} of derivatives for {what}",
                [
                    f"the derivative is taken along {count(columns)} directions, and the {needs}",
                    f"the matrix takes {size(matrix.size_bytes)}",
                    f"the product{last.at}",
                    NOT_MEASURED,
                ],
                op=last,
                work=(sum(op.work for op in body.ops if _is_directional(op)) * body.times, e.program.body.work),
                severity="warning" if are_few else "info",
                where=basis.line,
                related=[("the product is here", last.line), *_makers(basis)],
            )


def _basis(matrix: Value, identities: Mapping[Value, TracedOp]) -> TracedOp | None:
    """The identity that a derivative was taken along; None if something else reads it, or it is no derivative."""
    value = matrix
    while (op := value.maker) is not None and not _is_directional(op):
        if op.name not in MOVES or op.reads[0].uses != 1:
            return None
        value = op.reads[0]
    if op is None:
        return None

    def before(one: Value) -> Sequence[Value]:
        # Points that are made from an identity are no directions.
        is_crossed = one.maker is not None and (one.maker.name in MOVES or _is_directional(one.maker))
        return one.maker.reads if one.maker is not None and is_crossed else ()

    return next((identities[one] for one in reach([value], before) if one in identities), None)


def _is_directional(op: TracedOp) -> bool:
    return FORWARD in op.scope and "vmap(" in op.scope


# ---- per-example-gradients -------------------------------------------------------------------------------------------

OF_EXAMPLES = "vmap(transpose("
"""In the scope of a derivative inside of a `vmap`; that of a whole batch has it the other way round."""
LEAST_BYTES = 1 << 23
"""Below, both ways take about as long. With 32 MiB, gradients for each example take 1.3 times as long as the gradient
of the mean (float32, jaxlib 0.12.0, CPU, two busy cores)."""


@rule(
    "per-example-gradients",
    "is the mean differentiated, not each example?",
    "warning",
    traced=True,
    advice=(
        "Differentiate the mean: jax.grad(lambda p: jax.vmap(loss, (None, 0))(p, xs).mean()). The sum over the "
        "batch is then part of the products that make the gradient, and no example has a separate one."
    ),
)
def per_example_gradients(e: Evidence) -> Iterator[Match]:
    """Finds a gradient for each example of a batch, if only their sum is used: `jax.vmap(jax.grad(loss))`, a mean."""
    if not any(OF_EXAMPLES in op.scope for op in e.program.ops):
        if jax.__version_info__ < (0, 7):
            raise NotMeasured("this JAX doesn't report what a derivative inside of a vmap has made")
        raise NotApplicable("no derivative is taken inside of a vmap")
    lines: dict[str, list[tuple[TracedOp, Value]]] = defaultdict(list)
    for op in e.program.find("reduce_sum"):
        gradients = _gradients_behind(op.reads[0]) if 0 in op.params["axes"] else None
        if gradients is not None and len(gradients.shape) > 1:
            lines[op.line].append((op, gradients))
    for summed in lines.values():
        total = sum(value.size_bytes for _, value in summed)
        if total < LEAST_BYTES:
            continue
        summed.sort(key=lambda one: -one[1].size_bytes)
        op, largest = summed[0]
        needed = sum(value.size_bytes // value.shape[0] for _, value in summed)
        yield Match(
            f"makes a gradient for each of {count(largest.shape[0])} examples and uses their sum",
            [
                *list_some([f"{value.spec}, {size(value.size_bytes)}{op.at}" for op, value in summed]),
                f"{size(total)} of gradients together, and {size(needed)} of their sums",
            ],
            op=op,
            gain=Gain(f"estimated: at most {size(total - needed)} of memory"),
        )


def _gradients_behind(value: Value) -> Value | None:
    """The value that is added up, if nothing else reads it: clipping the gradient of each example needs it."""
    while value.uses == 1 and (op := value.maker) is not None:
        if OF_EXAMPLES in op.scope:
            return value
        if op.name not in ("transpose", "convert_element_type", "mul", "div", "neg"):
            return None
        value = max(op.reads, key=lambda read: read.size_bytes)
    return None


# ---- needless-remat --------------------------------------------------------------------------------------------------

REMATS = ("checkpoint", "remat", "remat2", "filter_checkpoint")
AGAIN = "rematted_computation"
"""The scope that JAX gives to what is done again (0.6.2 to 0.12.0.1)."""
MOST_SAVED = 256 << 20
"""Bytes that it saves at most. With more, memory can well be short: an NVIDIA T4 has 16 GiB, and a core of a TPU v2
8 GiB."""


@rule(
    "needless-remat",
    "is recomputing worth the memory that it saves?",
    "info",
    traced=True,
    keeps_backward=True,
    advice=(
        "If you have enough memory, remove jax.checkpoint (jax.remat, nn.remat), or let it keep products, which are "
        "expensive to recompute: policy=jax.checkpoint_policies.dots_saveable."
    ),
)
def needless_remat(e: Evidence) -> Iterator[Match]:
    """Finds `jax.checkpoint` that computes much again to save little memory."""
    again: dict[str, float] = defaultdict(float)
    regions, saved = dict[str, TracedOp](), 0.0
    for op in (op for op in e.program.ops if AGAIN in op.scope):
        remat = next(
            (one for one in op.calls if one.primitive.name in REMATS and one.params.get("differentiated")), None
        )
        if remat is not None:
            regions.setdefault(own_line(remat), op)
            again[own_line(remat)] += op.work * op.times
            read = [v for v in op.makes if any(AGAIN not in reader.scope for reader in v.readers)]
            saved += sum(value.size_bytes * op.times for value in read)
    if not regions:
        raise NotApplicable("no derivative in it recomputes anything by jax.checkpoint")
    done, total = sum(again.values()), e.program.body.work
    if saved <= MOST_SAVED:
        line = max(again, key=lambda line: again[line])
        yield Match(
            f"recomputes {percent(done / total)} of its operations, to keep {size(saved)} less",
            [
                (
                    f"{count(done)} of {count(total)} operations of a call are recomputed for the derivative, "
                    "counted from the shapes"
                ),
                (
                    f"without jax.checkpoint about {size(saved)} would be kept from the forward pass; XLA can fuse "
                    "some of it"
                ),
            ],
            op=regions[line],
            work=(done, total),
            severity="info",
            where=line,
            related=named_at(line, "asked for here", *REMATS),
        )


# ---- residuals-dominate ----------------------------------------------------------------------------------------------


@rule(
    "residuals-dominate",
    "is most of its memory kept for the backward pass?",
    "info",
    advice=(
        "Put jax.checkpoint around the layers, which keeps only their inputs and recomputes the rest. That costs "
        "time, and doesn't always save memory: benchax experiment with the variant remat measures both."
    ),
)
def residuals_dominate(e: Evidence) -> Iterable[Match]:
    """Finds values that the forward pass keeps for the backward pass, if they take most of the memory."""
    ops = e.program.body.ops
    if not any(op.is_backward for op in ops):
        raise NotApplicable("it takes no gradient in reverse mode, as far as JAX reports (0.6 doesn't)")
    temp = e.inspected("memory").temp_bytes
    if temp is None:
        raise NotMeasured("the compiler doesn't report its temporaries")
    made = ((op, value) for op in ops if not op.is_backward for value in op.makes)
    kept = [(op, value) for op, value in made if any(reader.is_backward for reader in value.readers)]
    total = sum(value.size_bytes for _, value in kept)
    # XLA recomputes some traced values instead of keeping them. Then its memory plan has no room for them.
    if total < LARGE_BYTES or 2 * temp < total:
        return
    kept.sort(key=lambda one: -one[1].size_bytes)
    most = min(total, temp)
    yield Match(
        f"keeps {size(total)} for the backward pass, as traced; temporaries take {size(temp)}",
        [
            *list_some([f"{v.spec}, {size(v.size_bytes)}, of {op.name}{op.at}" for op, v in kept]),
            f"as traced, {size(total)} are kept from the forward to the backward pass",
            f"the compiled program has {size(temp)} of temporaries; XLA can keep less and recompute the rest",
        ],
        gain=Gain(f"estimated: at most {size(most)}", bytes=most),
    )
