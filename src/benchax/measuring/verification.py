"""Before anything is timed: does the compiled function compute what the un-jitted one does?

A benchmark that does not look would time garbage: XLA:CPU of jaxlib 0.10.2 returns wrong numbers for some reductions of
a matmul by a constant-filled array. The reference is the same Python function, run operation by operation, on request
in float64. Both start from the same state, and what they change in place is compared as what they return is. How far
apart is too far is decided in `numerics.py`.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.errors import NotMeasured
from benchax.measuring.inputs import is_data
from benchax.measuring.state import Outcome, Values, data_of
from benchax.measuring.timers.base import Ready, Subject
from benchax.model import Numerics
from benchax.numerics import compare


@dataclass
class Notes:
    """What was seen of a stateful function beside its verdict, by name."""

    dropped: list[str] = field(default_factory=list)
    """What the un-jitted call changes in place and the compiled one does not."""
    undetermined: list[str] = field(default_factory=list)
    """What not even the un-jitted call knows: it is as far from float64 as the compiled one is from it."""


NOISE = 4.0
"""Both are off by noise of one size: how many times the one may be the other."""


def verify(
    subject: Subject, mode: str, reference: Callable[[], Any] | None = None, notes: Notes | None = None
) -> Numerics:
    """Compares the outputs of `subject` with those of its un-jitted function.

    Args:
        mode: "eager", or "float64" for a reference with every float (and complex) input widened to 64 bits.
        reference: gives the un-jitted outputs, where they are known without another call.
        notes: filled in.

    Raises:
        NotMeasured: switched off, there is no un-jitted function, or it cannot be run.
    """
    if mode == "off":
        raise NotMeasured("verification is switched off")
    if subject.program.kind == "eager":
        raise NotMeasured("it is the un-jitted function that others are compared with")
    if mode == "eager" and reference is not None and not subject.inputs.is_stateful:
        return compare(subject.outputs, reference(), against="eager")
    if subject.impure:
        raise NotMeasured(f"two traces of it differ, so that no other run of it is a reference: {subject.impure}")
    eager = subject.program.eager
    if eager is None:
        raise NotMeasured("there is no un-jitted function behind it to compare with")
    if mode == "float64":
        return compare(subject.outputs, _float64(subject, eager), against="float64")
    ready = subject.ready(eager)
    expected = _reference(subject, ready, _run(ready))
    if not subject.inputs.is_stateful:
        return compare(subject.outputs, expected, against="eager")
    notes = Notes() if notes is None else notes
    notes.dropped += _changed_besides(subject, ready)
    return _judge_state(subject, eager, expected, notes)


def _judge_state(subject: Subject, eager: Callable[..., Any], expected: Outcome, notes: Notes) -> Numerics:
    """New state is far from its reference where an optimizer divides noise by its own size: Adam makes a whole step of
    a gradient that is zero but for rounding (a bias before batch normalisation). What float64 shows to be noise in the
    reference too is left out of the verdict, and named."""
    numerics = compare(subject.outputs, expected, against="eager")
    if numerics.agrees or numerics.max_abs is None:
        return numerics
    try:
        exact = _float64(subject, eager)
    except NotMeasured:
        return numerics
    mine, state = subject.outputs.state, expected.state
    noisy = [name for name in mine if name in exact.state and _is_noise(mine[name], state[name], exact.state[name])]
    left = [
        Outcome(o.outputs, {n: v for n, v in o.state.items() if n not in noisy}) for o in (subject.outputs, expected)
    ]
    numerics = compare(*left, against="eager")
    notes.undetermined += noisy if numerics.agrees else []
    return numerics


def _is_noise(mine: Any, reference: Any, exact: Any) -> bool:
    """Does the reference differ from float64 by as much as the two differ from each other?"""
    if not jnp.issubdtype(jnp.result_type(mine), jnp.inexact) or np.shape(mine) != np.shape(reference):
        return False
    if compare(mine, reference, against="eager").agrees:
        return False
    wide = np.complex128 if jnp.issubdtype(jnp.result_type(mine), jnp.complexfloating) else np.float64
    one, other, true = (np.asarray(value).astype(wide) for value in (mine, reference, exact))
    return bool(np.max(np.abs(one - other)) <= NOISE * np.max(np.abs(other - true)))


def _run(ready: Ready) -> Any:
    try:
        return jax.block_until_ready(ready())
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise NotMeasured(f"the un-jitted call failed ({type(error).__name__}: {first_line})") from error


def _reference(subject: Subject, ready: Ready, result: Any) -> Any:
    """Of a stateful call: what it returned, and what it left of that which the compiled one changes."""
    outcome = ready.outcome(result)
    if not isinstance(outcome, Outcome):
        return outcome
    now = ready.state()
    return Outcome(outcome.outputs, {name: data_of(now[name]) for name in subject.outputs.state if name in now})


def _changed_besides(subject: Subject, ready: Ready) -> list[str]:
    """What the un-jitted call has changed and the compiled one leaves as it was."""
    before: Values = subject.inputs.parts.values
    now = {name: value for name, value in ready.state().items() if name not in subject.outputs.state}
    return [name for name, value in now.items() if name not in before or not _is_same(value, before[name])]


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    one, other = data_of(one), data_of(other)
    return np.array_equal(one, other, equal_nan=jnp.issubdtype(jnp.result_type(one), jnp.inexact))


def _float64(subject: Subject, eager: Callable[..., Any]) -> Any:
    ((args, kwargs),) = subject.calls(1)
    with _x64():
        inputs = subject.inputs
        if inputs.is_stateful:
            args, kwargs = inputs.parts.merge([_widened(leaf) for leaf in inputs.parts.leaves])
        else:
            args, kwargs = jax.tree.map(_widened, (args, kwargs))
        ready = Ready(subject, eager, args, kwargs)
        outputs = _reference(subject, ready, _run(ready))
        return jax.tree.map(lambda leaf: np.asarray(leaf) if is_data(leaf) else leaf, outputs)


def _widened(leaf: Any) -> Any:
    if not is_data(leaf) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    wide = np.complex128 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else np.float64
    return jnp.asarray(np.asarray(leaf).astype(wide))


@contextlib.contextmanager
def _x64() -> Iterator[None]:
    """JAX's 64-bit mode for a while. `jax.enable_x64` since 0.8, in `jax.experimental` before."""
    module = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    with module.enable_x64(True):
        yield
