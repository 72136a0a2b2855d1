"""Which arguments get a batch axis, and of which size, as variants of `vmap` are told it: x+w=1..256."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax

from benchax.case import Case
from benchax.experiments.functions import plain
from benchax.experiments.parsing import arguments, find_argument, halves, sizes
from benchax.experiments.resized import Batched, of_arrays
from benchax.measuring.inputs import make_inputs


@dataclass(frozen=True, eq=False)
class Vmapped:
    """`jax.vmap` of a function, made once; `is_mapped` says of each argument whether it has a batch axis, in front."""

    fn: Callable[..., Any]
    is_mapped: tuple[bool, ...]
    is_inner_jitted: bool = False

    def __call__(self, *args: Any) -> Any:
        return self._mapped(*args)

    @cached_property
    def _mapped(self) -> Callable[..., Any]:
        fn = jax.jit(self.fn) if self.is_inner_jitted else self.fn
        return jax.vmap(fn, in_axes=tuple(0 if mapped else None for mapped in self.is_mapped))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_mapped"}


@dataclass(frozen=True)
class Batching:
    given: Case
    """Not jitted."""
    alone: Case
    """A function of the dynamic arguments alone, by position."""
    seed: int
    permitted: tuple[str, ...]
    """What the arguments of `alone` are called."""
    words: tuple[str, ...]
    """Those that were named; empty without any."""
    batched: tuple[int | str, ...]
    """Those that get a batch axis: the named ones, or all."""
    is_mapped: tuple[bool, ...]
    """Of each argument of `alone`."""
    sizes: tuple[int, ...]

    def inputs(self, size: int, *, is_spread: bool = False) -> Batched:
        return Batched(self.given, self.seed, self.batched, size, is_spread)


def batching(variant: str, case: Case, given: Any, seed: int) -> Batching:
    """What was `given` to a variant, of `case`.

    Raises:
        UsageError: an argument that is not there, or what is no size.
        NotAvailable: the function under the jit cannot be reached.
    """
    unjitted = plain(case, seed)
    inputs = make_inputs(unjitted, seed)
    permitted = arguments(unjitted, inputs)
    text, listed = halves(variant, given)
    chosen = sizes(variant, listed)
    words = tuple(text.split("+")) if text else ()
    batched = tuple(dict.fromkeys(find_argument(variant, word, permitted) for word in words or permitted))
    is_mapped = tuple(key in batched for key in permitted.values())
    alone = replace(unjitted, fn=of_arrays(unjitted, inputs), static=(), donate=())
    return Batching(unjitted, alone, seed, tuple(permitted), words, batched, is_mapped, chosen)
