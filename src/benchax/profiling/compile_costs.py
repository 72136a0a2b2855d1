"""The time to trace, lower and compile each function, and the passes of XLA that took longest.

The times come from the marks that `program_recorder.py` leaves for each event of `jax.monitoring`. They include
compilations before the recording. The trace has passes only for compilations during the recording. A pass belongs to
the function that was compiling when it ran. If two threads compile at once, it belongs to both functions.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchax.profiling.compiled_modules import CompiledModule, ModuleInstruction
from benchax.profiling.events import Space, TraceLine
from benchax.profiling.marks import PS_PER_US, program_name, read_compile_marks, user_line
from benchax.profiling.runs import PS
from benchax.profiling.spans import self_times
from benchax.program import hlo
from benchax.results.profile import CompileCost, ProgramSize

# Finds the Python loop and the function around a line, in the text of the file.
#
# A traced program has no Python loops, and many instructions from one line do not prove a loop: `optax` makes hundreds
# in one call. The file shows the loop, if it is there and has not changed since.

MOST_BYTES = 4_000_000
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class PlaceInFile(NamedTuple):
    """The code around a line."""

    function: str
    """The innermost one; empty: it is of the module."""
    loop_line: int | None
    """Where the innermost loop of that function begins; None: the line is in none."""


def place_of(source: str) -> PlaceInFile | None:
    """Finds the code around file.py:12. Returns None if the file cannot be read."""
    file, _, line = source.rpartition(":")
    tree = _tree(file)
    if tree is None or not line.isdigit():
        return None
    function, loop = "", None
    node: ast.AST | None = tree
    while node is not None:
        if isinstance(node, _FUNCTIONS):
            function, loop = getattr(node, "name", "<lambda>"), None
        elif isinstance(node, _LOOPS) and _repeats(node, int(line)):
            loop = node.lineno
        # Of a function its body, without decorators and defaults.
        body = node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ast.iter_child_nodes(node)
        node = next((child for child in body if _holds(child, int(line))), None)
    return PlaceInFile(function, loop)


def _repeats(loop: ast.AST, line: int) -> bool:
    """Returns whether a loop repeats a line. A loop computes its iterable only once."""
    if not isinstance(loop, ast.For | ast.While):
        return True
    once = [*loop.orelse, *([loop.iter] if isinstance(loop, ast.For) else [])]
    return any(_holds(part, line) for part in loop.body) or not any(_holds(part, line) for part in once)


def _holds(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if first is None or last is None:  # as arguments and aliases: what is in them may hold it
        return any(_holds(child, line) for child in ast.iter_child_nodes(node))
    return first <= line <= last


@lru_cache(maxsize=200)
def _tree(file: str) -> ast.Module | None:
    try:
        path = Path(file)
        return ast.parse(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else None
    except (OSError, SyntaxError, ValueError):  # not there, or none of Python
        return None


# Finds the size of a compiled program, and the line that it repeats most: both make compiling long.
#
# XLA takes time for each instruction. A Python loop is unrolled into the program, and a function is inlined at each
# call. In both cases many instructions come from one line. The user's frames of these instructions differ for an
# inlined function. They are equal for a loop, but also for one call that makes hundreds of instructions, such as an
# optimizer's update. So a loop is reported only if the file has one inside the compiled function: around the line, or
# around the call that leads there.

_SMALL = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
"""They cost next to nothing to compile."""


def program_size(modules: Iterable[CompiledModule]) -> ProgramSize | None:
    """Returns the size of the largest of several programs with one name, or None if there is no program."""
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
    """Returns where the innermost loop around these frames begins: file.py:12. Empty if there is no loop, or if it is
    unknown."""
    places = [(source, place_of(source)) for source in stack]
    ends = [i for i, (_, place) in enumerate(places) if place and program_name(place.function) == module]
    # Frames further out are of who called the compiled function, in a loop or not.
    for source, place in places[: ends[0] + 1] if ends else ():
        if place is not None and place.loop_line is not None:
            return f"{source.rpartition(':')[0]}:{place.loop_line}"
    return ""


MOST_PASSES = 3


def compile_costs(space: Space, passes: set[str], known: Iterable[CompiledModule] = ()) -> tuple[CompileCost, ...]:
    """Most seconds first; empty where the trace has no marks.

    Args:
        passes: the names of XLA's passes, as `trace.compile_passes` found them.
        known: the programs that the trace carries.
    """
    modules: dict[str, list[CompiledModule]] = {}
    for module in known:
        modules.setdefault(program_name(module.name), []).append(module)
    spent: dict[str, Counter[str]] = {}
    calls, where = Counter[str](), dict[str, str]()
    spans: dict[str, list[tuple[int, int]]] = {}
    for mark in read_compile_marks(space):
        name = mark.program
        spent.setdefault(name, Counter())[mark.kind] += mark.elapsed_us
        if mark.kind == "compile":
            calls[name] += 1
            where[name] = user_line(mark.stack) or where.get(name, "")
            if not mark.is_before:
                spans.setdefault(name, []).append((mark.end_ps - mark.elapsed_us * PS_PER_US, mark.end_ps))
    found = [
        CompileCost(
            name,
            where.get(name, ""),
            calls[name],
            kinds["trace"] / 1e6,
            kinds["lower"] / 1e6,
            kinds["compile"] / 1e6,
            _passes(space.host_lines, spans.get(name, []), passes),
            program_size(modules.get(name, ())),
        )
        for name, kinds in spent.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.total_s))


def _passes(lines: list[TraceLine], spans: list[tuple[int, int]], passes: set[str]) -> tuple[tuple[str, float], ...]:
    """Those that took longest, without what ran inside of them."""
    lasted = Counter[str]()
    for line in lines if spans else []:
        ids = {i: short for i, name in line.names.items() if (short := name.partition(" (")[0]) in passes}
        at = np.flatnonzero(np.isin(line.name_id, list(ids)))
        start, length = line.start_ps[at], line.duration_ps[at]
        order = np.lexsort((-length, start))
        at, start, length = at[order], start[order], length[order]
        own, _ = self_times([0] * len(at), start.tolist(), (start + length).tolist())
        for begin, end in spans:
            first, last = np.searchsorted(start, [begin, end])
            for i in range(int(first), int(last)):
                lasted[ids[int(line.name_id[at[i]])]] += own[i]
    return tuple((name, ps / PS) for name, ps in lasted.most_common(MOST_PASSES))
