"""The marker `ptjb`, or `benchax`: which keywords it takes, checked by name, and what is in force for one test.

A marker on a test wins over one on its class, and that over one on its module, keyword by keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_jax_bench.options import MARKERS, TIMERS

if TYPE_CHECKING:
    import pytest


def _is_duration(value: Any) -> bool:
    from benchax.errors import UsageError
    from benchax.units import parse_duration

    try:
        return parse_duration(value) > 0
    except UsageError:
        return False


def _is_timer(value: Any) -> bool:
    return isinstance(value, str) and {name.strip() for name in value.split(",")} <= set(TIMERS)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


KEYWORDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "plot": (callable, "a function of the data"),
    "plot_summary": (callable, "a function of the data"),
    "max_time_ms": (_is_time, "milliseconds above 0"),
    "min_time_ms": (_is_time, "milliseconds above 0"),
    "max_compiles": (_is_count, "a whole number from 0 up"),
    "only_last": (lambda value: isinstance(value, bool), "True or False"),
    "save_graph": (lambda value: isinstance(value, bool), "True or False"),
    "timeout_s": (_is_duration, "a time above 0, such as 0.5, 500ms or 2min"),
    "timer": (_is_timer, f"some of {', '.join(TIMERS)}, separated by commas"),
    "verify": (lambda value: value in ("eager", "float64", "off"), "one of: eager, float64, off"),
}


def of(item: pytest.Item) -> dict[str, Any]:
    """The keywords in force for `item`."""
    merged: dict[str, Any] = {}
    for mark in _marks(item):
        merged = {**mark.kwargs, **merged}
    return merged


def _marks(item: pytest.Item) -> Iterator[pytest.Mark]:
    """The nearest first."""
    return (mark for mark in item.iter_markers() if mark.name in MARKERS)


def problem(item: pytest.Item) -> str | None:
    """Returns the problem with the markers of `item`, in a message, or None if there is no problem."""
    for mark in _marks(item):
        if mark.args:
            return f"the marker {mark.name} was given {mark.args[0]!r} without a name\nexpected keywords: {_names()}"
        for name, value in mark.kwargs.items():
            if name not in KEYWORDS:
                import difflib

                near = difflib.get_close_matches(name, KEYWORDS, n=1)
                did_you_mean = f"{near[0]!r}? Permitted are " if near else ""
                return f"the marker {mark.name} has no keyword {name!r}\nexpected {did_you_mean}{_names()}"
            is_right, expected = KEYWORDS[name]
            if value is not None and not is_right(value):
                return f"{name}={value!r} of the marker {mark.name} cannot be\nexpected {expected}"
    return None


def _names() -> str:
    return ", ".join(sorted(KEYWORDS))
