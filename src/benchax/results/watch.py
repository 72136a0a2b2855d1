"""`Watch`: what JAX traced, lowered and compiled while a block ran, and why.

All seconds come from JAX's own clock, `time.time()`, which can be set while it runs. They rank the costs, and do not
measure a stage. `bench` measures stages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from benchax.model import Remark
from benchax.renderers import Displayed

ReasonKind = Literal[
    "first call",
    "new function",
    "structure",
    "keyword",
    "shape",
    "dtype",
    "weak type",
    "static",
    "committed",
    "sharding",
    "transformation",
    "settings",
    "config",
    "cleared",
    "unknown",
]
Threads = Literal["this", "all"]


@dataclass(frozen=True)
class Reason:
    """One thing that JAX had not seen before. `text` is a sentence that says what it was, and what it was before."""

    kind: ReasonKind
    text: str


@dataclass(frozen=True)
class Compile:
    """One program that XLA was asked for."""

    function: str
    """As its `def` calls it; an eager operation by its own name, such as sin."""
    defined: str | None
    """file:line of the function; None where it cannot be seen."""
    where: str | None
    """file:line of the call; None where it cannot be seen."""
    is_eager: bool
    """A program of one operation of JAX, called outside of any jitted function."""
    from_cache: bool
    """It came from the persistent cache: nothing was compiled, but traced, lowered and read."""
    trace_s: float | None
    """None: nothing was traced for it; the trace of an earlier call did."""
    lower_s: float | None
    compile_s: float
    """Compiling, or reading from the persistent cache."""
    arguments: str
    """The arguments that it was compiled for: x: f32[3], n=4. Empty if they are not visible."""
    reasons: tuple[Reason, ...]
    thread: str
    is_nested: bool = False
    """Compiled while another function was traced; its seconds are part of that trace."""

    @property
    def total_s(self) -> float:
        return (self.trace_s or 0.0) + (self.lower_s or 0.0) + self.compile_s

    @property
    def is_first(self) -> bool:
        """The first program of this function, as far as can be seen."""
        return any(reason.kind == "first call" for reason in self.reasons)

    @property
    def why(self) -> str:
        return "; ".join(reason.text for reason in self.reasons)


@dataclass(frozen=True)
class FunctionCount:
    """The cost of one function. Counts go by the place where it is defined. So a lambda that a loop makes in each
    iteration is one function here."""

    function: str
    defined: str | None
    is_eager: bool
    traces: int
    """How often JAX traced it, or found the trace in its cache under another key."""
    lowerings: int
    compiles: int
    """Programs that JAX requested from XLA, including those of the persistent cache."""
    cache_hits: int
    """How many of these came from the persistent cache."""
    trace_s: float
    lower_s: float
    compile_s: float
    total_s: float
    """Without what was part of another function's trace, so that the column may be added up."""


@dataclass(frozen=True)
class StepCompiles:
    """The compilations in one step of a loop."""

    programs: int
    """Programs that JAX requested from XLA, including those of the persistent cache."""
    again: int
    """Programs of functions that already had one; eager operations are separate."""
    spent_s: float
    """Tracing, lowering and compiling."""


@dataclass(frozen=True)
class WatchedSteps:
    """The steps of a loop, as far as calls tell: each begins with a call of one function."""

    function: str
    defined: str | None
    """file:line of the function; None where it cannot be seen."""
    steps: tuple[StepCompiles, ...]
    """In order. The last one goes to the end of the program."""
    before: StepCompiles
    """Ahead of the first step."""


@dataclass(eq=False)
class Watch(Displayed):
    """The events so far. It grows while the block runs and does not change afterwards.

    Example:
        >>> with benchax.watch() as w:
        ...     _ = jax.jit(lambda x: x + 1)(np.ones(3))
        >>> [compiled.arguments for compiled in w.compiles]
        ['x: f32[3]']
    """

    threads: Threads = "this"
    compiles: list[Compile] = field(default_factory=list[Compile])
    """Every program that XLA was asked for, in order; also those that came from the persistent cache."""
    counts: dict[tuple[str, str | None, bool], FunctionCount] = field(
        default_factory=dict[tuple[str, "str | None", bool], FunctionCount], repr=False
    )
    cache_hits: int = 0
    """Programs that came from the persistent cache."""
    cache_writes: int = 0
    """Programs written to the persistent cache. One too quick or too small to keep is neither a hit nor a write."""
    cache_dir: str | None = None
    """The folder of the persistent cache, when the block began; None: it is off."""
    wall_s: float | None = None
    """How long the block ran; None until it ends."""
    lost_events: bool = False
    """Other code called `jax.monitoring.clear_event_listeners()` during the block: there can be more events than are
    listed."""
    remarks: list[Remark] = field(default_factory=list[Remark])
    steps: WatchedSteps | None = None
    """By the calls of a whole program, `benchax watch --transfers`. None: calls were not watched, or none repeats."""

    @property
    def recompiles(self) -> list[Compile]:
        """Programs of functions that had one already; eager operations apart."""
        return [c for c in self.compiles if not c.is_eager and not c.is_first]

    @property
    def eager(self) -> list[Compile]:
        """Programs of one operation, from operations outside of any jitted function."""
        return [c for c in self.compiles if c.is_eager]

    @property
    def functions(self) -> list[FunctionCount]:
        """The one that cost most first."""
        return sorted(self.counts.values(), key=lambda f: -f.total_s)

    @property
    def reasons(self) -> list[str]:
        """Each recompile in a sentence: f at train.py:31: x: shape f32[3] → f32[4]"""
        return [sentence(c) for c in self.recompiles]

    @property
    def total_s(self) -> float:
        """Seconds of tracing, lowering and compiling, by JAX's clock. Times of several threads can overlap."""
        return sum(f.total_s for f in self.counts.values())

    @property
    def share(self) -> float | None:
        """How much of the block's time went into tracing, lowering and compiling; at most 1.

        None: the block has not ended, or all threads were watched, whose times overlap.
        """
        if self.wall_s is None or self.threads == "all":
            return None
        return min(1.0, self.total_s / self.wall_s)

    def asdict(self) -> dict[str, Any]:
        """Everything that was seen, in plain types."""
        plain: Callable[[Any], dict[str, Any]] = dataclasses.asdict
        return {
            "threads": self.threads,
            "compiles": [plain(c) | {"total_s": c.total_s, "is_first": c.is_first} for c in self.compiles],
            "functions": [plain(f) for f in self.functions],
            "cache_hits": self.cache_hits,
            "cache_writes": self.cache_writes,
            "cache_dir": self.cache_dir,
            "wall_s": self.wall_s,
            "total_s": self.total_s,
            "share": self.share,
            "lost_events": self.lost_events,
            "steps": plain(self.steps) if self.steps else None,
            "remarks": [plain(r) for r in self.remarks],
        }


def sentence(c: Compile) -> str:
    """f at train.py:31: x: shape f32[3] → f32[4]"""
    return f"{c.function}{f' at {c.where}' if c.where else ''}: {c.why}"


# ---- the persistent compilation cache --------------------------------------------------------------------------------
#
# `CacheUse`: what JAX's persistent compilation cache did while a block or a program ran. Public, as plain data.
#
# Seconds are of JAX's own clock, `time.time()`: good for ranking, no measurement of a stage.


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


# ---- transfers -------------------------------------------------------------------------------------------------------
#
# `Transfers`: implicit transfers between host and device, with their lines. Plain data.


Direction = Literal["host to device", "device to host"]


@dataclass(frozen=True)
class ObservedTransfer:
    """All transfers of one kind from one line."""

    direction: Direction
    where: str | None
    """file:line of the user; None where it cannot be seen."""
    what: str
    """numpy f32[64,64]; a Python float."""
    by: str
    """The function that took it, or what read it: step, jnp's add, __float__."""
    count: int
    size_bytes: int
    """The bytes of all of them together, in the dtype that the device has."""
    elapsed_s: float | None
    """The time that the host spent in them, including waiting for a result that was not ready. None: it is
    indistinguishable from the call around it."""
    in_a_row: int = 0
    """How many of them followed another one of this line with nothing called in between, as where all results are read
    at the end."""


@dataclass(eq=False)
class Transfers(Displayed):
    """The transfers so far. It grows while the block runs and does not change afterwards.

    Example:
        >>> with benchax.watch_transfers() as found:
        ...     _ = jax.jit(lambda x: x + 1)(np.ones(1000))
        >>> len(found.of("host to device"))
        1
    """

    found: dict[tuple[Direction, str | None, str, str], ObservedTransfer] = field(
        default_factory=dict[tuple[Direction, "str | None", str, str], ObservedTransfer], repr=False
    )
    sees: tuple[Direction, ...] = ()
    """Directions that can be seen on this JAX; of another one, nothing is known."""
    remarks: list[Remark] = field(default_factory=list[Remark])

    def add(self, transfer: ObservedTransfer) -> None:
        key = (transfer.direction, transfer.where, transfer.what, transfer.by)
        before = self.found.get(key)
        if before is not None:
            waited = None if transfer.elapsed_s is None else (before.elapsed_s or 0.0) + transfer.elapsed_s
            transfer = dataclasses.replace(
                transfer,
                count=before.count + transfer.count,
                size_bytes=before.size_bytes + transfer.size_bytes,
                elapsed_s=waited,
                in_a_row=before.in_a_row + transfer.in_a_row,
            )
        self.found[key] = transfer

    def of(self, direction: Direction) -> list[ObservedTransfer]:
        """The line that moved most bytes first."""
        ranked = sorted(self.found.values(), key=lambda t: (-t.size_bytes, -t.count))
        return [transfer for transfer in ranked if transfer.direction == direction]

    def count(self, direction: Direction) -> int | None:
        """How many; None where they cannot be seen."""
        return sum(t.count for t in self.of(direction)) if direction in self.sees else None

    def asdict(self) -> dict[str, Any]:
        """Everything, in plain types."""
        plain: Callable[[Any], dict[str, Any]] = dataclasses.asdict
        return {
            "transfers": [plain(t) for d in ("host to device", "device to host") for t in self.of(d)],
            "sees": list(self.sees),
            "remarks": [plain(r) for r in self.remarks],
        }
