"""Transforms, buffers, sequences and random draws that a cheaper algorithm makes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.signal import fftconvolve

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Instead, Match, NotApplicable, rule
from benchax.auditing.rules.waste import FEW_USED, LEAST_COMPARISONS, used_ends
from benchax.program.index import Body, TracedOp, Value
from benchax.program.jaxpr import is_users_own, names
from benchax.units import count, percent

PACK = "numerics"

# ---- fft-length ------------------------------------------------------------------------------------------------------

LARGE_PRIME, SMALL_PRIME = 100, 7
"""On CPU (jaxlib 0.10.2) 64 transforms of length 1009, 4099, 8191 and 20011 took 2.5, 5, 8 and 16 times as long as of
the next length without prime factors above 7."""
FFT_ELEMENTS = 1 << 14
"""The size of the transform."""


@rule("fft-length", "do lengths of Fourier transforms have small prime factors?", "warning", traced=True, pack=PACK)
def fft_length(e: Evidence) -> Iterator[Match]:
    """Finds Fourier transforms of lengths with large prime factors, which take much longer than slightly longer
    ones."""
    if not any(op.name == "fft" for op in e.program.ops):
        raise NotApplicable("there is no Fourier transform in it")
    for op in e.program.find("fft"):
        length = max(op.params["fft_lengths"], key=_largest_prime)
        prime, good = _largest_prime(length), length
        is_large = max(value.size for value in (*op.reads, *op.makes)) >= FFT_ELEMENTS
        if prime < LARGE_PRIME or not is_large:
            continue
        if not is_users_own(*op.inwards):
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
            "arguments scipy.fft.next_fast_len of the sum of their lengths. If the length is a choice, as for a grid "
            "or a window, choose a good one. A spectrum of padded data has other frequencies.",
            lost=(op.work * op.times, e.program.body.work),
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

LEAST_TAPS, LEAST_RATIO, LEAST_SAVED = 128, 8.0, 1 << 26
"""The first is the elements of the kernel, in all its axes together. The second is the operations of the direct way
over the operations of the FFT, which reaches a smaller part of the machine's peak. The third is how many more they
are."""


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
        # Real transforms of all signals, kernels and results, at 2.5 n log2 n each (Van Loan, Computational Frameworks
        # for the Fast Fourier Transform, 1992), and the products in between: 8 for half as many complex numbers.
        per_feature = kernel.shape[right[1]]
        transforms = batch * channels + features * per_feature + batch * features
        by_fft = 2.5 * padded * math.log2(max(2, padded)) * transforms + 4.0 * padded * batch * features * per_feature
        if op.work < max(LEAST_RATIO * by_fft, by_fft + LEAST_SAVED):
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
"""Categories, and draws of each distribution; random numbers of one call."""
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
                    f"{count(draws * distributions)} would do"
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
        "Draw the rows: jax.random.randint(key, (k,), 0, n). A row can then come twice in a batch, which "
        "stochastic gradient descent mostly tolerates. To use each row once an epoch, permute once before its "
        "steps, and take parts of that."
    ),
)
def permuted_draw(e: Evidence) -> Iterator[Match]:
    """Finds permutations of all rows, if only a few are used: drawing some numbers does the same."""
    for op in e.program.find("sort"):
        is_random = op.params.get("num_keys", 1) == 1 and op.reads[0].made_by("random_bits") and op.makes[1:]
        if not is_random or op.work < LEAST_COMPARISONS or _is_done_once(e, op):
            continue
        n, ends = op.reads[0].shape[op.params["dimension"]], used_ends(op, op.params["dimension"])
        if ends is None or FEW_USED * sum(ends) > n:
            continue
        yield Match(
            f"permutes {count(n)} rows to use {count(sum(ends))} of them",
            [f"jax.random.permutation, or choice without replacement, sorts {count(n)} random numbers{op.at}"],
            op=op,
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

LEAST_LENGTH, LEAST_WORK, LEAST_SHARE = 16, 1 << 18, 0.5
"""Positions; operations of one iteration, and their share of it."""
UPDATES = {"scatter": 2, "dynamic_update_slice": 1}
"""Operations that write a part of their first operand, and the position of that part."""


@rule(
    "recomputed-prefix",
    "does a loop that writes a sequence go on from where it is?",
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
            depending = taken.ahead()
            for op in body.ops:
                whole = op.reads[0] if op.name in ("dynamic_slice", "gather") else None
                if whole is None or whole not in depending or not _depends(op.reads[1:], counters):
                    continue
                # Of an axis as long as what is written, or one shorter or longer, one position.
                is_one = any(abs(n - length) <= 1 and n * op.makes[0].size == whole.size for n in whole.shape)
                behind = {one.maker for one in whole.behind() if one in depending and one.maker is not None}
                work = sum(one.work for one in behind)
                if is_one and work >= max(LEAST_WORK, LEAST_SHARE * body.work):
                    yield Match(
                        f"computes {length} positions in each iteration of a loop, to use one",
                        [
                            (
                                f"{whole.spec} is computed from all that was written, and one position taken of "
                                f"it{op.at}: {count(work)} operations of an iteration ({percent(work / body.work)}), "
                                "counted from the shapes"
                            ),
                            "the loop then writes one position; the next iteration computes the others again",
                        ],
                        op=op,
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
