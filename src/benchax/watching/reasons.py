"""Why a program was compiled: its signature compared with the nearest earlier one, with a sentence for each
difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from benchax.printable import drop_addresses
from benchax.results.watch import Reason
from benchax.specs import short_dtype
from benchax.watching.signatures import LONGEST, ArrayLeaf, Signature, text

MOST = 5
"""Up to this many differences are listed one by one."""
BEYOND_THE_TRACE = ("committed", "sharding", "settings")
"""Reasons to compile again what need not be traced again."""


def of(now: Signature, before: Sequence[Signature], *, was_traced: bool) -> tuple[Reason, ...]:
    """The differences to the nearest of `before`, which are of the same function and oldest first.

    Args:
        now: what is compiled for.
        before: one at least.
        was_traced: JAX traced the function for this program, or looked its trace up under a new key.
    """
    # Of equally near ones the newest: that is the call that the user compares with.
    found = [(list(_differences(now, s, before)), s.is_abstract) for s in reversed(before)]
    if any(is_abstract and not differences for differences, is_abstract in found):
        # Traced for the same before, so only what a trace does not depend on can be the reason.
        found = [pair for pair in found if not pair[1] and all(r.kind in BEYOND_THE_TRACE for r in pair[0])]
        if not found:
            return (_traced_before(now, was_traced),)
    differences, _ = min(found, key=lambda pair: (len(pair[0]), pair[1]))
    if not differences and was_traced:
        cleared = "jax.clear_caches() or .clear_cache() was called, or JAX dropped the trace from its cache"
        return (Reason("cleared", f"JAX traced it again without a visible change: {cleared}"),)
    if not differences:
        return (Reason("unknown", "not known why: nothing that can be seen has changed"),)
    if len(differences) > MOST:
        rest = len(differences) - MOST
        differences = [*differences[:MOST], Reason(differences[MOST].kind, f"and {rest} more differences")]
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
        "traced before for such arguments, by a call that was not watched, and now compiled for it again: either an "
        f"argument lies on another device or is committed to one where it was not, or the other way round{here}; or "
        f"it was traced inside another function, or by a jax.jit with other settings{cleared}",
    )


def _differences(now: Signature, then: Signature, before: Sequence[Signature]) -> Iterator[Reason]:
    yield from _configs(now, then)
    yield from _settings(now, then)
    yield from _transformations(now, then)
    yield from _keywords(now, then)
    yield from _statics(now, then, before)
    yield from _structures(now, then)
    for path, new, old in _both(now.leaves, then.leaves):
        yield from _leaf(path, new, old)


T = TypeVar("T")


def _both(now: Mapping[str, T], then: Mapping[str, T]) -> Iterator[tuple[str, T, T]]:
    """(name, its value now, and then) for each name that both have, in the order of the call."""
    return ((name, new, then[name]) for name, new in now.items() if name in then)


def _configs(now: Signature, then: Signature) -> Iterator[Reason]:
    for name, new, old in _both(now.config, then.config):
        if new != old:
            yield Reason("config", f"config {name}: {text(old)} → {text(new)}")


def _settings(now: Signature, then: Signature) -> Iterator[Reason]:
    if then.is_abstract:  # a trace does not tell them
        return
    other = {name: (new, old) for name, new, old in _both(now.settings, then.settings) if new != old}
    for name, (new, old) in other.items():
        # JAX works out the names of what was given by number, and the other way round; one of the two is enough.
        if name.replace("argnames", "argnums") == name or name.replace("argnames", "argnums") not in other:
            shown = name.removesuffix("_leaves").replace("compiler_options_kvs", "compiler_options")
            yield Reason("settings", f"jax.jit was given another {shown}: {text(old)} → {text(new)}")


def _transformations(now: Signature, then: Signature) -> Iterator[Reason]:
    if not then.is_abstract and now.transformation != then.transformation:
        new, old = (f"under {s.transformation}" if s.transformation else "called plainly" for s in (now, then))
        yield Reason("transformation", f"{new} now, {old} before: JAX compiles each on its own")


def _keywords(now: Signature, then: Signature) -> Iterator[Reason]:
    for name in sorted(now.keywords ^ then.keywords):
        # One that is not given in both calls is another structure, not another way to give it.
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
        yield Reason("static", f"static {name}: {change} (each {kind} is compiled on its own{many})")


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
            told = list(_attributes(name, now, then)) or [f"{name}: {_structure(name, now, then)}"]
            yield from (Reason("structure", each) for each in told)


def _attributes(name: str, now: Signature, then: Signature) -> Iterator[str]:
    """model.activation: 'relu' → 'tanh'; model.bias: an array f32[4] now, None before"""
    new, old = (_under(name, s) for s in (now, then))
    for path in [*new, *(path for path in old if path not in new)]:
        # Of a static argument, its value is told where those are.
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


def _structure(name: str, now: Signature, then: Signature) -> str:
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
    if name == "NoneType":
        return "None"
    return f"a {name}" if name else "one array"


def _apart(then: str, now: str) -> str:
    """Two long texts from a little before where they differ: … 'w': [*]}) → … 'w': (*,)})"""
    same = next((i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), min(len(then), len(now)))
    begin = max(0, same - 20) if same > 30 else 0
    cut = [f"{'…' if begin else ''}{s[begin : same + 30]}{'…' if len(s) > same + 30 else ''}" for s in (then, now)]
    return " → ".join(cut)


def _few(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _leaf(path: str, now: ArrayLeaf, then: ArrayLeaf) -> Iterator[Reason]:
    if now.shape != then.shape:
        # With the dtype of before: a sentence about a shape shows no other change.
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
