"""The plot functions of users: `@pytest.mark.ptjb(plot=f, plot_summary=f)`.

Such a function gets the data and returns a figure, which is saved. If it returns None, it has saved its own files. It
can fail in any way; a message then gives its name and line, and everything else continues. Figures that it leaves open
are closed.

The reporting process calls it. That process has the function if it collected the tests. With xdist it did not; then
each record brings the functions of its marker.
"""

from __future__ import annotations

import base64
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np

from benchax.errors import BenchaxError, require
from pytest_jax_bench.context import by_value
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


# ---- for another process ---------------------------------------------------------------------------------------


KEYWORDS = ("plot", "plot_summary")


def pack(marker: Mapping[str, Any], module: ModuleType | None) -> dict[str, str]:
    """The plot functions of a marker as texts; one that cannot travel is an empty text."""
    found: dict[str, str] = {}
    with by_value(module):
        for name in KEYWORDS:
            if marker.get(name) is not None:
                found[name] = ""
                with contextlib.suppress(Exception):
                    found[name] = base64.b64encode(cloudpickle.dumps(marker[name])).decode()
    return found


def unpack(text: str) -> Plot:
    """Raises whatever importing what the function needs raises, and `ValueError` for an empty text."""
    if not text:
        raise ValueError("it cannot be sent from the process that ran the test")
    return cloudpickle.loads(base64.b64decode(text))
