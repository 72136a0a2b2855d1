"""The function jitted, or operation by operation; and from how many calls on compiling pays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.comparing.break_even import of_comparison
from benchax.errors import NotMeasured
from benchax.experiments.functions import plain
from benchax.experiments.variant import ChangedCase
from benchax.model import Comparison
from benchax.results.experiment import Facts


@dataclass(frozen=True)
class Jit:
    name: str = "jit"
    title: str = "compiled as one program (jax.jit)"
    needs: str = ""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        if case.jit:
            raise NotMeasured("it is jitted as it is; the variant eager shows what that gains")
        jitted = replace(case, jit=True, id=replace(case.id, variant=""))
        return ChangedCase(jitted, facts=lambda eager, jitted, c: _break_even(jitted.build_s, c, is_eager_first=True))


@dataclass(frozen=True)
class Eager:
    name: str = "eager"
    title: str = "not jitted: operation by operation"
    needs: str = ""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        if not case.jit:
            raise NotMeasured("it is not jitted as it is; the variant jit shows what that would gain")
        return ChangedCase(
            replace(plain(case, seed), jit=False, donate=()),
            facts=lambda jitted, eager, c: _break_even(jitted.build_s, c, is_eager_first=False),
            # Among others it would take away the program that they change.
            combines=False,
        )


def _break_even(build_s: float | None, c: Comparison | None, *, is_eager_first: bool) -> Facts:
    if c is None or build_s is None:
        return ()
    found = of_comparison(build_s, c, is_eager_baseline=is_eager_first)
    return () if found is None else (("break-even", str(found)),)


MEMBERS = (Jit(), Eager())
