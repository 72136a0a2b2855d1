"""The memory that the compiler plans for one call, in bytes per device. It is not the memory that a process really
takes.

    predicted peak = argument + output + temp - alias + constant

The sum is ours. JAX's own `peak_memory_in_bytes` (since jax 0.7) leaves out the temporaries on CPU: `(x@x)@x` of 1 MiB
arrays takes 3 MiB and reports 2, with a donated argument 1. The plan keeps it in addition, under its own name. On
accelerators it can come from a simulation of the heap. `memory_analysis` in turn leaves out the constants, which come
from the text of the program. The sum takes everything to be alive at once, as the compiler's own plan does.
"""

from __future__ import annotations

from typing import Any

import jax

from benchax.model import Memory
from benchax.program import hlo


def memory_plan(
    compiled: jax.stages.Compiled, *, captured_bytes: int | None = None, hlo_text: str | None = None
) -> Memory:
    """The compiler's plan; the observed fields stay None, and so does everything that the backend does not tell.

    Args:
        compiled: the program.
        captured_bytes: of the arrays that the Python function closes over, if known; passed on.
        hlo_text: `compiled.as_text()`, if at hand, to spare printing a large program again.
    """
    constant_bytes = _constant_bytes(compiled, hlo_text)
    plan = _analysis(compiled)
    if plan is None:
        return Memory(constant_bytes=constant_bytes, captured_bytes=captured_bytes)
    argument, output = plan.argument_size_in_bytes, plan.output_size_in_bytes
    temp, alias = plan.temp_size_in_bytes, plan.alias_size_in_bytes
    known = constant_bytes is not None  # a sum with a hole in it would be too small a prediction
    return Memory(
        argument_bytes=argument,
        output_bytes=output,
        temp_bytes=temp,
        alias_bytes=alias,
        # No program has no code: 0 is what XLA:CPU says for "not counted" (jax 0.6.2 to 0.10.2).
        code_bytes=plan.generated_code_size_in_bytes or None,
        constant_bytes=constant_bytes,
        captured_bytes=captured_bytes,
        predicted_peak_bytes=argument + output + temp - alias + constant_bytes if known else None,
        # Since jax 0.7; kept beside our sum, for on CPU it leaves out the temporaries.
        compiler_peak_bytes=getattr(plan, "peak_memory_in_bytes", None),
    )


def _constant_bytes(compiled: jax.stages.Compiled, hlo_text: str | None) -> int | None:
    text = hlo_text if hlo_text is not None else compiled.as_text()
    return hlo.constant_bytes(text) if text else None


def _analysis(compiled: jax.stages.Compiled) -> Any | None:
    try:
        return compiled.memory_analysis()
    except Exception:
        # Documented as unstable and optional. Harmless: the None becomes "the compiler does not say" in the row.
        return None
