"""What a variant is: a way to change a case, under a name.

A variant of the usual kind gives back another case, which does the same in another way; `experiments/experiment.py`
compares the two. One that is no comparison of two functions (a sweep, starts of fresh processes) brings `measure`,
which gives its own row or curve. A new variant is one class in a file of `experiments/variants/`, and one line there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchax.case import Case
from benchax.model import Absent, Comparison, Memory
from benchax.results.experiment import Curve, Errors, VariantRow

Facts = tuple[tuple[str, str], ...]
Tell = Callable[[str], None]
"""Told what is being done, for a progress display."""


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
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What `Prepared.look` found."""


@dataclass(frozen=True)
class PreparedVariant:
    """A variant of one case, ready to be measured."""

    case: Case
    """The transformed one: with the inputs of the original (the same `inputs` object), or its own."""
    tolerance: float | None = None
    """Permitted relative error; None: that of the outputs' own dtype (`numerics.tolerance`)."""
    facts: Callable[[Observation, Observation, Comparison | None], Facts] | None = None
    """Extra facts, given the baseline, this variant, and the comparison of their run times where there is one."""
    measure: Callable[[Tell], VariantRow | Curve | tuple[VariantRow | Curve, ...]] | None = None
    """For what is no comparison of two functions: measures by itself, `case` is not used then."""
    family: str = ""
    """Of one family only one can be on in a combination."""
    combines: bool = True
    """False: it is never part of a combination."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of JAX under which both sides run, as jax_enable_x64."""
    look: Callable[[str], Mapping[str, Any]] | None = None
    """Run in the worker on the optimised HLO text; what it returns (plain data) is `Seen.facts` of this side."""


class Variant(Protocol):
    """One way to change a case."""

    @property
    def name(self) -> str:
        """The word on the command line."""
        ...

    @property
    def title(self) -> str:
        """What it does, in a line."""
        ...

    @property
    def needs(self) -> str:
        """What it needs that may not be there ("a GPU"); empty: nothing."""
        ...

    def prepare(self, case: Case, given: Mapping[str, Any]) -> PreparedVariant:
        """The variant of `case`.

        Args:
            given: what the user said about variants, by name of the variant ({"batch": "1..1024"}); "seed", of the
                data made from specs; "options" and "effort" of the experiment; "asked": was it asked for by name?

        Raises:
            NotAvailable: it cannot work here, or not for this case.
            NotMeasured: it could, but there would be nothing to see.
        """
        ...
