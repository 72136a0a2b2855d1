"""The work of one HLO instruction: floating-point operations, transcendentals, bytes. From its text, without JAX.

The rules are the rules of XLA's own cost analysis (xla/service/hlo_cost_analysis.cc), so that the two agree whenever
both are right. An elementwise operation is 1 per element of the result, including integers, comparisons and complex
numbers. A multiply-add is 2; exp, log, sqrt, tanh and similar operations are transcendentals and nothing else.

Two rules differ from XLA. Sorting n rows of m is n·m·log2(m) comparisons (XLA: n·m·log2(n·m)). An FFT of N points is
5·N·log2(N) operations, and an FFT of real numbers is half of that, as in FFTW's benchmarks (Frigo and Johnson, The
Design and Implementation of FFTW3, Proc. IEEE 93, 2005, section VI). XLA counts 8·N·floor(log2(N)), for real numbers or
not, and the product of the logarithms of several axes.

Bytes are read once per operand and written once. Slices, gathers and updates in place touch the elements that they
move, not the whole array. This module does not know what caches keep.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchax.program import hlo, hlo_module
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Computation


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRANSCENDENTAL = _names(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one "
    "logistic power rsqrt sine sinh sqrt tan tanh"
)
ELEMENTWISE = _names(
    "abs add and ceil clamp compare complex convert count-leading-zeros divide floor imag is-finite maximum minimum "
    "multiply negate not or popcnt real reduce-precision remainder round-nearest-afz round-nearest-even select "
    "shift-left shift-right-arithmetic shift-right-logical sign stochastic-convert subtract xor"
)
# They name or group values, or wait for something; nothing is moved.
FREE = _names(
    "add-dependency after-all all-gather-done all-reduce-done async-done async-update bitcast collective-permute-done "
    "constant copy-done domain get-dimension-size get-tuple-element opt-barrier parameter partition-id recv-done "
    "replica-id send-done tuple"
)

_SHAPE = re.compile(r"\b[a-z]\w*\[([^\]]*)\]")
_CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\[([^\]]*)\]')
_WINDOW = re.compile(r"(\w+)=([\w\-]+)")


class Work(NamedTuple):
    """The work of one instruction or of many."""

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes: float = 0.0

    def plus(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Work:
        return Work(*(factor * each for each in self))


Applied = Callable[[Instruction], Work]
"""The work of the computation that an instruction applies, once."""


def arithmetic(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    """Operations of one instruction; bytes are left at 0. Control flow, fusions and custom calls have none here."""
    opcode, size = instruction.opcode, elements(instruction.shape)
    if opcode in ELEMENTWISE:
        return Work(flops=size)
    if opcode in TRANSCENDENTAL:
        return Work(transcendentals=size)
    if opcode == "custom-call" and hlo.is_library_product(hlo.custom_call_target(instruction)):
        return _library_product(computation, instruction)
    rule = _RULES.get(opcode)
    return rule(computation, instruction, applied) if rule else Work()


def dimensions(shape: str) -> list[int]:
    """Returns the dimensions of the first array in `shape`; a bound on a dynamic size counts as its size."""
    found = _SHAPE.search(shape)
    return [int(size) for size in re.findall(r"\d+", found[1])] if found else []


def elements(shape: str) -> int:
    """Counts the elements of the first array in `shape`; 1 for a scalar."""
    return math.prod(dimensions(shape))


def _dot(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    contracted = _parse_list(instruction, "lhs_contracting_dims")
    left = _operand_dimensions(computation, instruction, 0)
    reduced = math.prod(left[d] for d in contracted if d < len(left))
    return Work(flops=2.0 * reduced * elements(instruction.shape))


def _library_product(computation: Computation, instruction: Instruction) -> Work:
    """Counts a product by cuBLAS or cuDNN.

    cuBLAS: `(f32[m,n], s8[workspace]) custom-call(f32[m,k], f32[k,n], ...)`, whose configuration names the axes to sum
    over. cuDNN has the attributes of a convolution. Their additions to the product are not counted.

    Seen in programs of jax 0.11.2 for an H100.
    """
    if "dim_labels" in hlo_module.attributes(instruction):
        return _convolution(computation, instruction, lambda _: Work())
    written = _CONTRACTED.search(instruction.attributes)
    left = _operand_dimensions(computation, instruction, 0)
    axes = [int(axis) for axis in re.findall(r"\d+", written[1])] if written else []
    return Work(flops=2.0 * math.prod(left[d] for d in axes if d < len(left)) * elements(instruction.shape))


def _convolution(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    """Products with padding are not counted, as XLA does not."""
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", hlo_module.attributes(instruction).get("dim_labels", ""))
    kernel, image = (_operand_dimensions(computation, instruction, i) for i in (1, 0))
    result = dimensions(instruction.shape)
    if not labels or not kernel:
        return Work()
    places = 1
    for axis, window in enumerate(_windows(instruction, len(kernel) - 2)):
        place = str(axis)
        places *= _valid(image[labels[1].index(place)], result[labels[3].index(place)], window)
    channels = result[labels[3].index("b")] * result[labels[3].index("f")] * kernel[labels[2].index("i")]
    return Work(flops=2.0 * channels * places)


def _valid(image: int, result: int, window: dict[str, int]) -> int:
    """(place of the result, place of the window) pairs along one axis that meet an element of the image."""
    dilated = (image - 1) * window["lhs_dilate"] + 1
    first = np.arange(result, dtype=np.int64) * window["stride"] - window["pad"]
    count = 0
    for k in range(window["size"]):
        at = first + k * window["rhs_dilate"]
        count += int(((at >= 0) & (at < dilated) & (at % window["lhs_dilate"] == 0)).sum())
    return count


def _windows(instruction: Instruction, axes: int) -> list[dict[str, int]]:
    """`{size=3x3 pad=1_1x1_1 stride=2x2}` by axis; of the padding the low side, which decides where windows begin."""
    written = dict(_WINDOW.findall(hlo_module.attributes(instruction).get("window", "")))
    defaults = {"size": 1, "stride": 1, "pad": 0, "lhs_dilate": 1, "rhs_dilate": 1}
    return [
        {
            key: int(written[key].split("x")[axis].partition("_")[0]) if key in written else default
            for key, default in defaults.items()
        }
        for axis in range(axes)
    ]


def _reduce(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    before = math.prod(_operand_dimensions(computation, instruction, 0))
    return applied(instruction).times(before - elements(instruction.shape))  # n numbers are joined n - 1 times


def _reduce_window(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    windows = _windows(instruction, len(dimensions(instruction.shape)))
    window = math.prod(each["size"] for each in windows)
    return applied(instruction).times((window - 1) * elements(instruction.shape))


def _scatter(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    operands = computation.operands(instruction)
    return applied(instruction).times(elements(operands[-1].shape)) if operands else Work()


def _each_element(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    return applied(instruction).times(elements(instruction.shape))


def _sort(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    sizes, along = dimensions(instruction.shape), _parse_list(instruction, "dimensions")
    length = sizes[along[0]] if along and along[0] < len(sizes) else 1
    return Work(flops=math.prod(sizes) * math.ceil(math.log2(max(length, 1))))


def _fft(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    """Counts the operations for N points, several axes together: 5·N·log2(N) real operations, and 2.5·N·log2(N) of real
    numbers."""
    kind = hlo_module.attributes(instruction).get("fft_type", "")
    points = _operand_dimensions(computation, instruction, 0) if kind == "RFFT" else dimensions(instruction.shape)
    halvings = math.log2(max(math.prod(_parse_list(instruction, "fft_length")), 1))
    return Work(flops=(2.5 if kind in ("RFFT", "IRFFT") else 5.0) * halvings * math.prod(points))


def xla_fft_flops(computation: Computation, instruction: Instruction) -> float:
    """Returns the count of XLA's own analysis: 8 per input number, times the halvings of one axis times the halvings of
    the next (jax 0.10.2)."""
    halvings = math.prod(max(length, 1).bit_length() - 1 for length in _parse_list(instruction, "fft_length"))
    return 8.0 * halvings * math.prod(_operand_dimensions(computation, instruction, 0))


def _random(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    return Work(transcendentals=elements(instruction.shape))


_RULES: dict[str, Callable[[Computation, Instruction, Applied], Work]] = {
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scatter": _scatter,
    "map": _each_element,
    "all-reduce": _each_element,
    "all-reduce-start": _each_element,
    "reduce-scatter": _each_element,
    "sort": _sort,
    "fft": _fft,
    "rng": _random,
    "rng-bit-generator": _random,
}


def _operand_dimensions(computation: Computation, instruction: Instruction, index: int) -> list[int]:
    operands = computation.operands(instruction)
    return dimensions(operands[index].shape) if index < len(operands) else []


def _parse_list(instruction: Instruction, key: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", hlo_module.attributes(instruction).get(key, ""))]


def moved_bytes(computation: Computation, instruction: Instruction) -> int:
    """Bytes that one instruction outside of a fusion reads and writes."""
    opcode, operands = instruction.opcode, computation.operands(instruction)
    result = hlo.shape_bytes(instruction.shape)
    if opcode in FREE:
        return 0
    if opcode in ("slice", "dynamic-slice", "gather"):
        return 2 * result + sum(hlo.shape_bytes(each.shape) for each in operands[1:])
    if opcode == "dynamic-update-slice" and len(operands) > 1:
        # In place: the update and its indices are read, the update is written; the array around them stays.
        return sum(hlo.shape_bytes(each.shape) for each in operands[1:]) + hlo.shape_bytes(operands[1].shape)
    if opcode == "custom-call" and hlo.is_library_product(hlo.custom_call_target(instruction)):
        # The second result is room to work in.
        result = elements(instruction.shape) * hlo.shape_bytes(instruction.shape.lstrip("(").partition("[")[0] + "[]")
    if opcode == "scatter" and operands:
        # Per element of the updates: the update and the old value are read, the new value is written.
        return 3 * hlo.shape_bytes(operands[-1].shape) + hlo.shape_bytes(operands[len(operands) // 2].shape)
    return result + sum(hlo.shape_bytes(each.shape) for each in operands)


def fusion_bytes(inside: Computation) -> int:
    """Bytes that a fusion reads from its operands and writes to its results; what is between them stays inside."""
    parameters = [each for each in inside.instructions if each.opcode == "parameter"]
    written = sum(_written_bytes(inside, each) for each in inside.results)
    return written + sum(_read(inside, each) for each in parameters)


def _written_bytes(inside: Computation, result: Instruction) -> int:
    """An update in place writes the update."""
    while result.opcode == "bitcast" and inside.operands(result):
        result = inside.operands(result)[0]
    operands = inside.operands(result)
    if result.opcode == "dynamic-update-slice" and len(operands) > 1:
        return hlo.shape_bytes(operands[1].shape)
    return hlo.shape_bytes(result.shape)


def _read(inside: Computation, value: Instruction) -> int:
    """Returns how much of a parameter is read: all of it, unless every use takes a slice; nothing where it is only
    updated in place."""
    total = hlo.shape_bytes(value.shape)
    read = 0
    for user in inside.instructions:
        operands = inside.operands(user)
        if not any(each is value for each in operands):
            continue
        if user.opcode in ("slice", "dynamic-slice", "gather") and operands[0] is value:
            read += hlo.shape_bytes(user.shape)
        elif user.opcode == "bitcast":
            read += _read(inside, user)
        # An update in place leaves the array around it where it is, so this use reads nothing of it.
        elif not (user.opcode == "dynamic-update-slice" and operands[0] is value):
            return total
    return min(read, total)
