"""`CacheUse`: what JAX's persistent compilation cache did while a block or a program ran. Public, as plain data.

Seconds are of JAX's own clock, `time.time()`: good for ranking, no measurement of a stage.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from benchax.results import Displayed

Fate = Literal["hit", "written", "too quick", "not kept"]
"""hit: read from the cache. written: compiled, and handed to the cache. too quick: compiled, and not kept, because that
took less than the threshold. not kept: compiled, and not kept. The reason is another one, or the cache is off."""


@dataclass(frozen=True)
class CachedProgram:
    """One program that JAX wanted from XLA."""

    name: str | None
    """As JAX calls it: jit(f). None in jax 0.6.0, which does not say."""
    fate: Fate
    elapsed_s: float
    """Compiling, or reading from the cache."""


@dataclass(frozen=True)
class Folder:
    """The content of the cache's folder."""

    entries: int
    size_bytes: int


@dataclass(eq=False)
class CacheUse(Displayed):
    """Settings as they were when the block ended; programs of all threads, in order.

    Example:
        >>> with benchax.watch_cache() as found:
        ...     pass
        >>> found.is_enabled or found.why_off != ""
        True
    """

    programs: list[CachedProgram] = field(default_factory=list[CachedProgram])
    directory: str | None = None
    """None: no cache is set."""
    is_enabled: bool | None = None
    """None: the block has not ended."""
    why_off: str | None = None
    """In words, where the cache is off."""
    is_writable: bool | None = None
    """None: the cache is off, or not a folder of this machine, so benchax does not know."""
    before: Folder | None = None
    """None: not a folder of this machine, or none yet."""
    after: Folder | None = None
    min_compile_time_s: float | None = None
    """`jax_persistent_cache_min_compile_time_secs`."""
    min_entry_size_bytes: int | None = None
    """`jax_persistent_cache_min_entry_size_bytes`."""
    is_reliable: bool = True
    """False: other code removed our listeners during the block, and programs are missing."""

    def of(self, fate: Fate) -> list[CachedProgram]:
        return [program for program in self.programs if program.fate == fate]

    def total_s(self, fate: Fate) -> float:
        return sum(program.elapsed_s for program in self.of(fate))

    @property
    def keeping_setting(self) -> str | None:
        """The setting that would have kept all programs that were too quick, or None if none was too quick."""
        return "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0" if self.of("too quick") else None

    def asdict(self) -> dict[str, Any]:
        """Everything, in plain types."""
        return dataclasses.asdict(self) | {"keeping_setting": self.keeping_setting}
