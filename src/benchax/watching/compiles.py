"""Counts what JAX traces, lowers and compiles while a block runs, from the events of `jax.monitoring`.

It costs nothing on a warm call, because JAX sends no event there. It counts everything that this thread compiles, and
nothing of other threads. That includes the one-operation programs of eager operations (`jnp.ones(4)` compiles a
broadcast).

The meaning of the three kinds of event (jax 0.6.2 to 0.10.2):

    trace    one per Python function traced; up to jax 0.8.0 (and not in 0.10.2) also one per `jnp` function inside
             that was never traced before, so count nothing by it
    lower    one per module written out as StableHLO
    compile  one per program that JAX requested from XLA, also when the answer came from the persistent cache, also when
             it failed

Their seconds come from JAX's own clock, `time.time()`, which is not monotonic: good for a hint, not for a stage.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax.monitoring

Kind = Literal["trace", "lower", "compile"]

KINDS: dict[str, Kind] = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
HIT = "/jax/compilation_cache/cache_hits"
MISS = "/jax/compilation_cache/cache_misses"
"""Sent when a program is *written* to the persistent cache."""


Listener = Callable[..., None]


class CompileEvent(NamedTuple):
    """One step of one program. `fun_name` is what JAX calls it: f while tracing, jit(f) or jit_f later; None in jax
    0.6.0."""

    kind: Kind
    fun_name: str | None
    elapsed_s: float


@dataclass(eq=False)
class CompileLog:
    """The events so far. It grows while the block runs and does not change afterwards."""

    events: list[CompileEvent] = field(default_factory=list)
    cache_hits: int = 0
    """Programs that came from the persistent cache."""
    cache_misses: int = 0
    """Programs *written* to the persistent cache: one too small or too quick to keep is neither a hit nor a miss."""
    is_reliable: bool = True
    """Settled when the block ends. False: other code called `jax.monitoring.clear_event_listeners()` during the block,
    and events are missing. Or this version of JAX cannot remove a listener, so this is unknown."""

    @property
    def compiles(self) -> int:
        """Programs that XLA really compiled, or tried to: compile events that were not hits of the persistent cache."""
        return sum(event.kind == "compile" for event in self.events) - self.cache_hits

    @property
    def was_asked(self) -> bool:
        """Was XLA, or the persistent cache, asked for any program? False: everything was warm in memory."""
        return any(event.kind == "compile" for event in self.events)


@contextlib.contextmanager
def watch_compiles() -> Iterator[CompileLog]:
    """Yields a live log of the traces, lowerings and compilations of the current thread inside the block.

    You can nest blocks: each sees everything that happens inside it.
    """
    log = CompileLog()
    thread = threading.get_ident()

    # An exception in a listener would surface in the user's own call, so these do nothing that can raise.
    def on_event(event: str, **_: object) -> None:
        # Listeners are one list for the whole process, and JAX calls them on the thread that compiles.
        if threading.get_ident() == thread:
            log.cache_hits += event == HIT
            log.cache_misses += event == MISS

    def on_duration(event: str, duration_secs: float, **details: object) -> None:
        kind = KINDS.get(event)
        if kind and threading.get_ident() == thread:
            name = details.get("fun_name")
            log.events.append(CompileEvent(kind, name if isinstance(name, str) else None, duration_secs))

    listening = Listening(on_event, on_duration)
    try:
        with listening:
            yield log
    finally:
        log.is_reliable = listening.is_complete


class Listening:
    """Has JAX's events told to listeners inside of a `with` block; `is_complete` says afterwards whether all came.

    Args:
        on_event, on_duration, on_start: as `jax.monitoring` calls its listeners of events, of durations and of scalars,
            which a newer JAX sends when a step begins.
    """

    def __init__(
        self,
        on_event: Callable[..., None],
        on_duration: Callable[..., None],
        on_start: Callable[..., None] | None = None,
    ) -> None:
        self.is_complete = True
        self._is_open = True
        self._event, self._duration = self._while_open(on_event), self._while_open(on_duration)
        self._start = self._while_open(on_start) if on_start else None

    def __enter__(self) -> Listening:
        jax.monitoring.register_event_listener(self._event)
        jax.monitoring.register_event_duration_secs_listener(self._duration)
        if self._start:
            jax.monitoring.register_scalar_listener(self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        if self._start:
            unregister("scalar", self._start)
        # Both, whatever the first one says: a list, so that `all` cannot stop early.
        self.is_complete = all([unregister("event", self._event), unregister("event_duration", self._duration)])

    def _while_open(self, listener: Listener) -> Listener:
        """Not afterwards: a JAX that cannot take a listener away goes on calling it."""

        def heard(event: str, *value: float, **details: object) -> None:
            if self._is_open:
                listener(event, *value, **details)

        return heard


def unregister(sort: Literal["event", "event_duration", "scalar"], listener: Listener) -> bool:
    """Takes the listener away; False if JAX had lost it already, or offers no way (then it stays, closed).

    Public since jax 0.8.1; before that only a private function by callback (tried on 0.6.2 and 0.8.0). This is the one
    place that uses it, and can go with the support for jax below 0.8.1.
    """
    name = f"unregister_{sort}_listener"
    take_away = getattr(jax.monitoring, name, None) or getattr(
        jax._src.monitoring,  # noqa: TID251  # pyright: ignore[reportAttributeAccessIssue]
        f"_{name}_by_callback",
        None,
    )
    if take_away is None:
        return False
    try:
        take_away(listener)
    # JAX asserts that it has the listener: not so where somebody has cleared all of them, ours included.
    except (AssertionError, ValueError):  # ValueError: the assertion was compiled away by python -O
        return False
    return True
