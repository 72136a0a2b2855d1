"""The parts of a loss that its backward pass computes again: by a policy, in segments, or for some layers only.

    nothing_saveable, dots_saveable, …   a policy of `jax.checkpoint_policies` around the whole function
    segments, segments=4                 consecutive parts, each under `jax.checkpoint`; sqrt(n) of them, or 4
    only=layer3, only=a+b                these functions of its module alone; or code under such a named scope,
                                         as flax has one for each layer: only=Dense_1
    save=hidden, save=a+b                all of it, but for values marked by `jax.ad_checkpoint.checkpoint_name`

Segments keep only what crosses a cut. sqrt(n) of them for a chain of n operations is the plan of Chen et al. 2016
(Training Deep Nets with Sublinear Memory Cost, section 3). A checkpoint around the whole function recomputes all of it
at once, and so keeps as much at its worst moment. Inner jits are taken apart; bodies of loops are one operation each.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import jax
import jax.ad_checkpoint
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.errors import NotAvailable, UsageError, one_of
from benchax.experiments.gradient_calls import replaced
from benchax.experiments.rewriting import Rewritten
from benchax.program.jaxpr import equations, scope_of
from benchax.source_files import owner_of
from benchax.static_leaves import as_function_of_arrays

POLICIES = (
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
)
SEGMENTS, ONLY, SAVE = "segments", "only", "save"
LEAST_OPERATIONS = 4
MOST_SEGMENTS = 1000

Loss = Callable[..., Any]


@dataclass(frozen=True)
class Recomputation:
    """A way to recompute, as it is given."""

    kind: Literal["policy", "segments", "only", "save"]
    names: tuple[str, ...] = ()
    """The names of the policy, the layers, or the values."""
    count: int | None = None
    """The number of segments; None: sqrt(n)."""

    @property
    def label(self) -> str:
        """As it is given: segments=4."""
        if self.kind == "policy":
            return self.names[0]
        if self.kind == "segments":
            return SEGMENTS if self.count is None else f"{SEGMENTS}={self.count}"
        return f"{self.kind}={'+'.join(self.names)}"

    @property
    def title(self) -> str:
        listed = ", ".join(self.names)
        return {
            "policy": f"a checkpoint around the whole function, policy {listed}",
            "segments": f"a checkpoint around each of {self.count or 'sqrt(n)'} segments",
            "only": f"a checkpoint around {listed} alone",
            "save": f"a checkpoint around the whole function that keeps {listed}",
        }[self.kind]

    def of(self, loss: Loss) -> Loss:
        """The loss, computed again so."""
        if self.kind == "segments":
            return Segmented(loss, self.count)
        if self.kind == "only":
            return OnlyLayers(loss, self.names)
        return Checkpointed(loss, self.names, saves_names=self.kind == "save")


def read_recomputation(variant: str, text: str, word: str) -> Recomputation:
    """Reads one word of the given value: segments=4.

    Raises:
        UsageError: the word is unknown.
    """
    kind, equals, value = (part.strip() for part in word.partition("="))
    if word in POLICIES:
        return Recomputation("policy", (word,))
    if word == SEGMENTS:
        return Recomputation("segments")
    if kind == SEGMENTS and value.isascii() and value.isdecimal() and 1 < int(value[:9]) <= MOST_SEGMENTS:
        return Recomputation("segments", count=int(value))
    names = tuple(name.strip() for name in value.split("+"))
    if kind in (ONLY, SAVE) and equals and all(names):
        return Recomputation("only" if kind == ONLY else "save", names)
    known = (*POLICIES, SEGMENTS, f"{SEGMENTS}=N", f"{ONLY}=LAYER", f"{SAVE}=NAME")
    raise UsageError(f"{variant}={text!r} holds {word!r}", one_of(known, word))


# ---- the ways -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpointed:
    """Under one checkpoint. The policy is kept by its name, which another process can look up."""

    fn: Loss
    names: tuple[str, ...]
    saves_names: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, arrays = as_function_of_arrays(self.fn, args, kwargs)
        policies = jax.checkpoint_policies
        if self.saves_names:
            _refuse_unmarked(self.names, call, arrays)
            return jax.checkpoint(call, policy=policies.save_only_these_names(*self.names))(*arrays)
        return jax.checkpoint(call, policy=getattr(policies, self.names[0]))(*arrays)


def _refuse_unmarked(names: tuple[str, ...], call: Callable[..., Any], arrays: Sequence[Any]) -> None:
    found = equations(jax.make_jaxpr(call)(*arrays))
    marked = sorted({str(each.equation.params["name"]) for each in found if each.equation.primitive.name == "name"})
    for name in names:
        if name not in marked:
            there = f"marked are {', '.join(marked)}" if marked else "no value is marked"
            raise NotAvailable(f"no value is marked as {name!r} by jax.ad_checkpoint.checkpoint_name: {there}")


@dataclass(frozen=True)
class Segmented:
    """In consecutive segments of as many operations."""

    fn: Loss
    count: int | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Run equation by equation, inner jits are no operations but what is in them.
        return _run_in_parts(Rewritten(self.fn, _keep), args, kwargs, self._cut)

    def _cut(self, operations: Sequence[Any]) -> list[Part]:
        found = len(operations)
        if found < max(LEAST_OPERATIONS, self.count or 0):
            raise NotAvailable(f"too few operations for segments, outside of loops: {found}")
        # Chen et al. 2016: with sqrt(n) segments what is kept between them and what one holds while it is recomputed
        # are as much.
        length = math.ceil(math.sqrt(found) if self.count is None else found / self.count)
        return [(operations[start : start + length], True) for start in range(0, found, length)]


@dataclass(frozen=True)
class OnlyLayers:
    """Layers by their names: functions of the loss's module, each call by itself; else named scopes, or functions of
    another module of the user's."""

    fn: Loss
    names: tuple[str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layers = {name: _find_own_function(self.fn, name) for name in self.names}
        if any(layer is None for layer in layers.values()):
            # Scopes first: elsewhere may be a function of that name which has nothing to do with the loss.
            there = _scopes_in(self.fn, args, kwargs)
            layers |= {n: _find_function_elsewhere(n) for n, found in layers.items() if not found and n not in there}
        scopes = tuple(name for name, layer in layers.items() if layer is None)
        with ExitStack() as stack:
            for layer in layers.values():
                if layer is not None:
                    stack.enter_context(replaced(layer, Checkpointed(layer, ("nothing_saveable",))))
            return _run_in_parts(self.fn, args, kwargs, _by_scope(scopes)) if scopes else self.fn(*args, **kwargs)


def _find_own_function(fn: Any, name: str) -> Any:
    """Returns the function of that name in the module of `fn`, or None if there is no such function."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return _function_among(getattr(inspect.unwrap(fn) if callable(fn) else fn, "__globals__", {}), name)


def _find_function_elsewhere(name: str) -> Any:
    # A list first: looking at an attribute of a lazy module may import others, and change the dict that is walked.
    files = {module: getattr(module, "__file__", None) for module in list(sys.modules.values())}
    modules = [module for module, file in files.items() if file and owner_of(file) == "user"]
    return next((found for module in modules if (found := _function_among(vars(module), name))), None)


def _function_among(names: Mapping[str, Any], name: str) -> Any:
    return names[name] if callable(names.get(name)) and not isinstance(names[name], type) else None


def _scopes_in(fn: Loss, args: Any, kwargs: Any) -> set[str]:
    call, arrays = as_function_of_arrays(fn, args, kwargs)
    found = equations(jax.make_jaxpr(call)(*arrays))
    return {part for each in found for part in scope_of(each.equation).split("/")}


def _by_scope(names: tuple[str, ...]) -> Callable[[Sequence[Any]], list[Part]]:
    def scope(equation: Any) -> str:
        parts = scope_of(equation).split("/")
        at = next((i for i, part in enumerate(parts) if part in names), None)
        return "" if at is None else "/".join(parts[: at + 1])

    def cut(operations: Sequence[Any]) -> list[Part]:
        found = {part for each in operations for part in scope_of(each).split("/") if part}
        for name in names:
            if name not in found:
                listed = f"named scopes are {', '.join(sorted(found)[:8])}" if found else "it has no named scope"
                raise NotAvailable(f"no function of its module and no named scope is called {name!r}: {listed}")
        return [(list(group), bool(key)) for key, group in groupby(operations, scope)]

    return cut


# ---- parts of a program -------------------------------------------------------------------------------------------

Part = tuple[Sequence[Any], bool]
"""(operations, are they under a checkpoint?)"""


def _keep(equation: Any, operands: list[Any], evaluate: Callable[[Any], list[Any]]) -> list[Any]:
    return evaluate(equation)


def _run_in_parts(fn: Loss, args: Any, kwargs: Any, cut: Callable[[Sequence[Any]], list[Part]]) -> Any:
    """Calls `fn`, its operations in parts that follow one another. Raises `NotAvailable` where `cut` does."""
    call, arrays = as_function_of_arrays(fn, args, kwargs)
    closed, shapes = jax.make_jaxpr(call, return_shape=True)(*arrays)
    jaxpr = closed.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arrays], strict=True))
    parts = cut(jaxpr.eqns)
    for part, taken, made in _list_parts(jaxpr, [operations for operations, _ in parts]):
        evaluate = _evaluate(jaxpr.replace(constvars=[], invars=taken, outvars=made, eqns=list(part)))
        is_again = parts.pop(0)[1]
        results = (jax.checkpoint(evaluate) if is_again else evaluate)(*(values[v] for v in taken))
        values.update(zip(made, results, strict=True))
    found = [v.val if isinstance(v, core.Literal) else values[v] for v in jaxpr.outvars]
    return jax.tree.unflatten(jax.tree.structure(shapes), found)


def _list_parts(jaxpr: Any, parts: Sequence[Sequence[Any]]) -> Iterator[tuple[Sequence[Any], list[Any], list[Any]]]:
    """(operations, what they take, what they make for later ones) of each part."""
    for i, part in enumerate(parts):
        later = [*(v for other in parts[i + 1 :] for eqn in other for v in eqn.invars), *jaxpr.outvars]
        yield part, *_crossing(part, later)


def _crossing(inside: Sequence[Any], later: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """(what the segment takes, what it makes for later ones)"""
    made = dict.fromkeys(v for eqn in inside for v in eqn.outvars)
    taken = dict.fromkeys(v for eqn in inside for v in eqn.invars if not isinstance(v, core.Literal) and v not in made)
    wanted = {v for v in later if not isinstance(v, core.Literal)}
    return list(taken), [v for v in made if v in wanted]


def _evaluate(part: Any) -> Callable[..., list[Any]]:
    return lambda *values: eval_jaxpr(part, (), *values)
