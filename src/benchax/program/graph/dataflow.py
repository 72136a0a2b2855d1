"""A compiled program as boxes and arrows. Reads HLO text, and decides nothing about geometry.

    a box      an instruction. A fusion is one box that lists its content. A loop or a branch is a box that holds the
               boxes of its computations.
    an arrow   a value. Tuples and their elements are arrows, not boxes: they move nothing.
    in a box   the scalar constants that it reads, the operation of a reduction, the trip count of a loop.
    a role     the kind of work that an operation does; it decides the color.

A program of more than `limit` boxes is cut. The outermost computation comes first, in the order of its text, then the
inner ones as far as the limit reaches. The omitted boxes are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchax.printable import truncate
from benchax.program import hlo
from benchax.program.hlo import FREE, Computation, Instruction, Module
from benchax.units import plural

TITLE, LINE, DETAILS = 30, 36, 400
"""Longest texts, in characters."""

_Called = Sequence[tuple[str, Computation]]
"""(attribute, computation) as in `Module.called_computations`."""

_COMBINE = ("reduce", "reduce-window", "scatter", "all-reduce", "all-reduce-start", "reduce-scatter")
_PARTS = {"body": "body", "condition": "condition: continue?", "to_apply": "called", "calls": "inside"}

Role = Literal[
    "parameter",
    "constant",
    "matmul",
    "reduction",
    "elementwise",
    "movement",
    "communication",
    "library",
    "control",
    "output",
]
_OPCODES: dict[Role, str] = {
    "parameter": "parameter",
    "constant": "constant",
    "matmul": "dot convolution ragged-dot scaled-dot",
    "reduction": "reduce reduce-window select-and-scatter sort topk scan",
    "movement": "bitcast bitcast-convert broadcast concatenate copy copy-done copy-start domain dynamic-reshape "
    "dynamic-slice dynamic-update-slice gather get-dimension-size iota opt-barrier optimization-barrier pad reshape "
    "reverse scatter set-dimension-size slice transpose tuple get-tuple-element add-dependency after-all",
    "communication": "all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all "
    "recv reduce-scatter replica-id partition-id send all-gather-start all-gather-done all-reduce-start "
    "all-reduce-done collective-permute-start collective-permute-done send-done recv-done",
    "library": "custom-call fft cholesky triangular-solve rng rng-bit-generator rng-get-and-update-state infeed "
    "outfeed",
    "control": "while conditional call async-start async-update async-done",
}
_ROLE_OF: dict[str, Role] = {opcode: role for role, opcodes in _OPCODES.items() for opcode in opcodes.split()}
# Matches the names of library routines: __cublas$gemm, __cudnn$convForward, __onednn$matmul
_MATMULS = re.compile(r"gemm|matmul|conv(?!ert)|dot", re.IGNORECASE)
# A fusion is named after the most costly thing in it.
_WEIGHT: tuple[Role, ...] = ("matmul", "communication", "library", "control", "reduction", "elementwise")
_HOLD_OTHERS = ("while", "conditional", "call", "async-start")
_READ_WHOLE = ("tuple", "get-tuple-element", *_HOLD_OTHERS)
"""Readers of a constant that have no place to show its value."""


@dataclass(frozen=True)
class Box:
    """`number` is unique in the picture, from 1."""

    number: int
    role: Role
    title: str
    lines: tuple[str, ...] = ()
    details: str = ""
    """Longer text, to be shown on demand."""
    parts: tuple[Dataflow, ...] = ()
    """The computations inside, such as the body of a loop, or branches."""


@dataclass(frozen=True)
class Dataflow:
    """The boxes of one computation, and pairs (from, to) of places in `boxes` where a value goes."""

    boxes: tuple[Box, ...]
    arrows: tuple[tuple[int, int], ...]
    title: str = ""
    """The part of the computation in the box that holds it: body, branch 0."""


class ProgramDrawing:
    """The boxes and arrows of a program; none where the text has no ENTRY computation.

    `drawn` counts the boxes, inner ones included. `left_out` counts those that `limit` cut off, at least: what is
    inside of these is not looked at.
    """

    def __init__(self, text: str | Module, limit: int = 2000) -> None:
        self.module = hlo.parse(text)
        self.limit = limit
        self.drawn = self.left_out = 0
        self.reused = {f"({number})" for number in hlo.aliased_parameters(self.module.header)}
        entry = self.module.entry
        self.flow = self._flow(entry, frozenset(), is_entry=True) if entry else Dataflow((), ())

    @property
    def instructions(self) -> int:
        """In the whole text, those inside of fusions included."""
        return len(list(self.module.instructions))

    def _flow(self, computation: Computation, around: frozenset[str], title: str = "", *, is_entry: bool) -> Dataflow:
        wiring, root = _Wiring(computation), computation.root
        boxed = [i for i in computation.instructions if wiring.is_box(i)]
        taken = boxed[: max(self.limit - self.drawn, 0)]
        has_output = len(taken) == len(boxed) and root is not None
        self.left_out += len(boxed) - len(taken)
        first = self.drawn + 1
        self.drawn += len(taken) + has_output
        around |= {computation.name}
        boxes = [self._box(i, number, wiring, around, is_entry) for number, i in enumerate(taken, first)]
        place = {i.name: n for n, i in enumerate(taken)}
        reads = computation.sources(lambda one: not wiring.is_box(one))
        # Dicts instead of sets, which have no order: the picture of a program is always the same text.
        arrows = {
            (place[s], place[i.name]): None
            for i in taken
            if not wiring.is_input(i)
            for s in reads[i.name]
            if s in place
        }
        if has_output and root is not None:
            made = [root.name] if wiring.is_box(root) else reads[root.name]
            arrows |= {(place[s], len(boxes)): None for s in made if s in place}
            boxes.append(Box(first + len(taken), "output", "output", shape_lines(root.shape)))
        return Dataflow(tuple(boxes), tuple(arrows), title)

    def _box(self, found: Instruction, number: int, wiring: _Wiring, around: frozenset[str], is_entry: bool) -> Box:
        called = [(key, c) for key, c in self.module.called_computations(found) if c.name not in around]
        attributes, source = hlo.attributes(found), hlo.op_name(found)
        role, title, lines = _label_of(found, attributes, called, source, is_entry)
        lines += shape_lines(found.shape)
        if told := [*wiring.constants(found), *_arrays_inside(found, called)]:
            lines += (truncate(f"with {', '.join(told)}", LINE),)
        if where := short_source(source) if role not in ("parameter", "constant") else "":
            lines += (where,)
        if is_entry and found.opcode == "parameter" and found.operands in self.reused:
            lines += ("an output takes its memory",)
        inside = titled_parts(called) if found.opcode in _HOLD_OTHERS else []
        if inside and self.drawn >= self.limit:
            hidden = sum(len(c.instructions) for _, c in called)
            self.left_out += hidden
            lines += (f"{hidden} instructions inside, not drawn",)
            inside = []
        parts = tuple(self._flow(c, around, part, is_entry=False) for part, c in inside)
        return Box(number, role, truncate(title, TITLE), lines, _details(found, attributes, called, source), parts)


class _Wiring:
    """Which instructions of a computation are boxes, and what is written into their readers instead."""

    def __init__(self, computation: Computation) -> None:
        self.operands = computation.operands
        scalars = {i.name for i in computation.instructions if is_scalar_constant(i)}
        for reader in computation.instructions:
            if reader.opcode in _READ_WHOLE:
                scalars -= {o.name for o in self.operands(reader)}
        self.plain = scalars - ({computation.root.name} if computation.root else set())
        elements = (i for i in computation.instructions if i.opcode == "get-tuple-element")
        self.taken_apart = {operand.name for i in elements for operand in self.operands(i)[:1]}

    def is_box(self, found: Instruction) -> bool:
        if found.opcode == "get-tuple-element":
            return self.is_input(found)
        if found.opcode == "parameter":
            return not (found.shape.startswith("(") and found.name in self.taken_apart)
        return found.opcode != "tuple" and found.name not in self.plain

    def is_input(self, found: Instruction) -> bool:
        """One of the values that a computation is given in a tuple."""
        return found.opcode == "get-tuple-element" and any(o.opcode == "parameter" for o in self.operands(found))

    def constants(self, reader: Instruction) -> list[str]:
        """The values of scalar constants that it reads."""
        return [o.operands[1:-1] for o in self.operands(reader) if o.name in self.plain]


# ---- the texts in a box -----------------------------------------------------------------------------------------


def _label_of(
    found: Instruction, attributes: dict[str, str], called: _Called, source: str, is_entry: bool
) -> tuple[Role, str, tuple[str, ...]]:
    match found.opcode:
        case "parameter" | "get-tuple-element":
            return "parameter", _input_name(found, attributes, source, is_entry), ()
        case "constant":
            value = found.operands[1:-1]
            return "constant", "constant" if value == "{...}" else f"constant {value}", ()
        case "fusion" if called:
            return _fusion(attributes, called[0][1])
        case "custom-call":
            return _role(found), hlo.custom_call_target(found) or "custom-call", ("library call",)
        case "while":
            trips = hlo.trip_count(found)
            return "control", "while" if trips is None else f"while, {trips} iterations", ()
        case _:
            return role_of(found.opcode), f"{found.opcode} {_operation(found, called)}".strip(), ()


def _role(found: Instruction) -> Role:
    return role_of(found.opcode, hlo.custom_call_target(found))


def _input_name(found: Instruction, attributes: dict[str, str], source: str, is_entry: bool) -> str:
    number = attributes.get("index", found.operands[1:-1])
    return source if is_entry and source else f"{'argument' if is_entry else 'input'} {number}"


def _fusion(attributes: dict[str, str], inside: Computation) -> tuple[Role, str, tuple[str, ...]]:
    work = [i for i in inside.instructions if i.opcode not in FREE]
    custom = re.search(r'"kind":"(\w+)"', attributes.get("backend_config", ""))
    kind = (
        custom[1].strip("_").removesuffix("_fusion") if custom else attributes.get("kind", "").removeprefix("k").lower()
    )
    role = role_of_fusion(map(_role, work))
    operations = plural(len(work), "operation")
    return role, _title_of_fusion(inside, role), (truncate(f"{kind} fusion, {operations}".strip(), LINE),)


def _arrays_inside(found: Instruction, called: _Called) -> list[str]:
    """Constant arrays that a fusion holds: memory that is not to be seen otherwise."""
    inside = called[0][1].instructions if found.opcode == "fusion" and called else []
    arrays = [i for i in inside if i.opcode == "constant" and not is_scalar_constant(i)]
    return [f"constant {hlo.plain_shape(i.shape)}" for i in arrays]


def _title_of_fusion(inside: Computation, role: Role) -> str:
    """After what it computes last, `reduce → subtract` where its main work comes before that."""
    if inside.root is None:
        return "fusion"
    last = list(dict.fromkeys(inside.behind_bitcasts(i)[-1].opcode for i in inside.results))
    if role in ("elementwise", "movement") or role in map(role_of, last):
        return ", ".join(last)
    main = dict.fromkeys(i.opcode for i in inside.instructions if _role(i) == role)
    return f"{', '.join(main)} → {', '.join(last)}" if main else ", ".join(last)


def _operation(found: Instruction, called: _Called) -> str:
    """`add` for a reduction by addition: the one thing that its computation does."""
    work = [i.opcode for _, c in called for i in c.instructions if i.opcode not in FREE]
    return work[0] if found.opcode in _COMBINE and len(work) == 1 else ""


def titled_parts(called: _Called) -> list[tuple[str, Computation]]:
    """Returns titles for the computations inside a box; the body of a loop comes first."""
    branches = [c for key, c in called if key.endswith(("computation", "computations"))]
    titled = [(f"branch {n}", c) for n, c in enumerate(branches)] if branches else []
    titled += [(_PARTS.get(key, key), c) for key, c in called if c not in branches]
    return sorted(titled, key=lambda part: part[0].startswith("condition"))


def is_scalar_constant(found: Instruction) -> bool:
    """Returns whether a constant is short enough to be shown inside its readers."""
    return found.opcode == "constant" and "[]" in found.shape and not found.shape.startswith("(")


def shape_lines(shape: str) -> tuple[str, ...]:
    """Without layout; a tuple as the number of its arrays and the first of them."""
    plain = hlo.plain_shape(shape)
    if not plain.startswith("("):
        return (truncate(plain, LINE),)
    arrays = re.findall(r"[a-z]\w*\[[^\]]*\]", plain)
    return (truncate(f"{plural(len(arrays), 'array')}: {', '.join(arrays)}" if arrays else "nothing", LINE),)


def short_source(source: str) -> str:
    """`jit(train)/jit(main)/jvp(layer0)/while/body/tanh` becomes `jvp(layer0)/tanh`."""
    first = source.split(";")[0]
    telling = filter(None, (hlo.scope_of(first), first.rpartition("/")[2]))
    whole = "/".join(telling)
    return whole if len(whole) <= LINE else "…" + whole[1 - LINE :]


def _details(found: Instruction, attributes: dict[str, str], called: _Called, source: str) -> str:
    inside = ""
    if found.opcode == "fusion" and called:
        counts = Counter(i.opcode for i in called[0][1].instructions if i.opcode not in FREE)
        inside = "inside: " + ", ".join(f"{n} × {opcode}" if n > 1 else opcode for opcode, n in counts.items())
    told = [f"{k}={v}" for k, v in attributes.items() if k not in ("metadata", "calls", "backend_config")]
    lines = [f"%{found.name} = {hlo.plain_shape(found.shape)} {found.opcode}", inside, ", ".join(told), source]
    return "\n".join(truncate(line, DETAILS // 2) for line in lines if line)


def role_of(opcode: str, target: str = "") -> Role:
    """`target` is the target of a custom call. An operation that is not listed computes each element for itself."""
    if opcode == "custom-call" and _MATMULS.search(target):
        return "matmul"
    return _ROLE_OF.get(opcode, "elementwise")


def role_of_fusion(inside: Iterable[Role]) -> Role:
    """Movement only if nothing else is in it."""
    weights = {_WEIGHT.index(role) for role in inside if role in _WEIGHT}
    return _WEIGHT[min(weights)] if weights else "movement"
