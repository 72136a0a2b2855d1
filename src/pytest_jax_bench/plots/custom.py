"""The plot functions of users: `@pytest.mark.ptjb(plot=f, plot_summary=f)`.

Such a function gets the data and returns a figure, which is saved. If it returns None, it has saved its own files. It
can fail in any way; a message then gives its name and line, and everything else continues. Figures that it leaves open
are closed.

The reporting process calls it. That process has the function if it collected the tests. With xdist it did not; then
each record states where the functions of its marker are defined, and they are imported from there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchax.errors import BenchaxError, require
from pytest_jax_bench.csv.lines import COLUMNS
from pytest_jax_bench.plots.readings import Rows

Plot = Callable[[Any], Any]


class CustomPlotFailed(BenchaxError):
    """A user's plot function raised, or returned something that is not a figure."""


def draw(function: Plot, data: Rows, path: Path) -> Path | None:
    """Calls `function` with `data`, and saves the figure that it returns.

    Returns:
        The file; None if the function returned None.

    Raises:
        CustomPlotFailed: with the reason in one line.
    """
    with _plots_of_users():
        try:
            returned = function(data)
            if returned is None:
                return None
            path.parent.mkdir(parents=True, exist_ok=True)
            _figure(returned).savefig(path)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # pytest.fail and sys.exit raise what is no Exception
            raise CustomPlotFailed(f"{name_of(function)} {_describe(error)}") from error
    return path


def name_of(function: Plot) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def in_order(data: Rows) -> Rows:
    """Rows as a plot function expects them to follow one another: by tag, then by parameter, numbers as numbers.

    `last_entries_with` sorts parameters as texts, so that a line over n = 8, 16, 128 would go back and forth.
    """
    parameters = [name for name in data.dtype.names or () if name not in COLUMNS]
    numbers = [data[name] for name in parameters if data.dtype[name].kind in "iuf"]
    return data[np.lexsort([*reversed(numbers), data["tag"].astype(str)])] if numbers else data


def _figure(returned: Any) -> Any:
    """A figure, or what has one: Axes are returned as easily by mistake, and seaborn returns grids."""
    for candidate in (returned, getattr(returned, "figure", None)):
        if callable(getattr(candidate, "savefig", None)):
            return candidate
    raise TypeError(f"returned a {type(returned).__name__}, expected a matplotlib figure or None")


def _describe(error: BaseException) -> str:
    if isinstance(error, TypeError) and str(error).startswith("returned a "):
        return str(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    where = f" ({Path(frames[0].filename).name}:{frames[0].lineno})" if frames else ""
    text = " ".join(str(error).split())[:300]
    return f"raised {type(error).__name__}{where}" + f": {text}" * bool(text)


@contextlib.contextmanager
def _plots_of_users() -> Iterator[None]:
    """Settings are as before afterwards, figures that were opened are closed, and no window has appeared."""
    matplotlib = require("matplotlib", doing="drawing")
    if "MPLBACKEND" not in os.environ:
        matplotlib.use("agg")
    before = _open_figures()
    try:
        with matplotlib.rc_context():
            yield
    finally:
        for number in _open_figures() - before:
            sys.modules["matplotlib.pyplot"].close(number)


def _open_figures() -> set[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set(pyplot.get_fignums()) if pyplot else set()


# ---- where they are defined ------------------------------------------------------------------------------------


KEYWORDS = ("plot", "plot_summary")


def list_addresses(marker: Mapping[str, Any]) -> dict[str, list[str]]:
    """[file, qualified name] of each plot function of a marker."""
    return {name: _address(marker[name]) for name in KEYWORDS if marker.get(name) is not None}


def find_function(address: list[str]) -> Callable[..., Any]:
    """Raises `ImportError` if there is no such function, for example because it is inside another one."""
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
