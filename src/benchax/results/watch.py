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
from benchax.results import Displayed

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
