"""What the threads of the host say: steps that the program marked, and what the compiler did, pass by pass."""

from __future__ import annotations

import re

import numpy as np

from benchax.profiling.nesting import self_times
from benchax.profiling.operations import HOST
from benchax.profiling.space import Space, TraceLine
from benchax.results.profile import CompilePass, Step

PS = 1e12
_COMPILES = re.compile(r".*Client::Compile(AndLoad)?|.*Compiler::Compile|XlaCompile|TfrtCpuClient::Compile")
_OF_MODULE = re.compile(r" \(.*\)$", re.DOTALL)


def steps(space: Space) -> tuple[Step, ...]:
    """Marked by `jax.profiler.StepTraceAnnotation`, in order."""
    found: list[Step] = []
    for line in _threads(space):
        number, has_number = line.number("step_num")
        _, is_root = line.number("_r")
        for i in np.flatnonzero(has_number & is_root).tolist():
            name = line.names.get(int(line.name_id[i]), "")
            start, length = int(line.start_ps[i]) / PS, int(line.duration_ps[i]) / PS
            found.append(Step(name, int(number[i]), start, length))
    return tuple(sorted(found, key=lambda step: step.start_s))


def compile_passes(space: Space) -> tuple[float | None, tuple[CompilePass, ...]]:
    """(seconds inside the compiler, its passes with most self time first); (None, ()) where nothing was compiled.

    What the compiler does on other threads than the one that it was called on (code generation in parts) runs inside
    those seconds, and stands under the name of the call that waits for it.
    """
    calls: dict[str, int] = {}
    own_ps: dict[str, int] = {}
    total_ps: int | None = None
    for line in _threads(space):
        compiles = [i for i, name in line.names.items() if _COMPILES.fullmatch(name)]
        if not np.isin(line.name_id, compiles).any():
            continue
        order = np.lexsort((-line.duration_ps, line.start_ps))
        order = order[line.duration_ps[order] > 0]
        start, length = line.start_ps[order], line.duration_ps[order]
        own, _ = self_times([0] * len(order), start.tolist(), (start + length).tolist())
        reach = -1
        for name_id, a, d, self_ps in zip(
            line.name_id[order].tolist(), start.tolist(), length.tolist(), own, strict=True
        ):
            if a >= reach:
                if name_id not in compiles:
                    continue
                reach = a + d
                total_ps = (total_ps or 0) + d
            name = _OF_MODULE.sub("", line.names.get(name_id, ""))
            calls[name] = calls.get(name, 0) + 1
            own_ps[name] = own_ps.get(name, 0) + self_ps
    if total_ps is None:
        return None, ()
    passes = [CompilePass(name, calls[name], own / PS) for name, own in own_ps.items()]
    return total_ps / PS, tuple(sorted(passes, key=lambda one: -one.self_s))


def _threads(space: Space) -> tuple[TraceLine, ...]:
    plane = space.plane(HOST)
    return tuple(line for line in plane.lines if len(line)) if plane else ()
