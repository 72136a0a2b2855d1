"""The complete text of an optimised HLO module as computations, instructions and attributes.

`hlo` reads single facts from single lines. This module puts the lines together: the computation of an instruction, the
computations that it calls, and its attributes. No JAX. Tried on the text of jax 0.6 to 0.12.0.1, CPU. It skips text
that does not look like HLO: tables of files and frames, comments, lines of a future version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from benchax.program import hlo
from benchax.program.hlo import Instruction

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

# Before XLA has optimised it, a program is printed without the parameters of its computations.
_OPENS = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) (?:\(.*)?\{\s*$")
_KEY = re.compile(r"\s*,?\s*([\w.\-]+)=")
_NAME = re.compile(r"%?([\w.\-]+)")
_REFERENCE = re.compile(r"%([\w.\-]+)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_STOPS = re.compile(_QUOTED.pattern + r"|[(){}\[\],]")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


class Computation:
    """A named list of instructions, in the order of the text, which in a scheduled module is that of the run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instructions: list[Instruction] = []

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        return {i.name: i for i in self.instructions}

    @property
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
        return [self.by_name[n] for n in hlo.operand_names(instruction) if n in self.by_name]


class Module(NamedTuple):
    """`entry` is None if the text has no ENTRY computation."""

    header: str
    computations: Mapping[str, Computation]
    entry: Computation | None

    def called_computations(self, instruction: Instruction) -> list[tuple[str, Computation]]:
        """(attribute, computation) for each computation that it names, in the order of the text."""
        return [
            (key, self.computations[name])
            for key, value in split_entries(instruction.attributes)
            for name in named_in(key, value)
            if name in self.computations
        ]


def parse(text: str) -> Module:
    """Reads a whole module; lenient, so that a text of a version to come still gives what can be read."""
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
        elif current is not None and (instruction := hlo.instruction(line)):
            current.instructions.append(instruction)
    return Module(header, computations, entry)


def attributes(instruction: Instruction) -> dict[str, str]:
    """`kind=kLoop, calls=%f, metadata={…}` by key, the values as they stand in the text."""
    return dict(split_entries(instruction.attributes))


def split_entries(text: str) -> list[tuple[str, str]]:
    """(key, value) of `, a=b, c={d, e="f}"}`: cut at commas outside of brackets and quotes."""
    found: list[tuple[str, str]] = []
    at = 0
    while key := _KEY.match(text, at):
        end = _end_of_value(text, key.end())
        found.append((key[1], text[key.end() : end].strip()))
        at = end
    return found


def _end_of_value(text: str, start: int) -> int:
    depth = 0
    for stop in _STOPS.finditer(text, start):
        if stop[0] in tuple("({["):
            depth += 1
        elif stop[0] in tuple(")}]"):
            depth -= 1
        elif stop[0] == "," and depth <= 0:
            return stop.start()
    return len(text)


def named_in(key: str, value: str) -> list[str]:
    """Returns the names in the value of an attribute: every %name, and every name if the attribute lists
    computations."""
    return (_NAME if key in CALLS else _REFERENCE).findall(_QUOTED.sub("", value))


def rename(key: str, value: str, names: Mapping[str, str]) -> str:
    """The value with what it refers to called by other names."""
    reference = _NAME if key in CALLS else _REFERENCE
    pieces = re.split(f"({_QUOTED.pattern})", value)
    pieces[::2] = [reference.sub(lambda m: names.get(m[1], m[0]), piece) for piece in pieces[::2]]
    return "".join(pieces)


def op_name(instruction: Instruction) -> str:
    """Where it comes from, as JAX tells XLA: `jit(f)/layer0/dot_general`; of a parameter, the argument's name."""
    metadata = attributes(instruction).get("metadata", "")
    quoted = re.search(r'op_name="((?:[^"\\]|\\.)*)"', metadata)
    return unescape(quoted[1]) if quoted else ""


def unescape(text: str) -> str:
    r"""The C escapes of quoted HLO text undone: `\'`, and `\303\251` for é."""
    raw = _ESCAPE.sub(
        lambda m: bytes([int(m[1], 8) & 255]) if len(m[1]) == 3 else _ESCAPED.get(m[1], m[1]),
        text.encode(errors="replace"),
    )
    return raw.decode(errors="replace")
