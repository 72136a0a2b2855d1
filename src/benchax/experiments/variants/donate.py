"""Donated arguments, whose memory outputs can reuse (`jax.jit(..., donate_argnums=...)`).

The variant donates the arguments with an array of the shape and dtype of an output that reuses no other array. Each
call gets copies, made before the clock starts. The compiled program shows which memory XLA really reused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import jax

from benchax.case import Case, Positions
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.functions import argument_name, plain
from benchax.experiments.parsing import arguments, find_argument
from benchax.experiments.study import Observation
from benchax.experiments.variant import ChangedCase
from benchax.inspecting.inspect import abstract_inputs
from benchax.measuring.inputs import Inputs
from benchax.measuring.prepare import Prepared
from benchax.measuring.program import program_of
from benchax.model import Comparison
from benchax.results.experiment import Facts
from benchax.units import size


@dataclass(frozen=True)
class Donate:
    name: str = "donate"
    title: str = "arguments donated, so that outputs reuse their memory"
    needs: str = ""
    held: frozenset[int | str] = frozenset()
    """Arguments that the caller needs afterwards: not to be chosen."""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        if not case.jit:
            raise NotAvailable("only a jitted function can donate its arguments")
        unjitted = plain(case, seed)
        if unjitted.donate:
            raise NotMeasured("it donates arguments as it is")
        # Shapes are all that it takes: nothing is allocated to choose.
        inputs = abstract_inputs(unjitted)
        chosen = _donatable(unjitted, inputs, self.held) if given is None else _parse_arguments(given, unjitted, inputs)
        names = tuple(argument_name(unjitted.fn, argument) for argument in chosen)
        return ChangedCase(replace(unjitted, donate=chosen), facts=lambda before, now, c: _facts(names, now, c))


def _parse_arguments(text: Any, case: Case, inputs: Inputs) -> Positions:
    """ "0,2" or "state", as their author calls them: positions, and names of arguments given by name.

    Raises:
        UsageError: an argument that is not there.
    """
    permitted = arguments(case, inputs)
    return tuple(dict.fromkeys(find_argument("donate", word, permitted) for word in str(text).split(",")))


def _donatable(case: Case, inputs: Inputs, held: frozenset[int | str]) -> Positions:
    """Returns the arguments that are not held and have an array of the shape and dtype of an output that no other array
    takes.

    Raises:
        NotAvailable: there is no such argument.
    """
    traced = Prepared(program_of(case), inputs).trace().reach_trace()
    free = Counter((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(traced.out_info))
    everything = [*enumerate(inputs.args), *inputs.kwargs.items()]
    left_out = {*inputs.static, *held}
    chosen = tuple(name for name, tree in everything if name not in left_out and _takes(tree, free))
    if not chosen and any(_takes(tree, free) for name, tree in everything if name in held):
        raise NotAvailable("the program still had what it could donate when it called the function again")
    if not chosen:
        raise NotAvailable(
            "no argument has an array of the shape and dtype of an output, so that no output could reuse one"
        )
    return chosen


def _takes(tree: Any, free: Counter[Any]) -> bool:
    arrays = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    wanted = Counter(
        (leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)) for leaf in arrays
    )
    taken = wanted & free
    # An output takes over one array only.
    free -= taken
    return bool(taken)


def _facts(names: tuple[str, ...], now: Observation, c: Comparison | None) -> Facts:
    reused = "" if now.plan.alias_bytes is None else f", of which outputs reuse {size(now.plan.alias_bytes)}"
    return (
        ("donated", ", ".join(names) + reused),
        ("fed", "a copy for each call, made before the clock starts"),
    )


MEMBERS = (Donate(),)
