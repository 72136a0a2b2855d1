"""`folded_constants_bytes`, where pytest-jax-bench 0.5.0 has it. For code that imports it; nothing of ours does."""

from __future__ import annotations

from typing import Any

from benchax.program.hlo import constant_bytes


def folded_constants_bytes(low: Any) -> int:
    """Bytes of all constants in a lowered program: `folded_constants_bytes(jax.jit(f).lower(x))`.

    0.5.0 counted those of floats alone. `jit_constants_bytes` counts what the compiled program holds.
    """
    return constant_bytes(low.as_text(dialect="hlo"))
