"""Work whose results are not used, that could be done once, or that a cheaper product would do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import (
    FEW_OPERATIONS,
    Gain,
    Instead,
    Match,
    NotApplicable,
    arrays_of_call,
    list_some,
    name_inputs,
    rule,
)
from benchax.auditing.rules.compiled import PART_OF_WHOLE, UPDATES
from benchax.errors import NotMeasured
from benchax.grouping import group_by
from benchax.program.evaluate import bind, compute
from benchax.program.index import (
    CONVERTS,
    COSTLY,
    ELEMENTWISE,
    MOVES,
    Body,
    TracedOp,
    Value,
    is_one_hot,
    list_ahead,
    root_of,
)
from benchax.program.jaxpr import call_by_user, frames_of, line_of_vmap
from benchax.results.inspection import Inspection
from benchax.source_files import owner_of
from benchax.units import count, percent, size

ONE_HOT_BYTES = 1 << 20
"""At this size, a product takes 0.1 to 1.5 ms. The lookup takes half to a tenth of that, for tables of 8 to 512 rows
and 8 or 64 columns (float32, jaxlib 0.12.0, CPU, two busy cores)."""


@rule(
    "one-hot-matmul",
    "does it multiply one-hot arrays to look up rows?",
    "warning",
    traced=True,
    advice=(
        "Index the table: table[index], or jnp.take(table, index, axis=0) (flax.linen.Embed, "
        "equinox.nn.Embedding). Its gradient adds into the rows that were used. Instead of (one_hot(i) - "
        "one_hot(j)) @ table write table[i] - table[j]."
    ),
)
def one_hot_matmul(e: Evidence) -> Iterator[Match]:
    """Finds products of a one-hot array and a table, which only look up rows of the table."""
    if e.platform == "tpu":
        raise NotApplicable("TPUs multiply by one-hot arrays faster than they index (JAX issue 10891)")
    arrays = arrays_of_call(e)
    for op in e.program.find("dot_general"):
        (contracted, batched) = op.params["dimension_numbers"]
        for side in () if any(batched[0]) or len(contracted[0]) != 1 else (0, 1):
            hot, table, axis = op.reads[side], op.reads[1 - side], contracted[side][0]
            rows = hot.shape[axis]
            if hot.size_bytes < ONE_HOT_BYTES or not is_one_hot(hot, axis, arrays):
                continue
            inputs = (f"{hot.dtype}[{rows},{table.size // rows}]", jnp.arange(hot.size // rows) * 7 % rows)
            flops = count(2 * op.makes[0].size * rows, "FLOP")
            yield Match(
                f"looks up rows of {table.spec} by a product with a one-hot array",
                [f"{hot.spec} of zeros and ones, {size(hot.size_bytes)}, times {table.spec}: {flops}"],
                work=(op.work * op.times, e.program.body.work),
                op=op,
                instead=Instead(
                    "a lookup",
                    "this product",
                    lambda table, index: jax.nn.one_hot(index, table.shape[0], dtype=table.dtype) @ table,
                    lambda table, index: jnp.take(table, index, axis=0),
                    inputs,
                ),
            )
            break


@rule(
    "vmapped-convolution",
    "does vmap turn convolutions into a grouped one?",
    "warning",
    traced=True,
    advice=(
        "Replace jax.vmap by jax.lax.map around the convolution: one convolution after the other. Layers around it can "
        "keep vmap."
    ),
)
def vmapped_convolution(e: Evidence) -> Iterator[Match]:
    """Finds convolutions with as many kernels as images under vmap. XLA makes one grouped convolution of them, which is
    slow on some devices (JAX issue 26568)."""
    for op in e.program.find("conv_general_dilated"):
        groups = op.params["feature_group_count"]
        if groups == 1 or not line_of_vmap(op.equation):
            continue
        image_axes, kernel_axes, _ = op.params["dimension_numbers"]
        images, kernels = op.reads
        inputs: list[Any] = []
        for value, cut in ((images, image_axes[1]), (kernels, kernel_axes[0])):
            shape = (n // groups if axis == cut else n for axis, n in enumerate(value.shape))
            inputs.append(jax.ShapeDtypeStruct((groups, *shape), value.dtype))
        settings = tuple((name, op.params[name]) for name in CONVOLUTION)
        yield Match(
            f"vmap makes one convolution in {groups} groups",
            [f"{images.spec} by {kernels.spec}: {count(op.work, 'FLOP')}"],
            op=op,
            instead=Instead(
                "lax.map",
                "these convolutions",
                lambda x, k, settings: jax.vmap(_convolution(settings))(x, k),
                lambda x, k, settings: jax.lax.map(lambda pair: _convolution(settings)(*pair), (x, k)),
                (*inputs, settings),
                (2,),
            ),
        )


CONVOLUTION = (
    "window_strides",
    "padding",
    "lhs_dilation",
    "rhs_dilation",
    "dimension_numbers",
    "precision",
    "preferred_element_type",
)


def _convolution(settings: Any) -> Callable[..., jax.Array]:
    return partial(jax.lax.conv_general_dilated, **dict(settings))


BROADCAST_ELEMENTS = 1 << 20
"""At this size, sums of 8 to 64 elements take 0.2 to 0.8 ms. The product takes a quarter to a tenth of that (float32,
jaxlib 0.12.0, CPU, two busy cores)."""
FEW_ELEMENTS = 8
"""Rows, columns, and elements in a sum. With three coordinates, as of positions, differences are more exact. With half
or twice of it, rules find the same in the clean programs and the programs of broadcast-matmul."""


@rule("broadcast-matmul", "does it broadcast what a matrix product would sum?", "warning", traced=True)
def broadcast_matmul(e: Evidence) -> Iterator[Match]:
    """Finds sums over the broadcast product, or the squared differences, of two arrays."""
    for op in e.program.find("reduce_sum", "dot_general"):
        value, summed, is_squared = _terms(op)
        if value is None or value.size < BROADCAST_ELEMENTS:
            continue
        is_difference, one, other, weights = _pairing(value, is_squared)
        if one is None or other is None:
            continue
        rows, columns = one.varying - other.varying, other.varying - one.varying
        is_weighted = any(weight.varying & rows and weight.varying & columns for weight in weights)
        n, m, d = (math.prod(value.shape[i] for i in axes) for axes in (rows, columns, summed))
        if is_weighted or not summed <= one.varying & other.varying or min(n, m, d) < FEW_ELEMENTS:
            continue
        what, advice, now, better = _OF_DIFFERENCES if is_difference else _OF_PRODUCTS
        inputs = (f"{value.dtype}[{n},{d}]", f"{value.dtype}[{m},{d}]")
        elements = n * m * d
        yield Match(
            f"sums {what} of all pairs, which a matrix product does",
            [
                (
                    f"{n} × {m} {what} of {d} elements each, summed: {count(elements)} elements, "
                    f"{size(elements * value.dtype.itemsize)} if they are kept"
                )
            ],
            advice,
            op=op,
            instead=Instead("a matrix product", "this sum", now, better, inputs),
        )


_OF_PRODUCTS = (
    "products",
    "Write it as a matrix product: a @ b.T, or jnp.einsum('nd,md->nm', a, b).",
    lambda a, b: (a[:, None] * b[None]).sum(-1),
    lambda a, b: a @ b.T,
)
_OF_DIFFERENCES = (
    "squared differences",
    (
        "|a - b|² is |a|² - 2 a·b + |b|²: (a**2).sum(-1)[:, None] - 2 * a @ b.T + (b**2).sum(-1)[None]. It rounds "
        "differently: small distances of large vectors lose digits, and can come out below zero (jnp.maximum(d, 0)). "
        "With a weight w of each coordinate of b it is (a**2) @ w.T - 2 * a @ (b * w).T + (b**2 * w).sum(-1)[None]."
    ),
    lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1),
    lambda a, b: (a**2).sum(-1)[:, None] - 2 * a @ b.T + (b**2).sum(-1)[None],
)


def _terms(op: TracedOp) -> tuple[Value | None, frozenset[int], bool]:
    """(what is added up, along which axes, are its squares added up?)"""
    if op.name == "reduce_sum":
        return op.reads[0].back({*CONVERTS, "neg"}), frozenset(op.params["axes"]), False
    (left, right), (batched, others) = op.params["dimension_numbers"]
    is_square = op.reads[0].back() is op.reads[1].back() and left == right and batched == others
    return (op.reads[0], frozenset(left), True) if is_square else (None, frozenset(), False)


def _pairing(value: Value, is_squared: bool) -> tuple[bool, Value | None, Value | None, list[Value]]:
    """(is it a squared difference?, its two operands, weights); no operands if it is neither that nor a product."""
    weights: list[Value] = []
    root = value if is_squared else _square_root(value, weights)
    if root is None:
        maker = value.maker
        is_product = maker is not None and maker.name == "mul" and maker.reads[0] is not maker.reads[1]
        return (False, maker.reads[0], maker.reads[1], []) if maker and is_product else (False, None, None, [])
    inner = root.back({*CONVERTS, "abs"}).maker
    if inner is not None and inner.name in ("mul", "div"):  # the width of a kernel
        weights.append(inner.reads[1])
        inner = inner.reads[0].back({*CONVERTS, "abs"}).maker
    is_difference = inner is not None and inner.name in ("sub", "add")
    return (True, inner.reads[0], inner.reads[1], weights) if inner and is_difference else (False, None, None, [])


def _square_root(value: Value, weights: list[Value]) -> Value | None:
    """The value whose square it is, perhaps times weights, which are noted; None for others."""
    maker = value.maker
    if (root := root_of(value)) is not None or maker is None or maker.name not in ("mul", "div"):
        return root
    for squared, weight in (maker.reads, maker.reads[::-1]) if maker.name == "mul" else (maker.reads,):
        if (found := _square_root(squared, weights)) is not None:
            weights.append(weight)
            return found
    return None


LEAST_RATIO = 2.0
"""FLOP in this order over FLOP in the other. All of 14 random chains with two to three times as many took longer in
this order. With 1.2 to 1.6 times as many, 11 of 14 did (float32, jaxlib 0.12.0, CPU, two busy cores)."""


@rule("matmul-order", "are chains of products multiplied in the cheaper order?", "warning", traced=True)
def matmul_order(e: Evidence) -> Iterator[Match]:
    """Finds products of three matrices that are multiplied in the more expensive of their two orders."""
    for op in e.program.find("dot_general"):
        for side in (0, 1):
            view = op.reads[side].view(scaled=True)
            inner = view.source.maker
            # A product that another operation also needs has to be computed anyway.
            if inner is None or inner.name != "dot_general" or any(value.uses != 1 for value in view.way):
                continue
            contracted, batched = (view.sources(axes[side]) for axes in op.params["dimension_numbers"])
            (inner_contracted, _), (inner_batched, _) = inner.params["dimension_numbers"]
            shape, n_batch = view.source.shape, len(inner_batched)
            split = len(inner.reads[0].shape) - len(inner_contracted)
            left, right = list(range(n_batch, split)), list(range(split, len(shape)))
            if batched != list(range(n_batch)) or contracted not in (left, right):
                continue
            rows, shared = (left, right) if contracted == right else (right, left)
            batch, n, m = (math.prod(shape[i] for i in axes) for axes in (range(n_batch), rows, shared))
            k, p = (
                math.prod(inner.reads[0].shape[i] for i in inner_contracted),
                op.reads[1 - side].size // (batch * m or 1),
            )
            flops, other = 2 * batch * n * m * (k + p), 2 * batch * k * p * (n + m)
            if flops < LEAST_RATIO * other:
                continue
            inputs = tuple(f"{op.makes[0].dtype}[{i},{j}]" for i, j in ((n, k), (k, m), (m, p)))
            is_left = (contracted == right) == (side == 0)
            order = "a @ (b @ x) instead of a @ b @ x" if is_left else "(x @ a) @ b instead of x @ (a @ b)"
            yield Match(
                f"multiplies three matrices in an order of {flops / other:.3g} times the work",
                [f"{count(flops, 'FLOP')} in this order, {count(other, 'FLOP')} in the other"],
                f"Multiply what gives the smaller matrix first: {order}, or jnp.linalg.multi_dot([...]), which "
                "chooses. It rounds differently.",
                work=((flops - other) * op.times, e.program.body.work),
                op=op,
                instead=Instead(
                    "the other order", "this product", lambda a, b, c: (a @ b) @ c, lambda a, b, c: a @ (b @ c), inputs
                ),
            )


# ---- sort-top-k ------------------------------------------------------------------------------------------------------

FEW_USED = 8
"""One element in eight of a row is used at most. For 64 rows of 4096 float32, a sort takes 71 ms on two cores, and
`top_k` 1 ms for 64 elements and 10 ms for 512 (jaxlib 0.10.2, CPU)."""
SAME_ORDER = ("neg", "convert_element_type", "copy")
"""Operations that leave each element in its place."""
OTHER_ORDER = ("rev", "transpose", "reshape", "squeeze", "expand_dims")
TAKING = ("slice", "dynamic_slice", "gather")


@rule(
    "sort-top-k",
    "are the few largest elements selected without a sort?",
    "warning",
    traced=True,
    known_on="cpu",
    advice=(
        "Select them: values, index = jax.lax.top_k(x, k) along the last axis, of -x for the smallest. The largest "
        "comes first; among equal ones the one with the lower index."
    ),
)
def sort_top_k(e: Evidence) -> Iterator[Match]:
    """Finds sorts, if only a few elements at an end are used: `jax.lax.top_k` selects these."""
    for op in e.program.find("sort"):
        key, axis = op.reads[0], op.params["dimension"]
        n = key.shape[axis]
        # XLA:CPU selects float32 without sorting; `top_k` of f64, bf16, f16 and int32 is as slow as a sort.
        if str(key.dtype) != "float32" or op.params.get("num_keys", 1) != 1:
            continue
        ends = used_ends(op, axis)
        if ends is None or FEW_USED * sum(ends) > n:
            continue
        used = " and ".join(f"the {k} {end}" for k, end in zip(ends, ("smallest", "largest"), strict=True) if k)
        inputs = (f"{key.dtype}[{key.size // n},{n}]", max(ends))
        yield Match(
            f"sorts {n} elements and uses {used}",
            [f"a sort of {key.spec} along its axis {axis}{op.at}"],
            op=op,
            work=(op.work * op.times, e.program.body.work),
            instead=Instead(
                "selected by top_k",
                "this sort",
                lambda x, k: jnp.sort(x)[:, ::-1][:, :k],
                lambda x, k: jax.lax.top_k(x, k)[0],
                inputs,
                static=(1,),
            ),
        )


def used_ends(sort: TracedOp, axis: int) -> tuple[int, int] | None:
    """How many of the smallest and of the largest elements are read; None if others are, or none.

    The places of the elements take the way that the elements take.
    """
    shape, used = sort.reads[0].shape, np.zeros(0, np.int32)
    places = np.arange(shape[axis], dtype=np.int32).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    waiting = [(value, np.broadcast_to(places, shape)) for value in sort.makes]
    while waiting:
        value, at = waiting.pop()
        if value.is_output:
            return None
        for reader in value.readers:
            if reader.reads[0] is not value or reader.name not in (*SAME_ORDER, *OTHER_ORDER, *TAKING):
                return None
            try:
                indices = compute(reader.reads[1:], {})
            except NotMeasured:  # an index that the program computes
                return None
            moved = at if reader.name in SAME_ORDER else np.asarray(bind(reader.equation, [at, *indices])[0])
            if reader.name in TAKING:
                used = np.union1d(used, moved)
            else:
                waiting.append((reader.makes[0], moved))
    low, high = used[used < shape[axis] / 2], used[used >= shape[axis] / 2]
    ends = int(low.max(initial=-1)) + 1, shape[axis] - int(high.min(initial=shape[axis]))
    return ends if any(ends) else None


# ---- both-sides-computed ---------------------------------------------------------------------------------------------


class Rarity(NamedTuple):
    """How often a condition holds."""

    is_of_true: bool
    """Is it rare that it holds, or that it doesn't?"""
    period: int | None
    """One iteration in this many; None: unknown, so in every second one at most."""


@rule(
    "both-sides-computed",
    "is expensive work done only when it's needed?",
    "warning",
    traced=True,
    advice=(
        "Choose before computing: jax.lax.cond(condition, lambda: costly(x), lambda: other) runs one branch, if "
        "the condition is one number, also in a scan. Under jax.vmap keep it out of the batch (in_axes=None)."
    ),
)
def both_sides_computed(e: Evidence) -> Iterator[Match]:
    """Finds `jnp.where` by one number for all elements, if one side is costly: both are computed."""
    total = e.program.body.work
    for condition, selects in (pair for body in e.program.bodies for pair in _choices(body)):
        op, rate = selects[0], _rarity(condition)
        # If both sides are costly, one is always wasted. A costly side that is rarely used is nearly always wasted.
        sides = {is_true: _side(selects, is_true) for is_true in (True, False)}
        which = rate.is_of_true if rate else min(sides, key=lambda is_true: _sum(sides[is_true]))
        each = _sum(sides[which])
        wasted = op.times * each * (1 - 1 / (rate.period or 2) if rate else 1)
        # XLA can make what is the same in each iteration once, before the loop.
        values = [select.reads[2 if which else 1] for select in selects]
        is_same = op.body.is_loop and not any(value.varies_in(op.body) for value in values)
        if each < FEW_OPERATIONS or is_same:
            continue
        use, is_known = "the other side is as expensive, or more", rate is None or rate.period is not None
        if rate is not None:
            how = f"once in {rate.period} times" if rate.period else "when two numbers are equal"
            use = f"the expensive one is used {how}"
        costly = sorted(sides[which], key=lambda one: -one.work)
        yield Match(
            f"computes both sides of a where each time; {use}",
            [
                *list_some([f"{one.name} makes {one.makes[0].spec}{one.at}" for one in costly], 3),
                f"{count(each)} operations each time, which nothing else needs: {use}",
                f"{count(wasted)} of {count(total)} operations of a call, counted from the shapes, are wasted"
                + ("" if is_known else ", if they are used every second time"),
            ],
            op=op,
            gain=Gain(f"estimated: {percent(wasted / total)} of the operations of a call") if is_known else None,
            work=(wasted, total),
        )


def _sum(ops: Iterable[TracedOp]) -> float:
    return sum(op.work for op in ops)


def _choices(body: Body) -> Iterator[tuple[Value, list[TracedOp]]]:
    """(a number, the choices by it that a line of the user's asks for); other functions' choices are their own."""
    choices = (op for op in body.ops if op.name == "select_n" and len(op.reads) == 3 and not op.is_backward)
    for condition, selects in group_by(choices, lambda op: op.reads[0].view().source).items():
        is_number = not condition.shape and condition.literal is None
        if asked := [op for op in selects if is_number and _is_where(op)]:
            yield condition, asked


def _is_where(op: TracedOp) -> bool:
    """Does it come from a call of `where` or `select` in the user's own file? JAX keeps the trace of the jit inside of
    `where` from another call: then its equation tells."""
    is_inside = bool(op.calls) and op.calls[-1].params.get("name") == "_where"
    return call_by_user(op.calls[-1] if is_inside else op.equation) in ("where", "select", "select_n")


def only_for(selects: Sequence[TracedOp], side: int) -> Iterator[TracedOp]:
    """Operations whose results reach nothing but this side of the choices. What a backward pass reads of them is for
    this side too: if the other one was chosen, its gradient is zero."""
    body = selects[0].body
    allowed = {select.reads[side] for select in selects}
    others = {*body.outputs, *(one for select in selects for i, one in enumerate(select.reads) if i != side)}
    for op in reversed(body.ops):
        if op in selects:
            continue
        if allowed.intersection(op.makes) and not others.intersection(op.makes):
            yield op
            allowed.update(op.reads)
        elif not op.is_backward:
            others.update(op.reads)


def _side(selects: Sequence[TracedOp], is_true: bool) -> list[TracedOp]:
    """The operations for this side alone, and those of its backward pass."""
    ops = list(only_for(selects, 2 if is_true else 1))
    made = {value for op in ops for value in op.makes}
    return ops + [op for op in selects[0].body.ops if op.is_backward and made.intersection(op.reads)]


def _rarity(condition: Value) -> Rarity | None:
    """How often a condition holds that compares with a remainder, or what changes in a loop with what doesn't."""
    last = condition.back().maker
    compared = (one.maker for one in condition.behind(MOVES | {"and"}) if one.maker is not None)
    found = ((op, rate) for op in compared if (rate := _of_comparison(op)) is not None)
    # If several conditions must hold, one that rarely holds is enough.
    known = [rate for op, rate in found if rate.is_of_true or op is last]
    return max(known, key=lambda rate: rate.period or 0, default=None)


def _of_comparison(op: TracedOp) -> Rarity | None:
    if op.name not in ("eq", "ne") or not all(value.is_of(jnp.integer) for value in op.reads):
        return None
    # `%` is a remainder whose sign is corrected.
    makers = (one.maker for value in op.reads for one in value.behind(ELEMENTWISE) if not one.shape)
    remainder = next((maker for maker in makers if maker is not None and maker.name == "rem"), None)
    if remainder is None:
        is_counted = op.body.is_loop and sum(value.varies_in(op.body) for value in op.reads) == 1
        return Rarity(op.name == "eq", op.body.trips) if is_counted else None
    try:
        period = abs(int(compute(remainder.reads[1:], {})[0]))
    except NotMeasured:  # a divisor that the program computes
        period = None
    return Rarity(op.name == "eq", period) if period != 1 else None


# ---- vmapped-cond ----------------------------------------------------------------------------------------------------

FEW_ROWS = 10.0
"""If each row has its condition, one branch must be this many times as expensive as the next. A Cholesky factor of 32 ×
32 in a twentieth of the rows takes 2 to 4 times as long under vmap as under lax.map. In half of the rows, it takes 0.6
to 2.8 times as long (float32, jaxlib 0.12.0, CPU, two busy cores)."""


@rule("vmapped-cond", "does lax.cond under vmap run one branch?", "warning", traced=True)
def vmapped_cond(e: Evidence) -> Iterator[Match]:
    """Finds `lax.cond` under vmap: all branches run for each row, even if the condition is the same in all of them."""
    for body in e.program.bodies:
        found = (op for op in body.ops if op.name == "select_n" and not op.is_backward and _is_of_cond(op))
        groups = group_by(found, lambda op: (op.reads[0].view().source, not op.reads[0].varying))
        for (_, is_one_for_all), selects in groups.items():
            sides = [list(only_for(selects, side)) for side in range(1, len(selects[0].reads))]
            if loop := next((op for side in sides for op in side if op.name == "while"), None):
                yield Match(
                    "a loop in a branch of lax.cond also runs for rows that take another branch",
                    [
                        f"the loop is{loop.at}",
                        "jax.vmap runs it until the last row is done: other rows can take long, or never end",
                    ],
                    "Make its condition False for these rows, or start it with a value for them that ends it at once.",
                    op=loop,
                    severity="warning" if e.trial("compiled").obstacle else "info",
                )
            each = list(map(_sum, sides))
            least = FEW_ROWS * sorted(each)[-2] if not is_one_for_all else 0
            op, batched = selects[0], line_of_vmap(selects[0].outermost)
            selected = sum(one.makes[0].size for one in selects)
            is_costly = max(each) >= max(FEW_OPERATIONS, least)
            writes = ((one, one.reads[UPDATES[one.name]]) for side in sides for one in side if one.name in UPDATES)
            writes_part = any(part.size * PART_OF_WHOLE <= one.makes[0].size for one, part in writes)
            is_copied = writes_part and not (is_costly or is_one_for_all)
            if not (is_costly or is_copied):
                continue
            rows = count(max(op.reads[0].shape[:1]))
            seen = [
                (
                    f"the branches take {' and '.join(map(count, each))} operations of {count(body.work)} around them, "
                    "counted from the shapes"
                ),
                f"lax.cond is{op.at}; its condition "
                + (f"is one number that was repeated for {rows} rows" if is_one_for_all else "has a batch axis"),
                f"jax.vmap computes such a cond as a jnp.where of {count(selected)} elements",
                "gain not measured, because it depends on how often each branch is needed",
            ]
            yield Match(
                "copies whole arrays to choose between the branches of lax.cond"
                if is_copied
                else "runs all branches of lax.cond for each row"
                + ", though the condition is the same in all" * is_one_for_all,
                seen,
                "Don't batch the condition: in_axes=None for it in jax.vmap, or close over it; then one branch runs."
                if is_one_for_all
                else "Choose only the elements that change, and write them after that: "
                "x.at[i].set(jnp.where(condition, new, x[i]))."
                if is_copied
                else "If few rows need the expensive branch, take one row after the other with jax.lax.map, which "
                "runs one "
                "branch for each; or collect the rows that need it, up to a fixed number, and compute them separately.",
                op=op,
                work=((selected if is_copied else max(each)) * op.times, body.work * op.times),
                severity=None if is_one_for_all or is_copied else "info",
                where=batched or op.line,
            )


def _is_of_cond(op: TracedOp) -> bool:
    """Did the rule that batches `cond` make it? In a loop it has the frames of that call. JAX doesn't document its
    frames (jax 0.10.2 to 0.12)."""
    inner = takewhile(lambda frame: owner_of(frame.file_name) == "jax", frames_of(op.equation))
    names = {frame.function_name.rpartition(".")[2] for frame in inner}
    return "vmap(" in op.scope and bool(names & {"_cond_batching_rule", "cond", "switch"})


# ---- fixed-work ------------------------------------------------------------------------------------------------------


@rule("fixed-work", "is work on arguments that never change done once?", "warning", traced=True)
def fixed_work(e: Evidence) -> Iterator[Match]:
    """Finds what a function computes again in each call of arguments that never change."""
    fixed, n = e.use.repeated, len(e.program.inputs)
    if not fixed or max(fixed) >= n:
        raise NotApplicable("no argument is known to be the same at each of three calls or more")
    if len(fixed) == n:
        raise NotApplicable("all arguments were the same at each call that was seen")
    same = {value: i for i, value in enumerate(e.program.inputs) if i in fixed}
    varying, depending = list_ahead(set(e.program.inputs) - {*same}), list_ahead(same)
    # Whether a branch runs is not known.
    always = [body for body in e.program.bodies if all(one.is_loop or one.op is None for one in body.around)]
    every = [op for body in always for op in body.ops if op.name not in ("scan", "while")]
    # XLA fuses elementwise work with the varying part, so it costs little more.
    costly = [op for op in every if op.name in COSTLY and not op.is_backward and "vmap(jvp(" not in op.scope]
    again = [op for op in costly if depending.intersection(op.reads) and not varying.intersection(op.reads)]
    # XLA takes what a loop computes of its constants alone out of it: a product in a scan of 1 and of 100 iterations
    # takes equally long (jax 0.10.2).
    each = {op: _work(op, {root.body for read in op.reads for root in read.roots}) for op in again}
    total = sum(each.get(op) or _work(op, op.body.around) for op in every)
    work = sum(each.values())
    if not again:
        return
    again.sort(key=lambda op: -each[op])
    names = name_inputs(e)
    used = {i: list_ahead([value]) for value, i in same.items()}
    first = [names[i] for i, reached in used.items() if reached.intersection(again[0].reads)]
    is_open = any(body.kind == "while" for body in e.program.bodies)
    whole, unknown = (
        ("", "; their share isn't known, because a loop has no known length")
        if is_open
        else (f" of {count(total)}", "")
    )
    fed = {value for op in again for value in op.reads}
    never = [f"{names[i]} {e.program.inputs[i].spec}" for i, reached in used.items() if reached & fed]
    yield Match(
        f"computes {again[0].name} in each call from arguments that never change",
        [
            *list_some([f"{op.name} makes {op.makes[0].spec}, {count(each[op])} operations{op.at}" for op in again]),
            f"{count(work)}{whole} operations of a call, counted from the shapes{unknown}",
            f"the same object at each call that was seen, three or more: {', '.join(list_some(never))}",
        ],
        "Compute it once, before the calls, and pass the result, instead of "
        f"{' and '.join(list_some(first))} or in addition: jit keeps nothing "
        "from call to call.",
        work=(work, work if is_open else total),
        severity="info" if is_open else None,
        op=again[0],
    )


def _work(op: TracedOp, loops: Iterable[Body]) -> float:
    """Operations in a call, once in each iteration of these loops; a loop of unknown length counts once."""
    return op.work * math.prod(body.trips or 1 for body in loops if body.is_loop)


# ---- zero-argument-jit -----------------------------------------------------------------------------------------------

TRIVIAL = ("constant", "parameter", "tuple", "copy", "bitcast", "get-tuple-element")
"""Instructions that compute nothing."""


@rule(
    "zero-argument-jit",
    "does it compute from arguments?",
    "warning",
    advice=(
        "Pass the data as arguments. XLA can compute values without arguments at compile time. Then the time of a "
        "call says nothing about the computation, and the compiled program holds the result. If you want that, "
        "compute it once and keep the array."
    ),
)
def zero_argument_jit(e: Evidence) -> Iterable[Match]:
    """Finds a compiled function without inputs: all that it computes is known before it runs."""
    jaxpr = e.inspected("jaxpr")
    if jaxpr.inputs or not jaxpr.equations:
        return
    yield Match(
        "has no arguments, so its result is known before it runs",
        [f"none of its {jaxpr.equations} operations depends on an input", *_describe_remainder(e.inspection)],
    )


def _describe_remainder(i: Inspection) -> list[str]:
    """Describes the compiler's result."""
    seen: list[str] = []
    if i.counts is not None:
        left = sum(n for opcode, n in i.counts.instructions if opcode not in TRIVIAL)
        computed = "the compiled program computes nothing: XLA did it all at compile time"
        seen.append(computed if not left else f"{left} instructions still compute something")
    if i.constants is not None and i.constants.captured_bytes:
        seen.append(f"it closes over {size(i.constants.captured_bytes)} of arrays")
    if i.constants is not None and i.constants.baked_in_bytes:
        seen.append(f"the compiled program holds {size(i.constants.baked_in_bytes)} of constants")
    return seen
