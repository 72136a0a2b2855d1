"""The users' own plot functions, where they are drawn: in the process that reports.

It has them where it has collected the tests. With xdist it has not; then each record says where the functions of its
marker are defined, and they are imported from there.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

KEYWORDS = ("plot", "plot_summary")


def list_addresses(marker: Mapping[str, Any]) -> dict[str, list[str]]:
    """[file, qualified name] of each plot function of a marker."""
    return {name: _address(marker[name]) for name in KEYWORDS if marker.get(name) is not None}


def find_function(address: list[str]) -> Callable[..., Any]:
    """Raises `ImportError` where there is no such function, as inside of another one."""
    file, name = address
    try:
        return reduce(getattr, name.split("."), _module(Path(file)))
    except (AttributeError, OSError, TypeError) as error:
        raise ImportError(f"{name} is not to be found in {file}") from error


def _address(function: Callable[..., Any]) -> list[str]:
    try:
        file = inspect.getfile(function)
    except TypeError:  # of an object that is no function
        file = "?"
    return [file, getattr(function, "__qualname__", repr(function))]


def _module(file: Path) -> ModuleType:
    name = f"ptjb_plots_of_{file.stem}_{abs(hash(file))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(file.parent)
    sys.path.insert(0, folder)  # as pytest does, for what lies beside a test
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
    return module
