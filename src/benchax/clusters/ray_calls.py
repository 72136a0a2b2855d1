"""Calls of Ray's actors that are under way, and what came of them, in the order in which they end."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EndedCall:
    """The call that has ended, and its actor; with the method of a future that Ray calls."""

    who: Any
    what: str
    result: Callable[[], Any]
    """Its value. Raises `RayTaskError` if the call failed, and another error if the actor is gone."""


class RayCalls:
    """While nothing ends, waiting costs nothing."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._ended: queue.SimpleQueue[EndedCall] = queue.SimpleQueue()

    def begin(self, who: Any, what: str, call: Callable[[], Any]) -> None:
        """`call` returns the reference of the value that Ray should bring."""
        try:
            future = call().future()
        except self.ray.exceptions.RayError as error:  # the actor is known to be gone
            self._ended.put(EndedCall(who, what, _raising(error)))
            return
        future.add_done_callback(lambda future: self._ended.put(EndedCall(who, what, future.result)))

    def end(self, who: Any, what: str, value: Any) -> None:
        """Ends a call that ended before it began."""
        self._ended.put(EndedCall(who, what, lambda: value))

    def wait(self, timeout_s: float) -> list[EndedCall]:
        """All that has ended; at least one, unless the time is over."""
        found: list[EndedCall] = []
        with suppress(queue.Empty):
            found.append(self._ended.get(timeout=max(0.01, timeout_s)))
            while True:
                found.append(self._ended.get_nowait())
        return found


def _raising(error: Exception) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result
