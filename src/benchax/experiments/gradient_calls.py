"""The gradients that a function takes during tracing: `jax.grad` and `jax.value_and_grad` in a training step.

A step that differentiates its own loss leaves no mark of that in its program. So code that changes how a gradient is
taken must be present when the step asks JAX for it. During a trace, a substitute replaces `jax.value_and_grad` in every
module that refers to it. `jax.grad` calls it (jax 0.6 to 0.10.2), as equinox and flax do.

Two gradients are not seen. One was made before the trace, such as `grad_fn = jax.value_and_grad(loss)` at the top of a
module. The other is inside a jit that JAX has already traced for the same shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from benchax.measuring.inputs import Inputs
from benchax.static_leaves import as_function_of_arrays

TAKES_NONE = (
    "it takes no gradient that can be seen while it is traced (jax.grad, jax.value_and_grad), and is no loss, which "
    "returns one float"
)


class GradientChange(Protocol):
    """Another way to take a gradient."""

    def __call__(self, loss: Callable[..., Any], take: Callable[[Callable[..., Any]], Any]) -> Any:
        """The function of value and gradient.

        Args:
            take: makes it of a loss, as `jax.value_and_grad` with the arguments that it was given.
        """
        ...


@dataclass(frozen=True)
class WithGradients:
    """`fn`, whose gradients are taken in another way."""

    fn: Callable[..., Any]
    change: GradientChange

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        usual = jax.value_and_grad

        def value_and_grad(fun: Callable[..., Any], *given: Any, **named: Any) -> Any:
            return self.change(fun, lambda loss: usual(loss, *given, **named))

        with replaced(usual, value_and_grad):
            return self.fn(*args, **kwargs)


@contextmanager
def replaced(original: Any, replacement: Any) -> Iterator[None]:
    """Everything that is called `original` in some module is `replacement`, for a while."""
    # `from jax import value_and_grad` is a name of its own in each module that says so.
    namespaces = [vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    found = [(names, name) for names in namespaces for name, value in list(names.items()) if value is original]
    try:
        for names, name in found:
            names[name] = replacement
        yield
    finally:
        for names, name in found:
            names[name] = original


def takes_gradients(fn: Callable[..., Any], inputs: Inputs) -> bool:
    """Is a gradient taken while it is traced with these inputs?"""
    seen: list[None] = []

    def note(loss: Callable[..., Any], take: Callable[[Callable[..., Any]], Any]) -> Any:
        seen.append(None)
        return take(loss)

    call, arrays = as_function_of_arrays(WithGradients(fn, note), inputs.args, inputs.kwargs)
    jax.eval_shape(call, *arrays)
    return bool(seen)
