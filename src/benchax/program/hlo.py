"""Reads the text of an optimised HLO module, as `compiled.as_text()` prints it. Everything that reads HLO starts here.

Text in, facts out: this file imports no JAX, so the reading half can use it on stored programs. `parse` puts a whole
module together: computations, instructions, loops with their trip counts, and the user's line of each instruction. The
functions at the end read single facts from single lines, which is quicker for a long program.

The printed form is not a stable interface of XLA. This module uses one instruction per line, `name = shape
opcode(operands), attributes`, and the header line. They were tried on jax 0.6.2 to 0.12.0.1, CPU. The module skips what
does not look like HLO: comments, tables, lines of a future version.

Parameters are numbered as in the HLO. JAX drops arguments that the program does not use, so these are not the positions
of the Python arguments.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

from benchax.grouping import reach
from benchax.results.inspection import Loop
from benchax.source_files import is_library, is_runner

_ANNOTATIONS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.")

_NAMED = re.compile(r"\s*(?P<root>ROOT )?\s*%?(?P<name>[\w.\-]+) = ")
_ARRAY = re.compile(r"\b(?P<dtype>[a-z]\w*)\[(?P<dims>[^\]]*)\](?:\{(?P<layout>[^}]*)\})?")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_KERNEL = re.compile(r' name = "([^"]*)"')
_WIDTH = re.compile(r"(?:bf|f|s|u|c)(\d+)")
_PACKED = re.compile(r"E\((\d+)\)")
_ALIAS = re.compile(r"\{([\d,\s]*)\}:\s*\((\d+)\s*,")

# Attributes whose value names computations, or a list of them in braces.
CALLS = (
    "body",
    "condition",
    "branch_computations",
    "true_computation",
    "false_computation",
    "to_apply",
    "calls",
    "called_computations",
    "select",
    "scatter",
    "comparator",
    "update_computation",
)

HOLDERS = ("fusion", "while", "conditional", "call", "async-start")
"""Opcodes of instructions that other instructions run inside of."""
FREE = frozenset((
    "add-dependency", "after-all", "all-gather-done", "all-reduce-done", "async-done", "async-update", "bitcast",
    "collective-permute-done", "constant", "copy-done", "domain", "get-dimension-size", "get-tuple-element",
    "opt-barrier", "parameter", "partition-id", "recv-done", "replica-id", "send-done", "tuple",
))  # fmt: skip
"""Opcodes of instructions that only name, group, or wait for values; they move nothing."""
BRANCHES = ("branch_computations", "true_computation", "false_computation")

# Unoptimized programs are printed without the parameters of their computations.
_OPENS = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) (?:\(.*)?\{\s*$")
_ENTRY = re.compile(r"\s*([\w.\-]+)=(.*)", re.DOTALL)
_NAME = re.compile(r"%?([\w.\-]+)")
_REFERENCE = re.compile(r"%([\w.\-]+)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PLAIN_BRACKET = re.compile(r"\([^(){}]*\)")
_OPENING, _CLOSING = frozenset("({["), frozenset(")}]")
_STOPS = re.compile(_QUOTED.pattern + r"|[(){}\[\],]")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


class Instruction(NamedTuple):
    """One line of a computation: `ROOT %name = shape opcode(operands), attributes`."""

    name: str
    shape: str
    opcode: str
    operands: str
    attributes: str
    is_root: bool


@dataclass(eq=False)
class Computation:
    """A named list of instructions, in the order of the text, which in a scheduled module is that of the run."""

    name: str
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    _operands: dict[Instruction, list[Instruction]] = field(default_factory=dict[Instruction, list[Instruction]])

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        return {i.name: i for i in self.instructions}

    @cached_property
    def root(self) -> Instruction | None:
        """The result; None in a text that was cut."""
        return next((i for i in self.instructions if i.is_root), None)

    @property
    def results(self) -> list[Instruction]:
        """Returns the instructions that make the returned values, one by one; empty if the text was cut."""
        root = self.root
        if root is None:
            return []
        return self.operands(root) if root.opcode == "tuple" else [root]

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """Returns the instructions that it reads, in order, including repetitions."""
        if instruction not in self._operands:
            read = operand_names(instruction)
            self._operands[instruction] = [self.by_name[name] for name in read if name in self.by_name]
        return self._operands[instruction]

    def behind_bitcasts(self, one: Instruction) -> list[Instruction]:
        """Returns the instruction, then its operand for each bitcast on the way, as far as bitcasts lead."""
        found = [one]
        while found[-1].opcode == "bitcast" and (read := self.operands(found[-1])) and read[0] not in found:
            found.append(read[0])
        return found

    def sources(self, passes_on: Callable[[Instruction], bool]) -> dict[str, tuple[str, ...]]:
        """Returns the names of the instructions that each one reads, each once. It looks through those that only pass
        values on."""
        reads: dict[str, tuple[str, ...]] = {}
        makers: dict[str, tuple[str, ...]] = {}
        for one in self.instructions:
            made = (name for each in self.operands(one) for name in makers.get(each.name, ()))
            reads[one.name] = tuple(dict.fromkeys(made))
            makers[one.name] = reads[one.name] if passes_on(one) else (one.name,)
        return reads


@dataclass(frozen=True)
class Module:
    """`entry` doesn't exist without an ENTRY computation: it is then None."""

    text: str
    header: str
    computations: Mapping[str, Computation]
    entry: Computation | None

    @property
    def name(self) -> str:
        """jit_f; empty where the text does not say."""
        named = re.match(r"HloModule ([\w.\-]+)", self.header)
        return named[1] if named else ""

    @property
    def instructions(self) -> Iterator[Instruction]:
        """All of them, those that the entry does not reach included."""
        return chain.from_iterable(computation.instructions for computation in self.computations.values())

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """The instructions by their names, which are unique in a whole module."""
        return {each.name: each for each in self.instructions}

    @cached_property
    def loops(self) -> dict[str, Loop]:
        """Every `while` that the entry computation reaches, each once by name, outer ones before those inside them."""
        found: dict[str, Loop] = {}
        for visit in self.walk():
            if visit.one.opcode == "while" and visit.one.name not in found:
                around = (name for name in reversed(visit.path) if self.by_name[name].opcode == "while")
                trips = trip_count(visit.one)
                origin = UNKNOWN_TRIPS if trips is None else "known_trip_count of the program"
                found[visit.one.name] = Loop(visit.one.name, trips, origin, op_name(visit.one), next(around, None))
        return found

    @cached_property
    def _frames(self) -> dict[str, tuple[str, str]]:
        return _read_frames(self.text)

    def user_lines(self, instruction: Instruction) -> tuple[str, ...]:
        """Returns file:line of the frames of the user's own files, innermost first, otherwise of the innermost one of
        all. It is empty if that frame belongs to the code that called a library's function for the user."""
        metadata = attributes(instruction).get("metadata", "")
        innermost = _FRAME.search(metadata)
        lines, frame = list[str](), innermost[1] if innermost else ""
        while len(lines) < len(self._frames) and (found := self._frames.get(frame)) and found[0]:
            lines.append(found[0])
            frame = found[1]
        own = [line for line in lines if not is_library(line.rpartition(":")[0])]
        if (file := _FILE.search(metadata)) and (line := _LINE.search(metadata)):
            lines = [f"{unescape(file[1])}:{line[1]}"]
        return tuple(line for line in own or lines[:1] if not is_runner(line.rpartition(":")[0]))

    def user_line(self, instruction: Instruction) -> str:
        """The innermost of `user_lines`; empty without one."""
        return next(iter(self.user_lines(instruction)), "")

    def called_computations(self, instruction: Instruction) -> list[tuple[str, Computation]]:
        """(attribute, computation) for each computation that it names, in the order of the text."""
        return [
            (key, self.computations[name])
            for key, value in split_entries(instruction.attributes)
            for name in named_in(key, value)
            if name in self.computations
        ]

    def inside(self, *instructions: Instruction) -> list[Computation]:
        """The computations that run inside of these, at any depth, each once."""

        def called(each: Iterable[Instruction]) -> list[Computation]:
            return [computation for one in each for _, computation in self.called_computations(one)]

        return list(reach(called(instructions), lambda computation: called(computation.instructions)))

    def runs(self, instruction: Instruction) -> list[tuple[str, Computation, int | None]]:
        """The same with how often each runs whenever the instruction does; None if the program decides that as it
        runs. A condition runs once more than the body of its loop."""
        trips = trip_count(instruction) if instruction.opcode == "while" else 1
        return [
            (key, computation, trips if trips is None else trips + (key == "condition"))
            for key, computation in self.called_computations(instruction)
        ]

    def walk(self, enters: Callable[[Instruction, Computation], bool] = lambda one, where: True) -> Iterator[Visit]:
        """Yields every instruction where it runs, each before the instructions inside of it.

        Args:
            enters: whether to go into a computation that an instruction runs.
        """
        waiting = [Visit(one, self.entry) for one in reversed(self.entry.instructions)] if self.entry else []
        while waiting:
            visit = waiting.pop()
            yield visit
            waiting += [one for one in reversed(self._inside(visit)) if enters(visit.one, one.where)]

    def _inside(self, visit: Visit) -> list[Visit]:
        runs = self.runs(visit.one) if visit.one.opcode in HOLDERS else []
        branches = [where for key, where, _ in runs if key in BRANCHES]
        path, is_fused = (*visit.path, visit.one.name), visit.is_fused or visit.one.opcode == "fusion"
        found: list[Visit] = []
        for key, where, n in runs:
            branch = f"branch {branches.index(where)}" if where in branches else ""
            part, times = key if visit.one.opcode == "while" else branch, visit.times * (1 if n is None else n)
            is_counted = visit.is_counted and n is not None
            found += [Visit(one, where, path, part, times, is_counted, is_fused) for one in where.instructions]
        return found


class Visit(NamedTuple):
    """An instruction where it runs."""

    one: Instruction
    where: Computation
    path: tuple[str, ...] = ()
    """The names of the instructions that it runs inside of, outermost first."""
    part: str = ""
    """The part of the innermost one of these: body, condition, branch 0."""
    times: int = 1
    """Runs in a call; a loop whose trip count is unknown counts once."""
    is_counted: bool = True
    """Are all these trip counts known?"""
    is_fused: bool = False


def parse(text: str | Module) -> Module:
    """Reads a whole module; lenient, so that a text of a version to come still gives what can be read. A module that
    was read before is returned as it is."""
    if isinstance(text, Module):
        return text
    lines = text.split("\n")  # not splitlines: names may hold other separators
    header = lines[0] if lines and lines[0].startswith("HloModule") else ""
    computations: dict[str, Computation] = {}
    entry = current = None
    for line in lines[1 if header else 0 :]:
        if opens := _OPENS.match(line):
            current = computations[opens["name"]] = Computation(opens["name"])
            entry = current if opens["entry"] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := read_instruction(line)):
            current.instructions.append(found)
    return Module(text, header, computations, entry)


def read_instruction(line: str) -> Instruction | None:
    """One line, read; None where it is not an instruction."""
    named = _NAMED.match(line)
    if not named:
        return None
    rest = line[named.end() :]
    shape, rest = _split_bracket(rest) if rest.startswith("(") else rest.split(" ", 1) if " " in rest else (rest, "")
    opcode, parenthesis, _ = rest.partition("(")
    if not parenthesis:
        return None
    operands, attributes = _split_bracket(rest[len(opcode) :])
    return Instruction(named["name"], shape, opcode.strip(), operands, attributes, bool(named["root"]))


def _split_bracket(text: str) -> tuple[str, str]:
    """Splits `text`, which begins with a bracket, behind the one that closes it; nested pairs are respected."""
    if plain := _PLAIN_BRACKET.match(text):
        return plain[0], text[plain.end() :]
    depth = 0
    for match in re.finditer(r"[(){}]", text):
        depth += 1 if match[0] in "({" else -1
        if depth == 0:
            return text[: match.end()], text[match.end() :]
    return text, ""


def operand_names(instruction: Instruction) -> list[str]:
    """Returns the names among its operands, and other words between them. The caller keeps the names of
    instructions."""
    # With or without %, with or without the operand's shape in front.
    return [] if instruction.opcode == "constant" else re.findall(r"[\w.\-]+", instruction.operands)


def attributes(instruction: Instruction) -> dict[str, str]:
    """`kind=kLoop, calls=%f, metadata={…}` by key, the values as they stand in the text."""
    return dict(split_entries(instruction.attributes))


@lru_cache(4096)  # several questions are asked of each instruction
def split_entries(text: str) -> tuple[tuple[str, str], ...]:
    """(key, value) of `, a=b, c={d, e="f}"}`: cut at commas outside of brackets and quotes."""
    pieces: list[str] = []
    start = depth = 0
    for stop in _STOPS.finditer(text):
        depth += (stop[0] in _OPENING) - (stop[0] in _CLOSING)
        if stop[0] == "," and depth <= 0:
            pieces.append(text[start : stop.start()])
            start, depth = stop.end(), 0
    entries = map(_ENTRY.fullmatch, (*pieces, text[start:]))
    return tuple((entry[1], entry[2].strip()) for entry in entries if entry)


def header_entries(text: str) -> dict[str, str]:
    """The attributes of a module, from its first line."""
    return dict(split_entries(text.partition("\n")[0].partition(",")[2]))


def named_in(key: str, value: str) -> list[str]:
    """Returns the names in the value of an attribute: every %name, and every name if the attribute lists
    computations."""
    return (_NAME if key in CALLS else _REFERENCE).findall(_QUOTED.sub("", value))


def rename(key: str, value: str, names: Mapping[str, str]) -> str:
    """The value with what it refers to called by other names."""
    if key not in CALLS and "%" not in value:
        return value
    reference = _NAME if key in CALLS else _REFERENCE
    pieces = re.split(f"({_QUOTED.pattern})", value)
    pieces[::2] = [reference.sub(lambda m: names.get(m[1], m[0]), piece) for piece in pieces[::2]]
    return "".join(pieces)


def op_name(instruction: Instruction) -> str:
    """Where it comes from, as JAX tells XLA: `jit(f)/layer0/dot_general`; of a parameter, the argument's name."""
    metadata = attributes(instruction).get("metadata", "")
    quoted = re.search(r'op_name="((?:[^"\\]|\\.)*)"', metadata)
    return unescape(quoted[1]) if quoted else ""


_OF_JAX = re.compile(
    r"p?jit\(.*\)|while|body|cond|closed_call|core_call|eval_jaxpr|branch_\d+_fun|checkpoint|vmap\(\)|custom_[jv][vj]p_call"
)
"""Parts of a scope that JAX adds by itself."""


def scope_of(op_name: str) -> str:
    """layer0/attention, of jit(step)/layer0/while/body/attention/dot_general: what the program named itself."""
    parts = op_name.split("/")[:-1]
    return "/".join(part for part in parts if part and not _OF_JAX.fullmatch(part))


def unescape(text: str) -> str:
    r"""The C escapes of quoted HLO text undone: `\'`, and `\303\251` for é."""
    raw = _ESCAPE.sub(
        lambda m: bytes([int(m[1], 8) & 255]) if len(m[1]) == 3 else _ESCAPED.get(m[1], m[1]),
        text.encode(errors="replace"),
    )
    return raw.decode(errors="replace")


def custom_call_target(instruction: Instruction) -> str:
    """Returns the target of a custom call, the name of a Triton kernel, or an empty text for any other instruction."""
    found = _TARGET.search(instruction.attributes)
    if found and found[1] == "__gpu$xla.gpu.triton":
        found = _KERNEL.search(instruction.attributes) or found
    return found[1] if found else ""


def is_library_product(target: str) -> bool:
    """A product by cuBLAS or a convolution by cuDNN, which says in its text what it does ("__cublas$lt$matmul")."""
    return target.startswith(("__cublas$", "__cudnn$convForward"))


def is_annotation(target: str) -> bool:
    """A custom call that only says where data belong. Everything else behind one is work that XLA cannot look into."""
    return target.startswith(_ANNOTATIONS)


_LAYOUT = re.compile(r"(\[[^\]]*\])\{[^}]*\}|/\*.*?\*/")


def plain_shape(shape: str) -> str:
    """Without layout and comments: f32[64,64] of f32[64,64]{1,0}."""
    return _LAYOUT.sub(r"\1", shape)


def shape_bytes(shape: str) -> int:
    """Bytes of `f32[64,64]{1,0}`, or of a tuple of such shapes: the sum of its arrays.

    Types below 8 bits take a whole byte each, unless the layout packs them: `s4[8]{0:E(4)}` is 4 bytes, `s4[8]` is 8.
    """
    return sum(_array_bytes(m["dtype"], m["dims"], m["layout"] or "") for m in _ARRAY.finditer(shape))


def _array_bytes(dtype: str, dims: str, layout: str) -> int:
    """f8e4m3fn has 8 bits, c64 64 (both parts), pred 8; tokens and other things without a size have none."""
    width, packed = _WIDTH.match(dtype), _PACKED.search(layout)
    whole = int(width[1]) if width else 8 * (dtype == "pred")
    bits = int(packed[1]) if packed else 8 * -(-whole // 8)
    return -(-math.prod(map(int, re.findall(r"\d+", dims))) * bits // 8)


# ---- the user's lines -------------------------------------------------------------------------------------------


_FILE = re.compile(r'source_file="((?:[^"\\]|\\.)*)"')
_LINE = re.compile(r"source_line=(\d+)")
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_FIRST_COMPUTATION = re.compile(r"^(?!HloModule).*\{$", re.MULTILINE)
_TABLE = re.compile(r"^(\w+)\n((?:\d+ .*\n?)*)", re.MULTILINE)
_ROW = re.compile(r"^(\d+) (.*)$", re.MULTILINE)


def _read_frames(hlo_text: str) -> dict[str, tuple[str, str]]:
    """(file:line, id of the frame that called it) by the id of each frame.

    JAX 0.6 writes `source_file="…" source_line=7` into an instruction's metadata. Later versions write
    `stack_frame_id=3` and four tables before the first computation.
    """
    first = _FIRST_COMPUTATION.search(hlo_text)
    head = hlo_text[: first.start()] if first else hlo_text
    tables = {heading: dict(_ROW.findall(rows)) for heading, rows in _TABLE.findall(head)}
    numbers = {
        heading: {row: dict(re.findall(r"(\w+)=(\d+)", text)) for row, text in tables.get(heading, {}).items()}
        for heading in ("FileLocations", "StackFrames")
    }
    files = {row: unescape(quoted[1:-1]) for row, quoted in tables.get("FileNames", {}).items()}
    places = {
        row: f"{files[found['file_name_id']]}:{found['line']}"
        for row, found in numbers["FileLocations"].items()
        if found.get("file_name_id") in files and "line" in found
    }
    # A parent is one higher than the ids of the table, so that 1 means none.
    return {
        row: (places.get(found.get("file_location_id", ""), ""), str(int(found.get("parent_frame_id", "1")) - 1))
        for row, found in numbers["StackFrames"].items()
    }


# ---- loops ------------------------------------------------------------------------------------------------------


UNKNOWN_TRIPS = "its trip count is not in the text of the program"
_KNOWN_TRIPS = re.compile(r'"?known_trip_count"?:\s*\{\s*"?n"?:\s*"?(\d+)"?')


def trip_count(loop: Instruction) -> int | None:
    """Returns the trip count that XLA has proved. None: XLA hasn't, so the program decides that while it runs."""
    known = _KNOWN_TRIPS.search(attributes(loop).get("backend_config", ""))
    return int(known[1]) if known else None


# ---- single facts -----------------------------------------------------------------------------------------------


def constant_bytes(text: str) -> int:
    """Bytes of all constants in the program, the scalars that are in every program included.

    Counts what was baked in *after* optimisation, per computation that holds it: a constant that XLA folded away
    shows only its result. Large constants are elided in the text as `{...}`, so this is the sum of their shapes.
    """
    return sum(shape_bytes(i.shape) for i in _instructions(text, " constant(") if i.opcode == "constant")


def aliased_parameters(text: str) -> tuple[int, ...]:
    """Numbers of the HLO parameters whose memory an output takes over, ascending."""
    return tuple(sorted({parameter for _, parameter in output_aliases(text)}))


def output_aliases(text: str) -> list[tuple[int, int]]:
    """(number of the output, number of the HLO parameter whose memory it takes over).

    From `input_output_alias` in the header: what the compiler did, where `compiled.args_info` says what was asked.
    """
    entries = header_entries(text).get("input_output_alias", "")
    # The place of an output is a path into nested tuples. JAX returns flat ones, and a single result has the path {}.
    return [(int(output.split(",")[0] or 0), int(parameter)) for output, parameter in _ALIAS.findall(entries)]


def has_small_call(text: str) -> bool:
    """XLA:CPU made one machine function of a loop of the entry; it runs at nanoseconds per iteration, on one thread.

    Those inside other loops do not count.
    """
    return "xla_cpu_small_call" in _entry(text)


def is_shared_among_threads(text: str) -> bool:
    """XLA:CPU cut an operation into parts for several threads."""
    return '"outer_dimension_partitions":["' in text  # an empty list: it could have been, and was too small


def has_while(text: str) -> bool:
    """The program has a loop. Whether it also runs more than one iteration is not in the text in general."""
    return any(i.opcode == "while" for i in _instructions(text, " while("))


def is_value_dependent(text: str) -> bool:
    """Returns whether the program has operations whose time depends on the values. They are a sort, a branch, or a loop
    whose trip count is not in the text."""
    instructions = chain.from_iterable(
        _instructions(text, f" {opcode}(") for opcode in ("sort", "conditional", "while")
    )
    return any(i.opcode != "while" or "known_trip_count" not in i.attributes for i in instructions)


def opaque_calls(text: str) -> tuple[str, ...]:
    """Targets of the custom calls: library routines and host callbacks, work that XLA cannot count.

    Sorted, each once; annotations of sharding are left out, they do no work.
    """
    found = {custom_call_target(i) for i in _instructions(text, " custom-call")}
    return tuple(sorted(target for target in found if target and not is_annotation(target)))


def entry_uses_parameters(text: str) -> bool | None:
    """Returns whether any output depends on any input, or None if the text has no readable entry computation.

    False is certain: the outputs come from constants only (or from random numbers, or from a custom call without
    operands). Then timing the program does not time work on the inputs. True is only what the outermost computation
    shows: a loop or fusion that gets an input and then ignores it counts as a use.
    """
    entry = parse(_entry(text)).entry
    if entry is None or entry.root is None:
        return None
    return any(one.opcode == "parameter" for one in reach([entry.root], entry.operands))


def _entry(text: str) -> str:
    """Returns the ENTRY computation, or an empty text if there is no such computation."""
    found = re.search(r"^ENTRY [^\n]*\{\n.*?^\}", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def _instructions(text: str, containing: str = "") -> Iterator[Instruction]:
    """Every instruction in `text`; `containing` spares parsing most lines of a long module."""
    # Don't use splitlines: names can contain other separators.
    for line in text.split("\n"):
        if containing in line and (found := read_instruction(line)):
            yield found


# ---- normalized text --------------------------------------------------------------------------------------------
#
# The text of a compiled program without what changes when nothing has changed, so that two of them can be compared.
#
#     gone    names of the module, of computations, instructions and arguments; numbers of channels; source lines; the
#             tables of files and frames; hashes of the text; comments; layouts that are the default.
#     kept    every operation, shape, constant and attribute, backend's settings and donations included; layouts that
#             are not the default.
#     order   operands before their users, from the result backwards, whatever order the text has. So the schedule is
#             not compared: it is not part of the graph. (Only operations that no result depends on stay in the
#             text's order.)
#
# Two texts are equal exactly if the programs are, with one exception: XLA prints an array of more than 10 elements as
# `{...}`. The values of such constants are in the program as it was lowered, `lowered.as_text()`.

_PREFIX = "hlo1-sha256:"  # counted up when the form changes, so that digests of two forms are never taken for equal
_ELIDED = "constant({...})"

_SAID_ELSEWHERE = {"metadata", "origin", "original_value"}
_COMMENT = re.compile(rf"({_QUOTED.pattern})|/\*.*?\*/\s*")
_ORDERED_LAYOUT = re.compile(rf"({_QUOTED.pattern})|(\b[a-z]\w*\[[^\]]*\])\{{(\d+(?:,\d+)*)\}}")
_HASH = re.compile(rf",?\s*[\w.]*fingerprint[\w.]*=(?:{_QUOTED.pattern}|[^,{{}}\s]+)")
_NESTED_METADATA = re.compile(rf",?\s*metadata=\{{(?:{_QUOTED.pattern}|[^\"{{}}]|\{{[^{{}}]*\}})*\}}")
_WRITTEN_CONSTANT = re.compile(r"stablehlo\.constant (dense\S*<.*?> : tensor<[^>]*>)", re.DOTALL)

Names = dict[str, str]
"""Old name to new name."""


def normalize(program: str | Module, *, stablehlo: str = "") -> str:
    """Returns the normalised program, one line per instruction; equal for equal programs.

    Args:
        program: `compiled.as_text()`, read or not.
        stablehlo: `lowered.as_text()`, for the values of constants that `program` leaves out. Without it a program
            that captured another array of the same shape looks the same: `elides_constants` tells.
    """
    module = parse(program)
    lines = [_header(module.header), *_write(module)]
    if stablehlo and elides_constants(module.text):
        lines.append(f"constants {_sha256(chr(10).join(sorted(_WRITTEN_CONSTANT.findall(stablehlo))))}")
    return "\n".join(lines) + "\n"


def digest(program: str | Module, *, stablehlo: str = "") -> str:
    """Returns a short stand-in for `normalize`, to keep with the files made from the program."""
    return _PREFIX + _sha256(normalize(program, stablehlo=stablehlo))


def elides_constants(hlo_text: str) -> bool:
    """The text shows some constant as `{...}`."""
    return _ELIDED in hlo_text


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _header(header: str) -> str:
    return _join("HloModule", [f"{key}={_clean(key, value)}" for key, value in header_entries(header).items()])


def _join(start: str, attributes: list[str]) -> str:
    return ", ".join([start, *(a for a in attributes if a != "frontend_attributes={}")])


def _write(module: Module) -> Iterator[str]:
    """Writes the computations in the order in which the program needs them, with new names in that order."""
    names: Names = {}
    channels: Names = {}

    def attribute(key: str, value: str, numbers: Names) -> str:
        if key == "channel_id":
            return channels.setdefault(value, f"channel{len(channels)}")
        return _clean(key, rename(key, value, ChainMap(names, numbers)))

    entry = [module.entry] if module.entry else []
    for start in [*entry, *module.computations.values()]:  # the others are there in a damaged text only
        todo = [start] if start.name not in names else []
        names.setdefault(start.name, f"c{len(names)}")
        for computation in todo:
            yield f"{names[computation.name]}:"
            numbers = {name: f"%{i}" for i, name in enumerate(needed_first(computation))}
            for one in map(computation.by_name.__getitem__, numbers):
                said = [(k, v) for k, v in split_entries(one.attributes) if k not in _SAID_ELSEWHERE]
                for called in (name for key, value in said for name in named_in(key, value)):
                    if called in module.computations and called not in names:
                        names[called] = f"c{len(names)}"
                        todo.append(module.computations[called])
                operands = ", ".join(numbers[each.name] for each in computation.operands(one))
                read = f"({operands})" if operands else _plain(one.operands)
                made = f"  {'ROOT ' if one.is_root else ''}{numbers[one.name]} = {_plain(one.shape)} {one.opcode}"
                yield _join(f"{made}{read}", [f"{key}={attribute(key, value, numbers)}" for key, value in said])


def needed_first(computation: Computation) -> list[str]:
    """Returns names of its instructions, each after the instructions that it needs. Instructions that the result does
    not need come last."""
    ordered: list[str] = []
    seen: set[str] = set()
    for start in sorted(computation.instructions, key=_when):
        # Uses an explicit stack, because a chain of thousands of operations would exceed Python's recursion limit.
        path = [(start.name, iter(_needs(computation, start.name)))] if start.name not in seen else []
        seen.add(start.name)
        while path:
            name, needs = path[-1]
            before = next((each for each in needs if each not in seen), None)
            if before is None:
                ordered.append(name)
                path.pop()
            else:
                seen.add(before)
                path.append((before, iter(_needs(computation, before))))
    return ordered


def _when(instruction: Instruction) -> tuple[bool, bool, str]:
    """The result first; then parameters that it does not need, by number; then the rest as the text has it."""
    is_parameter = instruction.opcode == "parameter"
    return not instruction.is_root, not is_parameter, instruction.operands.zfill(12) if is_parameter else ""


def _needs(computation: Computation, name: str) -> list[str]:
    """Names of the instructions that must run before this one."""
    instruction = computation.by_name[name]
    operands = [o.name for o in computation.operands(instruction)]
    if "control-predecessors" not in instruction.attributes:
        return operands
    earlier = named_in("", attributes(instruction)["control-predecessors"])
    return operands + [n for n in earlier if n in computation.by_name]


def _clean(key: str, value: str) -> str:
    if key == "frontend_attributes":
        value = _HASH.sub("", value)
    if key == "sharding":
        value = _NESTED_METADATA.sub("", value)
    return _plain(value)


def _plain(text: str) -> str:
    """Without comments and without layouts that run from the first dimension to the last."""
    return _ORDERED_LAYOUT.sub(_without_default, _COMMENT.sub(lambda m: m[1] or "", text))


def _without_default(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    order = [int(n) for n in found[3].split(",")]
    return found[2] if order == list(range(len(order)))[::-1] else found[0]
