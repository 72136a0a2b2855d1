"""How many programs a jitted function needs for a list of calls, and what the first call with each costs.

In a worker, where the function is new. Each call is made twice: what the first takes beyond the second is lost to
tracing, lowering and compiling. Outputs of all ways to make a call are compared with those of the first way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any

import jax

from benchax.case import Case
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.prepare import Prepared, prepare
from benchax.model import Failure, Options
from benchax.numerics import compare
from benchax.program.cost import cost
from benchax.watching.watch import watch
from benchax.workers.call_limits import limits_of
from benchax.workers.pool import Pool
from benchax.workers.task import Say, task


@dataclass(frozen=True)
class CountedCall:
    """One call, as it went."""

    programs: int
    """That XLA was asked for, eager operations apart."""
    first_s: float
    again_s: float
    flops: float | None
    """By XLA's estimate; None: it does not say, or the program has loops, whose bodies it counts once."""
    disagreement: str = ""
    """With the first way's outputs, in a sentence."""

    @property
    def lost_s(self) -> float:
        return max(0.0, self.first_s - self.again_s)


@dataclass(frozen=True)
class Counted:
    """Calls of one function, or the reason why it has none."""

    calls: tuple[CountedCall, ...] = ()
    failure: Failure | None = None

    @property
    def programs(self) -> int:
        return sum(call.programs for call in self.calls)

    @property
    def lost_s(self) -> float:
        """In the calls that needed a program."""
        return sum(call.lost_s for call in self.calls if call.programs)

    @property
    def disagreement(self) -> str:
        return next((call.disagreement for call in self.calls if call.disagreement), "")


def count_ways(
    pool: Pool, ways: Mapping[str, Sequence[Case]], options: Options, tell: Callable[[str], None]
) -> dict[str, Counted]:
    """By way; the cases of one are calls of one jitted function, in order. The first way gives the right outputs."""
    name = next(iter(ways.values()))[0].id.label
    counted = pool.call(
        count_all,
        ({way: tuple(cases) for way, cases in ways.items()}, options.seed),
        limits_of(options),
        name=f"the calls of {name!r}",
        on_message=lambda message: tell(message["stage"]),
    )
    return {way: Counted(failure=counted) for way in ways} if isinstance(counted, Failure) else counted


# ---- in the worker ----------------------------------------------------------------------------------------------


@task
def count_all(argument: tuple[dict[str, tuple[Case, ...]], int], say: Say) -> dict[str, Counted]:
    ways, seed = argument
    found: dict[str, Counted] = {}
    right: list[Any] = []
    with without_cache():
        for way, cases in ways.items():
            say(f"calls, {way}")
            outputs: list[Any] = []
            try:
                # Its programs are what is counted: none of them is forgotten on the way.
                first = replace(prepare(cases[0], seed), forgets=False)
                calls = [_count_call(first.on_inputs_of(case, seed), outputs, right) for case in cases]
                found[way] = Counted(tuple(calls))
            except (Exception, SystemExit) as error:
                found[way] = Counted(failure=diagnose(error, "calls"))
            else:
                right = right or outputs
    return found


def _count_call(prepared: Prepared, outputs: list[Any], right: Sequence[Any]) -> CountedCall:
    program, inputs = prepared.program, prepared.inputs

    def call() -> tuple[Any, float]:
        begun = perf_counter_ns()
        result = jax.block_until_ready(program.call(*inputs.args, **inputs.kwargs))
        return result, (perf_counter_ns() - begun) / 1e9

    with watch() as watched:
        result, first_s = call()
    # The same call again, warm: what the first took beyond it was tracing, lowering and compiling.
    _, again_s = call()
    outputs.append(result)
    # What JAX compiles for operations outside of jit, and inside of another program, is none of the function's own.
    programs = sum(not c.is_eager and not c.is_nested for c in watched.compiles)
    flops = _flops(prepared) if programs else None
    wrong = _disagreement(result, right[len(outputs) - 1]) if right else ""
    return CountedCall(programs, first_s, again_s, flops, wrong)


def _flops(prepared: Prepared) -> float | None:
    compiled = prepared.built.compiled
    found = None if compiled is None else cost(compiled, prepared.hlo)
    return None if found is None or found.has_loops else found.flops


def _disagreement(result: Any, right: Any) -> str:
    return compare(_crop(result, right), right, against="baseline").why


def _crop(result: Any, right: Any) -> Any:
    """The part of each array that the right result has too: the rest is padding."""
    if jax.tree.structure(result) != jax.tree.structure(right):
        return result

    def part(leaf: Any, wanted: Any) -> Any:
        fits = getattr(leaf, "ndim", 0) == getattr(wanted, "ndim", 0)
        return leaf[tuple(slice(0, n) for n in wanted.shape)] if fits and getattr(leaf, "ndim", 0) else leaf

    return jax.tree.map(part, result, right)
