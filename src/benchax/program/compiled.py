"""The compiler's view of a program: the memory of one call as it plans it, and its count of operations.

It is not the memory that a process really takes.

    memory_plan   the sums
    buffers       each buffer: its purpose, its content, and the line that made it
    peak_memory   when the temporaries need most memory, and their values
    donation      whether an output reuses the memory of each donated argument
    cost          XLA's count of operations, where it is a count

The buffers come from XLA's buffer assignment (xla/service/hlo.proto, BufferAssignmentProto), a protobuf message that
`memory_analysis` hands out since jax 0.7. The names of instructions come from the program itself. If the message is
missing, damaged or unexpected, the text of the program still shows arguments, outputs and constants, and `method` says
so. The rest of the plan is then listed as not attributed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import jax

from benchax.errors import NotAvailable
from benchax.grouping import reach
from benchax.model import Cost, Memory
from benchax.program import hlo, work
from benchax.program.arguments import ArgumentLeaf, size_bytes
from benchax.program.hlo import Computation, Instruction, Module
from benchax.protobuf import ProtoMessage
from benchax.results.inspection import (
    Buffer,
    BufferKind,
    Buffers,
    DonatedArgument,
    Donation,
    HeldValue,
    LiveValue,
    PeakMemory,
    Role,
    highest_of_stretches,
)


def memory_plan(
    compiled: jax.stages.Compiled, *, captured_bytes: int | None = None, hlo_text: str | None = None
) -> Memory:
    """The compiler's plan; the observed fields stay None, and so does everything that the backend does not tell.

        predicted peak = argument + output + temp - alias + constant

    The sum is ours. JAX's own `peak_memory_in_bytes` (since jax 0.7) leaves out the temporaries on CPU: `(x@x)@x` of
    1 MiB arrays takes 3 MiB and reports 2, with a donated argument 1. The plan keeps it in addition, under its own
    name. On accelerators it can come from a simulation of the heap. `memory_analysis` in turn leaves out the constants,
    which come from the text of the program. The sum takes everything to be alive at once, as the compiler's own plan
    does.

    Args:
        compiled: the program.
        captured_bytes: of the arrays that the Python function closes over, if known; passed on.
        hlo_text: `compiled.as_text()`, if at hand, to spare printing a large program again.
    """
    text = hlo_text if hlo_text is not None else compiled.as_text()
    constant_bytes = hlo.constant_bytes(text) if text else None
    plan = _ask(compiled.memory_analysis)
    if plan is None:
        return Memory(constant_bytes=constant_bytes, captured_bytes=captured_bytes)
    argument, output = plan.argument_size_in_bytes, plan.output_size_in_bytes
    temp, alias = plan.temp_size_in_bytes, plan.alias_size_in_bytes
    known = constant_bytes is not None  # a sum with a hole in it would be too small a prediction
    return Memory(
        argument_bytes=argument,
        output_bytes=output,
        temp_bytes=temp,
        alias_bytes=alias,
        # Every program has code, so 0 means "not counted" (XLA:CPU, jax 0.6.2 to 0.10.2).
        code_bytes=plan.generated_code_size_in_bytes or None,
        constant_bytes=constant_bytes,
        captured_bytes=captured_bytes,
        predicted_peak_bytes=argument + output + temp - alias + constant_bytes if known else None,
        # Available since jax 0.7. Kept in addition to our sum, because on CPU it omits the temporaries.
        compiler_peak_bytes=getattr(plan, "peak_memory_in_bytes", None),
    )


def _ask(analysis: Callable[[], Any]) -> Any | None:
    try:
        return analysis()
    except Exception:
        # Documented as unstable and optional, and a backend may fail in its own way (XlaRuntimeError UNIMPLEMENTED,
        # AttributeError). Harmless: the None becomes "the compiler does not say" in the row.
        return None


# ---- XLA's buffer assignment ------------------------------------------------------------------------------------


Place = tuple[str, tuple[int, ...]]
"""(name of an instruction, which part of its result)"""


class AssignedValue(NamedTuple):
    """A value in an allocation, for as long as it is needed. Others can have the same bytes before and after."""

    offset: int
    """Its first byte, from the beginning of the allocation."""
    size_bytes: int
    name: str
    """The name of the instruction that makes it; empty if the program does not have it."""
    index: tuple[int, ...]
    """Which part of a result that is a tuple, or a tuple of tuples."""


class Allocation(NamedTuple):
    """One piece of memory of the plan."""

    size_bytes: int
    kind: BufferKind
    parameter: int | None
    is_also_output: bool
    values: tuple[AssignedValue, ...]


Assignment = tuple[Allocation, ...]


def buffer_assignment(compiled: jax.stages.Compiled) -> Assignment | None:
    """The plan; None where it is not told, or is in another form than the one that is known here."""
    message = getattr(_ask(compiled.memory_analysis), "serialized_buffer_assignment_proto", None)
    try:
        return read_assignment(message, _instruction_names(compiled)) if message else None
    except Exception:
        # A message of another form. Harmless: the row reports the None.
        return None


def read_assignment(message: bytes, names: Mapping[int, str]) -> Assignment:
    """The allocations of a BufferAssignmentProto; those of single threads are no part of the plan's sums and left out.

    Args:
        names: of instructions by their ids.

    Raises:
        FormatError: not a message of protobuf.
    """
    plan = ProtoMessage(message)
    # LogicalBufferProto: 1 its number, 3 Location, with 3 index into the shape, 4 id of the instruction.
    made_by = {
        value.number(1): (names.get(location.number(4), ""), tuple(location.numbers(3)))
        for value in plan.messages(1)
        for location in value.messages(3)
    }
    return tuple(_allocation(each, made_by) for each in plan.messages(3) if not each.number(3))


def _allocation(read: ProtoMessage, made_by: Mapping[int, Place]) -> Allocation:
    """Reads a BufferAllocationProto: 2 size, 3 thread-local, 5 parameter, 6 its number, 7 live out, 9 assigned, 12
    constant, 13 a parameter whose memory an output reuses. An assigned value has: 1 number of the value, 2 offset, 3
    size."""
    is_argument, is_constant, is_output = (bool(read.number(field)) for field in (5, 12, 7))
    kind: BufferKind = (
        "argument" if is_argument else "constant" if is_constant else "output" if is_output else "temporary"
    )
    values = tuple(
        AssignedValue(each.number(2), each.number(3), *made_by.get(each.number(1), ("", ())))
        for each in read.messages(9)
    )
    parameter = read.number(6) if kind == "argument" else None
    return Allocation(read.number(2), kind, parameter, is_output or bool(read.number(13)), values)


def _instruction_names(compiled: jax.stages.Compiled) -> dict[int, str]:
    """Names by id, from HloModuleProto: 3 computations, in them 2 instructions, in them 1 name and 35 id."""
    try:
        module: Any = compiled.runtime_executable().hlo_modules()[0]  # type: ignore[union-attr]
        computations = ProtoMessage(module.as_serialized_hlo_module_proto()).messages(3)
        return {one.number(35): one.text(1) for computation in computations for one in computation.messages(2)}
    except Exception:
        # Documented as for debugging and unstable. Harmless: the buffers keep their sizes and have no names.
        return {}


# ---- buffer by buffer -------------------------------------------------------------------------------------------


MOST_VALUES = 20
"""Values that are kept of each buffer."""


def buffers(
    plan: Assignment | None, module: Module, memory: Memory, *, paths: Sequence[str], outputs: Sequence[ArgumentLeaf]
) -> Buffers:
    """The plan, largest buffer first.

    The sums per kind are compared with `memory`. benchax reports a part that no buffer accounts for, and never spreads
    it out.

    Args:
        plan: None where it could not be read.
        module: the optimised program.
        memory: its plan in sums.
        paths: of the parameters of the program, as the user calls them.
        outputs: of the call, in order.
    """
    results = _results(module, outputs)

    def buffer(one: Allocation) -> Buffer:
        values = [_held_value(module, value.name, value.size_bytes) for value in one.values]
        largest = sorted(values, key=lambda value: -value.size_bytes)[:MOST_VALUES]
        first = largest[0] if largest else HeldValue(0, "", "")
        path = next((results[v.name] for v in values if v.name in results), "") if one.kind == "output" else ""
        if one.parameter is not None:
            path = paths[one.parameter] if one.parameter < len(paths) else f"parameter {one.parameter}"
        return Buffer(one.size_bytes, one.kind, path or _label(first), first.op_name, first.source, tuple(largest))

    method = "program text" if plan is None else "buffer assignment"
    known = [*_plan_of_text(module, results)] if plan is None else plan
    found = [buffer(each) for each in known]
    reused = sum(each.size_bytes for each in known if each.kind == "argument" and each.is_also_output)
    ordered = sorted(found, key=lambda buffer: -buffer.size_bytes)
    return Buffers(tuple(ordered), method, _find_unattributed(found, memory, reused))


def _plan_of_text(module: Module, results: Mapping[str, str]) -> Iterator[Allocation]:
    """Arguments, outputs and constants by their shapes."""
    kinds: dict[str, BufferKind] = {"parameter": "argument", "constant": "constant"}
    for each in module.entry.instructions if module.entry else ():
        kind = kinds.get(each.opcode, "output")
        if kind != "output" or (each.name in results and each.opcode != "bitcast"):
            size = hlo.shape_bytes(each.shape)
            parameter = int(each.operands.strip("() ") or 0) if kind == "argument" else None
            yield Allocation(size, kind, parameter, False, (AssignedValue(0, size, each.name, ()),))


def _held_value(module: Module, name: str, size: int) -> HeldValue:
    """Describes the result of an instruction, if the text has it. A copy that the compiler added itself comes from
    where its operand comes from."""
    one = origin = module.by_name.get(name)
    if one is None or origin is None:
        return HeldValue(size, name, "")
    while not hlo.op_name(origin) and origin.opcode in ("copy", "bitcast", "get-tuple-element"):
        read = [n for n in hlo.operand_names(origin) if n in module.by_name]
        if not read:  # a text that was cut
            break
        origin = module.by_name[read[0]]
    spec = "" if one.shape.startswith("(") else one.shape.partition("{")[0]
    return HeldValue(size, name, spec, hlo.op_name(origin), module.user_line(origin))


def _label(value: HeldValue) -> str:
    # A buffer without a shape is a tuple: a table of addresses.
    return f"{value.name} {value.spec}".strip() if value.spec or not value.name else f"table of {value.name}"


def _find_unattributed(found: list[Buffer], memory: Memory, reused_bytes: int) -> tuple[tuple[BufferKind, int], ...]:
    """Returns the parts of the plan that no buffer accounts for, by kind. An output in a donated argument's memory is
    in both sums."""
    planned: dict[BufferKind, int | None] = {
        "argument": memory.argument_bytes,
        "output": None if memory.output_bytes is None else memory.output_bytes - reused_bytes,
        "temporary": memory.temp_bytes,
    }
    missing: dict[BufferKind, int] = {
        kind: total - sum(b.size_bytes for b in found if b.kind == kind)
        for kind, total in planned.items()
        if total is not None
    }
    return tuple((kind, size) for kind, size in missing.items() if size)


def _results(module: Module, outputs: Sequence[ArgumentLeaf]) -> dict[str, str]:
    """Path of each output by the name of the instruction that makes it."""
    entry, paths = module.entry, dict[str, str]()
    if entry is None or len(entry.results) != len(outputs):
        return {}
    for instruction, leaf in zip(entry.results, outputs, strict=True):
        for same in entry.behind_bitcasts(instruction):
            paths.setdefault(same.name, leaf.path)
    return paths


# ---- over time --------------------------------------------------------------------------------------------------


class LiveRange(NamedTuple):
    """The numbers of the first and of the last instruction that need a value."""

    first: int
    last: int
    places: frozenset[Place]
    readers: tuple[str, ...]
    """Names of the instructions that read it."""


class Schedule:
    """The instructions of a program in the order in which they run, and the time in which each value is needed.

    The text of an optimised program is in the order in which its instructions run. Loops, calls and branches are laid
    out before the instruction that starts them, as XLA does when it plans the memory (HloLiveRange). So one number
    gives the time. A value that a loop carries is needed as long as some iteration might read it.

    A value has many places. `tuple`, `get-tuple-element` and `bitcast` only pass it on. The first value of a loop is
    the parameter of its body. The result of the body is that parameter again.

    Raises:
        NotAvailable: the program is not scheduled, or its text does not tell how long values live.
    """

    def __init__(self, module: Module) -> None:
        if module.entry is None or "is_scheduled=true" not in module.header:
            raise NotAvailable("the text of the program is not in the order in which its instructions run")
        self.module, self.entry = module, module.entry
        self.order: list[Instruction] = []
        self.position: dict[str, int] = {}
        self.stands_in: dict[str, Computation] = {}
        self.calls: dict[str, tuple[Instruction, str]] = {}
        """Where each computation is started, and as what: body, condition, to_apply, …"""
        self.users: dict[str, list[tuple[int, Instruction]]] = defaultdict(list)
        self._lay_out(module.entry)

    def live_range(self, place: Place) -> LiveRange:
        """From when to when what is made at `place` is needed.

        Raises:
            NotAvailable: there is no such instruction in the text.
        """
        if place[0] not in self.position:
            raise NotAvailable(
                f"the plan has a value of {place[0] or 'no name'}, which the program's text does not show"
            )
        readers: dict[str, None] = {}

        def passed_on(at: Place) -> list[Place]:
            uses = list(self._uses(at))
            readers.update((reader, None) for reader, _ in uses if reader)
            return [to for _, places in uses for to in places]

        places = frozenset(reach([place], passed_on))
        first = self.position[place[0]]
        last = max((self.position[name] for name in readers), default=first)
        return LiveRange(first, max(first, last), places, tuple(readers))

    def _lay_out(self, computation: Computation) -> None:
        for each in computation.instructions:
            if each.opcode.endswith(("-start", "-done")):
                raise NotAvailable(
                    f"the program runs {each.name} at the same time as others, so the life of its buffers is unknown"
                )
            if each.opcode in ("while", "call", "conditional"):
                for role, inner in self.module.called_computations(each):
                    if inner.name in self.calls:
                        raise NotAvailable(f"the computation {inner.name} is started from two places")
                    self.calls[inner.name] = each, role
                    self._lay_out(inner)
            self.position[each.name] = len(self.order)
            self.order.append(each)
            self.stands_in[each.name] = computation
            for nth, operand in enumerate(computation.operands(each)):
                self.users[operand.name].append((nth, each))

    def _uses(self, place: Place) -> Iterator[tuple[str, list[Place]]]:
        """(name of an instruction that reads it, or nothing; the places to which it is passed on)"""
        name, index = place
        for nth, user in self.users[name]:
            yield self._use(nth, user, index)
        computation = self.stands_in[name]
        if computation.root is not None and computation.root.name == name:
            yield name, self._returned(computation, index)

    def _use(self, nth: int, user: Instruction, index: tuple[int, ...]) -> tuple[str, list[Place]]:
        """Returns how `user`, whose operand number `nth` it is, uses the part `index` of it."""
        match user.opcode:
            case "get-tuple-element" if index:
                is_meant = int(hlo.attributes(user)["index"]) == index[0]
                return "", [(user.name, index[1:])] if is_meant else []
            case "tuple":
                return "", [(user.name, (nth, *index))]
            case "bitcast" | "optimization-barrier":
                return user.name, [(user.name, index)]
            case "while":
                return "", [self._parameter(inner, 0, index) for _, inner in self.module.called_computations(user)]
            case "call":
                return "", [self._parameter(inner, nth, index) for _, inner in self.module.called_computations(user)]
            case "conditional" if nth > 0:
                branches = self.module.called_computations(user)
                return "", [self._parameter(branches[nth - 1][1], 0, index)]
            case _:
                return user.name, []

    def _parameter(self, computation: Computation, number: int, index: tuple[int, ...]) -> Place:
        parameters = (each for each in computation.instructions if each.opcode == "parameter")
        found = next((each for each in parameters if each.operands.strip("() ") == str(number)), None)
        if found is None:
            raise NotAvailable(f"the computation {computation.name} has no parameter {number}")
        return found.name, index

    def _returned(self, computation: Computation, index: tuple[int, ...]) -> list[Place]:
        """Where the result of a computation goes."""
        if computation is self.entry:
            return []
        caller, role = self.calls[computation.name]
        if role == "condition":
            return []
        # The result of a body is the parameter of the next iteration.
        loop = self.module.called_computations(caller) if role == "body" else []
        return [(caller.name, index), *(self._parameter(inner, 0, index) for _, inner in loop)]


MOST_STRETCHES = 200
"""A timeline is as long as a chart is wide."""


class Holding(NamedTuple):
    """Some bytes of an allocation, held from one instruction to another."""

    start: int
    end: int
    value: AssignedValue
    live: LiveRange


def peak_memory(plan: Assignment | None, module: Module) -> PeakMemory | None:
    """Returns the values that fill the memory at its peak, or None if the program has no temporaries.

    It needs two facts about each value: its bytes (`Assignment`) and the time in which it is needed (`Schedule`). The
    two facts check one another. No two values that are needed at one time can have a byte in common, unless one is
    passed on as the other. If this fails, one of the two facts is wrong, and benchax reports no peak.

    An instruction can write its result over the last operand that it reads. Those bytes count once.

    Raises:
        NotAvailable: the peak is unknown; the message gives the reason.
    """
    if plan is None:
        raise NotAvailable("the plan of the memory cannot be read: this JAX or backend doesn't provide it")
    allocations = [each for each in plan if each.kind == "temporary"]
    schedule = Schedule(module)
    holdings = [holding for each in allocations for holding in _hold(_find_lives(each.values, schedule))]
    if not holdings:
        return None
    needed = _sum_over_time(holdings, len(schedule.order))
    planned, live = sum(each.size_bytes for each in allocations), max(needed)
    if live > planned:
        raise NotAvailable(f"{live} B are needed at once by the program's text, and the plan has {planned} B for them")
    position = needed.index(live)
    at = schedule.order[position]
    values = [_live_value(schedule, each) for each in holdings if each.live.first <= position <= each.live.last]
    return PeakMemory(
        live_bytes=live,
        planned_bytes=planned,
        at=_held_value(module, at.name, hlo.shape_bytes(at.shape)),
        position=position,
        instructions=len(schedule.order),
        values=tuple(sorted(values, key=lambda value: -value.size_bytes)),
        timeline=tuple(highest_of_stretches(needed, MOST_STRETCHES)),
    )


def _find_lives(values: Sequence[AssignedValue], schedule: Schedule) -> list[Holding]:
    """In the order in which they are made."""
    lives = [
        Holding(each.offset, each.offset + each.size_bytes, each, schedule.live_range((each.name, each.index)))
        for each in values
        if each.size_bytes
    ]
    return sorted(lives, key=lambda each: each.live.first)


def _hold(made: Sequence[Holding]) -> Iterator[Holding]:
    """Yields the same values, but no byte is held twice at a time. A value that is passed on is held once, and one that
    is overwritten ends before.

    Raises:
        NotAvailable: two unrelated values would hold a byte at the same time.
    """
    held: list[Holding] = []  # now, by place
    for each in made:
        i = bisect_left(held, each.start, key=attrgetter("end"))
        while i < len(held) and held[i].start < each.end:
            before = held.pop(i)
            if before.end <= each.start:  # of no bytes in common: it ends where this begins
                held.insert(i, before)
                i += 1
            elif before.live.last <= each.live.first:
                yield _shorten(before, each.live.first)
            elif before.live.places & each.live.places:
                each = _join(before, each)
            else:
                raise NotAvailable(
                    f"{before.value.name} and {each.value.name} have the same bytes in the plan, and by the program's "
                    "text both are needed at one time"
                )
        held.insert(bisect_left(held, each.start, key=attrgetter("start")), each)
    yield from held


def _shorten(holding: Holding, until: int) -> Holding:
    last = min(holding.live.last, until - 1)
    return holding._replace(live=holding.live._replace(last=max(holding.live.first, last)))


def _join(before: Holding, after: Holding) -> Holding:
    """The value that is known by both names; the first made it."""
    first, last = before.live.first, max(before.live.last, after.live.last)
    readers = tuple(dict.fromkeys((*before.live.readers, *after.live.readers)))
    live = LiveRange(first, last, before.live.places | after.live.places, readers)
    return Holding(min(before.start, after.start), max(before.end, after.end), before.value, live)


def _sum_over_time(holdings: Sequence[Holding], instructions: int) -> list[int]:
    """Bytes that are held, at each instruction."""
    changes = [0] * (instructions + 1)
    for each in holdings:
        changes[each.live.first] += each.end - each.start
        changes[each.live.last + 1] -= each.end - each.start
    return list(accumulate(changes[:-1]))


def _live_value(schedule: Schedule, holding: Holding) -> LiveValue:
    made = _held_value(schedule.module, holding.value.name, holding.end - holding.start)
    role = _role(schedule, made.op_name, holding.live)
    return LiveValue(made.size_bytes, made.name, made.spec, made.op_name, made.source, role)


def _role(schedule: Schedule, op_name: str, live: LiveRange) -> Role:
    """JAX names what it does on the way forward jvp(f), and on the way back transpose(jvp(f))."""
    if "rematted_computation" in op_name:
        return "recomputed"
    if "transpose(" in op_name:
        return "gradient"
    readers = (hlo.op_name(schedule.module.by_name[name]) for name in live.readers)
    is_kept = "jvp(" in op_name and any("transpose(" in reader for reader in readers)
    return "residual" if is_kept else "temporary"


# ---- donated arguments ------------------------------------------------------------------------------------------


def donation(
    module: Module, inputs: Sequence[ArgumentLeaf], outputs: Sequence[ArgumentLeaf] | None, kept: Sequence[int] | None
) -> Donation:
    """Reports for each array that was to be donated whether an output reused its memory, which one, and if not, why.

    `args_info` shows which arrays were to be donated. The header of the optimised program shows which were reused, by
    numbers of outputs and of parameters: `input_output_alias={ {0}: (1, {}, may-alias) }`. An array whose memory no
    output reuses stays alive and valid, and JAX warns once, while it lowers.

    Args:
        module: the optimised program.
        inputs, outputs: inputs and outputs of the call, in order; None for unknown outputs.
        kept: see `arguments.find_kept`.
    """
    asked = [i for i, leaf in enumerate(inputs) if leaf.donated]
    aliases = hlo.output_aliases(module.header)
    taken = {kept[parameter]: output for output, parameter in aliases if kept and parameter < len(kept)}
    judged = [
        DonatedArgument(
            inputs[i].path,
            inputs[i].spec,
            inputs[i].size_bytes,
            None if kept is None else i in taken,
            _path(outputs, taken[i]) if i in taken else None,
            "" if i in taken else _why_not(i, inputs, outputs, kept, taken),
        )
        for i in asked
    ]
    possible = None if outputs is None or kept is None else _possible_bytes(inputs, outputs, kept, taken)
    return Donation(tuple(judged), possible)


def _possible_bytes(
    inputs: Sequence[ArgumentLeaf], outputs: Sequence[ArgumentLeaf], kept: Sequence[int], taken: dict[int, int]
) -> int:
    """Sums the bytes of arguments that are not donated, if there are outputs like them that do not reuse an argument's
    memory."""
    free = Counter((leaf.shape, leaf.dtype) for n, leaf in enumerate(outputs) if n not in taken.values())
    given = Counter((inputs[i].shape, inputs[i].dtype) for i in kept if not inputs[i].donated)
    return sum(size_bytes(*like) * number for like, number in (free & given).items())


def _path(outputs: Sequence[ArgumentLeaf] | None, number: int) -> str:
    return outputs[number].path if outputs and number < len(outputs) else f"output {number}"


def _why_not(
    i: int,
    inputs: Sequence[ArgumentLeaf],
    outputs: Sequence[ArgumentLeaf] | None,
    kept: Sequence[int] | None,
    taken: dict[int, int],
) -> str:
    leaf = inputs[i]
    if kept is None:
        return "the program does not use every input, and this JAX doesn't report which it dropped"
    if i not in kept:
        return "the program does not use it, so it is not passed to it"
    if outputs is None:
        return "no output reuses it; the outputs are not known here"
    alike = [n for n, output in enumerate(outputs) if (output.shape, output.dtype) == (leaf.shape, leaf.dtype)]
    if not alike:
        return f"no output has its shape and dtype, {leaf.spec}"
    holder = {output: inputs[parameter].path for parameter, output in taken.items()}
    free = [n for n in alike if n not in holder]
    if not free:
        listed = ", ".join(dict.fromkeys(holder[n] for n in alike))
        return f"every output of its shape and dtype, {leaf.spec}, reuses another argument: {listed}"
    return (
        f"the compiler did not use it for {_path(outputs, free[0])}, which has its shape and dtype: another layout, "
        "sharding or kind of memory, or that output is an unchanged input or constant"
    )


# ---- XLA's counts -----------------------------------------------------------------------------------------------
#
# XLA's counts for a program: floating-point operations, transcendentals, bytes touched.
#
# A static estimate, taken from the program and never from a run. It has four traps, which benchax handles like this:
#
#     loops         a loop body is counted once, however often it runs (ten matmuls in a fori_loop: one);
#                   `has_loops` says so.
#     custom calls  XLA cannot look into LAPACK, cuBLAS or a Python callback. It enters -1 into each sum and goes on:
#                   two matmuls around a callback make 1 048 575 (jax 0.6.2 to 0.10.2; on GPU every cuBLAS matmul is
#                   such a call, jax-ml/jax#16008, #22249). A sum with a hole in it is not a count, so it is `None`.
#     FFTs          are counted 1.6 times too high, 3.2 times where numbers are real, and worse along several axes;
#                   replaced by our count, see `work.py`.
#     silence       a key that is absent was never added to: no operation of that kind was seen. It stays `None`, since
#                   the analysis promises neither its keys nor their presence, and "0 FLOP" would be a claim.

INLINE_FLOPS = 1000
"""XLA:CPU runs programs with fewer on the calling thread (xla/pjrt/cpu/cpu_client.cc, cheap_computation_)."""
FLOPS, TRANSCENDENTALS, BYTES_ACCESSED = "flops", "transcendentals", "bytes accessed"


def cost(compiled: jax.stages.Compiled, hlo_text: str) -> Cost | None:
    """Returns XLA's count for the optimised program, per call and per device.

    Args:
        compiled: the program.
        hlo_text: its text, `compiled.as_text()`, for facts that the count lacks.

    Returns:
        Cost, with None for fields that XLA does not report; None if there is no analysis at all.
    """
    counts = _counts_of(compiled)
    if counts is None:
        return None
    if hlo.opaque_calls(hlo_text):
        counts = {}
    return Cost(
        flops=_with_own_ffts(_known_count(counts, FLOPS), hlo_text),
        transcendentals=_known_count(counts, TRANSCENDENTALS),
        bytes_accessed=_known_count(counts, BYTES_ACCESSED),
        has_loops=hlo.has_while(hlo_text),
    )


def _with_own_ffts(flops: float | None, hlo_text: str) -> float | None:
    """Returns XLA's sum, with our count of each FFT instead of XLA's count. It returns None if XLA's count differs from
    the formula that we know."""
    if flops is None or " fft(" not in hlo_text:
        return flops
    computations = hlo.parse(hlo_text).computations.values()
    ffts = [(where, each) for where in computations for each in where.instructions if each.opcode == "fft"]
    counted = sum(work.xla_fft_flops(*fft) for fft in ffts)
    own = sum(work.arithmetic(*fft, lambda _: work.Work())[work.FLOPS] for fft in ffts)
    # Another XLA can count FFTs in another way.
    return None if counted > flops else flops - counted + own


def inline_flops(compiled: jax.stages.Compiled) -> float | None:
    """The number by which XLA:CPU decides where a program runs: below 1000 on the calling thread, else on another.

    This is the raw sum of the cost analysis, holes of -1 and all, with a missing key as 0 (XLA,
    xla/pjrt/cpu/cpu_client.cc: `cheap_computation_`). Meaningful on CPU only. None: there is no analysis.
    """
    counts = _counts_of(compiled)
    return None if counts is None else float(counts.get(FLOPS, 0.0))


def _counts_of(compiled: jax.stages.Compiled) -> Mapping[str, float] | None:
    found = _ask(compiled.cost_analysis)
    return found if isinstance(found, Mapping) else None


def _known_count(counts: Mapping[str, float], key: str) -> float | None:
    """Negative is XLA's word for unknown."""
    value = counts.get(key)
    return None if value is None or value < 0 else float(value)
