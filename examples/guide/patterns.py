"""Chapter 8: optimisations together, and each off in turn."""

from __future__ import annotations

from guide_page import TIME_S, inputs_of, section

import benchax
from benchax import workloads


@section("8. Patterns: what does each optimisation contribute?")
def contributions() -> None:
    """*"This single function is: JIT compiled (10-100x faster), mixed precision (2-3x faster), memory optimized."*

    You can't multiply factors from different places, and advice that suits one function is wrong for another. The first
    example is a training step, whose whole state would be bf16. The second one is inference with all optimizations on,
    and then without one of them at a time. The difference shows what each one contributes.
    """
    both = ["bf16", "donate"]
    training, inference = workloads.train_step, workloads.transformer
    print(benchax.experiment(training, *inputs_of(training), variants=both, max_time_s=TIME_S))
    print()
    print(benchax.experiment(inference, *inputs_of(inference), variants=both, ablation=True, max_time_s=TIME_S))
