"""Finds Fourier transforms of lengths with large prime factors, which take several times as long as a longer one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchax.auditing.dataflow import GRADIENT, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, first_of_each_line
from benchax.auditing.work import count_operations, elements, operations
from benchax.case import make_case
from benchax.program.jaxpr import is_users_own
from benchax.results.audit import Finding

LARGE_PRIME = 100
"""On CPU (jaxlib 0.10.2) 64 transforms of length 1009, 4099, 8191 and 20011 took 2.5, 5, 8 and 16 times as long as of
the next length without prime factors above 7."""
SMALL_PRIMES = (2, 3, 5, 7)
LEAST_ELEMENTS = 1 << 14
LEAST_SHARE = 0.05
"""Of the operations of a call, counted for the algorithm of lengths with small factors: of others there are more."""


class _Transform(NamedTuple):
    step: TracedEquation
    length: int
    prime: int
    """Its largest prime factor."""


@rule("fft-length", "do lengths of Fourier transforms have small prime factors?", "warning", needs_trace_only=True)
def fft_length(e: Evidence) -> Iterable[Finding]:
    every = list(bodies(closed_jaxpr(e)))
    steps = [(step, body.trips or 1) for body in every for step in body.program.steps if step.name == "fft"]
    if not steps:
        raise NotApplicable("there is no Fourier transform in it")
    total = count_operations(every[0].program.steps)
    found = [
        one
        for step, trips in steps
        if GRADIENT not in step.scope and operations(step) * trips >= LEAST_SHARE * total
        if (one := _read(step)) is not None and is_users_own(*step.inwards)
    ]
    yield from (_finding(e, one) for one in first_of_each_line(found))


def _read(step: TracedEquation) -> _Transform | None:
    """None where the length is a good one, or there is little to be transformed."""
    length = max(step.equation.params["fft_lengths"], key=_largest_prime)
    large = max(map(elements, (*step.reads, *step.makes)))
    prime = _largest_prime(length)
    return _Transform(step, length, prime) if prime >= LARGE_PRIME and large >= LEAST_ELEMENTS else None


def _largest_prime(n: int) -> int:
    largest, factor = 1, 2
    while factor * factor <= n:
        while n % factor == 0:
            largest, n = factor, n // factor
        factor += 1
    return max(largest, n)


def next_good_length(n: int) -> int:
    """The next length, from n on, without prime factors above 7."""
    while _largest_prime(n) > max(SMALL_PRIMES):
        n += 1
    return n


def _finding(e: Evidence, found: _Transform) -> Finding:
    good = next_good_length(found.length)
    is_prime = found.prime == found.length
    factors = "is prime" if is_prime else f"has the prime factor {found.prime}"
    kind, tried = found.step.equation.params["fft_type"].name, _try_longer(e, found, good)
    return fft_length.finding(
        f"transforms a length of {found.length}, which {factors}",
        [
            f"{found.step.reads[0].spec} by {kind}; the next length without prime factors above 7 is {good}",
            tried.sentence,
        ],
        f"For a convolution or a correlation, pad with zeros: jnp.fft.rfft(x, n={good}), or for both of its arguments "
        "scipy.fft.next_fast_len of the sum of their lengths. Where the length is a choice, as of a grid or a window, "
        "choose such a one. A spectrum of padded data has other frequencies.",
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "one such transform"),
    )


def _try_longer(e: Evidence, found: _Transform, good: int) -> Tried:
    rows = max(1, math.prod(found.step.reads[0].shape) // found.length)
    longer, given = (
        make_case(_transform, (f"complex64[{rows},{n}]",), name=f"of length {n}") for n in (good, found.length)
    )
    return try_variant(e, f"of length {good}", longer, given)


def _transform(x: Any) -> jax.Array:
    return jnp.fft.fft(x)
