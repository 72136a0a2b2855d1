"""All variants, by their word on the command line. One file for each family, one line here for it.

The order matters: a combination applies them from the first to the last.
"""

from __future__ import annotations

from benchax.experiments.variant import AnyVariant
from benchax.experiments.variants import (
    alignment,
    broadcast,
    dispatch,
    donate,
    gradient_accumulation,
    jit,
    loops,
    mixed_precision,
    persistent_cache,
    pipeline,
    precision,
    remat,
    shapes,
    sharding,
    static_arguments,
    vectorize,
    xla_flags,
)

FAMILIES: tuple[tuple[AnyVariant, ...], ...] = (
    jit.MEMBERS,
    precision.MEMBERS,
    mixed_precision.MEMBERS,
    static_arguments.MEMBERS,
    shapes.MEMBERS,
    alignment.MEMBERS,
    loops.MEMBERS,
    vectorize.MEMBERS,
    broadcast.MEMBERS,
    remat.MEMBERS,
    gradient_accumulation.MEMBERS,
    sharding.MEMBERS,
    pipeline.MEMBERS,
    xla_flags.MEMBERS,
    dispatch.MEMBERS,
    persistent_cache.MEMBERS,
    donate.MEMBERS,
)
"""Each file's `MEMBERS`. Donation comes last: it is about the arguments that are left when all else is done."""

VARIANTS: dict[str, AnyVariant] = {variant.name: variant for members in FAMILIES for variant in members}
