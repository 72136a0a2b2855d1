"""Facts read from the text of an optimised HLO module, as `compiled.as_text()` prints it.

Text in, facts out: this file imports no JAX, so the reading half can use it on stored programs. The printed form is not
a stable interface of XLA. This module uses one instruction per line, `name = shape opcode(operands), attributes`, and
the header line. They were tried on jax 0.6.2 to 0.12.0.1, CPU. The module skips a line of another form.

Parameters are numbered as in the HLO. JAX drops arguments that the program does not use, so these are not the positions
of the Python arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

_ANNOTATIONS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.")

_NAMED = re.compile(r"\s*(?P<root>ROOT )?\s*%?(?P<name>[\w.\-]+) = ")
_ARRAY = re.compile(r"\b(?P<dtype>[a-z]\w*)\[(?P<dims>[^\]]*)\](?:\{(?P<layout>[^}]*)\})?")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_WIDTH = re.compile(r"(?:bf|f|s|u|c)(\d+)")
_PACKED = re.compile(r"E\((\d+)\)")
_ALIAS = re.compile(r"\{([\d,\s]*)\}:\s*\((\d+)\s*,")


class Instruction(NamedTuple):
    """One line of a computation: `ROOT %name = shape opcode(operands), attributes`."""

    name: str
    shape: str
    opcode: str
    operands: str
    attributes: str
    is_root: bool


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
    key = "input_output_alias="
    header = text.partition("\n")[0]
    start = header.find(key)
    if start < 0:
        return []
    entries, _ = _split_bracket(header[start + len(key) :])
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


def custom_call_target(instruction: Instruction) -> str:
    """Returns the target of a custom call, or an empty text for any other instruction."""
    found = _TARGET.search(instruction.attributes)
    return found[1] if found else ""


def is_library_product(target: str) -> bool:
    """A product by cuBLAS or a convolution by cuDNN, which says in its text what it does ("__cublas$lt$matmul")."""
    return target.startswith(("__cublas$", "__cudnn$convForward"))


def is_annotation(target: str) -> bool:
    """A custom call that only says where data belong. Everything else behind one is work that XLA cannot look into."""
    return target.startswith(_ANNOTATIONS)


def entry_uses_parameters(text: str) -> bool | None:
    """Returns whether any output depends on any input, or None if the text has no readable entry computation.

    False is certain: the outputs come from constants only (or from random numbers, or from a custom call without
    operands). Then timing the program does not time work on the inputs. True is only what the outermost computation
    shows: a loop or fusion that gets an input and then ignores it counts as a use.
    """
    entry = {i.name: i for i in _instructions(_entry(text))}
    todo = [i.name for i in entry.values() if i.is_root]
    if not todo:
        return None
    seen: set[str] = set()
    while todo:
        instruction = entry[todo.pop()]
        if instruction.opcode == "parameter":
            return True
        seen.add(instruction.name)
        todo += [name for name in operand_names(instruction) if name in entry and name not in seen]
    return False


def shape_bytes(shape: str) -> int:
    """Bytes of `f32[64,64]{1,0}`, or of a tuple of such shapes: the sum of its arrays.

    Types below 8 bits take a whole byte each, unless the layout packs them: `s4[8]{0:E(4)}` is 4 bytes, `s4[8]` is 8.
    """
    return sum(_array_bytes(m["dtype"], m["dims"], m["layout"] or "") for m in _ARRAY.finditer(shape))


def _array_bytes(dtype: str, dims: str, layout: str) -> int:
    count = 1
    for size in re.findall(r"\d+", dims):
        count *= int(size)
    packed = _PACKED.search(layout)
    bits = int(packed[1]) if packed else 8 * -(-_bits(dtype) // 8)
    return -(-count * bits // 8)


def _bits(dtype: str) -> int:
    """f8e4m3fn: 8; c64: 64 (both parts); pred: 8. Tokens and other things without a size: 0."""
    width = _WIDTH.match(dtype)
    return int(width[1]) if width else 8 * (dtype == "pred")


def _entry(text: str) -> str:
    """Returns the body of the ENTRY computation, or an empty text if there is no such computation."""
    found = re.search(r"^ENTRY [^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def _instructions(text: str, containing: str = "") -> Iterator[Instruction]:
    """Every instruction in `text`; `containing` spares parsing most lines of a long module."""
    # Not splitlines: names in it may hold other separators.
    for line in text.split("\n"):
        if containing in line and (found := instruction(line)):
            yield found


def instruction(line: str) -> Instruction | None:
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
