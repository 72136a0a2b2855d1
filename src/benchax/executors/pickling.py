"""Sends cases to another process: cloudpickle, with two things that it does not know.

Functions of benchmark files travel by value, since no other process can import them by name. Jitted functions pickle
into objects that can be called but have lost their attributes, and with them `trace` and `lower` (jax 0.10.2): they
travel by name where they can be imported, else with their attributes beside them.
"""

from __future__ import annotations

import io
import sys
from functools import reduce
from types import ModuleType
from typing import Any

import cloudpickle
import jax

from benchax.discovery import MODULE_PREFIX

_Jitted: Any = type(jax.jit(lambda: None))


def dumps(value: Any) -> bytes:
    """Raises whatever pickling raises for what cannot be pickled."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(MODULE_PREFIX)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        with io.BytesIO() as buffer:
            _Pickler(buffer).dump(value)
            return buffer.getvalue()
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, _Jitted):
            return super().reducer_override(obj)
        module = sys.modules.get(getattr(obj, "__module__", None) or "")
        name = getattr(obj, "__qualname__", "")
        if module is not None and _is_found(module, name, obj):
            return _by_name, (module.__name__, name)
        return _rebuild, (type(obj), obj.__getstate__(), vars(obj))


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
