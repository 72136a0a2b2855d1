"""The axis of values: a linear one has its unit in the label; a logarithmic one, which spans several, at each tick."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchax.errors import require
from benchax.units import BYTES, SECONDS, seconds, seconds_unit, size
from pytest_jax_bench.plots.panels import Floats, Panel
from pytest_jax_bench.plots.readings import spread


def need(module: str) -> Any:
    require("matplotlib", doing="drawing")
    return require(module, doing="drawing")


def scale_values(axes: Any, panel: Panel, to_the_right: bool) -> float:
    """Limits, ticks and unit of the axis of values.

    Returns:
        seconds or bytes per unit of the axis.
    """
    axis, scale_to, limit = (
        (axes.xaxis, axes.set_xscale, axes.set_xlim) if to_the_right else (axes.yaxis, axes.set_yscale, axes.set_ylim)
    )
    named = axes.set_xlabel if to_the_right else axes.set_ylabel
    if panel.is_log:
        _log(axis, scale_to, panel)
        named(panel.title)
        return 1.0
    unit, scale = _unit(panel)
    low, high = _limits(panel, is_from_0=to_the_right)
    limit(low / scale, high / scale)
    axis.set_major_locator(need("matplotlib.ticker").MaxNLocator(5 if to_the_right else 6))
    # An offset stands in a corner, where it is overlooked; all ticks are then read wrong.
    axis.get_major_formatter().set_useOffset(False)
    named(f"{panel.title} ({unit})")
    return scale


def _unit(panel: Panel) -> tuple[str, float]:
    top = float(panel.finite().max())
    unit = seconds_unit(top) if panel.kind == "time" else size(top).rsplit(" ", 1)[1]
    return unit, SECONDS[unit] if panel.kind == "time" else BYTES[unit]


def _limits(panel: Panel, is_from_0: bool) -> tuple[float, float]:
    """From 0, unless a history's values lie close together; even then so wide that 1 % doesn't look like a cliff."""
    ends = [panel.finite(), *(end[np.isfinite(end)] for s in panel.series for end in (s.low, s.high))]
    low, high = float(np.concatenate(ends).min()), float(np.concatenate(ends).max())
    if low > 0 and high < 1.4 * low and not is_from_0:
        middle = (low + high) / 2
        return 0.75 * middle, 1.25 * middle
    return 0.0, high * 1.08 or 1.0


def _log(axis: Any, scale_to: Any, panel: Panel) -> None:
    ticker = need("matplotlib.ticker")
    if panel.kind == "time":
        scale_to("log", nonpositive="mask")
        narrow = spread(panel.finite()) < 300
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if narrow else (1,), numticks=9))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: seconds(value, 1)))
    else:
        _log_sizes(axis, scale_to, panel.finite())
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: size(value, 1)))
    axis.set_minor_locator(ticker.NullLocator())


def _log_sizes(axis: Any, scale_to: Any, values: Floats) -> None:
    """Powers of 4, from B to GiB; 0 bytes are a size like others, and stand at the end of the axis."""
    ticker = need("matplotlib.ticker")
    least = 4.0 ** math.floor(math.log(values[values > 0].min(), 4))
    decades = math.log(values.max() / least, 4)
    ticks = [least * 4.0**step for step in range(0, math.ceil(decades) + 1, 1 + int(decades // 6))]
    if values.min() > 0:
        scale_to("log")
    else:
        scale_to("symlog", base=4, linthresh=least, linscale=0.6)
        ticks = [0.0, *ticks]
    axis.set_major_locator(ticker.FixedLocator(ticks))
