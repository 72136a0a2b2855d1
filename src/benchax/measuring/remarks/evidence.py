"""The facts about one measured case that rules can read.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchax.measuring.inputs import Inputs
from benchax.measuring.program import CallableProgram
from benchax.measuring.purity import Purity
from benchax.measuring.record import Notes
from benchax.measuring.remarks.of_calls import CallTimes
from benchax.measuring.sampling import Warmup
from benchax.measuring.stages import BuiltProgram
from benchax.model import Cost, Devices, Memory, Noise, Numerics, Samples, Stages


@dataclass(frozen=True)
class RowEvidence:
    """Everything that was learnt about one case."""

    platform: str
    program: CallableProgram
    inputs: Inputs
    built: BuiltProgram
    stages: Stages
    samples: tuple[Samples, ...]
    warmup: Warmup
    compiles_while_timed: int
    has_data: bool
    """Is the compiled program given anything at run time?"""
    output_bytes: int
    memory: Memory
    cost: Cost | None
    count_written_flops: Callable[[], float | None]
    """XLA's count of the program as it was lowered: 2.4 ms, where a rule asks for it."""
    inline_flops: float | None
    hlo: str
    numerics: Numerics | None
    noise: Noise
    mutated: tuple[str, ...] = ()
    """The values that each call changes in place, by name."""
    notes: Notes = field(default_factory=Notes)
    """Observations about its result."""
    devices: Devices | None = None
    """None: the program runs on one."""
    purity: Purity = field(default_factory=Purity)
    undecided: str = ""
    """Why it cannot be told whether the compiled result is right; empty if it can."""
    is_dispatch_async: bool = True
    """Does JAX hand big programs to another thread on CPU (jax_cpu_enable_async_dispatch)?"""
    has_glibc: bool = True

    def written_hlo(self) -> str:
        """The program before XLA optimised it; empty if it cannot be had."""
        return self.built.lowered.as_text(dialect="hlo") if self.built.lowered is not None else ""

    @property
    def times(self) -> CallTimes:
        """As this process has measured them."""
        return CallTimes({s.timer: s.summary for s in self.samples}, self.stages.call_floor)
