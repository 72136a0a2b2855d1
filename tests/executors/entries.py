"""What workers run for the tests: imported there by name, as benchax's own entries are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def call(function: Callable[..., Any], say: Callable[..., None]) -> Any:
    """A function of a test travels by value, since no other process can import the test."""
    return function(say)
