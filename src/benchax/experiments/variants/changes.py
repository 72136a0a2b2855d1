"""Variants that change a case: jitted or not, in another precision, with other loops, with donated arguments.

bf16, f16, f32, f64 convert the float arrays among the inputs before the timing. So the function computes in that
precision unless it promotes to another one by itself. The variants default, tf32, high and highest ask XLA for a way to
multiply matrices. Devices without such ways ignore them; then the program is the same, and the row says so.

accumulate-f32 traces the function and runs it again operation by operation (`rewriting.py`). Products of bf16 or f16
are requested in float32 (`preferred_element_type`) and rounded once. Sums use float32, and a loop carries its running
sums in float32. The comparison shows whether it changes anything: some backends accumulate this way anyway.

mixed-bf16 and mixed-f16 are mixed precision (Micikevicius et al. 2018): products in bf16 or f16, and float32 for
everything else. Parameters, state, sums and the operations between the products stay unchanged. The operands of each
matrix product and convolution are rounded, and accumulated in float32. So a training step keeps its float32 weights,
and its gradients come out in float32. Unlike `bf16`, which converts the inputs, it does not lose an optimizer's small
updates. f16 has no room for small gradients (below 6e-8 they are 0). If the function takes gradients during tracing
(`gradients.py`), the loss is first multiplied by a power of two, and the gradients are divided by it afterwards. In
contrast, bf16 has the exponents of float32 and needs no scale. An option sets the scale: mixed-f16=1024; 1 switches it
off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from benchax.case import Case, Positions, make_case
from benchax.comparing.break_even import of_comparison
from benchax.comparing.sequential import Effort
from benchax.discovery import literal
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments.functions import (
    argument_name,
    arguments,
    converted,
    every_argument,
    find_arguments,
    is_float,
    wrapper,
)
from benchax.experiments.lab import BASELINE, ChangedCase, Observation, WorkerLab, always
from benchax.experiments.rewriting import (
    LOW,
    PRODUCTS,
    Change,
    find_running_sums,
    hoist,
    inner_program,
    rewritten,
    run_wide,
    split_scan,
    with_parameters,
)
from benchax.experiments.variant import Asked, Measure, Ways, compare_ways, measure_ways
from benchax.experiments.variants.gradients import Loss, takes_gradients, with_gradients
from benchax.inspecting.inspect import abstract_inputs
from benchax.keywords import guard_keywords
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.measuring.prepare import Prepared
from benchax.measuring.program import program_of
from benchax.model import Comparison
from benchax.numerics import tolerance
from benchax.options import resolve
from benchax.program.evaluate import bind
from benchax.program.index import index
from benchax.program.jaxpr import every_equation
from benchax.progress import Progress, show_progress
from benchax.results.experiment import Experiment, Facts
from benchax.specs import long_dtype
from benchax.units import count, number, plural, read_duration, size
from benchax.wrappers import name_of

# ---- jitted or not: from how many calls on compiling pays -----------------------------------------------------------


def jit(asked: Asked) -> ChangedCase:
    case = asked.case
    if case.jit:
        raise NotMeasured("it is already jitted; the variant eager shows what that gains")
    jitted = replace(case, jit=True, id=replace(case.id, variant=""))
    return ChangedCase(jitted, facts=lambda eager, jitted, c: _break_even(jitted.build_s, c, is_eager_first=True))


def eager(asked: Asked) -> ChangedCase:
    if not asked.case.jit:
        raise NotMeasured("it is not jitted; the variant jit shows what that would gain")
    return ChangedCase(
        replace(asked.plain, jit=False, donate=()),
        facts=lambda jitted, eager, c: _break_even(jitted.build_s, c, is_eager_first=False),
    )


def _break_even(build_s: float | None, c: Comparison | None, *, is_eager_first: bool) -> Facts:
    if c is None or build_s is None:
        return ()
    found = of_comparison(build_s, c, is_eager_baseline=is_eager_first)
    return () if found is None else (("break-even", str(found)),)


# ---- precision ------------------------------------------------------------------------------------------------------

SUMS = ("reduce_sum", "cumsum")
USUAL_SCALE = 2**10
"""Far below 65,504, above which f16 has no numbers, for a loss of some units."""
LARGEST_SCALE = 2**24
"""With it, gradients of 0.004 are infinite in f16."""


def convert(asked: Asked) -> ChangedCase:
    """Float inputs in the short dtype that the variant is named after."""
    short = asked.variant.name
    dtype = long_dtype(short)
    floats = [leaf for leaf in asked.inputs.data if is_float(leaf)]
    if not floats:
        raise NotAvailable("no input is a float array")
    if all(leaf.dtype == dtype for leaf in floats):
        raise NotMeasured(f"all float inputs are already {short}")
    return ChangedCase(
        replace(asked.plain, inputs=partial(converted, asked.plain, asked.seed, dtype)),
        tolerance=tolerance(dtype),
        facts=lambda before, now, c: (("inputs", now.signature), ("outputs", now.outputs)),
        settings={"jax_enable_x64": True} if short == "f64" else {},
        rounds_to=dtype,
    )


def multiply(asked: Asked) -> ChangedCase:
    """Matrix products in the precision that the variant is named after, as `jax.default_matmul_precision` has them."""
    name = asked.variant.name
    # The coarsest dtype that it permits on any device.
    dtype = "float32" if name == "highest" else "bfloat16"
    fn = _with_precision(asked.plain.fn, precision={"tf32": "tensorfloat32"}.get(name, name))
    return ChangedCase(replace(asked.plain, fn=fn), tolerance=tolerance(dtype))


@wrapper
def _with_precision(fn: Callable[..., Any], args: Any, kwargs: Any, precision: str) -> Any:
    """Only while it is traced: it is part of the program then."""
    with jax.default_matmul_precision(precision):
        return fn(*args, **kwargs)


def accumulate_f32(asked: Asked) -> ChangedCase:
    """Products, sums and running sums of low precision in float32, loops and branches included."""
    reached = sum(_is_low(eqn) + len(find_running_sums(eqn)) for eqn in every_equation(asked.program))
    if not reached:
        raise NotAvailable("it has no product and no sum of bf16 or f16")
    fn = rewritten(asked.plain.fn, change=_widen, enters_loops=True)
    return ChangedCase(
        replace(asked.plain, fn=fn), facts=lambda before, now, c: _describe_widening(reached, before, now)
    )


def _widen(eqn: Any, operands: list[Any]) -> list[Any]:
    if find_running_sums(eqn):
        return run_wide(eqn, operands)
    if not _is_low(eqn):
        return bind(eqn, operands)
    dtype = eqn.outvars[0].aval.dtype
    if eqn.primitive.name in SUMS:
        # Unlike products, sums have no parameter for the accumulation type.
        return [eqn.primitive.bind(operands[0].astype(jnp.float32), **eqn.params).astype(dtype)]
    return [_accumulate(eqn, operands).astype(dtype)]


def _accumulate(product: Any, operands: list[Any]) -> Any:
    """A product of these operands in float32."""
    params = {**product.params, "preferred_element_type": jnp.dtype(jnp.float32)}
    return product.primitive.bind(*operands, **params)


def _is_low(eqn: Any) -> bool:
    name, out = eqn.primitive.name, eqn.outvars[0].aval if eqn.outvars else None
    return name in (*PRODUCTS, *SUMS) and str(getattr(out, "dtype", "")) in LOW


def _describe_widening(reached: int, before: Observation, now: Observation) -> Facts:
    facts = [("changed", f"{reached} products and sums")]
    if before.errors and now.errors and None not in (before.errors.median_rel, now.errors.median_rel):
        one, other = (number(e.median_rel or 0.0, 2) for e in (before.errors, now.errors))
        facts.append(("median error", f"{one} before, {other} now"))
    return tuple(facts)


def mix(asked: Asked) -> ChangedCase:
    """Products of float32 in the short dtype of 16 bits that the variant is named after."""
    dtype = long_dtype(asked.variant.name.removeprefix("mixed-"))
    scale = _read_scale(asked) if dtype == "float16" else 1
    if dtype != "float16" and asked.given is not None:
        raise UsageError(asked.text, "nothing")
    reached = sum(map(_is_product, every_equation(asked.program)))
    if not reached:
        raise NotAvailable("it has no matrix product and no convolution in float32")
    fn, facts = asked.plain.fn, [("changed", f"{reached} products, accumulated in float32, and nothing else")]
    if scale > 1 and takes_gradients(fn, asked.inputs):
        fn = with_gradients(fn, change=partial(_scale_loss, scale))
        facts.append(("loss scale", str(scale)))

    def describe(before: Observation, now: Observation, c: Comparison | None) -> Facts:
        return (*facts, ("outputs", now.outputs)) if now.outputs != before.outputs else tuple(facts)

    return ChangedCase(
        replace(asked.plain, fn=rewritten(fn, change=partial(_round_products, dtype), enters_loops=True)),
        tolerance=tolerance(dtype),
        facts=describe,
        rounds_to=dtype,
    )


def _read_scale(asked: Asked) -> int:
    expected = f"a power of two up to {LARGEST_SCALE}: the loss scale, 1 for none"
    scale = asked.number(USUAL_SCALE, expected, most=LARGEST_SCALE)
    if scale & (scale - 1):
        raise UsageError(asked.text, expected)
    return scale


def _is_product(equation: Any) -> bool:
    operands = [getattr(v.aval, "dtype", None) for v in equation.invars]
    return equation.primitive.name in PRODUCTS and all(dtype == jnp.float32 for dtype in operands)


def _round_products(dtype: str, equation: Any, operands: list[Any]) -> list[Any]:
    """A change for `rewritten`: the operands of products in `dtype`."""
    if not _is_product(equation):
        return bind(equation, operands)
    return [_accumulate(equation, [each.astype(dtype) for each in operands])]


def _scale_loss(scale: int, loss: Loss, take: Callable[[Loss], Any]) -> Any:
    """Value and gradient by way of a loss that is `scale` times as large."""

    def scaled(*args: Any, **kwargs: Any) -> Any:
        found = loss(*args, **kwargs)
        # With has_aux there are two results; the first is the loss.
        return (found[0] * scale, *found[1:]) if isinstance(found, tuple) else found * scale

    take_both = take(scaled)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradient = take_both(*args, **kwargs)
        value = (value[0] / scale, *value[1:]) if isinstance(value, tuple) else value / scale
        return value, jax.tree.map(lambda leaf: leaf / scale, gradient)

    return value_and_gradient


# ---- loops of `jax.lax.scan` (and `fori_loop`, which is one where its length is known) -------------------------------

NO_SCAN = "it has no loop of scan, or of fori_loop of a known length"


def unroll(asked: Asked) -> ChangedCase:
    """Some iterations written out."""
    n = asked.number(4, "a number of iterations above 1, such as 4", least=2)
    lengths = [scan.params["length"] for scan in _scans(asked) if scan.params["length"] > 1]
    if not lengths:
        raise NotMeasured(NO_SCAN)
    longest = max(lengths)
    together = min(n, longest)
    what = f"{together} at a time, in {plural(len(lengths), 'loop')}; the longest has {count(longest)}"
    return _rewrite(asked, partial(with_parameters, {"scan": {"unroll": together}}), what)


def hoist_products(asked: Asked) -> ChangedCase:
    """Computes parts that need no carry before the loop."""
    if asked.given is not None:
        raise UsageError(asked.text, "nothing: benchax finds what can be hoisted")
    scans = _scans(asked)
    if not scans:
        raise NotMeasured(NO_SCAN)
    taken = sum(parts[-1] for parts in map(split_scan, scans) if parts is not None)
    if not taken:
        raise NotAvailable("each product in its loops needs a result of the iteration before")
    return _rewrite(asked, hoist, f"{plural(taken, 'product')} of each iteration")


def _rewrite(asked: Asked, change: Change, what: str) -> ChangedCase:
    fn = rewritten(asked.plain.fn, change=change)
    return ChangedCase(replace(asked.plain, fn=fn), facts=always((asked.variant.name, what)))


def _scans(asked: Asked) -> list[Any]:
    """The outermost loops; what is in them is not changed."""
    scans = (op for op in index(asked.program).body.ops if op.name == "scan")
    return [op.equation for op in scans if all(map(inner_program, op.calls))]


# ---- donated arguments, whose memory outputs can reuse (`jax.jit(..., donate_argnums=...)`) --------------------------


def donate(asked: Asked, held: frozenset[int | str] = frozenset()) -> ChangedCase:
    """Donates the arguments with an array of the shape and dtype of an output that reuses no other array. Each call
    gets copies, made before the clock starts. The compiled program shows which memory XLA really reused.

    Args:
        held: arguments that the caller needs afterwards: not to be chosen.
    """
    case = asked.plain
    if case.donate:
        raise NotMeasured("it already donates arguments")
    # Shapes are enough to choose, so nothing is allocated.
    inputs = abstract_inputs(case)
    if asked.given is None:
        chosen = _donatable(case, inputs, held)
    else:
        chosen = find_arguments(asked.variant.name, asked.words(), arguments(case, inputs))
    names = ", ".join(argument_name(case.fn, argument) for argument in chosen)

    def describe(before: Observation, now: Observation, c: Comparison | None) -> Facts:
        reused = "" if now.plan.alias_bytes is None else f"; outputs reuse {size(now.plan.alias_bytes)} of them"
        return ("donated", names + reused), ("copies", "one for each call, made before timing")

    return ChangedCase(replace(case, donate=chosen), facts=describe)


def _donatable(case: Case, inputs: Inputs, held: frozenset[int | str]) -> Positions:
    """Returns the arguments that are not held and have an array of the shape and dtype of an output that no other array
    takes.

    Raises:
        NotAvailable: there is no such argument.
    """
    traced = Prepared(program_of(case), inputs).trace().reach_trace()
    free = Counter((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(traced.out_info))
    everything = every_argument(inputs)
    left_out = {*inputs.static, *held}
    chosen = tuple(name for name, tree in everything.items() if name not in left_out and _takes(tree, free))
    if not chosen and any(_takes(tree, free) for name, tree in everything.items() if name in held):
        raise NotAvailable("the program used every argument again that it could donate")
    if not chosen:
        raise NotAvailable("no argument has an array of the shape and dtype of an output, so no output could reuse one")
    return chosen


def _takes(tree: Any, free: Counter[Any]) -> bool:
    arrays = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    wanted = Counter(
        (leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)) for leaf in arrays
    )
    taken = wanted & free
    # An output can reuse only one array.
    free -= taken
    return bool(taken)


# ---- a loop in five ways: Python, Python with a jitted body, a loop of XLA, unrolled, scan --------------------------
#
# A Python loop cannot be rewritten by looking at it: its body is given as a function, `step(i, state)`, to the variant
# `loop`, or to `benchax.experiments.loops`. Each form is compared with the plain Python loop.
#
#     loop=50                     iterations
#     loop=model.py:unfinished    as long as unfinished(state) is true


MOST_UNROLLED = 1000
"""1000 iterations of two operations take 0.9 s to build (jaxlib 0.12.0, CPU, two busy cores)."""
LoopBody = Callable[[Any, Any], Any]
Condition = Callable[[Any], Any]

PLAIN = "a Python loop, operation by operation"
TRIP_COUNT = "a trip count from 1 up, or a condition of the state"
HOW_TO_GIVE = f"{TRIP_COUNT}: loop=50, loop=model.py:unfinished"


@dataclass(frozen=True, eq=False)
class WrittenLoop:
    """A loop in one of the `LOOP_FORMS`; "python": the plain one."""

    step: LoopBody
    n: int | Condition
    form: str = "python"

    def __call__(self, state: Any) -> Any:
        step, n, form = self.step, self.n, self.form
        # While tracing, as for the run in float64, a Python loop becomes an XLA loop, so nothing is unrolled.
        if form in ("python", "inner-jit") and any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state)):
            form = "lax-loop"
        if form == "scan":
            return jax.lax.scan(lambda s, i: (step(i, s), None), state, jax.numpy.arange(n))[0]
        if form == "lax-loop" and callable(n):
            return jax.lax.while_loop(lambda s: n(s[1]), lambda s: (s[0] + 1, step(s[0], s[1])), (0, state))[1]
        if form == "lax-loop":
            return jax.lax.fori_loop(0, n, step, state)
        i = 0
        while n(state) if callable(n) else i < n:
            state = step(i, state)
            i += 1
        return state


LOOP_FORMS = {
    "inner-jit": "the Python loop with a jitted body",
    "lax-loop": "jitted as a whole: jax.lax.fori_loop or while_loop",
    "unrolled": "jitted as a whole: Python unrolls it while tracing",
    "scan": "jitted as a whole: jax.lax.scan",
}


def write_loop(form: str, case: Case, step: LoopBody, n: int | Condition) -> ChangedCase:
    """The loop of `case` in one of the `LOOP_FORMS`. Raises `NotAvailable` where it cannot be written so."""
    if callable(n) and form in ("unrolled", "scan"):
        raise NotAvailable("the trip count is not known while tracing")
    if form == "unrolled" and not callable(n) and n > MOST_UNROLLED:
        raise NotAvailable(f"more than {MOST_UNROLLED} iterations are not unrolled here; it has {n}")
    changed = replace(case, fn=WrittenLoop(jax.jit(step) if form == "inner-jit" else step, n, form))
    if form != "inner-jit":
        changed = replace(changed, jit=True, id=replace(case.id, variant=""))
    return ChangedCase(changed)


def check_trip_count(said: str, n: Any, expected: str) -> int | Condition:
    """Raises `UsageError`, which begins with `said`, for what is neither a trip count nor a condition."""
    if callable(n) or (type(n) is int and n > 0):
        return n
    raise UsageError(said, expected)


def measure_loops(asked: Asked) -> Measure:
    """The function is one iteration, step(i, state)."""
    case, n = asked.case, _trip_count(asked)
    _check_inputs(case, make_inputs(case, asked.seed))
    body = asked.plain  # a jitted one would be no loop "operation by operation"
    # Numbers become arrays, as in a loop of XLA.
    inputs = lambda: ((jax.tree.map(jnp.asarray, make_inputs(case, asked.seed).args[1]),), {})  # noqa: E731
    whole = replace(body, fn=WrittenLoop(body.fn, n), inputs=inputs, static=(), donate=(), jit=False)
    whole = replace(whole, id=replace(case.id, variant=""))
    count = f"while {name_of(n)}(state)" if callable(n) else plural(n, "iteration")
    ways = {f"loop:{form}": way for form, way in _ways(whole, body.fn, n).items()}
    return partial(measure_ways, "loop:python", f"{PLAIN}; {count}, i from 0 on", whole, ways)


def _ways(case: Case, step: LoopBody, n: int | Condition) -> Ways[ChangedCase]:
    return {form: (title, partial(write_loop, form, case, step, n)) for form, title in LOOP_FORMS.items()}


def _trip_count(asked: Asked) -> int | Condition:
    raw = asked.given
    if not isinstance(raw, str):
        return check_trip_count(asked.text, raw, HOW_TO_GIVE)
    if ":" not in raw:
        return check_trip_count(asked.text, literal(raw.strip()), HOW_TO_GIVE)
    named = asked.named_object(raw)
    return check_trip_count(f"{asked.text} names an object of the type {type(named).__name__}", named, HOW_TO_GIVE)


def _check_inputs(case: Case, inputs: Inputs) -> None:
    """Raises `UsageError` unless the inputs are those of step(i, state)."""
    if len(inputs.args) != 2 or inputs.kwargs or not _is_index(inputs.args[0]):
        raise UsageError(
            f"loop cannot take {case.id.label}({inputs.signature}) for one iteration",
            "two inputs by position, as of step(i, state): the number of the iteration, and the state",
            "benchax experiment model.py:step 0 f32[1000] --variants loop --given loop=50",
        )


def _is_index(i: Any) -> bool:
    is_scalar = isinstance(i, jax.Array) and not i.shape and jax.numpy.issubdtype(i.dtype, jax.numpy.integer)
    return is_scalar or type(i) is int


@guard_keywords()
def loops(
    step: LoopBody,
    init: Any,
    n: int | Condition,
    *,
    name: str | None = None,
    max_time_s: float | str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    progress: Progress = None,
) -> Experiment:
    """Measures a loop in five ways, each paired with the plain Python loop, and compares the results.

        state = init
        for i in range(n):
            state = step(i, state)

    Args:
        step: one iteration, of shapes and dtypes that stay as they are.
        init: the first state: arrays, pytrees, specs such as "f32[1024]".
        n: trip count, or a condition of the state: the loop goes on while `n(state)` is true. Then there is no
            scan, and nothing to unroll.
        max_time_s: begin no further process after this long; half of it is for confirming changes.
        timeout_s: of each stage in the worker processes.
        seed: of the data made from specs.
        progress: as for `bench`.

    Raises:
        UsageError: `step` or `n` is invalid.
    """
    if not callable(step):
        raise UsageError(f"step={step!r} cannot be called", "a function step(i, state) that returns the next state")
    n = check_trip_count(f"n={n!r}", n, TRIP_COUNT)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(WrittenLoop(step, n), (init,), name=name or name_of(step), jit=False)
    effort = Effort(max_time_s=read_duration("max_time_s", max_time_s))
    with show_progress(progress) as report:
        return measure_loop(case, step, n, WorkerLab(options, effort, report))


def measure_loop(case: Case, step: LoopBody, n: int | Condition, lab: WorkerLab) -> Experiment:
    """The loop of `case`, in Python, and its other forms, compared with it."""
    return compare_ways(BASELINE, PLAIN, case, _ways(case, step, n), lab)[0]
