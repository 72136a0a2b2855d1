"""Results that are wrong numbers: NaN, and what JAX gives for an index outside of an axis."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence, is_nan
from benchax.auditing.rule import Match, NotApplicable, name_inputs, rule
from benchax.auditing.rules.gradients import SINGULAR, bad_wheres
from benchax.auditing.syntax import around, tree_of, where_of
from benchax.errors import NotMeasured
from benchax.program.evaluate import bind, compute, look_up
from benchax.program.index import ELEMENTWISE, KEEPS, REPEATS, Body, TracedOp, TracedProgram, Value
from benchax.source_files import owner_of
from benchax.specs import is_spec


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
#
# A body is run once with all its values kept. From a bad result the way goes back to the operation that was given
# nothing of the kind, and into its loop or branch.

MOST_WORK, MOST_BYTES = 1e10, 1 << 31
"""Operations of a call that is run again: 0.7 s in a product, 17 s in sums (jaxlib 0.12.0, CPU, two busy cores). And
bytes of all values of a body, which are kept together."""
Test = Literal["isnan", "isinf"]


class OpAtCall(NamedTuple):
    """An operation at one call, with the values of the body that it is in."""

    op: TracedOp
    known: Mapping[Value, Any]
    iterations: tuple[int, ...] = ()
    """For each loop around it, outermost first: how many iterations had gone before."""

    @property
    def is_of_numbers(self) -> bool:
        """Does it read a number that is not finite in the program, or replace others by one?"""
        values = self.op.reads[1:] if self.op.name == "select_n" else self.op.reads
        return any(value.literal is not None and not np.all(np.isfinite(value.literal)) for value in values)

    def inside(self, test: Test) -> OpAtCall:
        """The operation in its loop or branch, or itself if nothing is found there."""
        reads = [look_up(self.known, value) for value in self.op.reads]
        if self.op.name == "cond":
            return find_place(self.op.bodies[int(reads[0])], reads[1:], self.iterations, test) or self
        if self.op.name == "scan":
            n, inputs = _first_bad(self.op, reads, test)
            return find_place(self.op.bodies[0], inputs, (*self.iterations, n), test) or self
        return self

    def describe(self) -> str:
        """sqrt of -1.2e-07 gives nan: one element of the result that is not finite, and what it was made of."""
        floats = [np.asarray(self.known[value], float) for value in self.op.makes if value.is_of(jnp.inexact)]
        made = next((one for one in floats if not np.isfinite(one).all()), floats[0])
        bad = np.isnan(made) if np.isnan(made).any() else np.isinf(made)
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        share = f" ({int(bad.sum())} of {bad.size} elements are)" if bad.size > 1 else ""
        operands = [_describe(look_up(self.known, value), made.shape, at) for value in self.op.reads[:4]]
        name = self.op.name.replace("_", " ")
        return f"{name} of {' and '.join(operands)} gives {made[at]:.3g}{share}{self.op.at}"


def _has(known: Mapping[Value, Any], value: Value, test: Test) -> bool:
    array = known.get(value, value.literal if value.literal is not None else value.const)
    return array is not None and value.is_of(jnp.inexact) and bool(getattr(np, test)(np.asarray(array)).any())


def _first_op(known: Mapping[Value, Any], value: Value, test: Test) -> TracedOp | None:
    """Back from a value to the operation that was given nothing of the kind; None if it is an input."""
    while (op := value.maker) is not None:
        before = next((one for one in op.reads if _has(known, one, test)), None)
        if before is None or before.literal is not None:
            return op
        value = before
    return None


def _describe(value: Any, shape: tuple[int, ...], at: tuple[int, ...]) -> str:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):  # a random key
        return "a key"
    if array.shape == shape or not array.shape:
        return f"{array[at if array.shape else ()]:.3g}"
    finite = array[np.isfinite(array)]
    span = f" from {finite.min():.3g} to {finite.max():.3g}" if finite.size else ""
    return f"{list(array.shape)}{span}{' with inf' if finite.size < array.size else ''}"


def find_place(body: Body, inputs: Sequence[Any], iterations: tuple[int, ...], test: Test) -> OpAtCall | None:
    """The operation that makes the first result for which the test holds, from others.

    None: no result is so, or it comes from a number of the program.

    Raises:
        NotMeasured: it has effects, calls Python, or makes too much to keep it.
    """
    values = [*body.inputs, *(value for op in body.ops for value in op.makes)]
    if sum(value.size_bytes for value in values) > MOST_BYTES:
        raise NotMeasured("it makes too many numbers to keep them all: the origin of NaN was not searched for")

    given = [jnp.asarray(one) if np.isscalar(one) else one for one in inputs]
    run = jax.jit(lambda *given: compute(values, dict(zip(body.inputs, given, strict=True))))
    known = dict(zip(values, run(*given), strict=True))
    bad = next((value for value in body.outputs if _has(known, value, test)), None)
    op = _first_op(known, bad, test) if bad is not None else None
    place = OpAtCall(op, known, iterations) if op is not None else None
    return place.inside(test) if place is not None and not place.is_of_numbers else None


def _first_bad(scan: TracedOp, reads: Sequence[Any], test: Test) -> tuple[int, list[Any]]:
    """The first iteration with a result for which the test holds: how many went before, and the inputs of the body."""
    (consts, start, xs), body, length = scan.split(reads), scan.bodies[0], scan.params["length"]
    rows = [x[:: -1 if scan.params["reverse"] else 1] for x in xs]

    def iterate(carry: list[Any], row: list[Any]) -> tuple[list[Any], Any]:
        made = compute(body.outputs, dict(zip(body.inputs, [*consts, *carry, *row], strict=True)))
        pairs = zip(body.outputs, made, strict=True)
        is_bad = [getattr(jnp, test)(one).any() for value, one in pairs if value.is_of(jnp.inexact)]
        return made[: len(carry)], jnp.any(jnp.stack(is_bad))

    _, is_bad = jax.lax.scan(iterate, start, rows, length)
    n = int(np.argmax(is_bad))
    carry, _ = jax.lax.scan(iterate, start, [x[:n] for x in rows], n)
    return n, [*consts, *carry, *(x[n] for x in rows)]


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
    nan = _find_nan(program, e) if e.nan_at else None
    if nan is None:
        return
    infinite = next((value for value in nan.op.reads if _has(nan.known, value, "isinf")), None)
    source = _first_op(nan.known, infinite, "isinf") if infinite is not None else None
    infinity = nan._replace(op=source) if source is not None else None
    cause, given, seen = nan, "", list[str]()
    if infinity is not None and infinity.is_of_numbers:
        given, seen = "mask", [f"inf is put in as a number{infinity.op.at}"]
    elif infinity is not None:
        cause = infinity.inside("isinf")
        seen = [f"inf comes from {cause.describe()}"]
    line = cause.op.line or nan.op.line
    if line in {bad.line for bad in bad_wheres(program)}:
        return  # where-gradient reports it
    what, key = cause.op.name.replace("_", " "), cause.op.name if cause.op.name in ADVICE else given
    if nan.op.is_backward:
        # Derivatives of other operations also contain divisions.
        names = {op.name for op in program.ops if op.name in SINGULAR and op.line == cause.op.line} - {"div"}
        what, key = f"the derivative of {' or '.join(sorted(names)) or 'this line'}", "derivative"
        seen.append("this is computed for a derivative; the value itself can be finite there")
    turns = " of ".join(str(n + 1) for n in reversed(nan.iterations))
    yield Match(
        f"NaN comes from {what}",
        [
            f"{nan.describe()}{f', in iteration {turns} of its loop' if turns else ''}",
            *seen,
            "recomputed from the arguments of one call, none of which is NaN",
        ],
        ADVICE[key],
        op=cause.op,
        where=line,
    )


def _find_nan(program: TracedProgram, e: Evidence) -> OpAtCall:
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
    nan = find_place(program.body, given, (), "isnan")
    if nan is None:
        raise NotMeasured(f"{gave}; with the arguments that were kept, NaN arises only from a NaN in the program")
    return nan


# ---- out-of-bounds-index ---------------------------------------------------------------------------------------------
#
# Integers that are known from one call are computed as far as operations on known integers go.

SELECTS = ("gather", "dynamic_slice")
"""Operations that take some of the values of their first operand."""
EXACT = ELEMENTWISE | KEEPS | REPEATS | {*SELECTS, "rev", "slice", "concatenate", "iota", "sort", "cumsum", "pad"}
ORDERS, EQUALITIES = ("lt", "le", "gt", "ge"), ("eq", "ne")
ONE_HOT = "_one_hot"
"""The function that `jax.nn.one_hot` jits (jax 0.6 to 0.12): it compares indices with those of all classes."""
MOST_ELEMENTS = 1 << 23
"""Elements of one value that is computed: 32 MiB of int32."""

Origin = Value | TracedOp | Body
"""An input, or what a program counts itself: an arange, the counter of a loop."""


class KnownNumbers(NamedTuple):
    """Numbers that are known."""

    array: Any
    """The first axis has one entry for each iteration, or for each row that an unknown index can take; or one for
    all."""
    origins: frozenset[Origin] = frozenset()


class IndexAccess(NamedTuple):
    """An operation that reads or writes at known indices along one axis."""

    op: TracedOp
    array: Value
    """The indexed array; for one_hot, its result."""
    axis: int
    width: int
    """This many elements are read or written from each index on."""
    index: KnownNumbers


def find_accesses(
    program: TracedProgram, inputs: Sequence[Any]
) -> tuple[list[tuple[IndexAccess, np.ndarray]], set[Origin]]:
    """(all accesses with known indices, each with its different indices; origins that the program compares with bounds)

    Args:
        inputs: of the program, its constants first; None if nothing is known of one.
    """
    pairs = zip((*program.consts, *program.inputs), inputs, strict=True)
    given = {
        value: np.asarray(one).astype(value.dtype)[None]
        for value, one in pairs
        if one is not None and value.is_of(jnp.integer) and np.size(one) <= MOST_ELEMENTS
    }
    found, bounded = list[IndexAccess](), set[Origin]()

    def compute(arrays: Sequence[Any]) -> list[Any]:
        known = {value: KnownNumbers(one, frozenset({value})) for value, one in zip(given, arrays, strict=True)}
        for op, reads in _follow(program, known):
            found.extend(_accesses(op, reads, known))
            bounded.update(*(one.origins for i, one in enumerate(reads) if one is not None and _is_bounded(op, i)))
        return [one.index.array for one in found]

    # As one program, because otherwise JAX would compile each operation separately.
    arrays = jax.jit(compute)(list(given.values()))
    each = (np.unique(np.asarray(array).astype(np.int64)) for array in arrays)
    return list(zip(found, each, strict=True)), bounded


def _is_bounded(op: TracedOp, i: int) -> bool:
    """Is the operand compared with a bound, or with a number that is written in the program, as for a mask?"""
    bound = op.reads[1 - i].number if op.name in (*ORDERS, *EQUALITIES) else None
    # JAX compares every index with 0, because negative ones count from the end.
    return (op.name in ORDERS and (op.name, bound, i) != ("lt", 0, 0)) or (op.name in EQUALITIES and bound is not None)


def _follow(
    program: TracedProgram, known: dict[Value, KnownNumbers]
) -> Iterator[tuple[TracedOp, list[KnownNumbers | None]]]:
    """Each operation with what is known of its operands. Adds known results to `known`."""
    for body in program.bodies:  # each before what is nested in it
        _enter(body, known)
        for op in body.ops:
            reads = [_look_up(value, known) for value in op.reads]
            yield op, reads
            if len(op.makes) == 1 and op.name in EXACT and not op.bodies and (made := _make(op, reads)) is not None:
                known[op.makes[0]] = made


def _look_up(value: Value, known: Mapping[Value, KnownNumbers]) -> KnownNumbers | None:
    if value.literal is not None:
        return KnownNumbers(np.asarray(value.literal, value.dtype)[None])
    return _look_up(value.outer, known) if value not in known and value.outer else known.get(value)


def _enter(body: Body, known: dict[Value, KnownNumbers]) -> None:
    """Knows the counters and the rows of a loop in all its iterations."""
    if body.op is None or body.kind != "scan" or not 0 < (length := body.trips or 0) <= MOST_ELEMENTS:
        return
    for value, given in zip(body.op.split(body.inputs).xs, body.op.split(body.op.reads).xs, strict=True):
        if (rows := _look_up(given, known)) is not None:
            known[value] = rows._replace(array=rows.array.reshape(-1, *value.shape))
    count = np.arange(length)[:: -1 if body.op.params["reverse"] else 1]
    for start, taken, returned in body.carries:
        step, first = returned.made_by("add", through=()), _look_up(start, known)
        by = step.reads[1].literal if step is not None and step.reads[0] is taken else None
        if by is not None and first is not None and len(first.array) == 1 and not taken.shape:
            known[taken] = KnownNumbers(first.array + count * by, first.origins | {body})


def _make(op: TracedOp, reads: Sequence[KnownNumbers | None]) -> KnownNumbers | None:
    """The result of an operation on known values, or some rows of a known array; nothing tells which."""
    known, made = [one for one in reads if one is not None], op.makes[0]
    if len(known) < len(reads):
        return _any_row(op, reads[0]) if op.name in SELECTS and reads[0] is not None else None
    n = max((len(one.array) for one in known), default=1)
    if not 0 < n * made.size <= MOST_ELEMENTS or any(len(one.array) not in (1, n) for one in known):
        return None
    each = [jnp.broadcast_to(one.array, (n, *one.array.shape[1:])) for one in known]
    origins = frozenset[Origin]({op} if op.name == "iota" else ()).union(*(one.origins for one in known))
    with contextlib.suppress(TypeError, ValueError, NotImplementedError):
        return KnownNumbers(jax.vmap(lambda _, *one: bind(op.equation, one)[0])(np.zeros(n), *each), origins)
    return None


def _any_row(op: TracedOp, known: KnownNumbers) -> KnownNumbers | None:
    made, (n, *row) = op.makes[0], known.array.shape[1:] or (0,)
    is_row = op.name == "gather" or op.params["slice_sizes"][0] == 1
    is_integer = jnp.issubdtype(known.array.dtype, jnp.integer) and bool(known.origins) and len(known.array) == 1
    more = len(made.shape) - len(row)
    if not is_row or not is_integer or list(made.shape[more:]) != row or not 0 < n * made.size <= MOST_ELEMENTS:
        return None
    return known._replace(array=jnp.broadcast_to(known.array.reshape(n, *[1] * more, *row), (n, *made.shape)))


def _accesses(
    op: TracedOp, reads: Sequence[KnownNumbers | None], known: Mapping[Value, KnownNumbers]
) -> Iterator[IndexAccess]:
    """One for each axis that an operation indexes by known numbers."""
    axes: Sequence[int] = range(len(op.reads[0].shape)) if op.reads else ()
    widths, columns = axes, list[KnownNumbers | None]()
    if op.name == "dynamic_slice":
        widths, columns = op.params["slice_sizes"], list(reads[1:])
    elif op.name == "dynamic_update_slice":
        widths, columns = op.reads[1].shape, list(reads[2:])
    elif op.name == "gather":
        axes = op.params["dimension_numbers"].start_index_map
        widths, columns = [op.params["slice_sizes"][axis] for axis in axes], _columns(op.reads[1], len(axes), known)
    elif op.name.startswith("scatter"):
        axes = op.params["dimension_numbers"].scatter_dims_to_operand_dims
        if set(axes) <= set(op.params["dimension_numbers"].inserted_window_dims):  # one element of each axis
            widths, columns = [1] * len(axes), _columns(op.reads[1], len(axes), known)
    elif op.name == "eq" and any(call.params.get("name") == ONE_HOT for call in op.calls):
        classes = op.reads[1].shape  # they are along one axis, and once in each of the others
        axes, widths, columns = [max(range(len(classes)), key=lambda axis: classes[axis])], [1], [reads[0]]
    for axis, width, index in zip(axes, widths, columns, strict=False):
        if index is not None and index.origins:
            yield IndexAccess(op, op.makes[0] if op.name == "eq" else op.reads[0], axis, width, index)


def _columns(value: Value, n: int, known: Mapping[Value, KnownNumbers]) -> list[KnownNumbers | None]:
    """The index along each of n axes; JAX puts these side by side in one array."""
    whole, parts = _look_up(value, known), value.made_by("concatenate", through=())
    if whole is not None:
        return [whole._replace(array=whole.array[..., i]) for i in range(n)]
    return [_look_up(one, known) for one in parts.reads] if parts is not None and len(parts.reads) == n else []


def _says_mode(op: TracedOp) -> bool:
    """Does the line say what happens to them: mode="drop"? A package's own line is its own concern."""
    where = where_of(op.line)
    tree = tree_of(where[0]) if where is not None and owner_of(where[0]) == "user" else None
    if where is None or tree is None:
        return True
    return any(keyword.arg == "mode" for call in around(tree, where[1], ast.Call) for keyword in call.keywords)


@rule("out-of-bounds-index", "are indices within their axes?", "warning", traced=True)
def out_of_bounds_index(e: Evidence) -> Iterator[Match]:
    """Finds indices outside of the axis that they index: JAX reads another element or none, and reports nothing."""
    accesses, bounded = find_accesses(e.program, [*(value.const for value in e.program.consts), *inputs_of_call(e)])
    if not accesses:
        raise NotApplicable("it indexes nothing by integers that are known from one call")
    names = {value: f"constant {i}" for i, value in enumerate(e.program.consts)}
    names |= dict(zip(e.program.inputs, name_inputs(e), strict=True))
    for (op, array, axis, width, index), values in accesses:
        length = array.shape[axis]
        last, outside = length - width, values[(values < 0) | (values > length - width)]
        name = " and ".join(name for value, name in names.items() if value in index.origins)
        is_from_one = bool(name) and width == 1 and np.array_equal(values, np.arange(1, length + 1))
        # A single index that is not a row, next to valid ones, is padding. So is -1.
        is_padding = bool(name) and not is_from_one and len(outside[outside != -1]) <= 1 < len(values)
        if not len(outside) or is_padding or index.origins & bounded or _says_mode(op):
            continue
        what, each = name or "a counter", "at one call" if name else "in each call"
        taken = f", and {width} are taken from each index on" if width > 1 else ""
        treatment, how = _treatment(op)
        seen = [
            f"indices of {what} are {values.min()} to {values.max()} {each}",
            f"axis {axis} of {array.spec} has {length} elements{taken}: indices are 0 to {last}",
            f"{len(outside)} of {len(values)} lie outside: {treatment}, without an error",
        ]
        if name and len(index.array) > 1:
            seen.append("a loop or an index that is not known takes its part of them; all of them were looked at")
        begins = f"{what} begins at 1, and its" if is_from_one else f"{what}: its"
        advice = (
            f"Indices begin at 0: take {name} - 1."
            if is_from_one
            else f"Let the last index be {last}, the length minus the {width} that are taken, or pad the axis."
            if width > 1
            else f"Check how the numbers in {name} are made, or make the axis longer."
            if name
            else f"Let it end at {last}, or wrap it with % {length}."
        )
        yield Match(f"{begins} indices leave an axis of {length}", seen, f"{advice} {how}".rstrip(), op=op)


def _treatment(op: TracedOp) -> tuple[str, str]:
    """(how JAX treats such an index, how to say that it is meant), as sentences."""
    mode, meant = str(op.params.get("mode", "CLIP")), "If you intend it, say so: x.at[i]"
    if op.name == "eq":
        return "their rows are all 0", ""
    if op.name in SELECTS:
        reads = "returns NaN for them, or the lowest integer" if "FILL" in mode else "reads at the nearest valid index"
        return f"JAX {reads}", f'{meant}.get(mode="fill", fill_value=0).'
    is_kept = op.name == "dynamic_update_slice" or "CLIP" in mode
    treatment = "JAX writes at the nearest valid index" if is_kept else "writes there are dropped"
    return treatment, f'{meant}.add(v, mode="drop").'
