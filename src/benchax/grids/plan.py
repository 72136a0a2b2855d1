"""The plan of a grid: which functions, which data under which labels, and the seed of each trial.

Nothing runs here. The worker (`cell.py`) makes the inputs from a data point.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchax.errors import UsageError
from benchax.model import Scalar
from benchax.printable import truncate
from benchax.specs import is_spec, parse_spec, spec_of
from benchax.wrappers import name_of

Label = Scalar
"""The label of a data point: a number, a text or a bool."""
Key = tuple[str, Label]
"""A cell: function and data point."""

LONGEST_LABEL = 60


def whole(name: str, given: Any, least: int, most: float = math.inf) -> int:
    """`given` as an int from `least` up; NumPy's integers are welcome, bools and 2.5 are not."""
    is_whole = not isinstance(given, bool) and hasattr(given, "__index__")
    if not is_whole or not least <= int(given) <= most:
        bounds = f"from {least} up" if most == math.inf else f"from {least} to {most:,}"
        raise UsageError(f"{name} cannot be {given!r}", f"a whole number {bounds}")
    return int(given)


def named_functions(given: Any) -> dict[str, Callable[..., Any]]:
    """By name; of a list the functions' own names. A second one of a name is called `name#2`, in the order given."""
    expected = "a list of functions, or a mapping from names to functions"
    if callable(given):
        raise UsageError(f"functions={given!r} of a grid", expected, "a single function is [f]")
    named: dict[str, Callable[..., Any]] = {}
    for name, fn in _pairs("functions", given, expected, "a single function is [f]"):
        if not callable(fn):
            raise UsageError(f"{fn!r}, a {type(fn).__name__}, is not a function of a grid", expected)
        if name is not None and (not isinstance(name, str) or not name):
            raise UsageError(f"the name {name!r} of a function", "a text that is not empty")
        named[_distinguish(name_of(fn) if name is None else name, named)] = fn
    return named


def points(given: Any, make: Callable[[Any, Any], Any] | None) -> dict[Label, Any]:
    """The data points by labels that differ; those of a list are called by their value, spec or shape.

    A point is an input, a tuple of inputs, or a function of a key that makes them; with `make`, it is the second
    argument of `make`, after the key.
    """
    expected = "a list of data points, or a mapping from labels to data points"
    if hasattr(given, "dtype") and not (make and getattr(given, "ndim", 0) == 1):
        raise UsageError(
            f"data of a grid is an array of shape {getattr(given, 'shape', ())}", expected, "one array is [x]"
        )
    found: dict[Label, Any] = {}
    for label, value in _pairs("data", given, expected, "a single data point is [x]"):
        if isinstance(value, str) and make is None and is_spec(value):
            parse_spec(value)  # a slip is told now, not in the middle of the grid
        found[_distinguish(_label(label, value), found)] = value
    return found


def _pairs(what: str, given: Any, expected: str, hint: str) -> list[tuple[Any, Any]]:
    """(name, value) of a mapping, or (None, value) of a list."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"{what}={given!r} of a grid", expected, hint)
    pairs = list(given.items()) if isinstance(given, Mapping) else [(None, value) for value in given]
    if not pairs:
        raise UsageError(f"a grid without {what}", expected)
    return pairs


def trial_seed(seed: int, label: Label, trial: int) -> int:
    """Returns the seed of one trial's inputs. It depends on the label, not on its place, so that a point keeps its
    inputs when others are added or removed. It is the same for all functions."""
    text = f"{seed}|{type(label).__name__}|{label}|{trial}"
    # 31 bits, because `jax.random.key` takes such a number unchanged with or without x64.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def _label(given: Any, value: Any) -> Label:
    """The label that was given, or else the data point's own: its value, name, spec or shapes."""
    plain = _plain(value if given is None else given)
    if isinstance(plain, str | int | float | bool):
        return plain
    if given is None and callable(value):
        return name_of(value)
    text = _shapes(value) if given is None else str(plain)
    return truncate(text, LONGEST_LABEL)


def _shapes(value: Any) -> str:
    """f32[8] for an array, (f32[8], f32[]) for a tuple of them; the type for what has no shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return spec_of(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shapes(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_shapes, value)) + ")"
    return str(value) if isinstance(value, int | float | bool | None) else type(value).__name__


def _plain(value: Any) -> Any:
    """np.int64(4), as `range` and NumPy's own ranges are mixed by people, is the label 4; arrays stay what they are."""
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 else value


def _distinguish(name: Any, taken: Mapping[Any, Any]) -> Any:
    # For a dict, 1, 1.0, and True are the same key; as labels they look the same.
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"
