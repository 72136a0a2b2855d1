"""Chapter 4: fewer bits, and what they cost in errors."""

from __future__ import annotations

from guide_page import TIME_S, section

import benchax


def product(a, b):
    return a @ b


@section("4. Mixed precision", product)
def precision() -> None:
    """*"BF16 for 2-3x speedup."*

    Speed and error belong together. The error is the largest difference from a run in float64, as a share of
    the largest value.
    """
    print(benchax.experiment(product, "f32[512,512]", "f32[512,512]", variants=["bf16", "f16"], max_time_s=TIME_S))
