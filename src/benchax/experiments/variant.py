"""The definition of a variant: a way to change a case, or to measure around it, under a name. Also of a changed case.

A `ChangingVariant` gives another case, which does the same in another way; `experiments/experiment.py` compares the
two. A `MeasuringVariant` is not a comparison of two functions (a sweep, starts of fresh processes). It first announces
its plan, so that mistakes of the user show early, and then measures in a `Lab`.

A new variant is one class in a file of `experiments/variants/`, and one line there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from benchax.case import Case
from benchax.experiments.lab import Lab
from benchax.experiments.study import Observation, StudySide
from benchax.model import Comparison
from benchax.results.experiment import Curve, Facts, VariantRow

Measure: TypeAlias = Callable[[Lab], tuple[VariantRow | Curve, ...]]
"""Measures in a lab. Raises `NotAvailable` where that shows it cannot work here."""


@dataclass(frozen=True)
class ChangedCase:
    """A case that a variant made: it does the same in another way."""

    case: Case
    """With the inputs of the original (the same `inputs` object), or its own."""
    tolerance: float | None = None
    """Permitted relative error; None: the tolerance of the outputs' own dtype (`numerics.tolerance`)."""
    facts: Callable[[Observation, Observation, Comparison | None], Facts] | None = None
    """Extra facts, given the baseline, this variant, and the comparison of their run times if there is one."""
    family: str = ""
    """The family of the variant, of which only one can be on in a combination."""
    combines: bool = True
    """False: it is never part of a combination."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of JAX under which both sides run, as jax_enable_x64."""
    rounds_to: str = ""
    """The dtype in which it computes, if that is another one: its errors may be what rounding to it makes."""

    def as_side(self, name: str) -> StudySide:
        """To be looked at."""
        return StudySide(name, self.case, self.settings, self.rounds_to)


class Variant(Protocol):
    """The description that every variant gives of itself."""

    @property
    def name(self) -> str:
        """The word on the command line."""
        ...

    @property
    def title(self) -> str:
        """Describes the variant in a line."""
        ...

    @property
    def needs(self) -> str:
        """The variant's requirements that might be missing ("a GPU"); empty: no requirements."""
        ...


@runtime_checkable
class ChangingVariant(Variant, Protocol):
    """One way to change a case."""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        """The variant of `case`.

        Args:
            given: what the user said about this variant ("0,2"); None: nothing.
            seed: of the data made from specs.

        Raises:
            NotAvailable: it cannot work here, or not for this case.
            NotMeasured: it could, but there would be nothing to see.
            UsageError: `given` cannot be understood.
        """
        ...


@runtime_checkable
class MeasuringVariant(Variant, Protocol):
    """One way to measure a case and what is around it."""

    @property
    def only_by_name(self) -> bool:
        """Where everything is to be tried: it takes many processes, or other devices, so it has to be named."""
        ...

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        """How it will measure. Nothing is measured yet; arguments and errors are those of `ChangingVariant.change`."""
        ...


AnyVariant: TypeAlias = ChangingVariant | MeasuringVariant
