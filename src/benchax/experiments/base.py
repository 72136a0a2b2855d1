"""A case that a variant has changed, and what was seen of either side: plain data that all of an experiment shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchax.case import Case
from benchax.model import Absent, Comparison, Memory
from benchax.results.experiment import Errors

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Observation:
    """One side, as the worker that built it saw it. Plain data: it has come from another process."""

    signature: str
    """The inputs as specs."""
    build_s: float | None
    """Trace, lower and compile; None for what is not compiled."""
    digest: str
    """Equal for equal programs; empty where there is none."""
    plan: Memory
    """The compiler's."""
    flops: float | None
    outputs: str
    """As specs: f32[8]."""
    errors: Errors | None
    bound: float
    """Relative error that the type of the outputs permits (`numerics.tolerance`)."""
    observed_bytes: int | None
    absent: tuple[Absent, ...] = ()


@dataclass(frozen=True)
class ChangedCase:
    """What a variant makes of a case: it does the same in another way."""

    case: Case
    """With the inputs of the original (the same `inputs` object), or its own."""
    tolerance: float | None = None
    """Permitted relative error; None: that of the outputs' own dtype (`numerics.tolerance`)."""
    facts: Callable[[Observation, Observation, Comparison | None], Facts] | None = None
    """Extra facts, given the baseline, this variant, and the comparison of their run times where there is one."""
    family: str = ""
    """Of one family only one can be on in a combination."""
    combines: bool = True
    """False: it is never part of a combination."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of JAX under which both sides run, as jax_enable_x64."""
