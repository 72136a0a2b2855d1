"""Runs a traced function with loops that look at the clock: an interpreter of jaxprs, which is itself traced.

Only loops that can take long, and the operations that hold them, are interpreted; everything else is bound as it was.
Calls (`jit`, custom derivatives, `remat`) are inlined, as XLA inlines them. Scans are unrolled as JAX unrolls them. XLA
contracts a multiplication and an addition in one iteration, so other iterations would give other numbers.

A loop becomes an outer loop of strips, each of up to B iterations without a look. After a strip, `tick` (see
`handlers.c`) reads the clock, says whether the time is up, and chooses the next B. So a look costs little and a stop
comes within about a millisecond. The loops compute the same values as `jax.lax`, in the same order. A scan writes its
rows in place, so that finished rows survive; the others are zero.

A flag (bool[]) says whether the time was up at the last look. It is carried through all loops that hold others, so that
these stop too. If the program ends by itself (`must_raise`), it stays False.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.interpreters import partial_eval

from benchax.clock import handlers
from benchax.clock.handlers import Tier
from benchax.program.evaluate import bind, interpret
from benchax.program.jaxpr import every_equation, names, open_program, programs_of, solve_operands, split_operands

Arrays = list[Any]
LONGEST = 1 << 12
"""First strip: the estimate is rough."""


@dataclass(frozen=True)
class Guard:
    """The limit and the clock that a rewritten program looks at."""

    tier: Tier
    until: jax.Array
    must_raise: bool = False

    @property
    def costs(self) -> Costs:
        return GPU if self.tier.name == "cuda" else CPU

    def tick(self, state: Any, after: Any, flag: Any) -> tuple[Any, Any]:
        """(state, flag) after a look at the clock."""
        state, is_expired = handlers.tick(self.tier, self.until, state, after, must_raise=self.must_raise)
        return state, flag if self.must_raise else flag | is_expired


# ---- equations --------------------------------------------------------------------------------------------------


Rule = Callable[[Any, Arrays, Any, Guard], tuple[Arrays, Any]]
"""(equation, its operands, flag, guard) to (its results, flag)."""


def run(program: Any, arguments: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    """(outputs of the program, whether the time was up at the last look)."""

    def apply(eqn: Any, operands: Arrays) -> Arrays:
        nonlocal flag
        if not is_checked(eqn, guard.costs):  # bound as it was, so that XLA fuses and rounds as it did
            return bind(eqn, operands)
        results, flag = RULES.get(eqn.primitive.name, _call)(eqn, operands, flag, guard)
        return results

    outputs = interpret(program, arguments, apply)
    return outputs, flag


def _call(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    return run(programs_of(eqn)[0], operands, flag, guard)


def _remat(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    prevent = eqn.params.get("prevent_cse")
    if eqn.params.get("differentiated") and (any(prevent) if isinstance(prevent, tuple) else prevent):
        # As JAX lowers it. Without this, XLA would merge the two equal computations and keep the values that should be
        # recomputed.
        operands = lax.optimization_barrier(operands)
    return _call(eqn, operands, flag, guard)


def _linear_solve(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    return _call(eqn, solve_operands(eqn, operands), flag, guard)


def _cond(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    index, *operands = operands
    branches = [lambda flag, operands, p=p: run(p, operands, flag, guard) for p in programs_of(eqn)]
    return lax.switch(index.astype(jnp.int32), branches, flag, operands)


def _while(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    condition_consts = operands[: eqn.params["cond_nconsts"]]
    body_consts, carry, _ = split_operands(eqn, operands)
    condition_program, body_program = programs_of(eqn)  # in the order of `program.jaxpr.PROGRAMS`
    # One bool for each lane of a vmapped loop.
    shape = open_program(condition_program)[0].outvars[0].aval.shape

    def condition(carry: Arrays, flag: Any) -> tuple[Any, Any]:
        (goes_on,), flag = run(condition_program, [*condition_consts, *carry], flag, guard)
        return goes_on, flag

    def body(running: Callable[[Arrays, Any], Any], carry: Arrays, flag: Any) -> tuple[Arrays, Any]:
        new, flag = run(body_program, [*body_consts, *carry], flag, guard)
        if not shape:
            return new, flag
        # Finished lanes keep their values.
        lanes = running(carry, flag)
        kept = [lax.broadcast_in_dim(lanes, a.shape, range(lanes.ndim)) for a in new]
        return [lax.select(*each) for each in zip(kept, new, carry, strict=True)], flag

    if not has_checked(condition_program, guard.costs):
        of_carry = lambda carry, flag: condition(carry, flag)[0]  # noqa: E731
        return in_strips(of_carry, partial(body, of_carry), carry, flag, eqn, guard)

    def apart(carry: Arrays, flag: Any) -> tuple[Any, Any]:
        # In a separate branch: otherwise XLA would fuse it with the body, which would change the rounding. XLA does not
        # know that the branch is always taken.
        never = lambda carry, flag: (jnp.zeros(shape, bool), flag)  # noqa: E731
        return lax.cond(jnp.any(guard.until > 0), condition, never, carry, flag)

    def step(state: Any, flag: Any) -> tuple[Any, Any]:
        running, carry = state
        carry, flag = body(lambda carry, flag: running, carry, flag)
        running, flag = apart(carry, flag)
        return (running, carry), flag

    # A condition with loops to stop is computed after the body, so that its flag can be carried.
    running, flag = apart(carry, flag)
    (_, carry), flag = in_strips(lambda state, flag: state[0], step, (running, carry), flag, eqn, guard)
    return carry, flag


def _scan(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    """A loop that writes over the ys row by row, so that those of finished iterations survive."""
    consts, carry, xs = split_operands(eqn, operands)
    (program,) = programs_of(eqn)
    rows = [v.aval for v in open_program(program)[0].outvars[len(carry) :]]
    length, reverse, unroll = (eqn.params[name] for name in ("length", "reverse", "unroll"))

    def step(state: Arrays, x: Arrays) -> tuple[Arrays, Arrays]:
        *carry, flag = state
        outputs, flag = run(program, [*consts, *carry, *x], flag, guard)
        return [*outputs[: len(carry)], flag], outputs[len(carry) :]

    def without_loop(state: Arrays, xs: Arrays, n: int) -> tuple[Arrays, Arrays]:
        return lax.scan(step, state, xs, n, reverse, unroll=n + 1)  # JAX makes no loop of fewer than it unrolls

    if _is_one_step(eqn):
        (*carry, flag), ys = lax.scan(step, [*carry, flag], xs, length, reverse, unroll)
        return [*carry, *ys], flag
    trips, rest = divmod(length, unroll)
    split = rest if reverse else length - rest
    parts = [lax.slice_in_dim(x, 0, split) for x in xs], [lax.slice_in_dim(x, split, length) for x in xs]
    looped, last = reversed(parts) if reverse else parts
    shape = (trips, unroll) if unroll > 1 else (trips,)
    looped = [lax.reshape(x, (*shape, *x.shape[1:])) for x in looped]

    def iteration(state: Any, flag: Any) -> Any:
        i, carry, ys = state
        at = trips - i - 1 if reverse else i
        x = [lax.dynamic_index_in_dim(x, at, keepdims=False, allow_negative_indices=False) for x in looped]
        before = [*carry, flag]
        (*carry, flag), y = step(before, x) if unroll == 1 else without_loop(before, x, unroll)
        pairs = zip(ys, y, strict=True)
        ys = [lax.dynamic_update_index_in_dim(*pair, at, 0, allow_negative_indices=False) for pair in pairs]
        return (i + 1, carry, ys), flag

    start = (jnp.int32(0), carry, [jnp.zeros((*shape, *row.shape), row.dtype) for row in rows])
    block = 1
    if not guard.tier.can_raise and not has_checked(program, guard.costs):
        # On a GPU the host reads the condition of a strip: not for each trip, where a trip is short.
        block = min(trips, _surely_short(eqn, guard, unroll))
    state = start
    if block > 1:
        blocks = lambda state, flag: lax.fori_loop(0, block, lambda _, each: iteration(*each), (state, flag))  # noqa: E731
        are_left = lambda state, flag: state[0] <= trips - block  # noqa: E731
        state, flag = in_strips(are_left, blocks, state, flag, eqn, guard, unroll * block)
    if trips % block or block == 1:
        goes_on = lambda state, flag: state[0] < trips  # noqa: E731
        state, flag = in_strips(goes_on, iteration, state, flag, eqn, guard, unroll)
    _, carry, ys = state
    ys = [lax.reshape(y, (length - rest, *row.shape)) for y, row in zip(ys, rows, strict=True)]
    if not rest:
        return [*carry, *ys], flag
    (*new, now), more = without_loop([*carry, flag], last, rest)
    if not guard.must_raise:  # behind a loop that was stopped they do not count
        new = [lax.select(flag, *pair) for pair in zip(carry, new, strict=True)]
        more = [lax.select(flag, jnp.zeros(y.shape, y.dtype), y) for y in more]
    pairs = zip(more, ys, strict=True) if reverse else zip(ys, more, strict=True)
    return [*new, *(lax.concatenate(pair, 0) for pair in pairs)], now


RULES: dict[str, Rule] = {
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    "remat": _remat,
    "remat2": _remat,
    "checkpoint": _remat,
}
"""For other primitives: `_call`."""


def in_strips(
    goes_on: Callable[[Any, Any], Any],
    step: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    flag: Any,
    eqn: Any,
    guard: Guard,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """`lax.while_loop` over (carry, flag), with a look at the clock after each strip of iterations.

    Args:
        goes_on: (carry, flag) to a bool[], or one bool per lane.
        step: (carry, flag) to (carry, flag).
        eqn: the loop, whose iterations are estimated, `unroll` of them in each step.
    """
    # Inside a strip, the flag changes only if other loops check the clock.
    is_nested = any(has_checked(program, guard.costs) for program in programs_of(eqn)) and not guard.must_raise

    def strip(state: Any) -> Any:
        _, flag, clock, carry = state
        length = clock[2].astype(jnp.int32)

        def is_on(inner: Any) -> Any:
            done, carry, flag = inner
            running = goes_on(carry, flag)
            is_unfinished = (done < length) & (running if running.ndim == 0 else jnp.any(running))
            return is_unfinished & ~flag if is_nested else is_unfinished

        begin = (jnp.int32(0), carry, flag)
        done, carry, flag = lax.while_loop(is_on, lambda inner: (inner[0] + 1, *step(*inner[1:])), begin)
        # The clock takes `done` only for the order: `done` is ready when the strip has ended.
        clock, flag = guard.tick(clock, done, flag)
        # A strip ends early because of the condition or the flag.
        return done == length, flag, clock, carry

    # Before the first look a strip is surely short.
    first = jnp.asarray([0, 0, _surely_short(eqn, guard, unroll)], jnp.uint32)
    _, flag, _, carry = lax.while_loop(lambda state: state[0] & ~state[1], strip, (jnp.bool_(True), flag, first, carry))
    return carry, flag


def _surely_short(eqn: Any, guard: Guard, unroll: int) -> int:
    """How many times `unroll` trips of a loop surely end in `Costs.short_ns`, at least 1."""
    step_ns = unroll * sum(program_ns(program, guard.costs) for program in programs_of(eqn))
    return max(1, min(LONGEST, int(guard.costs.short_ns / max(step_ns, 1.0))))


# ---- what equations cost ---------------------------------------------------------------------------------------------
#
# Examines a traced function: finds the loops that need a deadline, and the parts that no deadline can stop.
#
# Loops on several devices cannot be stopped: each device would stop at a different time, and wait for the others
# forever.
#
# A primitive that `program/jaxpr.py` does not know to run a program is left as it was, and named if it holds loops.
#
# The time of a loop is estimated for any CPU or GPU, rather too long than too short, to find loops that end soon.
# Looking at the clock in a loop of 3 µs would cost more than the loop. A loop that surely ends within `Costs.short_ns`
# stays unchanged. Any other loop first runs as many iterations as surely take no longer. Then it looks for the first
# time.


LOOPS = ("while", "scan")
OPAQUE = {"ffi_call", "pure_callback", "io_callback", "pallas_call", "custom_call"}
"""One step for XLA, of any length."""
SPREAD = names(
    "shard_map xla_pmap psum psum2 psum_invariant pmax pmin ppermute pbroadcast all_to_all all_gather"
    " all_gather_invariant reduce_scatter psum_scatter ragged_all_to_all"
)
"""Primitives of programs for several devices."""


@dataclass(frozen=True)
class Costs:
    """Nanoseconds, at most, of one operation, one element that it reads or writes, and a multiplication or addition in
    a matrix product."""

    operation_ns: float
    element_ns: float
    flop_ns: float
    short_ns: float
    """Short in comparison with how late a stop can be: 1 ms on a CPU, 5 ms on a GPU."""


CPU = Costs(10.0, 1.0, 0.25, 100_000.0)
GPU = Costs(5_000.0, 0.05, 0.001, 1_000_000.0)
"""Unverified: the launch of a kernel, 80 GB/s for numbers of 4 bytes, and 1 TFLOP/s."""
SLOW = 20
"""The factor on the time of an element, or of a FLOP. It holds for random bits, transcendental functions and indexing,
and for products of other types than f32 and f64."""

FAST = names(
    "broadcast_in_dim reshape squeeze transpose slice concatenate pad rev iota copy select_n convert_element_type"
    " dynamic_slice dynamic_update_slice split expand_dims bitcast_convert_type stop_gradient real imag complex stack"
    " unstack add sub mul div neg abs sign max min floor ceil round sqrt rsqrt square integer_pow is_finite clamp eq ne"
    " lt le gt ge and or xor not shift_left shift_right_logical shift_right_arithmetic conj reduce_sum reduce_max"
    " reduce_min reduce_prod reduce_and reduce_or reduce_xor"
)
"""Moves, arithmetic, and reductions."""
LINEAR_BUT_SLOW = names(
    "exp exp2 expm1 log log1p log2 sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2 pow cbrt rem"
    " logistic erf erfc erf_inv nextafter population_count clz argmax argmin reduce_precision gather scatter"
    " scatter-add scatter_add scatter-mul scatter_mul scatter-min scatter_min scatter-max random_bits random_seed"
    " random_split random_fold_in random_wrap random_unwrap random_clone threefry2x32"
)
"""Transcendental functions, indexing, and random numbers."""


def alive(program: Any) -> Any:
    """A closed program without what its outputs do not need: XLA would not run that, unless it looks at the clock."""
    # Not documented by JAX. If it is missing, such loops run without a deadline, and nothing else is wrong.
    remove = getattr(partial_eval, "dce_jaxpr", None)
    if remove is None:
        return program
    needed, _ = remove(program.jaxpr, [True] * len(program.jaxpr.outvars), instantiate=True)
    return type(program)(needed, program.consts)


def is_checked(eqn: Any, costs: Costs) -> bool:
    """Whether `eqn` is rewritten: it is a loop that may take long, or holds one."""
    if eqn.primitive.name in LOOPS and not _is_one_step(eqn):
        return _has_arrays_only(eqn) and equation_ns(eqn, costs) > costs.short_ns
    return any(has_checked(program, costs) for program in programs_of(eqn))


def _is_one_step(eqn: Any) -> bool:
    """Whether a scan is unrolled so that one trip at most remains: it counts as no loop, here as for XLA."""
    if eqn.primitive.name != "scan":
        return False
    length, unroll = eqn.params["length"], eqn.params["unroll"]
    return unroll == 0 or length < 2 * unroll


def has_checked(program: Any, costs: Costs) -> bool:
    return any(is_checked(eqn, costs) for eqn in open_program(program)[0].eqns)


def _has_arrays_only(eqn: Any) -> bool:
    """References (`jax.new_ref`) are changed in place; loops of ours cannot carry them."""
    return all(isinstance(v.aval, ShapedArray) for v in eqn.invars)


def is_spread(program: Any) -> bool:
    """Whether the program is one for several devices, as far as it says so itself."""
    return any(eqn.primitive.name in SPREAD or _devices(eqn) > 1 for eqn in every_equation(program))


def _devices(eqn: Any) -> int:
    """The number of devices that an equation asks for: `jit(in_shardings=…)`, `with_sharding_constraint`."""
    shardings = jax.tree.leaves([eqn.params.get(name) for name in ("sharding", "in_shardings", "out_shardings")])
    return max((s.num_devices for s in shardings if isinstance(s, jax.sharding.Sharding)), default=1)


def find_unchecked(program: Any) -> tuple[str, ...]:
    """The parts of a rewritten program that a deadline cannot stop: names of primitives, each once, sorted."""
    if is_spread(program):
        return tuple(sorted({*LOOPS, *OPAQUE, *SPREAD} & {eqn.primitive.name for eqn in every_equation(program)}))
    return tuple(sorted(set(_walk_unchecked(program))))


def _walk_unchecked(program: Any) -> Iterator[str]:
    for eqn in open_program(program)[0].eqns:
        name = eqn.primitive.name
        if name in OPAQUE:
            if not handlers.target_of(eqn).startswith("benchax_"):
                yield name
        elif name in LOOPS and not _has_arrays_only(eqn):
            yield f"{name} over references"
        elif programs := programs_of(eqn):
            for inside in programs:
                yield from _walk_unchecked(inside)
        elif any(
            e.primitive.name in {*LOOPS, *OPAQUE}
            for e in every_equation(open_program(program)[0].replace(eqns=[eqn]))
            if e is not eqn
        ):
            yield name


def program_ns(program: Any, costs: Costs) -> float:
    """About how long a program takes at most; infinite if unknown."""
    return sum(equation_ns(eqn, costs) for eqn in getattr(program, "jaxpr", program).eqns)


def equation_ns(eqn: Any, costs: Costs) -> float:
    name = eqn.primitive.name
    inside = [program_ns(program, costs) for program in programs_of(eqn)]
    if name == "scan":
        length = eqn.params["length"]
        return length * (costs.operation_ns + sum(inside)) if length else 0.0
    if name == "while":
        return math.inf
    if inside:
        return costs.operation_ns + (max(inside) if name == "cond" else sum(inside))
    if name == "dot_general":
        return costs.operation_ns + _elements(eqn) * costs.element_ns + _products(eqn) * costs.flop_ns
    if name in FAST:
        return costs.operation_ns + _elements(eqn) * costs.element_ns
    return costs.operation_ns + _elements(eqn) * costs.element_ns * SLOW if name in LINEAR_BUT_SLOW else math.inf


def _elements(eqn: Any) -> float:
    return float(sum(math.prod(getattr(v.aval, "shape", ())) for v in (*eqn.invars, *eqn.outvars)))


def _products(eqn: Any) -> float:
    """Operations of a matrix product, other types than f32 and f64 weighted by how much slower they can be."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left, out = eqn.invars[0].aval, eqn.outvars[0].aval
    flops = 2.0 * math.prod(out.shape) * math.prod(left.shape[axis] for axis in contracted)
    return flops if jax.dtypes.canonicalize_dtype(left.dtype) in (jnp.float32, jnp.float64) else flops * SLOW
