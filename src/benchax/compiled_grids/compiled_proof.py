"""Proves that a compiled grid times the work of its functions: it counts their operations in both programs.

In the optimised program of the grid, the runs of each function are in a separate loop, under a name (`scope_of`). The
operations in it are compared with those of the function compiled alone (`program/census.py`), as in the timers
(`measuring/timers/regions.py`). If they disagree, there is no time. The proof costs a compilation of each function. It
only works if the grid is called from Python: within the user's `jax.jit`, its final program is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from benchax.clock.selftest import tier
from benchax.compiled_grids.compiled_functions import Leaves, Traced
from benchax.errors import NotMeasured
from benchax.measuring.timers.regions import explain
from benchax.program import census, hlo
from benchax.program.hlo import Module


def scope_of(k: int) -> str:
    """The name of the runs of function `k` in the program."""
    return f"benchax_runs_{k}"


def prove(text: str, functions: Sequence[Traced], inputs: Leaves) -> tuple[str, ...]:
    """For each function why its time cannot be believed; empty if the timed work is its own.

    Args:
        text: the optimised program of the grid.
        inputs: the leaves of the data, or their shapes.
    """
    module = hlo.parse(text)
    return tuple("" if each.refused else _disprove(module, k, each, inputs) for k, each in enumerate(functions))


def _disprove(module: Module, k: int, function: Traced, inputs: Leaves) -> str:
    region = census.timed_body(module, tier().target("stamp"), scope_of(k))
    if region is None:
        return "its work cannot be found in the optimised program of the grid"
    try:
        difference = census.compare(census.take_census(module, region), _census_alone(function, inputs))
    except NotMeasured as error:
        return error.problem
    return "" if difference.is_same else explain(difference)


def _census_alone(function: Traced, inputs: Leaves) -> census.Tally:
    try:
        compiled = jax.jit(lambda *leaves: function.run(list(leaves))).lower(*inputs).compile()
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise NotMeasured(f"it does not compile alone ({type(error).__name__}: {first_line})") from error
    return census.take_census(hlo.parse(compiled.as_text() or ""))
