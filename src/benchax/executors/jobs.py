"""What is asked of a worker, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchax.model import Failure


@dataclass(frozen=True)
class Job:
    """A call in a worker process."""

    entry: str
    """ "package.module:function", called there as function(argument, say) -> (document, arrays)."""
    argument: Any
    """Travels by `pickling`."""
    limits: Callable[[str], float | None] = lambda stage: None
    """Seconds of wall-clock time for a stage, asked when it begins; None: no limit."""
    total_s: float | None = None
    """For the job as a whole."""
    memory_limit_bytes: int | None = None
    """Beyond what a warm worker has mapped already."""
    name: str = "the job"
    """For messages."""
    shows_output: bool = True
    """What it prints appears on this program's standard error, up to a limit."""


@dataclass(frozen=True)
class Ended:
    """How a job ended: with an answer, or with a failure."""

    document: dict[str, Any] | None
    arrays: tuple[np.ndarray, ...] = ()
    failure: Failure | None = None
    stage: str = "start"
    """The last one announced."""


def no_listener(message: dict[str, Any]) -> None:
    """Nobody wants to know."""
