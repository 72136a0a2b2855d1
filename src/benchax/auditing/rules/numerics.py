"""Algorithms and numerical analysis: rules that hold for NumPy as well, and are off by default."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.signal import fftconvolve

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import (
    Instead,
    Match,
    NotApplicable,
    arrays_of_call,
    compute_values,
    rule,
)
from benchax.auditing.rules.compiled import UPDATES
from benchax.auditing.rules.waste import FEW_USED, used_ends
from benchax.program.index import MOVES, TAKES, Body, TracedOp, Value, identity_axes, list_ahead, root_of
from benchax.program.jaxpr import is_users_own, names, nested_in
from benchax.units import count, percent, size

PACK = "numerics"

OF_CALL = "with the arguments of one call"


# ---- cancelling-variance ---------------------------------------------------------------------------------------------

LINEAR = (
    MOVES
    | TAKES
    | names("add concatenate conv_general_dilated cumsum div dot_general mul reduce_sum reduce_window scatter-add sub")
    | {"reduce_window_sum"}
)
"""Operations that can come between squares and their mean."""
LEFT_EPS, LEAST_SHARE = 64, 0.5
"""A difference of this many units of rounding, or fewer, has six bits that mean something at most; and the share of
elements: a variance that is 0 in some columns belongs to what never changes. With half or twice of both, rules find the
same in the clean programs and the programs of cancelling-variance."""


@rule(
    "cancelling-variance",
    "are variances computed from centered values?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Subtract first, then square: jnp.var(x), or jnp.mean((x - mean) ** 2). If you keep sums of batches or "
        "of a window, first subtract a value close to the mean from x; the variance stays the same. "
        "Merge running moments by their centered sums (Chan, Golub and LeVeque, The American Statistician 37, "
        "1983)."
    ),
)
def cancelling_variance(e: Evidence) -> Iterator[Match]:
    """Finds variances as the mean of squares less the square of the mean, where rounding can leave no digit."""
    found = [op for op in e.program.ops if op.name in ("sub", "add") and _is_variance(op)]
    if not found:
        raise NotApplicable("it subtracts no square of a mean from a mean of squares")
    for op in found:
        squares, result = compute_values(e, [_difference(op)[0], op.makes[0]])
        eps = float(jnp.finfo(result.dtype).eps)
        sizes, left = (np.abs(np.broadcast_to(one, result.shape).astype(np.float64)) for one in (squares, result))
        known = np.isfinite(sizes) & np.isfinite(left) & (sizes > 0)
        lost = float(np.mean(left[known] <= LEFT_EPS * eps * sizes[known])) if known.any() else 0.0
        if lost < LEAST_SHARE:
            continue
        typical, dtype = float(np.median(sizes)), op.makes[0].dtype
        yield Match(
            f"the mean of squares minus the square of the mean leaves no digits in {dtype}",
            [
                f"{OF_CALL} {percent(lost)} of {result.size} differences{op.at} are as small as rounding errors",
                (
                    f"the mean of squares is about {typical:.3g}, which {dtype} has in steps of {eps * typical:.2g}; "
                    f"the differences are {float(np.min(result)):.3g} to {float(np.max(result)):.3g}"
                ),
            ],
            op=op,
        )


def _is_variance(op: TracedOp) -> bool:
    sides = _difference(op) if op.makes[0].is_of(jnp.floating) and is_users_own(*op.inwards) else ()
    squares, squared = (value.view(scaled=True).source for value in sides) if sides else (op.makes[0], op.makes[0])
    if not sides or root_of(squared) is None or root_of(squares) is not None:
        return False
    behind = list(squares.behind(LINEAR))
    windows = (one.maker for one in behind if one.maker is not None and one.maker.name == "reduce_window")
    return all(map(_adds, windows)) and any(root_of(one) is not None for one in behind)


def _difference(op: TracedOp) -> tuple[Value, ...]:
    """(a, b) of a - b, which `-b + a` is, too; nothing for other operations."""
    if op.name == "sub":
        return op.reads
    sides = (op.reads, op.reads[::-1])
    found = (
        (one, other.maker.reads[0]) for one, other in sides if other.maker is not None and other.maker.name == "neg"
    )
    return next(found, ())


def _adds(window: TracedOp) -> bool:
    """`jax.lax.reduce_window` with a first value that is computed keeps the name of its operation inside."""
    return [inner.primitive.name for body in nested_in(window.equation) for inner in body.eqns] == ["add"]


# ---- explicit-inverse ------------------------------------------------------------------------------------------------

LEAST_ROWS, FEW_COLUMNS = 96, 4
"""Rows, and rows for each column. With both, on one core and in float32, an inverse and its product take 1.4 times as
long as a solve of 100 rows. With 800 rows they take 2 to 2.8 times as long; with 64 rows only 1.2 times (jaxlib 0.10.2,
CPU)."""


@rule("explicit-inverse", "are systems solved without an inverse?", "warning", traced=True, pack=PACK)
def explicit_inverse(e: Evidence) -> Iterator[Match]:
    """Finds inverses that are made only to be multiplied by a few columns, which a solve needs no inverse for."""
    for op in e.program.find("triangular_solve", "custom_linear_solve"):
        solves, factor = _solves_of_identity(op), _factor(op)
        products = _products_of(op.makes[0]) if solves else None
        rows = op.makes[0].shape[-1] if op.makes[0].shape else 0
        columns = sum(product.makes[0].size for product in products or ()) // max(1, op.makes[0].size // max(1, rows))
        if not products or rows < max(LEAST_ROWS, FEW_COLUMNS * columns):
            continue
        by_column, of_factor = solves * op.makes[0].size, factor.work if factor else 0.0
        flops = of_factor + by_column * rows + sum(one.work for one in products)
        least = of_factor + by_column * columns
        saved = (flops - least) * (op.body.trips or 1)
        kind = factor.name if factor and solves > 1 else "cholesky" if solves > 1 else "triangular"
        dtype, what = op.makes[0].dtype, "one column" if columns == 1 else f"{count(columns)} columns"
        advice, now, better = _SOLVES[kind]
        yield Match(
            f"inverts a matrix, {op.makes[0].spec}, to multiply it by {what}",
            [
                f"{count(flops, 'FLOP')} for an inverse of {rows} columns; {columns} need {count(least, 'FLOP')}",
                *(f"multiplied{one.at}" for one in products if one.line != op.line),
            ],
            f"{advice} A solve also loses fewer digits if the matrix is nearly singular.",
            op=op,
            instead=Instead(
                "solved", "this solve", now, better, (f"{dtype}[{rows},{rows}]", f"{dtype}[{rows},{columns}]")
            ),
            work=(saved, max(saved, e.program.body.work)),
        )


def _solves_of_identity(op: TracedOp) -> int:
    """How many triangular solves have made an inverse from an identity; 0 for any other value."""
    shape, made = op.makes[0].shape, op.reads[-1].back()
    # An iterative solver has no factorization, so its work is unknown.
    if len(shape) < 2 or shape[-1] != shape[-2] or (op.name == "custom_linear_solve" and not _factor(op)):
        return 0
    if identity_axes(op.reads[-1]) is not None:
        return 2 if op.name == "custom_linear_solve" else 1
    before = _solves_of_identity(made.maker) if made.maker is not None and made.maker.name == "triangular_solve" else 0
    return before + 1 if before and made.uses == 1 else 0


def _factor(op: TracedOp) -> TracedOp | None:
    """The factorization that a solve reads, perhaps with its other triangle masked."""
    behind = (one.maker for read in op.reads[:-1] for one in read.behind(MOVES | {"select_n", "mul"}))
    return next((maker for maker in behind if maker is not None and maker.name in ("lu", "cholesky")), None)


def _products_of(inverse: Value) -> list[TracedOp] | None:
    """The products that read it; None if anything else does, or if it is squared or summed over both axes. A derivative
    reads it for the derivative of the inverse, which a solve doesn't have."""
    found, waiting = list[TracedOp](), [inverse]
    for value in waiting:
        for reader in (reader for reader in value.readers if not reader.is_backward):
            sides = [i for i, read in enumerate(reader.reads) if read is value]
            if reader.makes[0].view(scaled=True).source is inverse and reader.makes[0].size == inverse.size:
                waiting.append(reader.makes[0])
            elif reader.name == "dot_general" and [len(reader.params["dimension_numbers"][0][i]) for i in sides] == [1]:
                found.append(reader)
            else:
                return None
    return found if not any(value.is_output for value in waiting) else None


def _well(a: jax.Array) -> jax.Array:
    """A matrix far from singular, made from one of random numbers."""
    return a + a.shape[0] * jnp.eye(a.shape[0], dtype=a.dtype)


_SOLVES = {
    "lu": (
        (
            "Solve instead: jnp.linalg.solve(a, b) for jnp.linalg.inv(a) @ b, jnp.linalg.solve(a.T, b.T).T for "
            "b @ jnp.linalg.inv(a); if a is positive definite, jax.scipy.linalg.solve(a, b, assume_a='pos')."
        ),
        lambda a, b: jnp.linalg.inv(_well(a)) @ b,
        lambda a, b: jnp.linalg.solve(_well(a), b),
    ),
    "cholesky": (
        (
            "Solve for the columns themselves: jax.scipy.linalg.cho_solve(factor, b), or jax.scipy.linalg.solve(a, b, "
            "assume_a='pos'), instead of the inverse times b."
        ),
        lambda a, b: cho_solve((_well(a), True), jnp.eye(a.shape[0], dtype=a.dtype)) @ b,
        lambda a, b: cho_solve((_well(a), True), b),
    ),
    "triangular": (
        (
            "Solve for the columns themselves: jax.scipy.linalg.solve_triangular(l, b, lower=True) instead of the "
            "inverse of l times b."
        ),
        lambda a, b: solve_triangular(_well(a), jnp.eye(a.shape[0], dtype=a.dtype), lower=True) @ b,
        lambda a, b: solve_triangular(_well(a), b, lower=True),
    ),
}

# ---- sparse-matmul ---------------------------------------------------------------------------------------------------

SPARSE_ELEMENTS, MOST_SHARE = 1 << 18, 1 / 128
"""The size of the matrix, and the share of its entries that are not zero. On a core of a CPU both ways take the same
time at about 1/64 (f32, 600 to 4000 rows, 1 to 64 columns)."""


@rule(
    "sparse-matmul",
    "do products with sparse matrices use only the nonzero entries?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Keep only the nonzero entries: jax.ops.segment_sum(values[:, None] * x[columns], rows, n), or "
        "jax.experimental.sparse.BCOO.fromdense(a) @ x. For a banded matrix, such as differences on a grid, use "
        "neighbors: x[1:] - x[:-1], or jnp.roll."
    ),
)
def sparse_matmul(e: Evidence) -> Iterator[Match]:
    """Finds products with a matrix that is nearly all zeros: an adjacency, a finite difference, an incidence."""
    if len(e.data) != len(e.program.inputs):
        raise NotApplicable("its arguments were not kept")
    carried = {e.program.inputs[at] for at, _ in e.use.carried.positions}
    same = {value for i, value in enumerate(e.program.inputs) if i in e.use.repeated} | set(e.program.consts)
    known = {**arrays_of_call(e), **{value: value.const for value in e.program.consts}}
    entries = {value: n for value, array in known.items() if value not in carried and (n := _entries(array))}
    for op in e.program.find("dot_general") if entries else ():
        contracted, batched = op.params["dimension_numbers"]
        for side, matrix in enumerate(op.reads):
            source = matrix.view(scaled=True, out=True).source
            # A product that runs once, in a program that is called once, need not be fast.
            if source not in entries or any(batched) or not (source in same or op.body.is_repeated):
                continue
            columns, dense = op.reads[1 - side].size // matrix.shape[contracted[side][0]], np.asarray(known[source])
            rows, places = np.nonzero(dense)
            x, kept = np.ones((dense.shape[1], columns), dense.dtype), dense[rows, places]
            yield Match(
                f"multiplies by {matrix.spec}; {percent(entries[source] / dense.size)} of it is nonzero",
                [f"{count(entries[source])} of {count(dense.size)} entries, in {size(dense.nbytes)}{op.at}"],
                op=op,
                instead=Instead(
                    "by its entries",
                    "this product",
                    lambda matrix, values, rows, places, x: matrix @ x,
                    lambda matrix, values, rows, places, x: jax.ops.segment_sum(
                        values[:, None] * x[places], rows, matrix.shape[0]
                    ),
                    (dense, kept, rows, places, x),
                ),
            )


def _entries(array: Any) -> int:
    """Entries that are not zero, of a matrix if they are few; 0 otherwise."""
    is_matrix = getattr(array, "ndim", 0) == 2 and array.size >= SPARSE_ELEMENTS
    n = int(np.count_nonzero(np.asarray(array))) if is_matrix and jnp.issubdtype(array.dtype, np.number) else 0
    return n if is_matrix and n <= MOST_SHARE * array.size else 0


# ---- fft-length ------------------------------------------------------------------------------------------------------

LARGE_PRIME, SMALL_PRIME = 100, 7
"""On CPU (jaxlib 0.10.2) 64 transforms of length 1009, 4099, 8191 and 20011 took 2.5, 5, 8 and 16 times as long as of
the next length without prime factors above 7."""


@rule("fft-length", "do lengths of Fourier transforms have small prime factors?", "warning", traced=True, pack=PACK)
def fft_length(e: Evidence) -> Iterator[Match]:
    """Finds Fourier transforms of lengths with large prime factors, which take much longer than slightly longer
    ones."""
    if not any(op.name == "fft" for op in e.program.ops):
        raise NotApplicable("there is no Fourier transform in it")
    for op in e.program.find("fft"):
        length = max(op.params["fft_lengths"], key=_largest_prime)
        prime, good = _largest_prime(length), length
        if prime < LARGE_PRIME or not is_users_own(*op.inwards):
            continue
        while _largest_prime(good) > SMALL_PRIME:
            good += 1
        rows, factors = (
            max(1, op.reads[0].size // length),
            "is prime" if prime == length else f"has the prime factor {prime}",
        )
        yield Match(
            f"transforms a length of {length}, which {factors}",
            [
                (
                    f"{op.reads[0].spec} by {op.params['fft_type'].name}; the next length without prime factors above "
                    f"7 is {good}"
                )
            ],
            f"For a convolution or a correlation, pad with zeros: jnp.fft.rfft(x, n={good}), or for both of its "
            "arguments scipy.fft.next_fast_len of the sum of their lengths. If you can choose the length, as for a "
            "grid or a window, choose a good one. Padding changes the frequencies of a spectrum.",
            work=(op.work * op.times, e.program.body.work),
            op=op,
            instead=Instead(
                f"of length {good}",
                "one such transform",
                lambda x, n: jnp.fft.fft(x),
                lambda x, n: jnp.fft.fft(x, n),
                (f"complex64[{rows},{length}]", good),
                (1,),
            ),
        )


def _largest_prime(n: int) -> int:
    largest, factor = 1, 2
    while factor * factor <= n:
        while n % factor == 0:
            largest, n = factor, n // factor
        factor += 1
    return max(largest, n)


# ---- long-convolution ------------------------------------------------------------------------------------------------

LEAST_TAPS, LEAST_RATIO = 128, 8.0
"""Elements of the kernel, in all its axes together, and how many times the operations of an FFT the direct way needs.
With 4096 to 262144 elements and 512 taps it needs 7 to 10 times as many, and took 0.5 to 2.4 times as long (float32,
jaxlib 0.12.0, CPU, two busy cores). Below, the FFT is no gain."""


@rule(
    "long-convolution",
    "are convolutions with long kernels done by the FFT?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Use jax.scipy.signal.fftconvolve(x, kernel, mode=...), or jax.scipy.signal.convolve(..., method='fft'); "
        "for a correlation, reverse the kernel. It rounds differently: errors are relative to the largest result."
    ),
)
def long_convolution(e: Evidence) -> Iterator[Match]:
    """Finds direct convolutions with long kernels, which the FFT does in far fewer operations."""
    for op in e.program.find("conv_general_dilated"):
        params, (signal, kernel), made = op.params, op.reads, op.makes[0]
        spaced = (*params["window_strides"], *params["lhs_dilation"], *params["rhs_dilation"])
        left, right, out = (params["dimension_numbers"][i] for i in range(3))
        taps, length, result = (
            [v.shape[i] for i in spec[2:]] for v, spec in ((kernel, right), (signal, left), (made, out))
        )
        if set(spaced) != {1} or params["batch_group_count"] != 1 or math.prod(taps) < LEAST_TAPS:
            continue
        batch, channels, features = signal.shape[left[0]], signal.shape[left[1]], kernel.shape[right[0]]
        padded = math.prod(max(n, m) + k - 1 for n, m, k in zip(length, result, taps, strict=True))
        # Counts real transforms of all signals, kernels, and results at 2.5 n log2 n each (Van Loan, Computational
        # Frameworks for the Fast Fourier Transform, 1992), and 8 operations for each product of half as many complex
        # numbers.
        per_feature = kernel.shape[right[1]]
        transforms = batch * channels + features * per_feature + batch * features
        by_fft = 2.5 * padded * math.log2(max(2, padded)) * transforms + 4.0 * padded * batch * features * per_feature
        if op.work < LEAST_RATIO * by_fft:
            continue
        inputs = tuple(f"{made.dtype}[{','.join(map(str, shape))}]" for shape in (length, taps))
        yield Match(
            f"convolves directly with {' × '.join(map(str, taps))} taps: {op.work / by_fft:.3g} times the operations "
            "of the FFT",
            [
                (
                    f"{kernel.spec} over {signal.spec}: {count(op.work, 'FLOP')}; the FFT takes "
                    f"{count(by_fft, 'FLOP')}, counted from the shapes"
                )
            ],
            op=op,
            work=((op.work - by_fft) * op.times, e.program.body.work),
            instead=Instead(
                "by the FFT",
                "one such convolution",
                lambda x, kernel: jax.scipy.signal.convolve(x, kernel, mode="same", method="direct"),
                lambda x, kernel: fftconvolve(jnp.asarray(x), kernel, mode="same"),
                inputs,
            ),
        )


# ---- categorical-draws, permuted-draw --------------------------------------------------------------------------------

MANY, LEAST_NUMBERS = 16, 1 << 20
"""Categories, and draws of each distribution; random numbers of one call. 1024 draws of 1024 categories take 56 ms, and
0.05 ms by the cumulative sum (float32, jaxlib 0.12.0, CPU, two busy cores)."""
GUMBEL = names("neg log max add sub mul bitcast_convert_type or shift_right_logical reshape")
"""The operations by which `jax.random.gumbel` makes its numbers from random bits (jax 0.6 to 0.12)."""


def _is_done_once(e: Evidence, op: TracedOp) -> bool:
    """A program that makes its data once can spend a few random numbers more."""
    return bool(e.why_not_called) and not e.use.carried.calls and not op.body.is_repeated


@rule(
    "categorical-draws",
    "are draws of one distribution made with one random number each?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Draw by the cumulative sum, with one random number for each draw: jax.random.choice(key, k, (n,), "
        "p=jax.nn.softmax(logits)) does that. Rounding can lose categories of less than 1e-7 of the sum."
    ),
)
def categorical_draws(e: Evidence) -> Iterator[Match]:
    """Finds many draws of one categorical distribution that make a random number for each draw and each category."""
    for op in e.program.find("argmax"):
        added = op.reads[0].made_by("add", "sub")
        if added is None or added.makes[0].size < LEAST_NUMBERS or _is_done_once(e, op):
            continue
        logits = [one for one, other in (added.reads, added.reads[::-1]) if _is_gumbel(other)]
        (axis,), shape = op.params["axes"], added.makes[0].shape
        sizes = {i: n for i, n in enumerate(shape) if i != axis}
        distributions = math.prod(n for i, n in sizes.items() if logits and i in logits[0].varying)
        draws, categories = math.prod(sizes.values()) // max(1, distributions), shape[axis]
        if len(logits) != 1 or min(draws, categories) < MANY:
            continue
        inputs = (jax.random.PRNGKey(0), jnp.linspace(0.0, 1.0, categories), draws)
        yield Match(
            f"{count(draws)} draws of {count(categories)} categories make a random number for each pair",
            [
                (
                    f"jax.random.categorical makes {count(math.prod(shape))} random numbers{op.at}; "
                    f"{count(draws * distributions)} would be enough"
                )
            ],
            op=op,
            instead=Instead(
                "drawn by the cumulative sum",
                "these draws",
                lambda key, logits, n: jax.random.categorical(key, logits, shape=(n,)),
                lambda key, logits, n: jax.random.choice(key, logits.size, (n,), p=jax.nn.softmax(logits)),
                inputs,
                (2,),
            ),
        )


def _is_gumbel(value: Value) -> bool:
    """Is it -log(-log(u)) of random bits?"""
    logarithms = 0
    while (op := value.maker) is not None and op.name in GUMBEL:
        logarithms += op.name == "log"
        value = next((read for read in op.reads if read.size == value.size), op.reads[0])
    return op is not None and op.name == "random_bits" and logarithms == 2


@rule(
    "permuted-draw",
    "are a few random rows drawn without a permutation of all?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Draw the rows: jax.random.randint(key, (k,), 0, n). A row can then be in a batch twice, which stochastic "
        "gradient descent mostly tolerates. To use each row once per epoch, permute once before its steps, and take "
        "slices."
    ),
)
def permuted_draw(e: Evidence) -> Iterator[Match]:
    """Finds permutations of all rows, if only a few are used: drawing some numbers does the same."""
    for op in e.program.find("sort"):
        is_random = op.params.get("num_keys", 1) == 1 and op.reads[0].made_by("random_bits") and op.makes[1:]
        if not is_random or _is_done_once(e, op):
            continue
        n, ends = op.reads[0].shape[op.params["dimension"]], used_ends(op, op.params["dimension"])
        if ends is None or FEW_USED * sum(ends) > n:
            continue
        yield Match(
            f"permutes {count(n)} rows to use {count(sum(ends))} of them",
            [f"jax.random.permutation, or choice without replacement, sorts {count(n)} random numbers{op.at}"],
            op=op,
            work=(op.work * op.times, e.program.body.work),
            instead=Instead(
                "drawn by randint",
                "this draw",
                lambda key, n, k: jax.random.permutation(key, n)[:k],
                lambda key, n, k: jax.random.randint(key, (k,), 0, n),
                (jax.random.PRNGKey(0), n, sum(ends)),
                (1, 2),
            ),
        )


# ---- recomputed-prefix -----------------------------------------------------------------------------------------------

LEAST_LENGTH = 16
"""Positions. A loop that makes n of them computes n² and needs n: 16 times as many from here on."""


@rule(
    "recomputed-prefix",
    "does a loop that writes a sequence continue from its last step?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Continue from the last step: carry the state of a recurrent network, and advance it by one "
        "step in each iteration. For attention, keep keys and values of earlier steps (a cache), "
        "and compute only those and the query of the new position; for a product take the row first, "
        "a[i] @ x."
    ),
)
def recomputed_prefix(e: Evidence) -> Iterator[Match]:
    """Finds loops that compute a whole sequence in each iteration, to use one position of it and write the next."""
    for body in (body for body in e.program.bodies if body.is_loop):
        counters = {v for v in body.inputs[body.constants :] if not v.shape and v.is_of(jnp.integer)}
        for taken, length in _written(body, counters):
            depending = list_ahead([taken])
            for op in body.ops:
                whole = op.reads[0] if op.name in ("dynamic_slice", "gather") else None
                if whole is None or whole not in depending or not _depends(op.reads[1:], counters):
                    continue
                # One position on an axis that is as long as the written array, or one longer or shorter.
                is_one = any(abs(n - length) <= 1 and n * op.makes[0].size == whole.size for n in whole.shape)
                behind = {one.maker for one in whole.behind() if one in depending and one.maker is not None}
                work = sum(one.work for one in behind)
                if is_one:
                    yield Match(
                        f"computes {length} positions in each iteration of a loop, to use one",
                        [
                            (
                                f"{whole.spec} is computed from everything written so far, and one position of it is "
                                f"used{op.at}: {count(work)} operations of an iteration "
                                f"({percent(work / body.work)}), counted from the shapes"
                            ),
                            "the loop then writes one position; the next iteration computes the others again",
                        ],
                        op=op,
                        work=(work * op.times, e.program.body.work),
                    )


def _written(body: Body, counters: set[Value]) -> Iterator[tuple[Value, int]]:
    """(what a loop carries and writes at one position in each iteration, its length)"""
    for _, taken, returned in body.carries:
        op = returned.maker
        if op is not None and op.name in UPDATES and op.reads[0] is taken:
            part = op.reads[UPDATES[op.name]]
            lengths = [n for n in taken.shape if n >= LEAST_LENGTH and n * part.size == taken.size]
            if lengths and _depends([read for read in op.reads[1:] if read is not part], counters):
                yield taken, lengths[0]


def _depends(values: Any, on: set[Value]) -> bool:
    return any(one in on for value in values for one in value.behind())
