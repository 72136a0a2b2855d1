"""Checks, before any timing, that the compiled function computes the same as the eager one.

A benchmark without this check could time garbage: XLA:CPU of jaxlib 0.10.2 returns wrong numbers for some reductions of
a matmul by a constant-filled array. The reference is the same Python function, run operation by operation. On request,
the call evaluated in float64 is a reference, too. Both start from the same state. Values that they change in place are
compared in the same way as outputs.

Nearly equal results need no explanation, and cost no more than the comparison. For other results, `rounding_noise.py`
measures the effect of rounding on this call, and `rounding_verdicts.py` judges whether it explains the difference. The
result agrees, or it is wrong. Or it cannot be decided, because rounding alone changes the result as much.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.errors import NotMeasured
from benchax.measuring.jaxprs import Arrays, Evaluator, TracedCall, bind, is_inexact, trace_call, with_dtypes
from benchax.measuring.rounding_noise import SIGNS_ARE_FREE, Rounding, is_narrow
from benchax.measuring.rounding_verdicts import LeafVerdict, RoundingSpread, judge, judge_with_free_signs, quick_bound
from benchax.measuring.state import CallOutcome, Values, data_of
from benchax.measuring.timers.base import Ready, Subject
from benchax.measuring.verification_notes import Notes, Undecided
from benchax.model import Numerics
from benchax.numerics import Against, LeafComparison, compare_leaves, describe_nonfinite, tolerance, worst_of
from benchax.program.jaxpr import every_equation
from benchax.static_leaves import drop

# Evaluates a call in double precision, with the same random bits and the same integers.
#
# JAX's 64-bit mode would compute something else: it draws random numbers from 64 bits instead of 32, integer sums no
# longer wrap, and an `astype(float32)` in the function stays. So the call is traced unchanged. Its jaxpr is evaluated
# with every floating value in 64 bits and everything else as declared:
#
# - A conversion between floating types and `reduce_precision` do nothing. A conversion from integers gives doubles.
# - Some operations look at the bits of a float (`bitcast_convert_type`, which random numbers use), draw in its type
#   (`random_gamma`), or leave JAX (`pure_callback`). They take and return values of the declared type.
# - Kernels and foreign calls exist in one type only. They cannot be evaluated, and the result is not judged.

AS_DECLARED = ("bitcast_convert_type", "random_gamma", "pure_callback", "nextafter")
NOTHING = ("reduce_precision",)


def evaluate_wide(call: TracedCall) -> Any:
    """The outputs of `call` as a tree of NumPy arrays, with its floats in 64 bits; typed keys as they are.

    Raises:
        NotMeasured: an equation has no form in double precision.
    """
    with _x64():
        outputs = jax.block_until_ready(EVALUATOR.run(call))
        plain = [leaf if _is_key(leaf) else np.asarray(leaf) for leaf in outputs]
    return jax.tree.unflatten(call.out_tree, plain)


def _wide(dtype: Any) -> Any:
    if not is_inexact(dtype):
        return dtype
    return np.dtype(np.complex128 if jax.dtypes.issubdtype(dtype, np.complexfloating) else np.float64)


def _widened(value: Any) -> Any:
    if isinstance(value, float | complex):
        return np.asarray(value, _wide(np.asarray(value).dtype))
    dtype = getattr(value, "dtype", None)
    return value.astype(_wide(dtype)) if dtype is not None and is_inexact(dtype) else value


def _is_key(value: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(value, "dtype", np.int32), jax.dtypes.prng_key)


def _apply(equation: Any, operands: Arrays) -> Arrays:
    name = equation.primitive.name
    if name in NOTHING:
        return operands
    if name in AS_DECLARED:
        declared = [_as(value, v.aval.dtype) for value, v in zip(operands, equation.invars, strict=True)]
        return [_widened(result) for result in bind(equation, declared)]
    if not any(is_inexact(v.aval.dtype) for v in (*equation.invars, *equation.outvars)):
        return bind(equation, operands)
    return bind(equation, operands, with_dtypes(EVALUATOR.retrace(equation.params), _wide))


def _as(value: Any, dtype: Any) -> Any:
    return value.astype(dtype) if is_inexact(dtype) else value


EVALUATOR = Evaluator(_widened, _wide, _apply)


@contextlib.contextmanager
def _x64() -> Iterator[None]:
    """JAX's 64-bit mode for a while. `jax.enable_x64` since 0.8, in `jax.experimental` before."""
    module = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    with module.enable_x64(True):
        yield


RUNS, LEAST_RUNS = 8, 4
ENOUGH_S = 30.0
"""After this many seconds of runs, LEAST_RUNS of them are enough."""
_STATE = ".state["
"""Begins the path of what a call has changed, in an `CallOutcome`."""


def verify(
    subject: Subject, mode: str, reference: Callable[[], Any] | None = None, notes: Notes | None = None
) -> Numerics:
    """Compares the outputs of `subject` with those of its eager function.

    Args:
        mode: "eager", or "float64" for a second comparison, with the call evaluated in 64 bits.
        reference: gives the eager outputs, where they are known without another call.
        notes: filled in.

    Raises:
        NotMeasured: switched off, there is no eager function, it cannot be run, or not in float64, or nothing is
            returned.
        Undecided: the results differ by much, and rounding alone makes them differ by as much.
    """
    if mode == "off":
        raise NotMeasured("verification is switched off")
    if subject.program.kind == "eager":
        raise NotMeasured("it is the eager function that others are compared with")
    notes = Notes() if notes is None else notes
    expected = _expected(subject, reference, notes)
    if not jax.tree.leaves((subject.outputs, expected)):
        raise NotMeasured("it returns nothing, so there is nothing to check")
    notes.nonfinite = describe_nonfinite(subject.outputs)
    roundings = _Roundings(subject)
    found = _judged(subject.outputs, expected, "eager", roundings, notes)
    if mode != "float64" or not found.agrees:
        return found
    try:
        wide = evaluate_wide(roundings.call)
    except NotMeasured as error:
        raise NotMeasured(f"it cannot be evaluated in float64: {error.problem}") from error
    return _judged(subject.outputs, wide, "float64", roundings, notes, expected)


def _expected(subject: Subject, reference: Callable[[], Any] | None, notes: Notes) -> Any:
    """Returns the outputs of the eager call. For a stateful call, it also returns the eager state of the values that
    the compiled call changes.
    """
    # Outputs that are known say nothing of what a stateful call leaves in its arguments, so that one is run all the
    # same.
    if reference is not None and not subject.inputs.is_stateful:
        return subject.program.hide(reference())
    if subject.impure:
        raise NotMeasured(f"two traces of it differ, so that no other run of it is a reference: {subject.impure}")
    if subject.program.eager is None:
        raise NotMeasured("there is no eager function behind it to compare with")
    ready = subject.ready(subject.program.eager)
    outcome = ready.outcome(_run(ready))
    if not isinstance(outcome, CallOutcome):
        return outcome
    notes.dropped += _changed_besides(subject, ready)
    now = ready.state()
    return CallOutcome(outcome.outputs, {name: data_of(now[name]) for name in subject.outputs.state if name in now})


def _run(ready: Ready) -> Any:
    try:
        return jax.block_until_ready(ready())
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise NotMeasured(f"the eager call failed ({type(error).__name__}: {first_line})") from error


def _changed_besides(subject: Subject, ready: Ready) -> list[str]:
    """The values that the eager call has changed and the compiled one leaves unchanged."""
    before: Values = subject.inputs.parts.values
    now = {name: value for name, value in ready.state().items() if name not in subject.outputs.state}
    return [name for name, value in now.items() if name not in before or not _is_same(value, before[name])]


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    one, other = data_of(one), data_of(other)
    return np.array_equal(one, other, equal_nan=jnp.issubdtype(jnp.result_type(one), jnp.inexact))


class _Roundings:
    """The effects of rounding on a call; measured at the first request."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    @cached_property
    def call(self) -> TracedCall:
        return trace_call(self._subject)

    @cached_property
    def runs(self) -> list[list[Any]]:
        return self._by_chance(free_signs=False)

    @cached_property
    def runs_with_free_signs(self) -> list[list[Any]]:
        return self._by_chance(free_signs=True)

    @cached_property
    def directed(self) -> list[list[Any]]:
        """Rounded up and rounded down; only types of up to 16 bits can be."""
        narrow = any(is_narrow(getattr(v.aval, "dtype", np.int32)) for e in self._equations for v in e.outvars)
        return [Rounding(RUNS, direction).run(self.call) for direction in (1, -1)] if narrow else []

    @property
    def has_free_signs(self) -> bool:
        return any(equation.primitive.name in SIGNS_ARE_FREE for equation in self._equations)

    @property
    def _equations(self) -> list[Any]:
        return list(every_equation(self.call.program))

    def _by_chance(self, *, free_signs: bool) -> list[list[Any]]:
        found, begin = [], perf_counter_ns()
        for seed in range(RUNS):
            found.append(Rounding(seed, free_signs=free_signs).run(self.call))
            if len(found) >= LEAST_RUNS and perf_counter_ns() - begin > ENOUGH_S * 1e9:
                break
        return found


def _judged(
    outputs: Any, reference: Any, against: Against, roundings: _Roundings, notes: Notes, eager: Any = None
) -> Numerics:
    outputs, reference = drop(outputs), drop(reference)
    leaves = compare_leaves(outputs, reference, against=against, allowed=_quick)
    if isinstance(leaves, Numerics):
        return leaves
    doubtful = [i for i, leaf in enumerate(leaves) if not leaf.numerics.agrees and leaf.compiled is not None]
    if not doubtful:
        return worst_of(leaves, against)
    places = _places(outputs)
    try:
        verdicts = {i: _verdict(leaves[i], places[i], roundings, eager) for i in doubtful}
    except NotMeasured as error:
        return _without_operations(leaves, against, error)
    for i, verdict in verdicts.items():
        if verdict.state != "undecided":
            leaves[i] = _settled(leaves[i], verdict)
    undecided = [i for i, verdict in verdicts.items() if verdict.state == "undecided"]
    if undecided and all(leaf.numerics.agrees for i, leaf in enumerate(leaves) if i not in undecided):
        names = [leaves[i].numerics.worst for i in undecided]
        if all(name.startswith(_STATE) for name in names):
            # Adam divides a gradient by its size: of one that is zero but for rounding it makes a whole step.
            notes.undetermined += [name for name in names if name not in notes.undetermined]
            return worst_of([leaf for i, leaf in enumerate(leaves) if i not in undecided], against)
        name = names[0]
        what = f"leaf {name}" if name else "the output"
        raise Undecided(f"it cannot be told whether {what} is right: {verdicts[undecided[0]].why}")
    return worst_of([leaf for i, leaf in enumerate(leaves) if i not in undecided], against)


def _settled(leaf: LeafComparison, verdict: LeafVerdict) -> LeafComparison:
    if verdict.compiled is not None:
        leaf = leaf.turned(verdict.compiled)
    if verdict.state == "differs" and leaf.numerics.nonfinite:
        return leaf
    return leaf.within(verdict.allowed, agrees=verdict.state == "agrees", beyond=verdict.why)


def _quick(dtype: Any) -> float:
    return quick_bound(float(jnp.finfo(dtype).eps)) if jnp.issubdtype(dtype, np.inexact) else 0.0


def _places(outputs: Any) -> list[int]:
    """Returns, for each leaf, None among them, its place among the results of a traced program, which has no None."""
    found, n = [], 0
    for leaf in jax.tree.leaves(outputs, is_leaf=lambda x: x is None):
        found.append(n)
        n += leaf is not None
    return found


def _verdict(leaf: LeafComparison, place: int, roundings: _Roundings, eager: Any) -> LeafVerdict:
    own_error = None if eager is None else _plain(jax.tree.leaves(eager)[place])
    spread = _at(place, roundings.runs, roundings.directed)
    found = judge(leaf, spread, own_error)
    if found.state == "agrees" or not roundings.has_free_signs:
        return found
    free = _at(place, roundings.runs_with_free_signs, roundings.directed)
    return judge_with_free_signs(leaf, spread, free, own_error)


def _at(place: int, runs: Sequence[list[Any]], directed: Sequence[list[Any]]) -> RoundingSpread:
    if any(place >= len(run) for run in runs):
        raise NotMeasured("what is traced has other outputs than the call")
    return RoundingSpread(*([_plain(run[place]) for run in each] for each in (runs, directed)))


def _plain(leaf: Any) -> np.ndarray:
    is_key = jax.dtypes.issubdtype(getattr(leaf, "dtype", np.int32), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _without_operations(leaves: list[LeafComparison], against: Against, error: NotMeasured) -> Numerics:
    """Judges without rounding data: a result is wrong if fewer than half of the digits agree."""
    again = [_by_digits(leaf) for leaf in leaves]
    if all(leaf.numerics.agrees for leaf in again):
        far = max(leaf.numerics.max_rel or 0.0 for leaf in leaves)
        raise Undecided(
            f"it differs by {far:.1e} of the largest value, and what rounding does is not known: {error.problem}"
        )
    return worst_of(again, against)


def _by_digits(leaf: LeafComparison) -> LeafComparison:
    n = leaf.numerics
    if n.agrees or n.nonfinite or leaf.compiled is None or not n.tolerance or n.max_rel is None:
        return leaf
    bound = tolerance(leaf.compiled.dtype)
    return leaf.within(bound, agrees=n.max_rel <= bound)
