"""A function's gradient as a separate case, for variants that are about gradients: recomputation, micro-batches.

The function must be a loss: it returns one float. The gradient is with respect to the first argument that consists of
floats, as `jax.grad` takes the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.errors import NotAvailable
from benchax.experiments.functions import argument_name, is_float, plain
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.static_leaves import as_function_of_arrays


@dataclass(frozen=True)
class Gradient:
    """Value and gradient of a loss."""

    loss: Callable[..., Any]
    argument: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jax.value_and_grad(self.loss, self.argument)(*args, **kwargs)


@dataclass(frozen=True)
class Differentiated:
    """A function whose gradient was made, and its arguments."""

    case: Case
    """The gradient, as it is."""
    gradient: Gradient
    inputs: Inputs
    names: tuple[str, ...]
    """The names of the arguments by position, as their author calls them."""

    @property
    def name(self) -> str:
        """The position of the argument that the gradient is taken with respect to (JAX's `argnums`)."""
        return self.names[self.gradient.argument]

    @property
    def title(self) -> str:
        return f"value and gradient in {self.name}, as jax.value_and_grad gives them"

    def with_loss(self, loss: Callable[..., Any]) -> Case:
        """The same gradient, of the loss in another form."""
        return self.with_gradient(replace(self.gradient, loss=loss))

    def with_gradient(self, gradient: Callable[..., Any]) -> Case:
        """Another way to the same value and gradient."""
        return replace(self.case, fn=gradient)


def differentiate(case: Case, seed: int) -> Differentiated:
    """Traces the function, runs nothing.

    Raises:
        NotAvailable: it is no loss, or the function under a jit cannot be reached.
    """
    unjitted = replace(plain(case, seed), jit=True, donate=())
    inputs = make_inputs(unjitted, seed)
    argument = _argument(inputs)
    call, arrays = as_function_of_arrays(unjitted.fn, inputs.args, inputs.kwargs)
    _check_loss(jax.eval_shape(call, *arrays))
    gradient = Gradient(unjitted.fn, argument)
    names = tuple(argument_name(unjitted.fn, i) for i in range(len(inputs.args)))
    return Differentiated(replace(unjitted, fn=gradient), gradient, inputs, names)


def _argument(inputs: Inputs) -> int:
    for i, tree in enumerate(inputs.args):
        leaves = jax.tree.leaves(tree)
        if i not in inputs.static and leaves and all(map(is_float, leaves)):
            return i
    raise NotAvailable(
        "no argument by position consists of float arrays that a gradient could be taken with respect to"
    )


def _check_loss(returned: Any) -> None:
    leaves = jax.tree.leaves(returned)
    is_array = len(leaves) == 1 and leaves[0] is returned
    if not is_array or returned.shape or not jnp.issubdtype(returned.dtype, jnp.floating):
        what = f"{returned.dtype}{list(returned.shape)}" if is_array else f"{len(leaves)} arrays in a structure"
        raise NotAvailable(
            f"it returns {what}, and this is about the gradient of a loss, which returns one float: give the loss, "
            "not the step that differentiates it"
        )
