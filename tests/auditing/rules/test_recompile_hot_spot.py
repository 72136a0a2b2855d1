"""Functions that are compiled again and again."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.compiling import recompile_hot_spot
from benchax.case import make_case


def test_a_function_that_compiles_in_each_call_with_the_same_shapes() -> None:
    sizes = iter(range(3, 99))

    @jax.jit
    def inner(x: Any) -> Any:
        return x * 2

    def grows(x: Any) -> Any:
        return inner(np.ones(next(sizes), np.float32)).sum() + x

    (finding,), _ = ask(recompile_hot_spot, Evidence(make_case(grows, (np.float32(1),))))

    assert finding.title == "inner was compiled again 2 times"
