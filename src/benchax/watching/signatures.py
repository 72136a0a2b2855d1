"""One call as JAX saw it: the shape, dtype and place of each array, static values, structure, configuration.

Its difference from the nearest earlier call says why a program was compiled.

Holds texts and small values only, never the user's arrays. Paths are as users write them: params['w'][0].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer

from benchax.keywords import positional_names
from benchax.printable import drop_addresses, list_some, truncate
from benchax.results.watch import Reason
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
"""How far attributes of attributes are followed: a limit of time."""
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
    # Flatten one level only, because a module that contains itself would never end. The value itself comes first.
    is_part = iter([False])
    parts, structure = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda _: next(is_part, True))
    if value is None or jax.tree_util.treedef_is_leaf(structure):
        return None
    if held := getattr(value, "__dict__", None):
        return [(f"{path}.{name}", child) for name, child in held.items() if not name.startswith(HIDDEN)]
    return [(path + jax.tree_util.keystr(key), child) for key, child in parts]


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
        return truncate(self.text, LONGEST)


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
    # A library may rebuild the user's arguments under names that the user does not know.
    static = () if call.user else call.static
    leaves: dict[str, ArrayLeaf] = {}
    statics: dict[str, StaticValue] = {}
    structures: dict[str, str] = {}
    beside: dict[str, str] = {}
    tracers: set[str] = set()
    for key, name, value in name_arguments(call):
        if key in static:
            statics[name] = _static(value)
            continue
        paths, structure = jax.tree_util.tree_flatten_with_path(value)
        structures[name] = _structure(value, structure)
        beside |= {path: text(one) for path, one in attributes(value, name).items()}
        for path, leaf in paths:
            where = name + jax.tree_util.keystr(path).removesuffix(VARIABLE)
            if call.user and not _is_dynamic(leaf, call.user.numbers_are_static):
                statics[where] = _static(leaf)
            else:
                leaves[where] = _leaf(leaf)
                tracers.update([type(leaf).__name__] if isinstance(leaf, Tracer) else [])
    return Signature(
        leaves,
        statics,
        structures,
        frozenset((call.user or call).kwargs),
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
    # JAX holds them in the library's form, which cannot be compared with the user's arguments.
    if earlier is None or (earlier and call.user):
        return None
    return [of(replace(call, args=args, kwargs=kwargs), config, is_abstract=True) for args, kwargs, config in earlier]


def name_arguments(call: JaxCall) -> list[tuple[int | str, str, Any]]:
    """(position or keyword, name, value) of each argument: those given by position first."""
    given = call.user or call
    names = positional_names(given.fun, len(given.args))
    names += [f"argument {i}" for i in range(len(names), len(given.args))]
    named = [(i, name, value) for i, (name, value) in enumerate(zip(names, given.args, strict=False))]
    return [*named, *((name, name, value) for name, value in given.kwargs.items())]


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
    return truncate(whole, longest)


_TRANSFORMATIONS = {"JVP": "a derivative", "Linearize": "a derivative", "Batch": "vmap"}


# ---- why a program was compiled ---------------------------------------------------------------------------------
#
# Why a program was compiled: its signature compared with the nearest earlier one, with a sentence for each
# difference.

MOST_DIFFERENCES = 5
"""Up to this many differences are listed one by one."""
BEYOND_THE_TRACE = ("committed", "sharding", "settings")
"""Reasons to compile again what need not be traced again."""


def explain(now: Signature, before: Sequence[Signature], *, was_traced: bool) -> tuple[Reason, ...]:
    """The differences to the nearest of `before`, which are of the same function and oldest first.

    Args:
        now: what is compiled for.
        before: one at least.
        was_traced: JAX traced the function for this program, or looked its trace up under a new key.
    """
    # If several are equally near, take the newest: the user compares with that call.
    found = [(list(_differences(now, s, before)), s.is_abstract) for s in reversed(before)]
    if any(is_abstract and not differences for differences, is_abstract in found):
        # It was traced for the same signature before, so the reason must be something that a trace does not depend on.
        found = [pair for pair in found if not pair[1] and all(r.kind in BEYOND_THE_TRACE for r in pair[0])]
        if not found:
            return (_traced_before(now, was_traced),)
    differences, _ = min(found, key=lambda pair: (len(pair[0]), pair[1]))
    if not differences and was_traced:
        cleared = "jax.clear_caches() or .clear_cache() was called, or JAX dropped the trace from its cache"
        return (Reason("cleared", f"JAX traced it again without a visible change: {cleared}"),)
    if not differences:
        return (Reason("unknown", "not known why: no visible change"),)
    if len(differences) > MOST_DIFFERENCES:
        rest = len(differences) - MOST_DIFFERENCES
        differences = [
            *differences[:MOST_DIFFERENCES],
            Reason(differences[MOST_DIFFERENCES].kind, f"and {rest} more differences"),
        ]
    return tuple(differences)


def are_apart(now: Signature, then: Signature) -> bool:
    """Is there any difference to be seen?"""
    return any(_differences(now, then, ()))


def _traced_before(now: Signature, was_traced: bool) -> Reason:
    committed = [path for path, leaf in now.leaves.items() if leaf.is_committed]
    here = f" ({_few(committed)} {'is' if len(committed) == 1 else 'are'} committed now)" if committed else ""
    cleared = "; or JAX's caches were cleared" if was_traced else ""
    return Reason(
        "unknown",
        "traced before for such arguments, by a call that was not watched, and now compiled again: either an "
        f"argument is on another device, or it is committed to one now and was not before, or the reverse{here}; or "
        f"it was traced inside another function, or by a jax.jit with other settings{cleared}",
    )


def _differences(now: Signature, then: Signature, before: Sequence[Signature]) -> Iterator[Reason]:
    for name, new, old in _both(now.config, then.config):
        if new != old:
            yield Reason("config", f"config {name}: {text(old)} → {text(new)}")
    # A trace does not tell the other two.
    if not then.is_abstract:
        yield from _settings(now, then)
        if now.transformation != then.transformation:
            new, old = (f"under {s.transformation}" if s.transformation else "called plainly" for s in (now, then))
            yield Reason("transformation", f"{new} now, {old} before: JAX compiles each separately")
    yield from _keywords(now, then)
    yield from _statics(now, then, before)
    yield from _structures(now, then)
    for path, new, old in _both(now.leaves, then.leaves):
        yield from _of_leaf(path, new, old)


T = TypeVar("T")


def _both(now: Mapping[str, T], then: Mapping[str, T]) -> Iterator[tuple[str, T, T]]:
    """(name, its value now, and then) for each name that both have, in the order of the call."""
    return ((name, new, then[name]) for name, new in now.items() if name in then)


def _settings(now: Signature, then: Signature) -> Iterator[Reason]:
    other = {name: (new, old) for name, new, old in _both(now.settings, then.settings) if new != old}
    for name, (new, old) in other.items():
        # JAX derives names from positions and positions from names, so one of the two is enough.
        if name.replace("argnames", "argnums") == name or name.replace("argnames", "argnums") not in other:
            shown = name.removesuffix("_leaves").replace("compiler_options_kvs", "compiler_options")
            yield Reason("settings", f"jax.jit was given another {shown}: {text(old)} → {text(new)}")


def _keywords(now: Signature, then: Signature) -> Iterator[Reason]:
    for name in sorted(now.keywords ^ then.keywords):
        # An argument that one of the calls lacks is a different structure, not a different way of passing it.
        if name in _names(now) & _names(then):
            new, old = ("by keyword", "by position") if name in now.keywords else ("by position", "by keyword")
            yield Reason("keyword", f"{name}: given {new} now, {old} before; call it in one way")


def _names(s: Signature) -> set[str]:
    return s.structures.keys() | s.statics.keys()


def _statics(now: Signature, then: Signature, before: Sequence[Signature]) -> Iterator[Reason]:
    for name, new, old in _both(now.statics, then.statics):
        if _equal(new.value, old.value):
            continue
        is_function = callable(new.value)
        shown = [drop_addresses(one.text) if is_function or one.by_identity else one.text for one in (old, new)]
        if new.by_identity and shown[0] == shown[1]:
            kind = type(new.value).__name__
            yield Reason(
                "static",
                f"static {name}: another instance of {kind}, which has no __eq__, so each instance counts "
                f"as a new value; give {kind} __eq__ and __hash__, or make it a frozen dataclass",
            )
            continue
        seen = {s.statics[name].text for s in before if name in s.statics} | {new.text, old.text}
        is_many = len(seen) > 2 and isinstance(new.value, int | float | complex | tuple | np.generic)
        many = f"; {len(seen)} values so far: if there will be more, pass it as an array" if is_many else ""
        kind = "function" if is_function else "value"
        change = f"another {kind} of the same text, {shown[1][:LONGEST]}" if shown[0] == shown[1] else _change(*shown)
        yield Reason("static", f"static {name}: {change} (each {kind} is compiled separately{many})")


def _change(then: str, now: str) -> str:
    """3 → 4; of long texts, where they differ."""
    return f"{then} → {now}" if max(len(then), len(now)) <= LONGEST else _apart(then, now)


def _equal(new: object, old: object) -> bool:
    """As JAX compares them: of another type is another value. The user's own __eq__ may say anything, or fail."""
    try:
        return type(new) is type(old) and bool(new == old)
    except Exception:
        return new is old


def _structures(now: Signature, then: Signature) -> Iterator[Reason]:
    added = [name for name in _names(now) if name not in _names(then)]
    gone = [name for name in _names(then) if name not in _names(now)]
    yield from (Reason("structure", f"{name}: was not given before") for name in added)
    yield from (Reason("structure", f"{name}: is not given any more") for name in gone)
    for name, new, old in _both(now.structures, then.structures):
        if new != old:
            told = list(_attributes(name, now, then)) or [f"{name}: {_of_structure(name, now, then)}"]
            yield from (Reason("structure", each) for each in told)


def _attributes(name: str, now: Signature, then: Signature) -> Iterator[str]:
    """model.activation: 'relu' → 'tanh'; model.bias: an array f32[4] now, None before"""
    new, old = (_under(name, s) for s in (now, then))
    for path in [*new, *(path for path in old if path not in new)]:
        # The value of a static argument is reported with the static arguments.
        if new.get(path) == old.get(path) or (path in now.statics and path in then.statics):
            continue
        is_attribute = not (path in now.leaves or path in then.leaves)
        if path in new and path in old and (is_attribute or "None" in (new[path], old[path])):
            is_change = path in now.attributes and path in then.attributes
            change = f"{old[path]} → {new[path]}" if is_change else f"{new[path]} now, {old[path]} before"
            yield f"{path}: {change}"


def _under(name: str, s: Signature) -> dict[str, str]:
    """Returns the value at each path of one argument: for an array its shape, for anything else its text."""
    found = {**s.attributes, **{path: f"an array {leaf}" for path, leaf in s.leaves.items()}}
    return {path: text for path, text in found.items() if _is_part(path, name)}


def _of_structure(name: str, now: Signature, then: Signature) -> str:
    """new in the tree: ['b']; a list now, a tuple before"""
    new, old = ({p for p in s.leaves if _is_part(p, name)} for s in (now, then))
    moved = ((sorted(new - old), "new"), (sorted(old - new), "gone"))
    parts = [f"{_few(paths)} {'is' if len(paths) == 1 else 'are'} {how}" for paths, how in moved if paths]
    types = [_type(s.structures[name]) for s in (now, then)]
    if types[0] != types[1]:
        parts = [f"{types[0]} now, {types[1]} before"]
    return f"tree structure: {', '.join(parts) or _apart(then.structures[name], now.structures[name])}"


def _is_part(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name}["))


def _type(structure: str) -> str:
    """None, a dict, one array."""
    name = structure.split(" ")[0]
    return {"NoneType": "None", "": "one array"}.get(name, f"a {name}")


def _apart(then: str, now: str) -> str:
    """Two long texts from a little before where they differ: … 'w': [*]}) → … 'w': (*,)})"""
    same = next((i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), min(len(then), len(now)))
    begin = max(0, same - 20) if same > 30 else 0
    cut = [f"{'…' if begin else ''}{s[begin : same + 30]}{'…' if len(s) > same + 30 else ''}" for s in (then, now)]
    return " → ".join(cut)


def _few(paths: Sequence[str]) -> str:
    return ", ".join(list_some(paths, 3))


def _of_leaf(path: str, now: ArrayLeaf, then: ArrayLeaf) -> Iterator[Reason]:
    if now.shape != then.shape:
        # Use the earlier dtype, so that a sentence about a shape shows no other change.
        yield Reason("shape", f"{path}: shape {then} → {replace(now, dtype=then.dtype)}")
    if now.dtype != then.dtype:
        yield Reason("dtype", f"{path}: dtype {short_dtype(then.dtype)} → {short_dtype(now.dtype)}")
    if now.is_weak != then.is_weak:
        yield Reason("weak type", f"{path}: {_weak(now, then)}")
    if None not in (now.is_committed, then.is_committed) and now.is_committed != then.is_committed:
        new, old = ("committed to", "not committed") if now.is_committed else ("not committed to a device", "committed")
        device = f" {now.sharding} (jax.device_put)" if now.is_committed else ""
        yield Reason("committed", f"{path}: {new}{device} now, {old} before; place it in the same way each time")
    elif now.is_committed and then.is_committed and now.sharding != then.sharding:
        yield Reason("sharding", f"{path}: sharding {then.sharding} → {now.sharding}")


def _weak(now: ArrayLeaf, then: ArrayLeaf) -> str:
    is_number = now.is_scalar if now.is_weak else then.is_scalar
    what = "a Python number" if is_number else "weakly typed (made of Python numbers)"
    if now.is_weak:
        wrap = f"jnp.{now.dtype}(…)" if is_number else f"jnp.asarray(…, jnp.{now.dtype})"
        return f"weak type: {what} now, {short_dtype(then.dtype)} before; give it a dtype: {wrap}"
    return f"weak type: {short_dtype(now.dtype)} now, {what} before; give it a dtype from the first call on"
