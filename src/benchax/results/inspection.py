"""The compiled form of one call, as `benchax.inspect` found it: plain data, nothing was run.

    Inspection    all of it, and why some facts are missing
    JaxprFacts    the program as JAX traced it: equations, primitives with their source lines, inputs and outputs
    Counts        operations and bytes of the optimised program, loop bodies times their trip counts
    Constants     arrays that the function closes over, and those that the compiled program holds
    Donation      what was to be donated, what an output reused, and why not
    Collectives   communication between devices, and how the arguments are sharded
    HloOperations the operations of the optimised program, one by one
    Buffers       the memory of the plan, buffer by buffer, largest first
    PeakMemory    what of the temporaries is needed at one time, at most, and over the length of the program
    Difference    what differs between two inspections

Bytes and counts are for one call on one device. `None` means not known; `Inspection.why_absent` gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchax.model import Absent, Cost, Measurement, Memory, Remark, find_why
from benchax.renderers import Displayed


@dataclass(frozen=True)
class Place:
    """The tools that built a program: versions, backend, and the kind and number of its devices. An unknown fact is
    `None`."""

    jax: str | None = None
    jaxlib: str | None = None
    backend: str | None = None
    device_kind: str | None = None
    device_count: int | None = None


@dataclass(frozen=True)
class Argument:
    """An input or an output of the program."""

    path: str
    """As the user wrote it: args[0]['w'], kwargs['axis']; of an output result[0]['w']."""
    spec: str
    """f32[8,128], or key."""
    size_bytes: int | None = None
    is_weak: bool | None = None
    """Weakly typed, as Python scalars are: the same value as an array compiles again."""


@dataclass(frozen=True)
class Primitive:
    """An operation of JAX, and where in the source it was asked for."""

    name: str
    count: int
    """Equations with it, nested ones included; those in the body of a loop count once."""
    in_loops: int = 0
    """The number of them in the body of a loop. They can run many times."""
    lines: tuple[str, ...] = ()
    """file:line of the user's code, most frequent first. Empty where JAX does not tell."""
    scopes: tuple[str, ...] = ()
    """The scopes of `jax.named_scope` and of transformations, most frequent first; the outermost "" is left out."""


@dataclass(frozen=True)
class JaxprFacts:
    """The program as JAX traced it, before any compiler."""

    text: str
    equations: int
    """Nested ones included, bodies of loops and branches once each."""
    outer_equations: int
    """Without those nested in others."""
    equations_in_loops: int
    """The `equations` in bodies (and conditions) of scan and while."""
    depth: int
    """Levels of nesting: 1 for a program without inner jaxprs."""
    primitives: tuple[Primitive, ...]
    """Most frequent first."""
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]


@dataclass(frozen=True)
class Loop:
    """A `while` of the optimised program; every fori_loop and scan is one, unless XLA unrolled it."""

    name: str
    """In the HLO."""
    trips: int | None
    """How often its body runs per start of the loop; None where the program decides that while it runs."""
    trips_from: str
    """Where the number comes from, or why it is missing."""
    op_name: str = ""
    """As JAX tells XLA: jit(f)/while."""
    inside: str | None = None
    """Name of the loop around it."""


@dataclass(frozen=True)
class LineWork:
    """Work of one call that comes from one line of the user's, by the rules of `Counts`."""

    source: str
    """file.py:12, the innermost line of the user's own code, or of a library if there is no such line. Empty: the
    compiler's own."""
    scope: str
    """The named scopes around it: layer0/attention. Empty: none."""
    flops: float
    transcendentals: float
    bytes_accessed: float
    kernel_flops: float | None = None
    """FLOPs of the kernels whose bytes these are: all that is fused into them, from whichever line. None: benchax
    cannot inspect one of them."""


@dataclass(frozen=True)
class Counts:
    """Work of one call of the optimised program, by our own count of its text: bodies of loops times their trip counts.

    An addition, a multiplication, a comparison is 1 FLOP. A matmul of m × k by k × n is 2·m·n·k. exp, log, tanh and
    similar operations are transcendentals and not FLOPs. Bytes are the bytes that instructions and fusions read and
    write, each operand every time. Data in caches counts as read all the same.
    """

    flops: float | None
    transcendentals: float | None
    bytes_accessed: float | None
    is_exact: bool
    """False: the three numbers have the restrictions that `restrictions` lists."""
    restrictions: tuple[str, ...] = ()
    """Why the numbers are not exact. They are no bound either: a call can take the smaller branch of a conditional."""
    loops: tuple[Loop, ...] = ()
    fusions: int = 0
    instructions: tuple[tuple[str, int], ...] = ()
    """(opcode, how many in the text, the insides of fusions and of loops once each), most frequent first."""
    opaque_calls: tuple[tuple[str, int], ...] = ()
    """(target of a custom call, how many in the text)."""

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOP per byte; None where either is not known."""
        if self.flops is None or not self.bytes_accessed:
            return None
        return self.flops / self.bytes_accessed


@dataclass(frozen=True)
class Constant:
    """An array that is no argument."""

    spec: str
    size_bytes: int
    where: str
    """For a captured array, the source line or scope that uses it first. For a baked-in one, the name in the HLO and
    op_name. Empty if neither is known."""


@dataclass(frozen=True)
class Constants:
    """Two views, which differ: XLA folds what was captured (`W.sum(0)` keeps the sums alone), and adds its own."""

    captured: tuple[Constant, ...] | None
    """Closed over by the function, as the jaxpr holds them; largest first. None: no jaxpr."""
    baked_in: tuple[Constant, ...] | None
    """In the optimised program, scalars included; largest first. None: no text of the program."""

    @property
    def captured_bytes(self) -> int | None:
        return None if self.captured is None else sum(c.size_bytes for c in self.captured)

    @property
    def baked_in_bytes(self) -> int | None:
        return None if self.baked_in is None else sum(c.size_bytes for c in self.baked_in)


@dataclass(frozen=True)
class DonatedArgument:
    """One array that was to be donated."""

    path: str
    spec: str
    size_bytes: int
    is_aliased: bool | None
    """Whether an output reuses its memory. None if unknown."""
    output: str | None = None
    """Which one: result[0]['w']."""
    why_not: str = ""
    """Why no output did, or why that is not known."""


@dataclass(frozen=True)
class Donation:
    """Every array that was to be donated; empty if there was no such array."""

    arguments: tuple[DonatedArgument, ...]
    possible_bytes: int | None = None
    """Bytes of arguments that are not donated, and that have the shape and dtype of an output with its own memory.
    Donating them saves at most this much. None if unknown."""

    @property
    def asked_bytes(self) -> int:
        return sum(a.size_bytes for a in self.arguments)

    @property
    def aliased_bytes(self) -> int | None:
        """None where of some argument it is not known."""
        if any(a.is_aliased is None for a in self.arguments):
            return None
        return sum(a.size_bytes for a in self.arguments if a.is_aliased)


@dataclass(frozen=True)
class Collective:
    """One communication between devices."""

    opcode: str
    """all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute, ..."""
    name: str
    size_bytes: int
    """The bytes of its result on one device."""
    groups: str
    """As the program has them: {{0,1},{2,3}}, [4,2]<=[8], or mesh axes."""
    group_size: int | None
    """Devices that take part together; None where the text does not tell."""
    trips: int | None
    """How often it runs per call; None inside a loop of unknown length."""
    op_name: str = ""


@dataclass(frozen=True)
class Collectives:
    """Empty `calls`: the devices say nothing to one another."""

    calls: tuple[Collective, ...]
    partitions: int = 1
    """Devices over which the program is split."""
    shardings: tuple[tuple[str, str], ...] = ()
    """(path, sharding) of each input that the program takes and of each output; empty on one device, and where JAX
    does not tell."""

    @property
    def bytes_per_call(self) -> int | None:
        """Sum of the results over all iterations; None where some loop's length is not known."""
        total = 0
        for call in self.calls:
            if call.trips is None:
                return None
            total += call.size_bytes * call.trips
        return total


# ---- operations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HloOperation:
    """An operation of the optimised program; its work is that of one call of the program, by the rules of `Counts`."""

    name: str
    """In the HLO."""
    opcode: str
    """The opcode; for a custom call, its target."""
    shape: str
    source: str
    """file.py:12, as in `LineWork`. Empty: the compiler's own."""
    scope: str
    """The named scopes around it: layer0/attention. Empty: none."""
    inside: int | None
    """The place, in `HloOperations.listed`, of the fusion, loop, conditional or call around it."""
    part: str
    """For a loop, its body or its condition; for a conditional, the branch."""
    flops: float | None
    """It includes all operations inside it. None: benchax cannot inspect it, or something inside it."""
    transcendentals: float | None
    bytes_accessed: float | None
    """0 inside of a fusion, where values stay in registers."""
    remark: str = ""
    """A restriction of the numbers, such as the trip count of a loop."""
    reads: tuple[int, ...] = ()
    """The places of the operations at the same level whose results it reads."""


@dataclass(frozen=True)
class HloOperations:
    """The operations that do work: without parameters, constants, tuples and bitcasts."""

    listed: tuple[HloOperation, ...]
    left_out: int = 0
    """The least number of operations beyond the limit: the operations inside them were not counted."""


# ---- memory ----------------------------------------------------------------------------------------------------------
#
# The memory of one call as the compiler planned it; nothing was observed.


BufferKind = Literal["argument", "output", "temporary", "constant", "other"]
Role = Literal["residual", "recomputed", "gradient", "temporary"]
"""A residual is made on the way forward and kept for the way back. A value that jax.checkpoint did not keep is
recomputed there; a gradient is any other value that is made there."""


@dataclass(frozen=True)
class HeldValue:
    """A value that the program keeps in a buffer for a while."""

    size_bytes: int
    name: str
    """The name of the instruction that makes it."""
    spec: str
    """f32[8,128]; empty where the program does not tell."""
    op_name: str = ""
    """As JAX tells XLA: jit(f)/dot_general."""
    source: str = ""
    """file:line; empty where the program does not tell."""

    @property
    def operation(self) -> str:
        """JAX's name for the operation, without the scopes around it: dot_general. Otherwise the name of the
        instruction."""
        return self.op_name.rpartition("/")[2] or self.name


@dataclass(frozen=True)
class Buffer:
    """A piece of memory in the compiler's plan."""

    size_bytes: int
    kind: BufferKind
    what: str
    """The path of an argument or output; else the largest value that it holds."""
    op_name: str = ""
    """The scope of the largest value, as its source."""
    source: str = ""
    values: tuple[HeldValue, ...] = ()
    """The largest values that it holds, first. They are not all held at one time, so their sum can exceed the size."""


@dataclass(frozen=True)
class Buffers:
    """The memory of one call, buffer by buffer, largest first."""

    buffers: tuple[Buffer, ...]
    method: Literal["buffer assignment", "program text"]
    """"program text": only arguments, outputs and constants, since the plan itself could not be read."""
    unattributed: tuple[tuple[BufferKind, int], ...] = ()
    """Bytes of the memory plan that no buffer here accounts for, by kind; empty where the sums agree."""


@dataclass(frozen=True)
class LiveValue(HeldValue):
    """A temporary value that is needed at the peak."""

    role: Role = "temporary"


@dataclass(frozen=True)
class PeakMemory:
    """The instruction at which most temporaries are needed at once, and what they are.

    Arguments, outputs and constants have memory for the whole call; only temporaries come and go.
    """

    live_bytes: int
    """The bytes of the temporaries that are needed then, each byte once."""
    planned_bytes: int
    """The bytes that the plan has for temporaries; the part beyond `live_bytes` is alignment and gaps."""
    at: HeldValue
    """The value that is made at the peak."""
    position: int
    """The number of that instruction in the order in which they run, from 0."""
    instructions: int
    values: tuple[LiveValue, ...]
    """Largest first."""
    timeline: tuple[int, ...]
    """Bytes that are needed, over the instructions in their order; the most in each of equal stretches."""

    def sum_of(self, role: Role) -> int:
        """Bytes of the values that have this role."""
        return sum(value.size_bytes for value in self.values if value.role == role)


def highest_of_stretches(sizes: Sequence[int], most: int) -> Iterator[int]:
    """The highest of each of `most` equal stretches, so that no peak is lost; all of them if they are fewer."""
    count = min(most, len(sizes))
    for i in range(count):
        yield max(sizes[i * len(sizes) // count : (i + 1) * len(sizes) // count])


# ---- all of it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inspection(Displayed):
    """The compiled form of one call. Nothing was run.

    Example:
        >>> i = benchax.inspect(jnp.sin, "f32[1000]")
        >>> i.memory.argument_bytes, i.hlo.split()[0]
        (4000, 'HloModule')
    """

    name: str
    signature: str
    """The inputs as specs: f32[1024,128], key, axis=0."""
    place: Place
    jaxpr: JaxprFacts | None = None
    stablehlo: str | None = None
    """As JAX lowered it; constants in full."""
    hlo: str | None = None
    """As XLA optimised it; large constants as {...}."""
    counts: Counts | None = None
    lines: tuple[LineWork, ...] | None = None
    """The same work by line, most operations first."""
    operations: HloOperations | None = None
    """The operations of the program one by one, with what each reads."""
    xla_cost: Cost | None = None
    """XLA's own count, which takes a loop body once."""
    memory: Memory | None = None
    """The plan; nothing observed."""
    buffers: Buffers | None = None
    peak: PeakMemory | None = None
    """The temporaries that are needed at one time. None also if there are no temporaries."""
    constants: Constants | None = None
    donation: Donation | None = None
    collectives: Collectives | None = None
    remarks: tuple[Remark, ...] = ()
    absent: tuple[Absent, ...] = field(default=())
    """The reasons for missing values; `what` is the name of the field."""

    def why_absent(self, what: str) -> str | None:
        """Why the field `what` (or the group that it is in) is not there."""
        return find_why(self.absent, what)


# ---- difference ------------------------------------------------------------------------------------------------------


Unit = Literal["count", "flop", "bytes"]
Stage = Literal["jaxpr", "stablehlo", "hlo"]


@dataclass(frozen=True)
class NumberChange:
    """A number of both sides; None where it is not known."""

    name: str
    before: float | None
    after: float | None
    unit: Unit = "count"


@dataclass(frozen=True)
class TextDifference:
    """The same text of both sides, line by line."""

    stage: Stage
    is_same: bool
    """Up to names and source lines."""
    added: int = 0
    """Lines."""
    removed: int = 0
    unified: str = ""
    """As `diff -u`, without source lines. The first text takes the second one's names for the same values. A name that
    the second text lacks ends in an apostrophe."""


@dataclass(frozen=True)
class Difference(Displayed):
    """The differences. Each table holds only rows that differ."""

    before: str
    """The identity of the first: its signature, commit, or version of JAX."""
    after: str
    numbers: tuple[NumberChange, ...] = ()
    unchanged: tuple[str, ...] = ()
    """Names of numbers that both know and agree in."""
    primitives: tuple[NumberChange, ...] = ()
    """The primitives of the jaxpr: how often each."""
    opcodes: tuple[NumberChange, ...] = ()
    """The opcodes of the optimised program."""
    texts: tuple[TextDifference, ...] = ()
    absent: tuple[Absent, ...] = ()
    """Which texts could not be compared, and why."""
    line_flops: tuple[NumberChange, ...] = ()
    """Operations by the user's line, the largest change first."""
    line_bytes: tuple[NumberChange, ...] = ()
    """Bytes read and written, likewise."""

    @property
    def is_none(self) -> bool:
        """Nothing differs in what both sides know."""
        return not (self.numbers or self.primitives or self.opcodes) and all(text.is_same for text in self.texts)


# ---- roofline --------------------------------------------------------------------------------------------------------
#
# How long a program's bytes and FLOPs take at the rates that the machine did reach, its `Peaks`.


@dataclass(frozen=True)
class Roofline:
    """A comparison, no bound: rates are those that were reached, and of the bytes a cache may serve some."""

    bytes_s: float | None = None
    """The bytes accessed, at `bytes_per_s`."""
    flops_s: float | None = None
    """The FLOPs, at `flops_per_s`."""
    bytes_per_s: float | None = None
    array_bytes: int = 0
    """Size of the array with which `bytes_per_s` was reached."""
    flops_per_s: float | None = None
    dtype: str = "f32"
    """The type of the matmul with which `flops_per_s` was reached."""
    is_at_least: bool = False
    """The work is not counted exactly: `Counts.restrictions` says why."""
    timed: Measurement | None = None
    """The program, measured: its headline is compared."""
    absent: tuple[Absent, ...] = ()
    """Why bytes_s or flops_s is missing."""

    @property
    def roof_s(self) -> float | None:
        """The longer of the two; None unless both are known."""
        return None if self.bytes_s is None or self.flops_s is None else max(self.bytes_s, self.flops_s)

    @property
    def is_memory_bound(self) -> bool | None:
        """Do the bytes take longer than the FLOPs?"""
        return None if self.bytes_s is None or self.flops_s is None else self.bytes_s >= self.flops_s

    @property
    def share(self) -> float | None:
        """Share of the roofline: 1 is as fast as the machine was ever seen to be.

        None without a time, or without all counts."""
        if self.timed is None or self.roof_s is None or self.is_at_least:
            return None
        return self.roof_s / self.timed.median_s

    def why_absent(self, what: str) -> str | None:
        return find_why(self.absent, what)


def _divide(work: float | None, per_s: float | None) -> float | None:
    """No work takes no time, at whatever rate."""
    if work == 0:
        return 0.0
    return work / per_s if work is not None and per_s else None


@dataclass(frozen=True)
class Peaks:
    """Rates that some program did reach on this device: a program can be faster, and then these are too low."""

    memory_bytes_per_s: float | None
    """Bytes read plus bytes written, of an array that no cache holds."""
    memory_array_bytes: int
    """How large it is."""
    cache_bytes_per_s: float | None
    """The same of one that a core's caches hold."""
    cache_array_bytes: int
    matmul_flops_per_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """By dtype, f32, bf16, f64; a matmul of n × n is 2·n³ FLOP."""
    measured_at: str = ""
    """UTC."""
    path: str = ""
    """The file that keeps them; without it, they are measured again. Empty if they could not be kept."""
    absent: tuple[Absent, ...] = ()
    """Why a rate is not there: of memory_bytes_per_s, cache_bytes_per_s, matmul_flops_per_s.f64."""

    def bytes_per_s(self, working_set_bytes: float | None) -> tuple[float | None, int]:
        """Returns (the rate for a program that keeps this much memory busy, bytes of the array that it was measured
        with)."""
        if working_set_bytes is not None and working_set_bytes <= self.cache_array_bytes and self.cache_bytes_per_s:
            return self.cache_bytes_per_s, self.cache_array_bytes
        # Between two sizes, use the larger rate, so that a share is rather too small than above 100 %.
        if working_set_bytes is not None and working_set_bytes < self.memory_array_bytes and self.cache_bytes_per_s:
            faster = max(self.cache_bytes_per_s, self.memory_bytes_per_s or 0.0)
            size = self.cache_array_bytes if faster == self.cache_bytes_per_s else self.memory_array_bytes
            return faster, size
        return self.memory_bytes_per_s, self.memory_array_bytes

    def roofline(
        self, flops: float | None, bytes_accessed: float | None, working_set_bytes: float | None, dtype: str = "f32"
    ) -> Roofline:
        """How long this work takes at these rates; what has no rate has no time.

        Args:
            working_set_bytes: memory that is kept busy, which decides whether caches or memory are to be compared with.
        """
        bytes_per_s, array_bytes = self.bytes_per_s(working_set_bytes)
        flops_per_s = self.matmul_flops_per_s.get(dtype)
        return Roofline(
            bytes_s=_divide(bytes_accessed, bytes_per_s),
            flops_s=_divide(flops, flops_per_s),
            bytes_per_s=bytes_per_s,
            array_bytes=array_bytes,
            flops_per_s=flops_per_s,
            dtype=dtype,
        )

    def why_absent(self, what: str) -> str | None:
        return find_why(self.absent, what)
