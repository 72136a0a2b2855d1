"""Finds direct convolutions with long kernels, which the FFT does in far fewer operations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.signal import fftconvolve

from benchax.auditing.dataflow import GRADIENT, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr
from benchax.auditing.work import operations
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count

LEAST_TAPS = 128
"""Of the kernel, in all its axes together."""
LEAST_RATIO, LEAST_SAVED = 8.0, 1 << 26
"""Operations of the direct way over those of the FFT, which reaches a smaller part of the machine's peak; and how many
more they are."""


@dataclass(frozen=True)
class _Convolution:
    """One of real arrays, without strides and holes."""

    step: TracedEquation
    taps: tuple[int, ...]
    length: tuple[int, ...]
    """Of the signal, in each axis."""
    fft_operations: float


@rule("long-convolution", "are convolutions with long kernels done by the FFT?", "warning", needs_trace_only=True)
def long_convolution(e: Evidence) -> Iterable[Finding]:
    told: set[str] = set()
    for body in bodies(closed_jaxpr(e)):
        for step in body.program.steps:
            if step.name != "conv_general_dilated" or GRADIENT in step.scope or step.line in told:
                continue
            found = _read(step)
            if found is not None and _is_dear(found):
                told.add(step.line)
                yield _finding(e, found)


def _is_dear(found: _Convolution) -> bool:
    direct = operations(found.step)
    is_long = math.prod(found.taps) >= LEAST_TAPS
    return is_long and direct >= LEAST_RATIO * found.fft_operations and direct - found.fft_operations >= LEAST_SAVED


def _read(step: TracedEquation) -> _Convolution | None:
    """None for what the FFT does not do as it stands: strides, dilations, groups of a batch."""
    params, (signal, kernel), (made,) = step.equation.params, step.reads, step.makes
    spaced = (*params["window_strides"], *params["lhs_dilation"], *params["rhs_dilation"])
    if set(spaced) != {1} or params["batch_group_count"] != 1:
        return None
    left, right, out = (params["dimension_numbers"][i] for i in range(3))
    taps, length, made_length = (
        tuple(value.shape[axis] for axis in spec[2:]) for value, spec in ((kernel, right), (signal, left), (made, out))
    )
    batch, channels = signal.shape[left[0]], signal.shape[left[1]]
    features, per_feature = kernel.shape[right[0]], kernel.shape[right[1]]
    padded = math.prod(max(n, m) + k - 1 for n, m, k in zip(length, made_length, taps, strict=True))
    return _Convolution(step, taps, length, _count_fft(padded, batch, channels, features, per_feature))


def _count_fft(padded: int, batch: int, channels: int, features: int, per_feature: int) -> float:
    """Real transforms of all signals, kernels and results, at 2.5 n log2 n each (Van Loan, Computational Frameworks for
    the Fast Fourier Transform, 1992), and the products in between: 8 for half as many complex numbers."""
    transforms = batch * channels + features * per_feature + batch * features
    return 2.5 * padded * math.log2(max(2, padded)) * transforms + 4.0 * padded * batch * features * per_feature


def _finding(e: Evidence, found: _Convolution) -> Finding:
    direct = operations(found.step)
    kernel = " × ".join(map(str, found.taps))
    tried = _try_fft(e, found)
    seen = [
        (
            f"{found.step.reads[1].spec} over {found.step.reads[0].spec}: {count(direct, 'FLOP')}, where the FFT takes "
            f"{count(found.fft_operations, 'FLOP')}, counted from the shapes"
        ),
        tried.sentence,
    ]
    return long_convolution.finding(
        f"convolves directly with {kernel} taps: {direct / found.fft_operations:.3g} times the operations of the FFT",
        seen,
        "Use jax.scipy.signal.fftconvolve(x, kernel, mode=...), or jax.scipy.signal.convolve(..., method='fft'); for a "
        "correlation with the kernel reversed. It rounds differently: errors are relative to the largest result.",
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "one such convolution"),
    )


def _try_fft(e: Evidence, found: _Convolution) -> Tried:
    """Of one signal and one kernel."""
    dtype = found.step.makes[0].dtype
    inputs = tuple(f"{dtype}[{','.join(map(str, shape))}]" for shape in (found.length, found.taps))
    direct, by_fft = (make_case(fn, inputs, name=fn.__name__.strip("_")) for fn in (_directly, _by_fft))
    return try_variant(e, "by the FFT", by_fft, direct)


def _directly(x: Any, kernel: Any) -> jax.Array:
    return jax.scipy.signal.convolve(x, kernel, mode="same", method="direct")


def _by_fft(x: Any, kernel: Any) -> jax.Array:
    return fftconvolve(jnp.asarray(x), kernel, mode="same")
