"""Chapter 9: shapes and precisions that a machine likes."""

from __future__ import annotations

from guide_page import TIME_S, section

import benchax
from guide.precision import product


@section("9. Hardware: shapes it likes", product)
def alignment() -> None:
    """*"Powers of 2. Prefer 128-aligned shapes."*

    This compares a size with the sizes around it. Is one more or one less slower, and does padding pay?
    """
    given = {"alignment": "a.0+a.1+b.0+b.1=250"}
    print(
        benchax.experiment(
            product, "f32[250,250]", "f32[250,250]", variants=["alignment"], given=given, max_time_s=TIME_S
        )
    )


@section("9. Hardware: TF32", product)
def tf32() -> None:
    """*"Enable TF32 on A100."*

    If the device doesn't know a setting, the setting does nothing. Then the compiled program is the same, and there is
    nothing to time.
    """
    print(benchax.experiment(product, "f32[512,512]", "f32[512,512]", variants=["tf32"], max_time_s=TIME_S))
