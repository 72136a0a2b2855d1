"""The task by which benchmarks run a function in a worker: no other process can import it from a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchax.workers.task import Say


def call(function: Callable[[Say], Any], say: Say) -> np.ndarray:
    """What `function` gives, an array."""
    return function(say)
