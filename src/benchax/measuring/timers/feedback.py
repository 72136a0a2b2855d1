"""Feeds the outputs of a donating call back as its next arguments, as the loop `state = step(state)` does.

A donating function needs new arguments for every call. Fresh copies are not in a cache: a call that updates 256 KiB in
place takes 20 µs in such a loop and 62 µs on fresh copies (jax 0.10.2). So the timers feed the outputs back if they
fit. Values drift during the loop. So each sample starts again from the inputs. A trial first checks that as many calls
as in a sample keep every number finite. Fresh copies go to a program that sorts or branches by its values, or loops
until they are good enough.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import jax

from benchax.measuring.inputs import Call, copied
from benchax.numerics import describe_nonfinite

FED_BACK, FRESH_COPIES = "outputs fed back", "fresh copies of donated arguments"
"""The regimes of the timers that call a donating function."""
TRIAL_CALLS, TRIAL_NS = 65, 10_000_000
"""The trial ends with whichever comes first. A sample of 150 µs makes 64 calls of 2.3 µs."""


@dataclass(frozen=True)
class Feedback:
    """How to feed a function's outputs back."""

    call: Callable[..., Any]
    inputs: Call
    places: tuple[tuple[int, int | None], ...]
    """(position of a donated argument, the output that replaces it; None: all outputs together)"""
    most_calls: int = TRIAL_CALLS
    """The number of calls in a row that keep every number finite."""

    def start(self) -> Feed:
        """The inputs, with copies of those that the first call will donate."""
        args, kwargs = list(self.inputs[0]), self.inputs[1]
        for place, _ in self.places:
            args[place] = jax.tree.map(copied, args[place])
        jax.block_until_ready(args)
        return Feed(self, args, kwargs)


class Feed:
    """A row of calls, each on what the one before returned."""

    def __init__(self, how: Feedback, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._call, self._places, self.args, self._kwargs = how.call, how.places, args, kwargs

    def __call__(self) -> Any:
        """The outputs of the next call, which it does not wait for."""
        args = self.args
        outputs = self._call(*args, **self._kwargs)
        for place, output in self._places:
            args[place] = outputs if output is None else outputs[output]
        return outputs


def find_feedback(call: Callable[..., Any], inputs: Call) -> Feedback | None:
    """Finds how the outputs of `call(*args, **kwargs)` become its next arguments. None if they do not fit the donated
    arguments, or if a number does not stay finite."""
    args, kwargs = jax.block_until_ready(jax.tree.map(copied, inputs))
    outputs = jax.block_until_ready(call(*args, **kwargs))
    if any(map(_is_taken, jax.tree.leaves(kwargs))):
        return None
    places = _match([i for i, arg in enumerate(args) if any(map(_is_taken, jax.tree.leaves(arg)))], inputs[0], outputs)
    if not places:
        return None
    feed, begun, calls = Feedback(call, inputs, places).start(), perf_counter_ns(), 0
    try:
        while calls < TRIAL_CALLS and (calls < 2 or perf_counter_ns() - begun < TRIAL_NS):
            jax.block_until_ready(feed())
            calls += 1
    except Exception:  # it may refuse its own outputs, which is no fault of the call that is measured
        return None
    return Feedback(call, inputs, places, calls) if _is_finite(feed.args) or not _is_finite(inputs) else None


def _is_taken(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and leaf.is_deleted()


def _match(donated: list[int], args: tuple[Any, ...], outputs: Any) -> tuple[tuple[int, int | None], ...]:
    """`Feedback.places`; empty if an argument has no output like it."""
    if len(donated) == 1 and _describe(args[donated[0]]) == _describe(outputs):
        return ((donated[0], None),)
    free = dict(enumerate(outputs)) if isinstance(outputs, tuple | list) else {}
    places: list[tuple[int, int | None]] = []
    for i in donated:
        fitting = next((j for j, output in free.items() if _describe(output) == _describe(args[i])), None)
        if fitting is None:
            return ()
        del free[fitting]
        places.append((i, fitting))
    return tuple(places)


def _describe(tree: Any) -> Any:
    """Returns the description for which JAX compiles a program."""
    leaves, structure = jax.tree.flatten(tree)
    kinds = [(a.shape, a.dtype, a.weak_type, a.sharding) if isinstance(a, jax.Array) else type(a) for a in leaves]
    return structure, kinds


def _is_finite(tree: Any) -> bool:
    # By NumPy: a program of JAX would be compiled while something is timed.
    return not describe_nonfinite([leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)])
