"""Results that are wrong numbers: NaN, and what JAX gives for an index outside of an axis."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence, is_nan
from benchax.auditing.rule import Match, NotApplicable, name_inputs, rule
from benchax.auditing.rules.gradients import SINGULAR, bad_wheres
from benchax.auditing.syntax import calls_on, tree_of, where_of
from benchax.errors import NotMeasured
from benchax.program.evaluate import bind, evaluate, look_up
from benchax.program.index import ELEMENTWISE, KEEPS, REPEATS, Body, TracedOp, TracedProgram, Value
from benchax.source_files import owner_of
from benchax.specs import is_spec


@dataclass(frozen=True)
class NonFinite:
    """An operation, with what it was given and made at one call."""

    op: TracedOp
    reads: Sequence[np.ndarray]
    made: np.ndarray
    """The first of its results that is not finite."""
    iterations: tuple[int, ...] = ()
    """For each loop around it, outermost first: how many iterations had gone before."""


@dataclass(frozen=True)
class NanOrigin:
    nan: NonFinite
    infinity: NonFinite | None
    """The place where finite numbers made its infinite input. None if it has no infinite input, or if infinity is
    written in the program, or comes with its inputs."""
    given: TracedOp | None = None
    """The operation that puts infinity in as a number."""


def find_origin(program: TracedProgram, inputs: Sequence[Any]) -> NanOrigin | None:
    """None if no result is NaN, or one comes from a number that is NaN in the program.

    Raises:
        NotMeasured: it has effects, or calls Python.
    """
    place = _find(program.body, inputs, (), jnp.isnan)
    if place is None:
        return None
    run, op, before = place
    infinite = next((value for value in op.reads if run.has(value, jnp.isinf)), None)
    source = run.first_op(infinite, jnp.isinf) if infinite is not None else None
    if source is None:
        return NanOrigin(run.look_at(op, before), None)
    if _is_of_numbers(source):
        return NanOrigin(run.look_at(op, before), None, source)
    in_run, source, in_before = _inside(source, run, before, jnp.isinf) or (run, source, before)
    return NanOrigin(run.look_at(op, before), in_run.look_at(source, in_before))


Test = Callable[[Any], Any]
"""jnp.isnan or jnp.isinf."""
Place = tuple["_Run", TracedOp, tuple[int, ...]]
"""An operation in a run of its body, and how many iterations of the loops around it went before."""


def _find(body: Body, inputs: Sequence[Any], before: tuple[int, ...], test: Test) -> Place | None:
    """The operation that makes the first result for which the test holds, from others."""
    run = _Run(body, inputs)
    start = next((value for value in body.outputs if run.has(value, test)), None)
    op = run.first_op(start, test) if start is not None else None
    if op is None or _is_of_numbers(op):
        return None
    return _inside(op, run, before, test) or (run, op, before)


def _is_of_numbers(op: TracedOp) -> bool:
    """Does it read a number that is not finite in the program, or replace others by one?"""
    values = op.reads[1:] if op.name == "select_n" else op.reads
    return any(value.literal is not None and not np.all(np.isfinite(value.literal)) for value in values)


class _Run:
    """A body run once, with what is NaN or infinite in it."""

    def __init__(self, body: Body, inputs: Sequence[Any]) -> None:
        self.body, self.inputs = body, [jnp.asarray(one) if np.isscalar(one) else one for one in inputs]
        values = [v for v in (*body.inputs, *(v for op in body.ops for v in op.makes)) if v.is_of(jnp.inexact)]
        flags = self._compute(lambda known: [_flags(known[value]) for value in values])
        self._flags: Mapping[Value, Any] = dict(zip(values, flags, strict=True))

    def _compute(self, read: Callable[[dict[Value, Any]], Any]) -> Any:
        """Returns the result of `read` for all values, and keeps nothing else."""

        def compute(*given: Any) -> Any:
            return read(evaluate(self.body.ops, dict(zip(self.body.inputs, given, strict=True))))

        is_key = lambda one: jax.dtypes.issubdtype(one.dtype, jax.dtypes.extended)  # noqa: E731
        return jax.tree.map(lambda one: one if is_key(one) else np.asarray(one), jax.jit(compute)(*self.inputs))

    def has(self, value: Value, test: Test) -> bool:
        number = value.literal if value.literal is not None else value.const
        if number is not None:
            return value.is_of(jnp.inexact) and bool(np.any(test(np.asarray(number, float))))
        return bool(self._flags[value][int(test is jnp.isinf)]) if value in self._flags else False

    def first_op(self, value: Value, test: Test) -> TracedOp | None:
        """Back from a value to the operation that was given nothing of the kind; None if it is an input."""
        while (op := value.maker) is not None:
            before = next((one for one in op.reads if self.has(one, test)), None)
            if before is None or before.literal is not None:
                return op
            value = before
        return None

    def values_of(self, values: Sequence[Value]) -> list[Any]:
        return self._compute(lambda known: [look_up(known, value) for value in values])

    def look_at(self, op: TracedOp, before: tuple[int, ...]) -> NonFinite:
        n = len(op.reads)
        found = self.values_of([*op.reads, *op.makes])
        floats = (one for one, value in zip(found[n:], op.makes, strict=True) if value.is_of(jnp.inexact))
        return NonFinite(op, found[:n], next((one for one in floats if not np.isfinite(one).all()), found[n]), before)


def _flags(value: Any) -> Any:
    return jnp.stack([jnp.any(jnp.isnan(value)), jnp.any(jnp.isinf(value))])


def _inside(op: TracedOp, run: _Run, before: tuple[int, ...], test: Test) -> Place | None:
    """The operation in a loop or branch; None if it isn't found there."""
    if op.name not in ("cond", "scan", "while"):
        return None
    reads = run.values_of(op.reads)
    if op.name == "cond":
        return _find(op.bodies[int(reads[0])], reads[1:], before, test)
    n, inputs = _first_bad(op, reads, test)
    return _find(op.bodies[0], inputs, (*before, n), test)


def _first_bad(op: TracedOp, reads: Sequence[Any], test: Test) -> tuple[int, list[Any]]:
    """The first iteration with a result for which the test holds: how many went before, and the inputs of the body."""
    (consts, start, xs), length = op.split(reads), op.params.get("length", 0)
    for_condition = reads[: op.params.get("cond_nconsts", 0)]

    def row(i: Any) -> list[Any]:
        at = length - 1 - i if op.params.get("reverse") else i
        return [jax.lax.dynamic_index_in_dim(jnp.asarray(one), at, keepdims=False) for one in xs]

    def goes_on(state: Any) -> Any:
        i, carry, is_bad = state
        more = i < length if op.name == "scan" else _outputs(op.bodies[1], [*for_condition, *carry])[0]
        return ~is_bad & jnp.any(more)

    def iterate(state: Any) -> Any:
        i, carry, _ = state
        made = _outputs(op.bodies[0], [*consts, *carry, *row(i)])
        flags = [jnp.any(test(one)) for one in made if jnp.issubdtype(one.dtype, jnp.inexact)]
        is_bad = jnp.any(jnp.stack(flags)) if flags else jnp.bool_(False)
        carry = tuple(jnp.where(is_bad, old, new) for old, new in zip(carry, made[: len(carry)], strict=True))
        return jnp.where(is_bad, i, i + 1), carry, is_bad

    state = (jnp.int32(0), tuple(jnp.asarray(one) for one in start), jnp.bool_(False))
    n, carry, _ = jax.jit(lambda state: jax.lax.while_loop(goes_on, iterate, state))(state)
    return int(n), [*consts, *carry, *row(n)]


def _outputs(body: Body, inputs: Sequence[Any]) -> list[Any]:
    known = evaluate(body.ops, dict(zip(body.inputs, inputs, strict=True)))
    return [jnp.asarray(look_up(known, value)) for value in body.outputs]


# Gives rules the data of one call, if they need more than the function's program.


def check_real(e: Evidence) -> None:
    """Raises `NotApplicable` where its inputs were made up here of specs, and say nothing about real ones."""
    if any(isinstance(leaf, str) and is_spec(leaf) for leaf in jax.tree.leaves(e.given)):
        raise NotApplicable("its inputs are random data made from specs, and real data differ")


def inputs_of_call(e: Evidence) -> tuple[Any, ...]:
    """Returns the inputs of the jaxpr at one call, with None for inputs that were not kept.

    Raises:
        NotApplicable: as `check_real`.
        NotMeasured: no input was kept.
    """
    check_real(e)
    if len(e.data) != len(e.closed_jaxpr.in_avals):
        raise NotMeasured("its arguments were not kept, because only small arrays are")
    return tuple(e.data)


# ---- nan-results -----------------------------------------------------------------------------------------------------

MOST_WORK = 1e10
"""Operations of a call that is run again: some seconds."""
KEEP_WITHIN = {
    "sqrt": "0 or more: jnp.maximum(x, 0.0)",
    "rsqrt": "more than 0: jnp.maximum(x, 1e-6)",
    "log": "more than 0: jnp.maximum(x, 1e-6); of a softmax take jax.nn.log_softmax, of x * log(x) xlogy",
    "log1p": "more than -1: jnp.maximum(x, -1 + 1e-6)",
    "pow": "0 or more if the exponent is no whole number: jnp.maximum(x, 0.0)",
    "acos": "within -1 and 1: jnp.clip(x, -1.0, 1.0)",
    "asin": "within -1 and 1: jnp.clip(x, -1.0, 1.0)",
    "acosh": "1 or more: jnp.maximum(x, 1.0)",
    "atanh": "within -1 and 1: jnp.clip(x, -1 + 1e-6, 1 - 1e-6)",
}
"""The values that an operation needs."""
DIVISOR = "Keep the divisor from 0: jnp.where(n > 0, total / jnp.where(n > 0, n, 1), 0.0), or jnp.maximum(n, 1)."
OVERFLOW = "Prevent the overflow: subtract the maximum before exp, as jax.nn.softmax does, or bound it."
ADVICE = {
    **{name: f"Its argument must be {what}." for name, what in KEEP_WITHIN.items()},
    **dict.fromkeys(("div", "rem"), DIVISOR),
    **dict.fromkeys(("exp", "exp2", "expm1", "cosh", "sinh"), OVERFLOW),
    "cholesky": "The matrix is not positive definite: add a small number to its diagonal, a + 1e-6 * jnp.eye(n), or "
    "compute in float64.",
    "gather": "An index is out of bounds, and JAX returns NaN for it: check how it is computed.",
    "derivative": "Before this operation, replace numbers that have an infinite derivative with a harmless one: safe "
    "= jnp.where(x > 0, x, 1.0), then jnp.where(x > 0, jnp.sqrt(safe), 0.0); or shift the argument: "
    "jnp.sqrt(x + 1e-12). A norm is a square root too, and has no derivative at 0.",
    "mask": "inf - inf and 0 * inf are NaN, for example in a row in which everything is masked. Mask with a large "
    "finite number, or leave such rows out with jnp.where before and after.",
    "": "Check its inputs there, and keep them within the domain of the operation.",
}


@rule("nan-results", "where does NaN come from?", "warning", traced=True, keeps_backward=True)
def nan_results(e: Evidence) -> Iterator[Match]:
    """Finds where NaN comes from in a function whose results are NaN though nothing that it was given is."""
    program = e.program
    check_real(e)
    if e.nan_at is None:
        raise NotMeasured("none of its results was checked, because only small ones are, while calls are counted")
    origin = _find_nan(program, e) if e.nan_at else None
    if origin is None:
        return
    nan, cause = origin.nan, origin.infinity or origin.nan
    line = cause.op.line or nan.op.line
    if line in {bad.line for bad in bad_wheres(program)}:
        return  # where-gradient reports it
    name = nan.op.name if origin.infinity is None else cause.op.name
    what, key = name.replace("_", " "), name if name in ADVICE else "mask" if origin.given else ""
    if nan.op.is_backward:
        # Derivatives of other operations also contain divisions.
        names = {op.name for op in program.ops if op.name in SINGULAR and op.line == cause.op.line} - {"div"}
        what, key = f"the derivative of {' or '.join(sorted(names)) or 'this line'}", "derivative"
    turns = " of ".join(str(n + 1) for n in reversed(nan.iterations))
    yield Match(
        f"NaN comes from {what}",
        [
            f"{_describe(nan)}{nan.op.at}{f', in iteration {turns} of its loop' if turns else ''}",
            *([f"inf comes from {_describe(origin.infinity)}{origin.infinity.op.at}"] if origin.infinity else []),
            *([f"inf is put in as a number{origin.given.at}"] if origin.given is not None else []),
            *(
                ["this is computed for a derivative; the value itself can be finite there"]
                if nan.op.is_backward
                else []
            ),
            "recomputed from the arguments of one call, none of which is NaN",
        ],
        ADVICE[key],
        op=cause.op,
        where=where_of(line),
    )


def _find_nan(program: TracedProgram, e: Evidence) -> NanOrigin:
    """Runs it again from the arguments of one call.

    Raises:
        NotMeasured: that cannot be done, or shows no NaN.
    """
    given, gave = inputs_of_call(e), f"call {e.nan_at} gave NaN"
    if any(one is None for one in given):
        raise NotMeasured(f"{gave}, and one of its arguments was too large to be kept")
    if any(map(is_nan, (*given, *(value.const for value in program.consts)))):
        raise NotMeasured(f"{gave}, and the arguments of the call that was kept already hold NaN")
    if program.body.work > MOST_WORK or any(body.kind == "while" for body in program.bodies):
        raise NotMeasured(f"{gave}, and it takes too long to run again: the origin of NaN was not searched for")
    origin = find_origin(program, given)
    if origin is None:
        raise NotMeasured(f"{gave}; with the arguments that were kept, NaN arises only from a NaN in the program")
    return origin


def _describe(one: NonFinite) -> str:
    """sqrt of -1.2e-07 gives nan: one element of the result that is not finite, and what it was made of."""
    made = np.asarray(one.made, float)
    bad = np.isnan(made) if np.isnan(made).any() else np.isinf(made)
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    share = f" ({int(bad.sum())} of {bad.size} elements are)" if bad.size > 1 else ""
    operands = [_operand(value, made.shape, at) for value in one.reads[:4]]
    return f"{one.op.name.replace('_', ' ')} of {' and '.join(operands)} gives {made[at]:.3g}{share}"


def _operand(value: Any, shape: tuple[int, ...], at: tuple[int, ...]) -> str:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):  # a random key
        return "a key"
    if array.shape == shape or not array.shape:
        return f"{array[at if array.shape else ()]:.3g}"
    finite = array[np.isfinite(array)]
    span = f" from {finite.min():.3g} to {finite.max():.3g}" if finite.size else ""
    return f"{list(array.shape)}{span}{' with inf' if finite.size < array.size else ''}"


SELECTS = ("gather", "dynamic_slice")
"""Operations that take some of the values of their first operand."""
EXACT = ELEMENTWISE | KEEPS | REPEATS | {*SELECTS, "rev", "slice", "concatenate", "iota", "sort", "cumsum", "pad"}
COMPARES = ("lt", "le", "gt", "ge", "eq", "ne")
ONE_HOT = "_one_hot"
"""The function that `jax.nn.one_hot` jits (jax 0.6 to 0.12): it compares indices with those of all classes."""
MOST_ELEMENTS = 1 << 23
"""Elements of one value that is computed."""

Origin = int | str
"""An input by its position, or "count" with a number: what a program counts itself."""


@dataclass(frozen=True, eq=False)
class Repeats:
    """The iterations of a loop, or the rows of an array that an unknown index takes some from."""

    n: int
    copies: int = 1
    """How often each of them is there."""


@dataclass(frozen=True, eq=False)
class KnownIndex:
    """The known facts about a value."""

    array: Any
    """Its elements. With `turns`, the first axis has one entry for each repetition."""
    origins: frozenset[Origin] = frozenset()
    turns: Repeats | None = None


MOST_ROWS_UNUSED, LEAST_NUMBERS = 0.1, 3
"""Numbers from 1 to n are indices that begin at 1 if at most this share of them is missing when they are written to.
When they are read, there must be at least this many different ones."""


class IndexComparison(NamedTuple):
    """A known value is compared with a number, or with something else (None)."""

    name: str
    origins: frozenset[Origin]
    bound: float | None


@dataclass(frozen=True)
class IndexAccess:
    """An operation that reads or writes at known indices along one axis."""

    op: TracedOp
    array: Value
    """The indexed array; for one_hot, its result."""
    axis: int
    width: int
    """This many elements are read or written from each index on."""
    index: KnownIndex
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The different indices."""
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """How often each of them is there."""

    @property
    def length(self) -> int:
        """Elements along the axis."""
        return self.array.shape[self.axis]

    @property
    def last(self) -> int:
        """The highest index within."""
        return self.length - self.width

    @property
    def is_outside(self) -> np.ndarray:
        return (self.values < 0) | (self.values > self.last)

    @property
    def is_write(self) -> bool:
        return self.op.name not in ("gather", "dynamic_slice", "eq")

    @property
    def is_counted(self) -> bool:
        """Has the program itself counted them: an arange, or the counter of a loop?"""
        return all(isinstance(origin, str) for origin in self.index.origins)

    @property
    def is_from_one(self) -> bool:
        """Are they numbers from 1 to n, all of them, or most if they are written to?"""
        if self.width != 1 or self.values.min() != 1 or self.values.max() != self.length:
            return False
        return len(self.values) >= ((1 - MOST_ROWS_UNUSED) * self.length if self.is_write else LEAST_NUMBERS)

    def is_meant(self, comparisons: Sequence[IndexComparison]) -> bool:
        if _says_mode(self.op) or any(map(self._is_mask, comparisons)):
            return True
        # A single index that is not a row, next to valid ones, is padding. So is -1.
        outside = self.values[self.is_outside]
        is_padding = len(outside[outside != -1]) <= 1 and self.counts.sum() > 1 and not self.is_counted
        return is_padding and not self.is_from_one

    def _is_mask(self, one: IndexComparison) -> bool:
        """Can the program use this comparison to leave out what is outside?"""
        if not one.origins & self.index.origins:
            return False
        if self.is_counted:
            return True
        if one.bound is None:
            return one.name in ("lt", "le", "gt", "ge")
        if one.name in ("eq", "ne"):
            return one.bound in self.values[self.is_outside]
        return one.bound >= self.last or one.bound <= 0


def find_accesses(program: TracedProgram, inputs: Sequence[Any]) -> tuple[list[IndexAccess], list[IndexComparison]]:
    """All accesses with known indices of a program, and comparisons of known values.

    Args:
        inputs: of the program, its constants first; None if nothing is known of one.
    """
    pairs = enumerate(zip((*program.consts, *program.inputs), inputs, strict=True))
    given = {
        i: np.asarray(one).astype(value.dtype)
        for i, (value, one) in pairs
        if one is not None and value.is_of(jnp.integer) and np.size(one) <= MOST_ELEMENTS
    }
    walks: list[_Walk] = []

    def compute(given: Mapping[int, Any]) -> list[Any]:
        walks.append(_Walk(program, given))
        return [access.index.array for access in walks[0].accesses]

    # As one program, because otherwise JAX would compile each operation separately.
    arrays = jax.jit(compute)(given)
    accesses: list[IndexAccess] = []
    for access, array in zip(walks[0].accesses, arrays, strict=True):
        values, counts = np.unique(np.asarray(array).astype(np.int64), return_counts=True)
        copies = access.index.turns.copies if access.index.turns else 1
        accesses.append(replace(access, values=values, counts=-(-counts // copies)))
    return accesses, walks[0].comparisons


class _Walk:
    """Follows known integers through a program while JAX traces it."""

    def __init__(self, program: TracedProgram, given: Mapping[int, Any]) -> None:
        self.accesses: list[IndexAccess] = []
        self.comparisons: list[IndexComparison] = []
        self._counts = map("count {}".format, itertools.count())
        values = (*program.consts, *program.inputs)
        self._known = {values[i]: KnownIndex(array, frozenset({i})) for i, array in given.items()}
        for body in program.bodies:  # each before what is nested in it
            self._enter(body)
            for op in body.ops:
                reads = [self._of(value) for value in op.reads]
                self._note(op, reads)
                n = op.makes[0].size if len(op.makes) == 1 and op.name in EXACT and not op.bodies else 0
                if 0 < n * math.prod(one.n for one in _turns(reads)) <= MOST_ELEMENTS:
                    made = self._make(op, reads)
                    if made is not None:
                        self._known[op.makes[0]] = made

    def _of(self, value: Value) -> KnownIndex | None:
        if value.literal is not None:
            return KnownIndex(np.asarray(value.literal, value.dtype))
        return self._of(value.outer) if value not in self._known and value.outer else self._known.get(value)

    def _enter(self, body: Body) -> None:
        """Knows the counters and the rows of a loop in all its iterations."""
        if body.op is None or body.kind != "scan" or not 0 < (length := body.trips or 0) <= MOST_ELEMENTS:
            return
        turns = Repeats(length)
        for value, given in zip(body.op.split(body.inputs).xs, body.op.split(body.op.reads).xs, strict=True):
            rows = self._of(given)
            if rows is not None and rows.turns is None:
                self._known[value] = replace(rows, turns=turns)
            elif rows is not None:
                every = rows.array.reshape(-1, *value.shape)
                self._known[value] = KnownIndex(every, rows.origins, Repeats(len(every)))
        count = np.arange(length)[:: -1 if body.op.params["reverse"] else 1]
        for start, taken, returned in body.carries:
            step, first = returned.made_by("add", through=()), self._of(start)
            by = step.reads[1].literal if step is not None and step.reads[0] is taken else None
            if by is not None and first is not None and first.turns is None and not taken.shape:
                self._known[taken] = KnownIndex(first.array + count * by, first.origins | {next(self._counts)}, turns)

    def _make(self, op: TracedOp, reads: Sequence[KnownIndex | None]) -> KnownIndex | None:
        """The result of an operation on known values, or some rows of a known array; nothing tells which."""
        known, turns = [one for one in reads if one is not None], _turns(reads)
        if len(known) < len(reads):
            is_some_rows = op.name in SELECTS and reads[0] is not None and reads[0].turns is None
            return _any_row(op, known[0]) if is_some_rows else None
        if len(turns) > 1:
            return None
        axes = [None if one.turns is None else 0 for one in known]
        run = lambda *operands: bind(op.equation, operands)[0]  # noqa: E731
        origins = frozenset[Origin]().union(*(one.origins for one in known))
        origins |= {next(self._counts)} if op.name == "iota" else frozenset()
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):
            array = (jax.vmap(run, axes) if turns else run)(*(one.array for one in known))
            return KnownIndex(array, origins, next(iter(turns), None))
        return None

    def _note(self, op: TracedOp, reads: Sequence[KnownIndex | None]) -> None:
        array = op.makes[0] if op.name == "eq" else op.reads[0] if op.reads else None
        for axis, width, index in self._indices(op, reads):
            if index is not None and index.origins and array is not None:
                self.accesses.append(IndexAccess(op, array, axis, width, index))
        for i, one in enumerate(reads) if op.name in COMPARES else ():
            bound = op.reads[1 - i].number
            # JAX compares every index with 0, because negative ones count from the end.
            if one is not None and one.origins and not (op.name == "lt" and bound == 0 and i == 0):
                self.comparisons.append(IndexComparison(op.name, one.origins, bound))

    def _indices(
        self, op: TracedOp, reads: Sequence[KnownIndex | None]
    ) -> Iterator[tuple[int, int, KnownIndex | None]]:
        """(axis, width, index)."""
        if op.name == "dynamic_slice":
            yield from zip(range(len(reads) - 1), op.params["slice_sizes"], reads[1:], strict=True)
        elif op.name == "dynamic_update_slice":
            yield from zip(range(len(reads) - 2), op.reads[1].shape, reads[2:], strict=True)
        elif op.name == "gather":
            axes, widths = op.params["dimension_numbers"].start_index_map, op.params["slice_sizes"]
            yield from self._columns(op.reads[1], axes, widths)
        elif op.name.startswith("scatter"):
            axes = op.params["dimension_numbers"].scatter_dims_to_operand_dims
            yield from self._columns(op.reads[1], axes, _windows(op))
        elif op.name == "eq" and any(call.params.get("name") == ONE_HOT for call in op.calls):
            classes = op.reads[1].shape  # they are along one axis, and once in each of the others
            yield max(range(len(classes)), key=lambda axis: classes[axis]), 1, reads[0]

    def _columns(
        self, value: Value, axes: Sequence[int], widths: Sequence[int]
    ) -> Iterator[tuple[int, int, KnownIndex | None]]:
        """The index along each axis; JAX puts these side by side in one array."""
        whole, parts = self._of(value), value.made_by("concatenate", through=())
        for i, axis in enumerate(axes):
            if whole is not None:
                yield int(axis), widths[axis], replace(whole, array=whole.array[..., i])
            elif parts is not None and len(parts.reads) == len(axes):
                yield int(axis), widths[axis], self._of(parts.reads[i])


def _turns(reads: Sequence[KnownIndex | None]) -> dict[Repeats, None]:
    """Each of the repetitions that these have, once."""
    return {one.turns: None for one in reads if one is not None and one.turns is not None}


def _any_row(op: TracedOp, known: KnownIndex) -> KnownIndex | None:
    made, row = op.makes[0], known.array.shape[1:]
    is_row = op.name == "gather" or op.params["slice_sizes"][0] == 1
    if not is_row or not known.origins or not jnp.issubdtype(known.array.dtype, jnp.integer):
        return None
    n = len(row)
    if made.shape[len(made.shape) - n :] != row or len(known.array) * made.size > MOST_ELEMENTS:
        return None
    rows = known.array.reshape(-1, *[1] * (len(made.shape) - n), *row)
    every = jnp.broadcast_to(rows, (len(rows), *made.shape))
    return KnownIndex(every, known.origins, Repeats(len(rows), made.size // (math.prod(row) or 1)))


def _windows(scatter: TracedOp) -> list[int]:
    """How many elements of each axis of its operand a scatter writes at each index."""
    numbers = scatter.params["dimension_numbers"]
    sizes = iter([scatter.reads[2].shape[axis] for axis in numbers.update_window_dims])
    single = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
    return [1 if axis in single else next(sizes, 1) for axis in range(len(scatter.reads[0].shape))]


def _says_mode(op: TracedOp) -> bool:
    """Does the line say what happens to them: mode="drop"? A package's own line is its own concern."""
    where = where_of(op.line)
    tree = tree_of(where[0]) if where is not None and owner_of(where[0]) == "user" else None
    if where is None or tree is None:
        return True
    return any(keyword.arg == "mode" for call in calls_on(tree, where[1]) for keyword in call.keywords)


@rule("out-of-bounds-index", "are indices within their axes?", "warning", traced=True)
def out_of_bounds_index(e: Evidence) -> Iterator[Match]:
    """Finds indices outside of the axis that they index: JAX reads another element or none, and reports nothing."""
    given = inputs_of_call(e)
    accesses, comparisons = find_accesses(e.program, [*(value.const for value in e.program.consts), *given])
    if not accesses:
        raise NotApplicable("it indexes nothing by integers that are known from one call")
    names = [*(f"constant {i}" for i in range(len(e.program.consts))), *name_inputs(e)]
    for one in accesses:
        n_outside, op = int(one.counts[one.is_outside].sum()), one.op
        if not n_outside or op.is_backward or one.is_meant(comparisons):
            continue
        given = " and ".join(names[i] for i in sorted(i for i in one.index.origins if isinstance(i, int)))
        low, high, length = int(one.values.min()), int(one.values.max()), one.length
        axis = f"axis {one.axis} of {one.array.spec} has {length} elements"
        taken = f", and {one.width} are taken from each index on" if one.width > 1 else ""
        seen = [
            f"indices of {given or 'a counter'} are {low} to {high} {'at one call' if given else 'in each call'}",
            f"{axis}{taken}: indices are 0 to {one.last}",
            f"{n_outside} of {int(one.counts.sum())} lie outside: {_done(one)}, without an error",
        ]
        if one.index.turns is not None and given:
            seen.append("a loop or an index that is not known takes its part of them; all of them were looked at")
        begins = f"{given} begins at 1, and its" if one.is_from_one and given else f"{given or 'a counter'}: its"
        yield Match(f"{begins} indices leave an axis of {length}", seen, _advise(one, given, low, high), op=op)


def _done(one: IndexAccess) -> str:
    """A sentence on how JAX treats such an index."""
    mode = str(one.op.params.get("mode", "CLIP"))
    if one.op.name == "eq":
        return "their rows are all 0"
    if one.is_write and one.op.name != "dynamic_update_slice" and "CLIP" not in mode:
        return "writes there are dropped"
    if one.is_write:
        return "JAX writes at the nearest valid index"
    return (
        "JAX returns NaN for them, or the lowest integer"
        if "FILL" in mode
        else "JAX reads at the nearest valid index instead"
    )


def _advise(one: IndexAccess, given: str, low: int, high: int) -> str:
    length, width = one.length, one.width
    if one.is_from_one and given:
        advice = f"Indices begin at 0: take {given} - 1."
    elif width > 1:
        advice = f"Let the last index be {one.last}, the length minus the {width} that are taken, or pad the axis."
    elif not given:
        advice = f"Let it end at {one.last}, or wrap it with % {length}."
    else:
        longer = f", or make the axis {high + 1} long" if low >= 0 else ""
        advice = f"Check how the numbers in {given} are made{longer}."
    how = '.add(v, mode="drop")' if one.is_write else '.get(mode="fill", fill_value=0)'
    return advice if one.op.name == "eq" else f"{advice} If you intend it, say so: x.at[i]{how}."
