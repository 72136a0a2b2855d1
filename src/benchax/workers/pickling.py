"""Sends values to another process: cloudpickle, extended for jitted functions, JAX arrays and pytree classes.

Functions of benchmark files travel by value, since no other process can import them by name. Jitted functions pickle
into objects that can be called but have lost their attributes, and with them `trace` and `lower` (jax 0.10.2). So they
travel by name if they can be imported, else together with their attributes. JAX's registrations of classes travel with
them.

Arrays of JAX travel as NumPy arrays and are placed on the default device at the other end. Arrays on several devices
are refused: a program over one device would be measured instead.

`cloudpickle` makes new classes at the other end, which lack their registrations with JAX. A class that is a node of
pytrees (flax.struct.dataclass, jax.tree_util.register_dataclass, ...), or has its own metaclass (equinox.Module), does
not work without its registration. Classes in a file that benchax imported travel by name: the other process imports the
file, too. Others, such as classes in a notebook, travel by value. The two functions that JAX uses to flatten and
unflatten them travel, too. Paths of their leaves then have numbers instead of names.

Only a private registry of JAX has these functions, `jax._src.tree_util._registry`. Only this module uses it (tried on
jax 0.6.2, 0.8.0, 0.10.2 and 0.12.0.1). Without the registry, such classes are not nodes in workers.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import EnumMeta
from functools import reduce
from pathlib import Path
from types import CodeType
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np

from benchax.discovery import MODULE_PREFIX, import_file
from benchax.errors import UsageError, reason_of

# The class of jitted functions has no public name.
_Jitted: Any = type(jax.jit(lambda: None))

SENT_FROM = "BENCHAX_SENT_FROM"
"""On another machine: the folder there whose files are in the working folder here."""

BY_VALUE = (type, ABCMeta, EnumMeta)
"""Metaclasses that cloudpickle knows to use again."""


def dumps(value: Any, beside: Callable[[pickle.PickleBuffer], None] | None = None) -> bytes:
    """Pickles `value`. Raises whatever pickling raises for a value that cannot be pickled.

    Args:
        beside: receives the buffers of arrays, which `loads` then needs in the same order.
    """
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(MODULE_PREFIX)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        with io.BytesIO() as buffer:
            pickler = _Pickler(buffer, protocol=5, buffer_callback=beside)
            pickler.dump(value)
            registry = _registry()
            # After the value, whose classes and functions they share.
            pickler.dump([(cls, registry[cls].to_iter, registry[cls].from_iter) for cls in pickler.nodes])
            return buffer.getvalue()
    finally:
        for module in modules:
            # The list is global to the program: entries left in it would change the user's own pickles.
            cloudpickle.unregister_pickle_by_value(module)


def loads(content: bytes | memoryview, beside: Iterable[bytes | memoryview] = ()) -> Any:
    unpickler = pickle.Unpickler(io.BytesIO(content), buffers=beside)
    value = unpickler.load()
    for cls, take_apart, put_together in unpickler.load():
        if not is_node(cls):  # known from an earlier job otherwise
            jax.tree_util.register_pytree_node(cls, take_apart, put_together)
    return value


def pack_argument(argument: Any, name: str) -> list[bytes | pickle.PickleBuffer]:
    """Returns the pickle of a task's argument, followed by the buffers of its arrays.

    Raises:
        UsageError: it cannot travel to another process; `name` names the argument in the message.
    """
    beside: list[pickle.PickleBuffer] = []
    try:
        # Not in one expression: the list is filled while the pickle is made.
        content = dumps(argument, beside.append)
        return [content, *beside]
    except Exception as error:
        raise UsageError(
            f"{name} cannot be sent to a worker process: {reason_of(error)}",
            "a function and inputs that cloudpickle can pickle",
            "give inputs as specs (f32[8,128]) or as a function that makes them, the function itself instead of its "
            "compiled program, and open files, locks and connections inside the function",
        ) from error


@dataclass(frozen=True)
class Sealed:
    """A value on its way through a process that must not unpickle it: that would run code of the user's there, and
    start JAX. Any other pickle leaves it as it is; who gets it as the argument of a task gets the value."""

    content: bytes
    beside: tuple[bytes, ...] = ()


def seal(value: Any, name: str) -> Sealed:
    """Raises `UsageError` as `pack_argument` does."""
    content, *beside = pack_argument(value, name)
    return Sealed(bytes(content), tuple(map(bytes, beside)))


class _Pickler(cloudpickle.Pickler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nodes: list[type] = []
        """Classes that travel by value and are nodes of pytrees."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, jax.Array):
            return _array(obj)
        if isinstance(obj, Sealed):
            return loads, (pickle.PickleBuffer(obj.content), [pickle.PickleBuffer(each) for each in obj.beside])
        if isinstance(obj, type):
            return self._class(obj)
        if isinstance(obj, CodeType):
            # cloudpickle 3.1.3 omits the file name, which tracebacks and rules use to find the user's lines.
            made, given, *_ = cloudpickle.Pickler.dispatch_table[CodeType](obj)
            return _code_of_file, (made, given, obj.co_filename)
        if not isinstance(obj, _Jitted):
            return super().reducer_override(obj)
        module, name = getattr(obj, "__module__", None) or "", getattr(obj, "__qualname__", "")
        if module != "__main__" and not module.startswith(MODULE_PREFIX) and _is_found(module, name, obj):
            return _by_name, (module, name)
        return _rebuild, (type(obj), obj.__getstate__(), vars(obj))

    def _class(self, cls: type) -> Any:
        if file := file_of_class(cls):
            return class_of_file, (file, cls.__module__, cls.__qualname__)
        reduced = super().reducer_override(cls)
        if reduced is not NotImplemented and is_node(cls):
            if _has_own_making(cls):
                # The effects of its metaclass cannot be repeated.
                raise TypeError(
                    f"the class {cls.__qualname__!r} of {cls.__module__!r} is made by {type(cls).__name__}, which "
                    "can't be repeated in another process: put it into a separate file and import it from there"
                )
            self.nodes.append(cls)
        return reduced


def _array(array: Any) -> Any:
    if len(array.sharding.device_set) > 1:
        raise TypeError(f"an array over {len(array.sharding.device_set)} devices cannot be sent to another process")
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return _key, (np.asarray(jax.random.key_data(array)), str(jax.random.key_impl(array)))
    if array.weak_type:  # scalars that were Python numbers; JAX's own way keeps that they were
        return array.__reduce__()
    return jnp.asarray, (np.asarray(array),)


def _key(data: np.ndarray, implementation: str) -> Any:
    return jax.random.wrap_key_data(jnp.asarray(data), impl=implementation)


def _code_of_file(made: Callable[..., CodeType], given: tuple[Any, ...], file: str) -> CodeType:
    return made(*given).replace(co_filename=file)


def _is_found(module: str, name: str, obj: Any) -> bool:
    """Is it what its module has under its name? Not if it was made inside a function."""
    try:
        return reduce(getattr, name.split("."), sys.modules[module]) is obj
    except (KeyError, AttributeError):
        return False


def _by_name(module: str, name: str) -> Any:
    return reduce(getattr, name.split("."), importlib.import_module(module))


def _rebuild(kind: Any, state: Any, attributes: dict[str, Any]) -> Any:
    jitted = kind.__new__(kind)
    jitted.__setstate__(state)
    vars(jitted).update(attributes)
    return jitted


def file_of_class(cls: type) -> str | None:
    """The file that another process has to import for this class; None if the class may travel by value."""
    is_of_file = cls.__module__.startswith(MODULE_PREFIX) and _is_found(cls.__module__, cls.__qualname__, cls)
    return sys.modules[cls.__module__].__file__ if is_of_file and (is_node(cls) or _has_own_making(cls)) else None


def class_of_file(file: str, module: str, name: str) -> type:
    """At the other end, where the file is imported under the same name: its classes find their way back, too."""
    if module not in sys.modules:
        # On another machine, the sender's folder becomes the working folder.
        sent_from, there = os.environ.get(SENT_FROM), Path(file)
        if sent_from and there.is_relative_to(sent_from):
            there = Path.cwd() / there.relative_to(sent_from)
        import_file(there, module)
    return _by_name(module, name)


def is_node(cls: type) -> bool:
    return cls in _registry()


def _has_own_making(cls: type) -> bool:
    return type(cls) not in BY_VALUE


def _registry() -> dict[type, Any]:
    return getattr(jax._src.tree_util, "_registry", {})  # noqa: TID251  # pyright: ignore[reportAttributeAccessIssue]
