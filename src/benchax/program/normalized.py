"""The text of a compiled program without what changes when nothing has changed, so that two of them can be compared.

    gone    names of the module, of computations, instructions and arguments; numbers of channels; source lines; the
            tables of files and frames; hashes of the text; comments; layouts that are the default.
    kept    every operation, shape, constant and attribute, backend's settings and donations included; layouts that
            are not the default.
    order   operands before their users, from the result backwards, whatever order the text has. So the schedule is
            not compared: it is not part of the graph. (Only operations that no result depends on stay in the
            text's order.)

Two texts are equal exactly if the programs are, with one exception: XLA prints an array of more than 10 elements as
`{...}`. The values of such constants are in the program as it was lowered, `lowered.as_text()`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from benchax.program import hlo
from benchax.program.hlo import Computation, Instruction, Module

_PREFIX = "hlo1-sha256:"  # counted up when the form changes, so that digests of two forms are never taken for equal
_ELIDED = "constant({...})"

_SAID_ELSEWHERE = {"metadata", "origin", "original_value"}
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"({_QUOTED})|/\*.*?\*/\s*")
_LAYOUT = re.compile(rf"({_QUOTED})|(\b[a-z]\w*\[[^\]]*\])\{{(\d+(?:,\d+)*)\}}")
_HASH = re.compile(rf",?\s*[\w.]*fingerprint[\w.]*=(?:{_QUOTED}|[^,{{}}\s]+)")
_NESTED_METADATA = re.compile(rf",?\s*metadata=\{{(?:{_QUOTED}|[^\"{{}}]|\{{[^{{}}]*\}})*\}}")
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
    module = hlo.parse(program)
    lines = [_header(module.header), *_Writer(module).lines()]
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
    _, _, rest = header.partition(",")
    return _join("HloModule", [f"{key}={_clean(key, value)}" for key, value in hlo.split_entries(rest)])


def _join(start: str, attributes: list[str]) -> str:
    return ", ".join([start, *(a for a in attributes if a != "frontend_attributes={}")])


class _Writer:
    """Gives new names in the order in which the program needs things, and writes computations in that order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.names: Names = {}
        self.channels: Names = {}
        self.todo: list[Computation] = []

    def lines(self) -> Iterator[str]:
        entry = [self.module.entry] if self.module.entry else []
        for start in [*entry, *self.module.computations.values()]:  # the others are there in a damaged text only
            self.name_of(start)
            while self.todo:
                yield from self.computation(self.todo.pop(0))

    def name_of(self, computation: Computation) -> str:
        if computation.name not in self.names:
            self.names[computation.name] = f"c{len(self.names)}"
            self.todo.append(computation)
        return self.names[computation.name]

    def computation(self, computation: Computation) -> Iterator[str]:
        numbers = {name: f"%{i}" for i, name in enumerate(needed_first(computation))}
        yield f"{self.names[computation.name]}:"
        for name, number in numbers.items():
            instruction = computation.by_name[name]
            root = "ROOT " if instruction.is_root else ""
            yield f"  {root}{number} = {self.instruction(computation, instruction, numbers)}"

    def instruction(self, computation: Computation, instruction: Instruction, numbers: Names) -> str:
        operands = ", ".join(numbers[o.name] for o in computation.operands(instruction))
        start = f"{_plain(instruction.shape)} {instruction.opcode}"
        return _join(
            f"{start}({operands})" if operands else f"{start}{_plain(instruction.operands)}",
            [
                f"{key}={self.attribute(key, value, numbers)}"
                for key, value in hlo.split_entries(instruction.attributes)
                if key not in _SAID_ELSEWHERE
            ],
        )

    def attribute(self, key: str, value: str, numbers: Names) -> str:
        if key == "channel_id":
            return self.channels.setdefault(value, f"channel{len(self.channels)}")
        computations = self.module.computations
        called = [name for name in hlo.named_in(key, value) if name in computations]
        names = {**numbers, **{name: self.name_of(computations[name]) for name in called}} if called else numbers
        return _clean(key, hlo.rename(key, value, names))


def needed_first(computation: Computation) -> list[str]:
    """Returns names of its instructions, each after the instructions that it needs. Instructions that the result does
    not need come last."""
    ordered: list[str] = []
    seen: set[str] = set()
    # With a stack of our own: a chain of thousands of operations would pass Python's limit of recursion.
    for start in sorted(computation.instructions, key=_when):
        stack = [iter([start.name])]
        path: list[str] = []
        while stack:
            name = next((n for n in stack[-1] if n not in seen), None)
            if name is not None:
                seen.add(name)
                path.append(name)
                stack.append(iter(_needs(computation, name)))
            else:
                stack.pop()
                ordered += [path.pop()] if path else []
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
    earlier = hlo.named_in("", hlo.attributes(instruction)["control-predecessors"])
    return operands + [n for n in earlier if n in computation.by_name]


def _clean(key: str, value: str) -> str:
    if key == "frontend_attributes":
        value = _HASH.sub("", value)
    if key == "sharding":
        value = _NESTED_METADATA.sub("", value)
    return _plain(value)


def _plain(text: str) -> str:
    """Without comments and without layouts that run from the first dimension to the last."""
    return _LAYOUT.sub(_without_default, _COMMENT.sub(lambda m: m[1] or "", text))


def _without_default(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    order = [int(n) for n in found[3].split(",")]
    return found[2] if order == list(range(len(order)))[::-1] else found[0]
