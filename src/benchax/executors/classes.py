"""Classes on their way to another process, which `cloudpickle` makes anew there: what JAX was told of them is lost.

A class that is a node of pytrees (flax.struct.dataclass, jax.tree_util.register_dataclass, ...), or has a metaclass of
its own (equinox.Module), is not the same without it. Those of a file that benchax imported travel by name: the other
process imports the file, too. Others, as those of a notebook, travel by value, with the two functions that JAX takes
them apart and puts them together with; paths of their leaves have numbers there in place of names.

Which functions these are JAX tells in private only, `jax._src.tree_util._registry`, and this is the one place that asks
(tried on jax 0.6.2, 0.8.0, 0.10.2 and 0.12.0.1). Where it is gone, such classes are no nodes in workers.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable
from enum import EnumMeta
from functools import reduce
from pathlib import Path
from typing import Any

import jax

from benchax.discovery import MODULE_PREFIX, import_file

Registration = tuple[type, Callable[..., Any], Callable[..., Any]]
"""The class, what takes an object apart, what puts one together."""
BY_VALUE = (type, ABCMeta, EnumMeta)
"""Metaclasses that cloudpickle knows to use again."""


def file_of(cls: type) -> str | None:
    """The file that another process has to import for this class; None where the class may travel by value."""
    module = sys.modules.get(cls.__module__)
    if module is None or not cls.__module__.startswith(MODULE_PREFIX) or not (is_node(cls) or _has_own_making(cls)):
        return None
    try:
        is_found = reduce(getattr, cls.__qualname__.split("."), module) is cls
    except AttributeError:  # made inside a function
        return None
    return module.__file__ if is_found else None


def of_file(file: str, module: str, name: str) -> type:
    """At the other end."""
    there: Any = sys.modules.get(module) or import_file(Path(file))
    return reduce(getattr, name.split("."), there)


def is_node(cls: type) -> bool:
    return cls in _registry()


def check(cls: type) -> None:
    """Raises `TypeError` for a class that cannot travel by value: nobody knows what its metaclass would do again."""
    if _has_own_making(cls):
        raise TypeError(
            f"the class {cls.__qualname__!r} of {cls.__module__!r} is made by {type(cls).__name__}, which cannot be "
            "done again in another process: put it into a file of its own and import it from there"
        )


def registration(cls: type) -> Registration:
    entry = _registry()[cls]
    return cls, entry.to_iter, entry.from_iter


def register(registrations: list[Registration]) -> None:
    """At the other end, which may know the classes from an earlier job."""
    for cls, take_apart, put_together in registrations:
        if not is_node(cls):
            jax.tree_util.register_pytree_node(cls, take_apart, put_together)


def _has_own_making(cls: type) -> bool:
    return type(cls) not in BY_VALUE


def _registry() -> dict[type, Any]:
    return getattr(jax._src.tree_util, "_registry", {})  # noqa: TID251  # pyright: ignore[reportAttributeAccessIssue]
