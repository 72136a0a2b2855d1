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
    scans,
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
    scans.MEMBERS,
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

MOST_PROMISING = ("jit", "hoist", "unroll", "accumulate-gradients", "donate", "mixed-bf16", "mixed-f16", "bf16", "f16")
"""The variants that gained most when they applied. If the user names no variants, these come first, and the others
follow."""
ONLY_BY_NAME = ("eager", "f64")
"""Slower on every backend: no process is spent on confirming that."""
OF_ACCELERATORS = ("default", "tf32", "high", "highest")
"""A CPU multiplies in one way: there they are the same program."""


def choose_promising(backend: str) -> dict[str, AnyVariant]:
    """The variants that can help on this backend, the most promising first."""
    left_out = {*ONLY_BY_NAME, *(OF_ACCELERATORS if backend == "cpu" else ())}
    rank = {name: i for i, name in enumerate(MOST_PROMISING)}
    names = sorted((name for name in VARIANTS if name not in left_out), key=lambda name: rank.get(name, len(rank)))
    return {name: VARIANTS[name] for name in names}
