"""How deep in Python a call stands, and calls that stand deep."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def under(frames: int, call: Callable[[], Any]) -> Any:
    """`call()`, so many frames further down."""
    return call() if frames == 0 else under(frames - 1, call)


def count_frames() -> int:
    """Frames above the caller's."""
    frame, count = sys._getframe().f_back, 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count
