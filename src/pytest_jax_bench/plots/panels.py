"""A picture as data: panels of series along an axis. `pictures.py` makes them, `draw.py` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.intp]]
Kind = Literal["time", "size"]


@dataclass(frozen=True)
class PictureSeries:
    """Readings of one colour, in seconds or bytes; NaN for a missing one."""

    label: str
    color: str
    rows: Indices
    """The indices of these rows in the picture; the axis knows their places."""
    value: Floats
    low: Floats
    high: Floats
    is_hollow: bool = False
    """Eager: the colour of its jitted partner, unfilled and dashed."""
    is_mean: bool = False

    @property
    def has_values(self) -> bool:
        return bool(np.isfinite(self.value).any())


@dataclass(frozen=True)
class Panel:
    title: str
    kind: Kind
    series: tuple[PictureSeries, ...]
    is_log: bool = False

    def finite(self) -> Floats:
        values = [s.value[np.isfinite(s.value)] for s in self.series]
        return np.concatenate(values) if values else np.empty(0)


@dataclass(frozen=True)
class Band:
    """A stretch of the axis that belongs together: the runs of one commit."""

    low: float
    high: float
    label: str


@dataclass(frozen=True)
class PictureAxis:
    """The arrangement of the rows: by runs, commits, numbers, or names."""

    label: str
    positions: Floats
    """Per row."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Empty: chosen by matplotlib."""
    bands: tuple[Band, ...] = ()
    is_log: bool = False
    is_connected: bool = False
    """Whether there is something between two rows for a line to pass through."""
    are_names: bool = False
    """Names stand on the y axis, one below the other, where they can be read; values then run to the right."""


@dataclass(frozen=True)
class Picture:
    title: str
    axis: PictureAxis
    panels: tuple[Panel, ...]
    lines: Indices
    """Per row: which line it belongs to. Rows of different machines or timers are never connected."""
    failures: tuple[str, ...]
    """Per row: timeout, crashed, …; or nothing."""
    notes: tuple[str, ...] = ()
    has_common_legend: bool = False
    """One for all panels, which show the same series."""
