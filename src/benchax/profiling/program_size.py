"""How large a compiled program is, and which line it repeats most: what makes compiling long.

XLA takes a time for each instruction. A loop in Python is unrolled into the program, and a function that is called from
many places is inlined at each of them: in both cases many instructions come from one line. The user's frames that JAX
keeps of them tell a function that is inlined: those of a loop are the same, but so are those of one call that makes
hundreds, as the update of an optimizer does. So a loop is told only where the file has one around the line, or around
the call that leads there, inside of the function that was compiled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from benchax.profiling.compiled_modules import CompiledModule, ModuleInstruction
from benchax.profiling.host_thread import program_name
from benchax.profiling.python_loops import place_of
from benchax.program import hlo
from benchax.results.profile import ProgramSize

_SMALL = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
"""They cost next to nothing to compile."""


def program_size(modules: Iterable[CompiledModule]) -> ProgramSize | None:
    """Of the largest of several programs of one name; None where there is none."""
    return max(map(_size_of, modules), key=lambda size: size.instructions, default=None)


def _size_of(module: CompiledModule) -> ProgramSize:
    every = module.instructions.values()
    working = [each for each in every if each.opcode not in _SMALL]
    groups: dict[str, list[ModuleInstruction]] = defaultdict(list)
    for each in working:
        if each.source:
            groups[each.source].append(each)
    line, repeated = max(groups.items(), key=lambda pair: len(pair[1]), default=("", []))
    return ProgramSize(
        instructions=len(working),
        constant_bytes=sum(hlo.shape_bytes(each.shape) for each in every if each.opcode == "constant"),
        line=line,
        repeated=len(repeated),
        stacks=len({each.stack for each in repeated}),
        loop=_loop_of(module.name, repeated[0].stack) if repeated else "",
    )


def _loop_of(module: str, stack: tuple[str, ...]) -> str:
    """Where the innermost loop begins that these frames are in: file.py:12. Empty: there is none, or nobody knows."""
    places = [(source, place_of(source)) for source in stack]
    ends = [i for i, (_, place) in enumerate(places) if place and program_name(place.function) == module]
    # Frames further out are of who called the compiled function, in a loop or not.
    for source, place in places[: ends[0] + 1] if ends else ():
        if place is not None and place.loop_line is not None:
            return f"{source.rpartition(':')[0]}:{place.loop_line}"
    return ""
