"""The task of the tests: imported in workers by its name, as benchax's own tasks are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchax.json_values import Json
from benchax.workers.task import Say


def call(function: Callable[[Say], Any], say: Say) -> tuple[Json, tuple[np.ndarray, ...]]:
    """A function of a test travels by value, since no other process can import the test."""
    return function(say)
