"""The work of the operations of a trace: FLOPs and bytes of a call, counted in the program that the trace carries.

The counts use the text of the optimised program, as everywhere in benchax (`program/counts.py`). If the trace shows the
operations inside a loop, the loop itself has no work. Its operations count call by call, so no trip count has to be
known.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Collection
from typing import Any

from benchax.profiling.compiled_modules import CompiledModule
from benchax.program import hlo_module
from benchax.program.counts import Adder, is_opaque
from benchax.program.instruction_work import Work
from benchax.program.trip_counts import find_loops

_HOMES = ("jaxlib._hlo", "jaxlib.xla_extension")
"""Where jaxlib has had HloModule: since 0.9 or so, and until 0.6 (tried: 0.10.2)."""
_OUTER = ("while", "conditional", "call")


def work_of_calls(module: CompiledModule, seen: Collection[str]) -> dict[str, Work]:
    """Name of an operation → the work of one call; only of those whose work is known.

    Args:
        seen: names of the operations of this program that the trace has.
    """
    text = _text_of(module.proto)
    if text is None:
        return {}
    parsed = hlo_module.parse(text)
    loops = find_loops(parsed)
    found: dict[str, Work] = {}
    names = set(seen)
    for computation in parsed.computations.values():
        for each in computation.instructions:
            if each.name not in names or is_opaque(each):
                continue
            if each.opcode in _OUTER and module.inside(module.instructions[each.name]) & names:
                found[each.name] = Work()
                continue
            adder = Adder(parsed, loops)  # one for each, for its restrictions
            work = adder.instruction(computation, each, is_fused=False)
            if not adder.restrictions:
                found[each.name] = work
    return found


def _text_of(proto: bytes) -> str | None:
    """A HloModuleProto as XLA prints it; None where this jaxlib has another way to it, or cannot read it."""
    for home in _HOMES:
        with contextlib.suppress(Exception):  # private: harmless, since what is not known is not shown
            reader: Any = importlib.import_module(home)
            return reader.HloModule.from_serialized_hlo_module_proto(proto).to_string()
    return None
