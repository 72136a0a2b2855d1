"""The work of an optimised program: operations, transcendentals, and bytes of one call. From its text, without JAX.

`counts` adds up the program, `work_by_line` sorts the same work by the user's lines and scopes, and `operations` lists
the instructions one by one. All of them use one fold (`Adder`) over the computations of a module:

    loops         body times trip count, condition one more time than that; nested ones multiply. If the program decides
                  the trip count while it runs, the body is counted once, and the result says so.
    conditionals  the most that any branch does, and the result says so if the branches differ.
    custom calls  are work that benchax can't inspect (LAPACK, Python callbacks), but for products by cuBLAS and
                  convolutions by cuDNN, which say what they do. An incomplete sum is not a count: it becomes None, and
                  the restriction has the part that was counted.

XLA's own cost analysis counts a loop body once, however often it runs. It makes no difference between a scan of 1, 10
and 100 matmuls. The count here is still a static count for one device, taken from the program and never from a run.

The rules for one instruction are the rules of XLA's cost analysis (xla/service/hlo_cost_analysis.cc), so that the two
agree whenever both are right. An elementwise operation is 1 per element of the result, including integers, comparisons
and complex numbers. A multiply-add is 2; exp, log, sqrt, tanh and similar operations are transcendentals and nothing
else.

Two rules differ from XLA. Sorting n rows of m is n·m·log2(m) comparisons (XLA: n·m·log2(n·m)). An FFT of N points is
5·N·log2(N) operations. An FFT of real numbers is half of that, as in FFTW's benchmarks (Frigo and Johnson, The Design
and Implementation of FFTW3, Proc. IEEE 93, 2005, section VI). XLA counts 8·N·floor(log2(N)), for real numbers or
not, and the product of the logarithms of several axes.

Bytes are read once per operand and written once. Slices, gathers and updates in place touch the elements that they
move, not the whole array. This module does not know what caches keep.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np

from benchax.program import hlo
from benchax.program.hlo import FREE, HOLDERS, Computation, Instruction, Module, Visit, shape_bytes
from benchax.results.inspection import Collective, Collectives, Counts, HloOperation, HloOperations, LineWork
from benchax.units import count as counted_text
from benchax.units import plural
from benchax.units import size as size_text


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRANSCENDENTAL = _names(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one "
    "logistic power rsqrt sine sinh sqrt tan tanh"
)
ELEMENTWISE = _names(
    "abs add and ceil clamp compare complex convert count-leading-zeros divide floor imag is-finite maximum "
    "minimum multiply negate not or popcnt real reduce-precision remainder round-nearest-afz round-nearest-even "
    "select shift-left shift-right-arithmetic shift-right-logical sign stochastic-convert subtract xor"
)

_SHAPE = re.compile(r"\b[a-z]\w*\[([^\]]*)\]")


Work = Counter[str]
"""The amounts of an instruction or a program: FLOPS, TRANSCENDENTALS, BYTES, and the operations by opcode. An operation
that moves data counts its elements."""
FLOPS, TRANSCENDENTALS, BYTES = AMOUNTS = ("flops", "transcendentals", "bytes")
UNKNOWN_LOOP = "loop of unknown trip count"
SHARED = "thread-parallel"
"""Operations that XLA:CPU shares among threads, counted a second time."""
CUSTOM_CALL = "custom call "
_OURS = "benchax_"
_NAMED_BY_SIZE = _names(
    "all-gather all-to-all cholesky collective-permute concatenate convert copy dynamic-update-slice gather iota "
    "pad reverse scatter select-and-scatter sort transpose triangular-solve"
)
"""Operations that move data, and some that cost almost nothing. Still, a program without the latter is other code: an
exponent that it reads is not a constant."""


def scale(work: Work, factor: float) -> Work:
    return Work({name: amount * factor for name, amount in work.items()})


def amounts(work: Work) -> tuple[float, float, float]:
    """(FLOPs, transcendentals, bytes)."""
    return float(work[FLOPS]), float(work[TRANSCENDENTALS]), float(work[BYTES])


Applied = Callable[[Instruction], Work]
"""The work of the computation that an instruction applies, once."""


def arithmetic(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    """Operations of one instruction; bytes are left at 0. Control flow, fusions and custom calls have none here."""
    opcode, size = instruction.opcode, elements(instruction.shape)
    if opcode in ELEMENTWISE:
        return Work({FLOPS: size})
    if opcode in TRANSCENDENTAL:
        return Work({TRANSCENDENTALS: size})
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
    return Work({FLOPS: 2.0 * reduced * elements(instruction.shape)})


def _library_product(computation: Computation, instruction: Instruction) -> Work:
    """Counts a product by cuBLAS or cuDNN.

    cuBLAS: `(f32[m,n], s8[workspace]) custom-call(f32[m,k], f32[k,n], ...)`, whose configuration names the axes to sum
    over. cuDNN has the attributes of a convolution. Their additions to the product are not counted.

    Seen in programs of jax 0.11.2 for an H100.
    """
    if "dim_labels" in hlo.attributes(instruction):
        return _convolution(computation, instruction, lambda _: Work())
    written = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', instruction.attributes)
    left = _operand_dimensions(computation, instruction, 0)
    axes = [int(axis) for axis in re.findall(r"\d+", written[1])] if written else []
    return Work({FLOPS: 2.0 * math.prod(left[d] for d in axes if d < len(left)) * elements(instruction.shape)})


def _convolution(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    """Products with padding are not counted, as XLA does not."""
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", hlo.attributes(instruction).get("dim_labels", ""))
    kernel, image = (_operand_dimensions(computation, instruction, i) for i in (1, 0))
    result = dimensions(instruction.shape)
    if not labels or not kernel:
        return Work()
    places = 1
    for axis, window in enumerate(_windows(instruction, len(kernel) - 2)):
        place = str(axis)
        places *= _valid(image[labels[1].index(place)], result[labels[3].index(place)], window)
    channels = result[labels[3].index("b")] * result[labels[3].index("f")] * kernel[labels[2].index("i")]
    return Work({FLOPS: 2.0 * channels * places})


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
    written = dict(re.findall(r"(\w+)=([\w\-]+)", hlo.attributes(instruction).get("window", "")))
    defaults = {"size": 1, "stride": 1, "pad": 0, "lhs_dilate": 1, "rhs_dilate": 1}
    return [
        {
            key: int(written[key].split("x")[axis].partition("_")[0]) if key in written else default
            for key, default in defaults.items()
        }
        for axis in range(axes)
    ]


def _reduce_window(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    windows = _windows(instruction, len(dimensions(instruction.shape)))
    window = math.prod(each["size"] for each in windows)
    return scale(applied(instruction), (window - 1) * elements(instruction.shape))


def _sort(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    sizes, along = dimensions(instruction.shape), _parse_list(instruction, "dimensions")
    length = sizes[along[0]] if along and along[0] < len(sizes) else 1
    return Work({FLOPS: math.prod(sizes) * math.ceil(math.log2(max(length, 1)))})


def _fft(computation: Computation, instruction: Instruction, applied: Applied) -> Work:
    """Counts the operations for N points, several axes together: 5·N·log2(N) real operations, and 2.5·N·log2(N) of real
    numbers."""
    kind = hlo.attributes(instruction).get("fft_type", "")
    points = _operand_dimensions(computation, instruction, 0) if kind == "RFFT" else dimensions(instruction.shape)
    halvings = math.log2(max(math.prod(_parse_list(instruction, "fft_length")), 1))
    return Work({FLOPS: (2.5 if kind in ("RFFT", "IRFFT") else 5.0) * halvings * math.prod(points)})


def xla_fft_flops(computation: Computation, instruction: Instruction) -> float:
    """Returns the count of XLA's own analysis: 8 per input number, times the halvings of one axis times the halvings of
    the next (jax 0.10.2)."""
    halvings = math.prod(max(length, 1).bit_length() - 1 for length in _parse_list(instruction, "fft_length"))
    return 8.0 * halvings * math.prod(_operand_dimensions(computation, instruction, 0))


_RULES: dict[str, Callable[[Computation, Instruction, Applied], Work]] = {
    "dot": _dot,
    "convolution": _convolution,
    # n numbers are joined n - 1 times
    "reduce": lambda computation, one, applied: scale(
        applied(one), math.prod(_operand_dimensions(computation, one, 0)) - elements(one.shape)
    ),
    "reduce-window": _reduce_window,
    "scatter": lambda computation, one, applied: scale(
        applied(one), sum(elements(updates.shape) for updates in computation.operands(one)[-1:])
    ),
    "map": lambda _, one, applied: scale(applied(one), elements(one.shape)),
    "all-reduce": lambda _, one, applied: scale(applied(one), elements(one.shape)),
    "all-reduce-start": lambda _, one, applied: scale(applied(one), elements(one.shape)),
    "reduce-scatter": lambda _, one, applied: scale(applied(one), elements(one.shape)),
    "sort": _sort,
    "fft": _fft,
    "rng": lambda _, one, applied: Work({TRANSCENDENTALS: elements(one.shape)}),
    "rng-bit-generator": lambda _, one, applied: Work({TRANSCENDENTALS: elements(one.shape)}),
}


def _operand_dimensions(computation: Computation, instruction: Instruction, index: int) -> list[int]:
    operands = computation.operands(instruction)
    return dimensions(operands[index].shape) if index < len(operands) else []


def _parse_list(instruction: Instruction, key: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", hlo.attributes(instruction).get(key, ""))]


def moved_bytes(computation: Computation, instruction: Instruction) -> int:
    """Bytes that one instruction outside of a fusion reads and writes."""
    opcode, operands = instruction.opcode, computation.operands(instruction)
    if opcode in FREE:
        return 0
    if opcode == "scatter" and operands:
        # Per element of the updates: the update and the old value are read, the new value is written.
        return 3 * shape_bytes(operands[-1].shape) + shape_bytes(operands[len(operands) // 2].shape)
    written = _written_bytes(computation, instruction)
    if opcode == "custom-call" and hlo.is_library_product(hlo.custom_call_target(instruction)):
        # The second result is scratch space.
        written = elements(instruction.shape) * shape_bytes(instruction.shape.lstrip("(").partition("[")[0] + "[]")
    return written + sum(_read_bytes(instruction, nth, operand) for nth, operand in enumerate(operands))


def _read_bytes(reader: Instruction, nth: int, operand: Instruction) -> int:
    """A slice reads as much as it returns. An update in place reads nothing of the array around it."""
    if nth == 0 and reader.opcode in ("slice", "dynamic-slice", "gather"):
        return shape_bytes(reader.shape)
    return 0 if nth == 0 and reader.opcode == "dynamic-update-slice" else shape_bytes(operand.shape)


def fusion_bytes(inside: Computation) -> int:
    """Bytes that a fusion reads from its operands and writes to its results; what is between them stays inside."""
    parameters = [each for each in inside.instructions if each.opcode == "parameter"]
    written = sum(_written_bytes(inside, each) for each in inside.results)
    return written + sum(_read(inside, each) for each in parameters)


def _written_bytes(inside: Computation, result: Instruction) -> int:
    """An update in place writes the update."""
    result = inside.behind_bitcasts(result)[-1]
    operands = inside.operands(result)
    is_update = result.opcode == "dynamic-update-slice" and len(operands) > 1
    return shape_bytes(operands[1].shape if is_update else result.shape)


def _read(inside: Computation, value: Instruction) -> int:
    """How much of a parameter is read: the sum over its readers, at most all of it."""
    read = 0
    for user in inside.instructions:
        for nth, operand in enumerate(inside.operands(user)):
            if operand is value:
                read += _read(inside, user) if user.opcode == "bitcast" else _read_bytes(user, nth, operand)
    return min(read, shape_bytes(value.shape))


# ---- the fold ---------------------------------------------------------------------------------------------------

CALLS = ("call", "async-start")
"""Opcodes whose work is done by the computation that they call."""


class Adder:
    """Adds up what computations do in one run, with everything that they call, and notes what restricts the sum.

    `is_fused`: operations only, without bytes: inside of a fusion, values are in registers.
    """

    def __init__(self, module: Module, *, is_least: bool = False) -> None:
        self.module = module
        self.is_least = is_least
        self.known: dict[tuple[str, bool], Work] = {}
        self.restrictions: dict[str, None] = {}  # ordered, each once

    def computation(self, computation: Computation, *, is_fused: bool = False) -> Work:
        key = computation.name, is_fused
        if key not in self.known:
            self.known[key] = _add_up(
                self.instruction(computation, each, is_fused) for each in computation.instructions
            )
        return self.known[key]

    def instruction(self, computation: Computation, one: Instruction, is_fused: bool) -> Work:
        if one.opcode in FREE:
            return Work()
        if one.opcode == "while":
            return self._loop(one, is_fused)
        if one.opcode == "conditional":
            return self._branches(one, is_fused)
        if one.opcode == "fusion" or one.opcode in CALLS:
            return self._held(one, is_fused)
        if one.opcode == "reduce-window" and self.is_least:
            return scale(self.applied(one), elements(one.shape))
        done = arithmetic(computation, one, self.applied)
        named = _name(computation, one, sum(done.values()))
        return Work({**done, **named, BYTES: 0 if is_fused else moved_bytes(computation, one)})

    def applied(self, one: Instruction) -> Work:
        work = self.called(one, is_fused=True)
        return Work({amount: work[amount] for amount in (FLOPS, TRANSCENDENTALS)})

    def called(self, one: Instruction, *, is_fused: bool = False) -> Work:
        """One run of each computation that an instruction names."""
        inside = self.module.called_computations(one)
        return _add_up(self.computation(computation, is_fused=is_fused) for _, computation in inside)

    def differ(self, one: Instruction) -> bool:
        """Do the branches of a conditional differ?"""
        branches = [self.computation(inside) for _, inside in self.module.called_computations(one)]
        return len(set(map(amounts, branches))) > 1

    def _loop(self, one: Instruction, is_fused: bool) -> Work:
        runs = ((self.computation(inside, is_fused=is_fused), n) for _, inside, n in self.module.runs(one))
        work = _add_up(scale(inside, 1 if n is None else n) for inside, n in runs)
        if hlo.trip_count(one) is None:
            where = f" ({hlo.op_name(one)})" if hlo.op_name(one) else ""
            self.restrictions[f"the body of the loop {one.name}{where} is counted once: {hlo.UNKNOWN_TRIPS}"] = None
            work[UNKNOWN_LOOP] += 1
        return work

    def _branches(self, one: Instruction, is_fused: bool) -> Work:
        if self.differ(one):
            why = f"the branches of the conditional {one.name} differ: the most that any of them does is counted"
            self.restrictions[why] = None
        called = self.module.called_computations(one)
        branches = (self.computation(inside, is_fused=is_fused) for _, inside in called)
        return functools.reduce(operator.or_, branches, Work())

    def _held(self, one: Instruction, is_fused: bool) -> Work:
        work = self.called(one, is_fused=is_fused or one.opcode == "fusion")
        if hlo.is_shared_among_threads(one.attributes):
            # The same operations take longer on one thread: a region that XLA:CPU does not parallelize is another
            # program.
            work[SHARED] = sum(operations_of(work).values())
        if one.opcode == "fusion":
            inside = self.module.called_computations(one)
            work[BYTES] = 0 if is_fused else sum(fusion_bytes(computation) for _, computation in inside)
        return work


def _add_up(works: Iterable[Work]) -> Work:
    total = Work()
    for work in works:
        total.update(work)
    return total


def operations_of(work: Work) -> Work:
    """The operations alone, by their names."""
    return Work({name: amount for name, amount in work.items() if name not in AMOUNTS})


def _name(computation: Computation, one: Instruction, amount: float) -> dict[str, float]:
    """How much one instruction does, under its name; custom calls by their targets."""
    if one.opcode.startswith("custom-call"):
        target = hlo.custom_call_target(one)
        # Only a timed program reads the clock; readings are not work of the function.
        is_work = target and not target.startswith(_OURS) and not hlo.is_annotation(target)
        return {CUSTOM_CALL + target: 1} if is_work else {}
    if one.opcode in _NAMED_BY_SIZE:
        # An update does not move the array around it. If XLA cannot update in place, it adds a copy.
        update = computation.operands(one)[1:2] if one.opcode == "dynamic-update-slice" else []
        moved = update[0] if update else one
        # A tuple or a token has no bytes and moves nothing, though it counts as one element.
        amount = max(amount, elements(moved.shape)) if shape_bytes(moved.shape) else 0
    return {one.opcode: amount} if amount else {}


# ---- the whole program ------------------------------------------------------------------------------------------

# XLA's own instructions for work that is usually a custom call. No rule here counts them.
_UNCOUNTED = ("cholesky", "triangular-solve", "select-and-scatter", "infeed", "outfeed", "send", "recv")


def counts(module: Module) -> Counts | None:
    """The work of one call; None where the text has no entry computation."""
    if module.entry is None:
        return None
    adder = Adder(module)
    work = adder.computation(module.entry)
    opaque = Counter(hlo.custom_call_target(each) or each.opcode for each in module.instructions if is_opaque(each))
    opcodes = Counter(each.opcode for each in module.instructions)
    hole = [_hole(opaque, work)] if opaque else []
    flops, transcendentals, moved = (None, None, None) if opaque else amounts(work)
    return Counts(
        flops=flops,
        transcendentals=transcendentals,
        bytes_accessed=moved,
        is_exact=not opaque and not adder.restrictions,
        restrictions=(*hole, *adder.restrictions),
        loops=tuple(module.loops.values()),
        fusions=opcodes["fusion"],
        instructions=_most_first(opcodes),
        opaque_calls=_most_first(opaque),
    )


def least_operations(hlo_text: str) -> float | None:
    """Counts the operations that a program needs, however it computes its windows; each transcendental counts as one.

    A cumulative sum is written as a reduce-window of n windows with n elements. Computed from left to right, it is n
    operations. So each element of a reduce-window's result counts as one here. Custom calls count as nothing. Returns
    None if the text has no entry computation.
    """
    module = hlo.parse(hlo_text)
    if module.entry is None:
        return None
    work = Adder(module, is_least=True).computation(module.entry)
    return float(work[FLOPS] + work[TRANSCENDENTALS])


def is_opaque(one: Instruction) -> bool:
    """No rule of ours counts its work: a custom call, or what XLA usually turns into one."""
    target = hlo.custom_call_target(one)
    is_hidden = bool(target) and not hlo.is_annotation(target) and not hlo.is_library_product(target)
    return is_hidden or one.opcode in _UNCOUNTED


def _hole(opaque: Counter[str], work: Work) -> str:
    names = ", ".join(repr(name) for name, _ in _most_first(opaque))
    counted = f"{counted_text(work[FLOPS], 'FLOP')} and {size_text(work[BYTES])}"
    return f"{counted} were counted, and {names} can't be inspected, so the total is unknown"


def _most_first(counted: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))


# ---- by line, and one by one ------------------------------------------------------------------------------------


def work_by_line(module: Module) -> tuple[LineWork, ...] | None:
    """Returns the work by the user's lines and named scopes, most operations first, or None if the text has no entry
    computation.

    The sum over lines equals the sum of `counts`. Operations inside a fusion belong to the line that each came from.
    The bytes that a fusion reads and writes belong to the fusion's own line. Operations in libraries belong to the
    user's line that called the library. Operations that the compiler added belong to no line.

    An operation that benchax cannot inspect, such as a custom call, has a row without its own kind of operations or
    bytes: see `Counts.restrictions`.
    """
    if module.entry is None:
        return None
    adder = Adder(module)

    def counts_here(holder: Instruction, where: Computation) -> bool:
        """The branch with most operations counts. `counts` takes the maximum of each kind: both
        agree if one branch has all maxima."""
        if holder.opcode != "conditional":
            return True
        branches = [inside for _, inside in module.called_computations(holder)]
        return where is max(branches, key=lambda branch: amounts(adder.computation(branch)))

    rows: dict[tuple[str, str], Work] = {}
    kernels: dict[tuple[str, str], float | None] = {}
    for visit in module.walk(counts_here):
        one = visit.one
        if one.opcode in FREE or (one.opcode in HOLDERS and one.opcode != "fusion"):
            continue
        work = scale(adder.instruction(visit.where, one, visit.is_fused), visit.times)
        key = module.user_line(one), hlo.scope_of(hlo.op_name(one))
        # The operations of a fusion belong to their own lines, and its kernel to the fusion's line.
        own = Work({BYTES: work[BYTES]}) if one.opcode == "fusion" else work
        rows.setdefault(key, Work()).update(own)
        before = kernels.setdefault(key, 0.0)
        kernel = 0.0 if visit.is_fused else work[FLOPS]
        kernels[key] = None if before is None or is_opaque(one) else before + kernel
    found = [LineWork(*key, *amounts(work), kernels[key]) for key, work in rows.items() if any(amounts(work))]
    return tuple(sorted(found, key=lambda one: (-one.flops, -one.bytes_accessed, one.source, one.scope)))


MOST_OPERATIONS = 20_000
"""A limit of the display, and of the memory for it."""
OPAQUE = "it can't be inspected"


def operations(module: Module, most: int = MOST_OPERATIONS) -> HloOperations | None:
    """Lists operations in the order of the text, outermost first. Returns None if the text has no entry computation.

    Instructions that name or group values, or wait for something, do no work and are omitted. Their readers read the
    original values directly. The insides of reductions and sorts belong to these. The insides of fusions, loops,
    branches and calls are listed inside them.

    Args:
        most: maximum number to list; further operations are only counted.
    """
    if module.entry is None:
        return None
    adder = Adder(module)
    sources = {each.name: each.sources(lambda one: one.opcode in FREE) for each in module.computations.values()}
    # Level by level, so that a limit omits the deepest operations.
    working = sorted((each for each in module.walk() if each.one.opcode not in FREE), key=lambda each: len(each.path))
    numbers: dict[tuple[str, ...], int] = {
        (*each.path, each.one.name): number for number, each in enumerate(working[:most])
    }
    # A sum with a hole in it is not a count, and neither is the sum of what is around it.
    opaque = [(*each.path, each.one.name) for each in working if is_opaque(each.one)]
    holes = {path[:depth] for path in opaque for depth in range(1, len(path) + 1)}
    found: list[HloOperation] = []
    for visit in working[:most]:
        one = visit.one
        done = amounts(scale(adder.instruction(visit.where, one, visit.is_fused), visit.times))
        read = [(*visit.path, name) for name in sources[visit.where.name][one.name]]
        operation = HloOperation(
            one.name,
            hlo.custom_call_target(one) or one.opcode,
            one.shape,
            module.user_line(one),
            hlo.scope_of(hlo.op_name(one)),
            numbers.get(visit.path),
            visit.part,
            *((None, None, None) if (*visit.path, one.name) in holes else done),
            _describe(adder, one),
            tuple(numbers[maker] for maker in read if maker in numbers),
        )
        found.append(operation)
    return HloOperations(tuple(found), len(working) - len(found))


def _describe(adder: Adder, one: Instruction) -> str:
    """Returns the restriction of its numbers."""
    if is_opaque(one):
        return OPAQUE
    if one.opcode == "while":
        trips = hlo.trip_count(one)
        return f"counted once: {hlo.UNKNOWN_TRIPS}" if trips is None else plural(trips, "iteration")
    return "the most that any branch does" if one.opcode == "conditional" and adder.differ(one) else ""


# ---- communication between devices ------------------------------------------------------------------------------
#
# The shapes in the text are for one device. An asynchronous pair (`all-gather-start`, `all-gather-done`) is one
# communication; its size is the result of `done`.


OPCODES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)
_START = "-start"
_LISTED = re.compile(r"\{([\d,\s]+)\}")
_MESH = re.compile(r"mesh\[(?P<sizes>[^\]]*)\]\s*\{(?P<axes>[^}]*)\}")
_AXIS = re.compile(r"'([^']*)'(?:\s*=\s*(\d+))?")


def collectives(module: Module, shardings: Mapping[str, str] = MappingProxyType({})) -> Collectives:
    """Every communication that the entry computation reaches, largest first.

    Args:
        shardings: of inputs and outputs, by path; told of programs on several devices.
    """
    devices = count_devices(module.header)
    kinds = ((visit, visit.one.opcode.removesuffix(_START)) for visit in module.walk())
    found = (_collective(visit, kind, devices) for visit, kind in kinds if kind in OPCODES)
    told = tuple(shardings.items()) if devices > 1 else ()
    partitions = int(hlo.header_entries(module.header).get("num_partitions", 1))
    return Collectives(tuple(sorted(found, key=lambda c: -c.size_bytes)), partitions, told)


def count_devices(text: str) -> int:
    """On how many devices the optimised program runs, as its first line says; 1 where that does not say."""
    entries = hlo.header_entries(text)
    return int(entries.get("num_partitions", 1)) * int(entries.get("replica_count", 1))


def _collective(visit: Visit, kind: str, devices: int) -> Collective:
    attributes = hlo.attributes(visit.one)
    groups = attributes.get("replica_groups") or attributes.get("source_target_pairs") or ""
    return Collective(
        opcode=kind,
        name=visit.one.name,
        size_bytes=hlo.shape_bytes(_result(visit.where, visit.one).shape),
        groups=groups,
        group_size=_group_size(attributes.get("replica_groups"), devices),
        trips=visit.times if visit.is_counted else None,
        op_name=hlo.op_name(visit.one),
    )


def _result(computation: Computation, instruction: Instruction) -> Instruction:
    """Finds the result of a collective. A start also returns its operands; only the -done returns the result alone."""
    if not instruction.opcode.endswith(_START):
        return instruction
    done = (
        each
        for each in computation.instructions
        if each.opcode.endswith("-done") and instruction.name in hlo.operand_names(each)
    )
    return next(done, instruction)


def _group_size(groups: str | None, devices: int) -> int | None:
    """Reads `{{0,1},{2,3}}`, `[2,4]<=[8]`, `mesh['x'=4,'y'=2] {'x'}`; `{}` means all of them. None: groups that
    differ."""
    if groups is None:
        return None
    if mesh := _MESH.match(groups):
        sizes = {name: int(size) for name, size in _AXIS.findall(mesh["sizes"]) if size}
        axes = [name for name, _ in _AXIS.findall(mesh["axes"])]
        return math.prod(sizes[a] for a in axes) if all(a in sizes for a in axes) else None
    if iota := re.match(r"\[\d+,(\d+)\]<=", groups):
        return int(iota[1])
    if groups.replace(" ", "") in ("{}", "{{}}"):
        return devices
    listed = {len(group.split(",")) for group in _LISTED.findall(groups)}
    return listed.pop() if len(listed) == 1 else None
