"""One call as JAX saw it: the shape, dtype and place of each array, static values, structure, configuration.

Holds texts and small values only, never the user's arrays. Paths are as users write them: params['w'][0].
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from benchax.specs import short_dtype
from benchax.watching import frames
from benchax.watching.frames import JaxCall

# Finds the parts of a pytree besides its arrays: attributes of modules, settings, None. Paths are as users write them.
#
# JAX compares these parts in the text of a tree's structure, which is hard to read. So this walks the Python objects:
# containers, and objects that are pytrees, such as modules of equinox and flax.nnx, dataclasses and named tuples.

MOST = 1000
"""Attributes of one argument."""
DEEPEST = 20
HIDDEN = "_pytree__"
"""What flax.nnx keeps for itself in each module."""


def attributes(value: Any, path: str) -> dict[str, Any]:
    """Returns the values that are not arrays: None, numbers, strings, functions, dtypes."""
    return dict(islice(_walk(value, path, DEEPEST, set()), MOST))


def _walk(value: Any, path: str, depth: int, above: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, jax.Array | np.ndarray | np.generic) or hasattr(value, "aval") or depth == 0:
        return
    if id(value) in above:  # a graph of modules may hold itself
        return
    children = _children(value, path)
    for name, child in children or ():
        yield from _walk(child, name, depth - 1, above | {id(value)})
    if children is None:
        yield path, value


def _children(value: Any, path: str) -> list[tuple[str, Any]] | None:
    """(path, part) of each; None of what has no parts."""
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", child) for key, child in value.items()]
    if hasattr(value, "_fields"):
        return [(f"{path}.{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, list | tuple):
        return [(f"{path}[{i}]", child) for i, child in enumerate(value)]
    held = getattr(value, "__dict__", None)
    if not held or isinstance(value, type) or callable(getattr(value, "__code__", None)):
        return None
    # One level, not all: a module that holds itself has no end.
    if jax.tree_util.default_registry.flatten_one_level(value) is None:
        return None
    return [(f"{path}.{name}", child) for name, child in held.items() if not name.startswith(HIDDEN)]


LONGEST = 80
"""Characters of a value that are shown."""
VARIABLE = ".value"
"""What flax.nnx calls the array of a variable, in paths."""
KEPT = 2000
"""Characters of a static value that are kept, to find where two of them differ."""


@dataclass(frozen=True)
class ArrayLeaf:
    """One array, or what JAX makes one of."""

    shape: tuple[int, ...]
    dtype: str
    is_weak: bool
    is_scalar: bool
    """A number of Python, not an array."""
    is_committed: bool | None
    """None: not known, since only its abstract value was seen; or nothing that could be committed."""
    sharding: str | None

    def __str__(self) -> str:
        return f"{short_dtype(self.dtype)}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class StaticValue:
    """The value of a static argument. Compared as JAX does, by ==, which the text cannot tell."""

    text: str
    value: Any = field(repr=False)
    by_identity: bool
    """Its class does not define __eq__: each instance is another value."""

    @property
    def short(self) -> str:
        return self.text if len(self.text) <= LONGEST else f"{self.text[: LONGEST - 1]}…"


@dataclass(frozen=True)
class Signature:
    leaves: Mapping[str, ArrayLeaf]
    statics: Mapping[str, StaticValue]
    structures: Mapping[str, str]
    """The tree of each argument, without its leaves."""
    keywords: frozenset[str]
    """Arguments given by keyword."""
    settings: Mapping[str, Any]
    """The arguments of jax.jit; empty if only the trace was seen."""
    config: Mapping[str, Any]
    transformation: str = ""
    """A derivative, vmap: what the call was made under."""
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    """The values next to the arrays in the structures: model.activation, opt_state.mask, by path, as text."""
    is_abstract: bool = False
    """Read from JAX's cache of traces: of a call that was made before the watch began."""

    def __str__(self) -> str:
        parts = [f"{path}: {leaf}" for path, leaf in self.leaves.items()]
        return ", ".join([*parts, *(f"{name}={static.short}" for name, static in self.statics.items())])


def of(call: JaxCall, config: Mapping[str, Any] | None = None, *, is_abstract: bool = False) -> Signature:
    """Returns the signature of a call, under the present configuration if none is given."""
    if call.user is not None:
        try:
            return _of(call, config, is_abstract=is_abstract)
        except Exception:  # a graph of flax.nnx may hold itself, and then it is no tree: as the library gives it to JAX
            call = replace(call, user=None)
    return _of(call, config, is_abstract=is_abstract)


def _of(call: JaxCall, config: Mapping[str, Any] | None, *, is_abstract: bool) -> Signature:
    # What a library makes of the user's arguments is not what the user calls them.
    settings = {} if call.user else call.settings
    numbers = settings.get("static_argnums") or ()
    names = set(settings.get("static_argnames") or ())
    given = call.user or call
    count = len(given.args)
    static_at = {i % count for i in numbers if -count <= i < count}  # JAX takes negative ones, counted from the end
    leaves: dict[str, ArrayLeaf] = {}
    statics: dict[str, StaticValue] = {}
    structures: dict[str, str] = {}
    beside: dict[str, str] = {}
    tracers: set[str] = set()
    for i, (name, value) in enumerate(name_arguments(call)):
        is_keyword = i >= count
        if i in static_at or (is_keyword and name in names):
            statics[name] = _static(value)
            continue
        paths, structure = jax.tree_util.tree_flatten_with_path(value)
        structures[name] = _structure(value, structure)
        beside |= {path: text(one) for path, one in attributes(value, name).items()}
        for path, leaf in paths:
            where = name + jax.tree_util.keystr(path).removesuffix(VARIABLE)
            if call.user and not _is_dynamic(leaf, call.user.numbers_are_static):
                statics[where] = _static(leaf)
                continue
            leaves[where] = _leaf(leaf)
            if isinstance(leaf, Tracer):
                tracers.add(type(leaf).__name__)
    return Signature(
        leaves,
        statics,
        structures,
        frozenset(given.kwargs),
        call.settings,
        frames.configuration() if config is None else config,
        " and ".join(sorted({word for key, word in _TRANSFORMATIONS.items() if any(key in name for name in tracers)})),
        beside,
        is_abstract,
    )


def _is_dynamic(leaf: Any, numbers_are_static: bool) -> bool:
    """Does a library that takes everything else as static hand this to `jax.jit` as an array?"""
    is_number = isinstance(leaf, int | float | complex) and not numbers_are_static
    return is_number or isinstance(leaf, jax.Array | np.ndarray | np.generic | Tracer)


def before_the_watch(call: JaxCall) -> list[Signature] | None:
    """Returns the signatures of the calls that JAX remembers of this function; None where JAX cannot be asked."""
    earlier = frames.earlier_calls(call.fun)
    # JAX holds them as the library made them, which cannot be compared with what the user gives.
    if earlier is None or (earlier and call.user):
        return None
    return [of(replace(call, args=args, kwargs=kwargs), config, is_abstract=True) for args, kwargs, config in earlier]


def name_arguments(call: JaxCall) -> list[tuple[str, Any]]:
    """Each argument by its name: those given by position first."""
    given = call.user or call
    try:
        parameters = list(inspect.signature(given.fun).parameters.values())
    except (TypeError, ValueError):  # builtins have no signature
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind == parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(len(given.args) - len(names))]
    names += [f"argument {i}" for i in range(len(names), len(given.args))]
    return [*zip(names, given.args, strict=False), *given.kwargs.items()]


def _structure(value: Any, structure: Any) -> str:
    """Empty for a single leaf, so that an array and a number have the same."""
    if value is not None and jax.tree_util.treedef_is_leaf(structure):  # which JAX says of None as well
        return ""
    return f"{type(value).__name__} {str(structure).removeprefix('PyTreeDef(').removesuffix(')')}"


def _leaf(value: Any) -> ArrayLeaf:
    is_scalar = isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)
    abstract = _abstract(value)
    array: Any = value if isinstance(value, jax.Array) and not isinstance(value, Tracer) else None
    committed = getattr(array, "committed", getattr(array, "_committed", None))
    known = isinstance(committed, bool)
    return ArrayLeaf(
        tuple(abstract.shape),
        str(abstract.dtype),
        bool(getattr(abstract, "weak_type", False)),
        is_scalar,
        committed if known else False if is_scalar or isinstance(value, np.ndarray | np.generic) else None,
        describe_placement(array.sharding) if known else None,
    )


def _abstract(value: Any) -> Any:
    """Returns JAX's abstract form of a value. An abstract value, such as `ShapeDtypeStruct`, stays unchanged."""
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, np.ndarray | np.generic):
        return value if hasattr(value, "weak_type") else getattr(value, "aval", value)
    return jax.typeof(value)


def describe_placement(sharding: Any) -> str:
    """Returns the place of an array: CpuDevice(id=0); P('x',) over {'x': 2}."""
    if isinstance(sharding, jax.sharding.NamedSharding):
        # As newer versions of JAX write it.
        return f"{str(sharding.spec).replace('PartitionSpec', 'P')} over {dict(sharding.mesh.shape)}"
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        return str(next(iter(sharding.device_set)))
    return str(sharding)


def _static(value: Any) -> StaticValue:
    return StaticValue(text(value, KEPT), value, type(value).__eq__ is object.__eq__ and not callable(value))


def text(value: Any, longest: int = LONGEST) -> str:
    """`value` in at most `longest` characters. Its __repr__ is the user's, and must not fail a call of theirs."""
    try:
        whole = " ".join(repr(value).split())
    except Exception:
        whole = f"<{type(value).__name__} without a repr>"
    return whole if len(whole) <= longest else whole[: longest - 1] + "…"


_TRANSFORMATIONS = {"JVP": "a derivative", "Linearize": "a derivative", "Batch": "vmap"}
