"""Sends values to another process: cloudpickle, with what it does not know.

Functions of benchmark files travel by value, since no other process can import them by name. Jitted functions pickle
into objects that can be called but have lost their attributes, and with them `trace` and `lower` (jax 0.10.2): they
travel by name where they can be imported, else with their attributes beside them. What JAX knows of classes is told in
`classes.py`.

Arrays of JAX travel as NumPy arrays and are placed on the default device at the other end. Those that lie on several
devices are refused: a program over one device would be measured in place of theirs.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterable
from functools import reduce
from types import ModuleType
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np

from benchax.discovery import MODULE_PREFIX
from benchax.executors import classes

_Jitted: Any = type(jax.jit(lambda: None))

BESIDE_BYTES = 2**20
"""Buffers from this size up travel beside the pickle."""


def dumps(value: Any, beside: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Raises whatever pickling raises for what cannot be pickled.

    Args:
        beside: takes big buffers, which `loads` then needs in the same order.
    """
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(MODULE_PREFIX)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        with io.BytesIO() as buffer:
            pickler = _Pickler(buffer, protocol=5, buffer_callback=beside and _only_big(beside))
            pickler.dump(value)
            pickler.dump_registrations()
            return buffer.getvalue()
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def loads(content: bytes | memoryview, beside: Iterable[memoryview] = ()) -> Any:
    unpickler = pickle.Unpickler(io.BytesIO(content), buffers=beside)
    value = unpickler.load()
    classes.register(unpickler.load())
    return value


def _only_big(beside: Callable[[pickle.PickleBuffer], Any]) -> Callable[[pickle.PickleBuffer], bool]:
    """Of a callback, True means: this buffer stays in the pickle."""

    def take(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < BESIDE_BYTES:
            return True
        beside(buffer)
        return False

    return take


class _Pickler(cloudpickle.Pickler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nodes: list[type] = []
        """Classes that travel by value and are nodes of pytrees."""

    def dump_registrations(self) -> None:
        """Behind the value, whose classes and functions they share."""
        self.dump([classes.registration(cls) for cls in self.nodes])

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, jax.Array):
            return _array(obj)
        if isinstance(obj, type):
            return self._class(obj)
        if not isinstance(obj, _Jitted):
            return super().reducer_override(obj)
        module = sys.modules.get(getattr(obj, "__module__", None) or "")
        name = getattr(obj, "__qualname__", "")
        if module is not None and _is_found(module, name, obj):
            return _by_name, (module.__name__, name)
        return _rebuild, (type(obj), obj.__getstate__(), vars(obj))

    def _class(self, cls: type) -> Any:
        if file := classes.file_of(cls):
            return classes.of_file, (file, cls.__module__, cls.__qualname__)
        reduced = super().reducer_override(cls)
        if reduced is not NotImplemented and classes.is_node(cls):
            classes.check(cls)
            self.nodes.append(cls)
        return reduced


def _array(array: Any) -> Any:
    if len(array.sharding.device_set) > 1:
        raise TypeError(f"an array over {len(array.sharding.device_set)} devices cannot be sent to another process")
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return _key, (np.asarray(jax.random.key_data(array)), str(jax.random.key_impl(array)))
    if array.weak_type:  # scalars that were Python numbers; JAX's own way keeps that they were
        return array.__reduce__()
    return _placed, (np.asarray(array),)


def _placed(array: np.ndarray) -> Any:
    return jnp.asarray(array)


def _key(data: np.ndarray, implementation: str) -> Any:
    return jax.random.wrap_key_data(jnp.asarray(data), impl=implementation)


def _is_found(module: ModuleType, name: str, obj: Any) -> bool:
    if module.__name__ == "__main__" or module.__name__.startswith(MODULE_PREFIX):
        return False
    try:
        return reduce(getattr, name.split("."), module) is obj
    except AttributeError:
        return False


def _by_name(module: str, name: str) -> Any:
    return reduce(getattr, name.split("."), __import__(module, fromlist=["_"]))


def _rebuild(kind: Any, state: Any, attributes: dict[str, Any]) -> Any:
    jitted = kind.__new__(kind)
    jitted.__setstate__(state)
    vars(jitted).update(attributes)
    return jitted
