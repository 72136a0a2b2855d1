"""Sees what JAX traces, lowers and compiles while a block runs, and what its persistent cache does with the programs.

`Listening` hears the events of `jax.monitoring`. It costs nothing on a warm call, because JAX sends no event there. It
hears everything that is compiled, including the one-operation programs of eager operations (`jnp.ones(4)` compiles a
broadcast).

The meaning of the three kinds of event (jax 0.6.2 to 0.10.2):

    trace    one per Python function traced; up to jax 0.8.0 (and not in 0.10.2) also one per `jnp` function inside
             that was never traced before, so count nothing by it
    lower    one per module written out as StableHLO
    compile  one per program that JAX requested from XLA, also when the answer came from the persistent cache, also when
             it failed

Their seconds come from JAX's own clock, `time.time()`, which is not monotonic: good for a hint, not for a stage.

JAX sends an event for a program that it reads from the persistent cache. It sends another one for a program that it
hands over to be written. Both come before the compile event of the same thread, without a name. It sends no event for a
program that it does not keep. Such a program counts as too quick when its compile event was below the threshold. That
event includes a little more than the time that JAX compares, so a program just above the threshold can be reported as
"not kept".
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, Self

import jax
import jax.monitoring

from benchax.results.watch import CachedProgram, CacheUse, Fate, Folder

Kind = Literal["trace", "lower", "compile"]

KINDS: dict[str, Kind] = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
_FATES: dict[str, Fate] = {
    "/jax/compilation_cache/cache_hits": "hit",
    "/jax/compilation_cache/cache_misses": "written",  # sent when a program is *written* to the persistent cache
}
Listener = Callable[..., None]


class CompileEvent(NamedTuple):
    """One step of one program. `fun_name` is what JAX calls it: f while tracing, jit(f) or jit_f later; None in jax
    0.6.0."""

    kind: Kind
    fun_name: str | None
    elapsed_s: float
    fate: Fate | None = None
    """For a compilation: "hit" or "written", if the persistent cache had the program or took it."""


class Listening:
    """Reports JAX's events to functions inside of a `with` block; `is_reliable` says afterwards whether all came.

    Args:
        on_step: called with each `CompileEvent`. An exception would surface in the user's own call.
        on_start: called when a step begins, if given; only a newer JAX says so.
        thread: the only thread whose events count, by its number. None: all threads.
    """

    def __init__(
        self,
        on_step: Callable[[CompileEvent], None],
        on_start: Callable[[Kind], None] | None = None,
        thread: int | None = None,
    ) -> None:
        self.is_reliable = True
        self._is_open = True
        self._thread, self._on_step, self._on_start = thread, on_step, on_start
        self._fates: dict[int, Fate] = {}

    def __enter__(self) -> Self:
        jax.monitoring.register_event_listener(self._event)
        jax.monitoring.register_event_duration_secs_listener(self._duration)
        if self._on_start:
            jax.monitoring.register_scalar_listener(self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        if self._on_start:
            _unregister("scalar", self._start)
        # Call both: a list, so that `all` cannot stop early.
        self.is_reliable = all([_unregister("event", self._event), _unregister("event_duration", self._duration)])

    def _is_heard(self) -> bool:
        """Not after the block: a JAX that cannot take a listener away goes on calling it."""
        return self._is_open and self._thread in (None, threading.get_ident())

    def _event(self, event: str, **_: object) -> None:
        if event in _FATES and self._is_heard():
            self._fates[threading.get_ident()] = _FATES[event]

    def _duration(self, event: str, duration_secs: float, **details: object) -> None:
        if event in KINDS and self._is_heard():
            name, kind = details.get("fun_name"), KINDS[event]
            fate = self._fates.pop(threading.get_ident(), None) if kind == "compile" else None
            self._on_step(CompileEvent(kind, name if isinstance(name, str) else None, duration_secs, fate))

    def _start(self, event: str, value: float, **_: object) -> None:
        if self._on_start and event in KINDS and self._is_heard():
            self._on_start(KINDS[event])


def _unregister(sort: Literal["event", "event_duration", "scalar"], listener: Listener) -> bool:
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
    # JAX asserts that the listener exists. It does not if other code has cleared all listeners.
    except (AssertionError, ValueError):  # ValueError: the assertion was compiled away by python -O
        return False
    return True


class CompileLog(Listening):
    """The traces, lowerings and compilations of the current thread inside the block, so far. It grows while the block
    runs and does not change afterwards."""

    def __init__(self) -> None:
        self.events: list[CompileEvent] = []
        super().__init__(self.events.append, thread=threading.get_ident())

    @property
    def cache_hits(self) -> int:
        """Programs that came from the persistent cache."""
        return sum(event.fate == "hit" for event in self.events)

    @property
    def compiles(self) -> int:
        """Programs that XLA really compiled, or tried to: compile events that were not hits of the persistent cache."""
        return sum(event.kind == "compile" and event.fate != "hit" for event in self.events)

    @property
    def was_asked(self) -> bool:
        """Was XLA, or the persistent cache, asked for any program? False: everything was warm in memory."""
        return any(event.kind == "compile" for event in self.events)


watch_compiles = CompileLog
"""`with watch_compiles() as log`: you can nest blocks, and each sees everything that happens inside it."""


# ---- the persistent cache ---------------------------------------------------------------------------------------

_LEAST_S = "jax_persistent_cache_min_compile_time_secs"


@contextlib.contextmanager
def watch_cache() -> Iterator[CacheUse]:
    """Yields what the persistent cache does inside the block, in all threads; complete when the block has ended.

    Costs nothing on a warm call, as JAX sends no events there.

    Example:
        >>> with benchax.watch_cache() as found:
        ...     _ = jax.jit(lambda x: x + 1)(np.ones(3))
        >>> len(found.programs)
        1
    """
    found = CacheUse(before=_folder(_directory()))

    def on_step(step: CompileEvent) -> None:
        if step.kind == "compile":
            is_too_quick = why_cache_off() is None and step.elapsed_s < jax.config.values[_LEAST_S]
            fate = step.fate or ("too quick" if is_too_quick else "not kept")
            found.programs.append(CachedProgram(step.fun_name, fate, step.elapsed_s))

    listening = Listening(on_step)
    try:
        with listening:
            yield found
    finally:
        found.is_reliable = listening.is_reliable
        _complete(found)


def _complete(found: CacheUse) -> None:
    found.directory = _directory()
    found.why_off = why_cache_off()
    found.is_enabled = found.why_off is None
    found.min_compile_time_s = jax.config.values[_LEAST_S]
    found.min_entry_size_bytes = jax.config.values["jax_persistent_cache_min_entry_size_bytes"]
    if found.is_enabled:
        found.after = _folder(found.directory)
        found.is_writable = _is_writable(found.directory)


def _directory() -> str | None:
    return jax.config.values["jax_compilation_cache_dir"] or None


def why_cache_off() -> str | None:
    """Why no program is read from or written to JAX's persistent cache; None if there is one."""
    if _directory() is None:
        return "no folder is set"
    return None if jax.config.values["jax_enable_compilation_cache"] else "jax_enable_compilation_cache is False"


def _folder(directory: str | None) -> Folder | None:
    """Returns the folder's content. Entries are the files that JAX names …-cache; XLA's own caches next to them do not
    count."""
    if directory is None or "://" in directory or not Path(directory).is_dir():
        return None
    sizes: list[int] = []
    for file in Path(directory).glob("*-cache"):
        with contextlib.suppress(OSError):  # another process may evict it under our eyes
            if file.is_file():
                sizes.append(file.stat().st_size)
    return Folder(len(sizes), sum(sizes))


def _is_writable(directory: str | None) -> bool | None:
    """Says whether a folder, or the first one above it that exists where JAX has yet to make it, can be written to."""
    if directory is None or "://" in directory:
        return None
    path = Path(directory).absolute()
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
