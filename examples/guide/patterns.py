"""Chapter 8: optimisations together, and each off in turn."""

from __future__ import annotations

from guide_page import TIME_S, inputs_of, section

import benchax
from benchax import workloads


@section("8. Patterns: what does each optimisation contribute?")
def contributions() -> None:
    """*"This single function is: JIT compiled (10-100x faster), mixed precision (2-3x faster), memory optimized."*

    Factors from different places cannot be multiplied, and what is right for one function is wrong for another. First a
    training step, whose whole state would be bf16; then inference, with all optimisations on, and each off in turn:
    that is what each contributes beside the others.
    """
    both = ["bf16", "donate"]
    training, inference = workloads.train_step, workloads.transformer
    print(benchax.experiment(training, *inputs_of(training), variants=both, max_time_s=TIME_S))
    print()
    print(benchax.experiment(inference, *inputs_of(inference), variants=both, ablation=True, max_time_s=TIME_S))
