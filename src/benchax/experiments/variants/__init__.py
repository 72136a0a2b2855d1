"""All variants, by their word on the command line. One line for each.

The order matters: a combination applies them from the first to the last.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchax.experiments.variant import Variant
from benchax.experiments.variants import changes, devices, gradients, process_settings, sweeps

_DEVICES = "several devices; on a CPU they are fake"
_OVER_DEVICES = Variant(
    "devices",
    "the batch sharded over 1 … N devices",
    measures=partial(devices.measure_meshes, "1,2,4,8", "devices"),
    needs=_DEVICES,
    only_by_name=True,
    unjitted="only a jitted function is split over devices",
    cuts_batch=True,
)

# Donation comes last, because it concerns the arguments that remain after all other changes.
_LISTED = (
    Variant("jit", "compiled as one program (jax.jit)", changes.jit),
    # In a combination it would remove the program that the others change.
    Variant("eager", "not jitted: operation by operation", changes.eager, combines=False, only_by_name=True),
    Variant("bf16", "float inputs in bfloat16", changes.convert, family="inputs"),
    Variant("f16", "float inputs in float16", changes.convert, family="inputs"),
    Variant("f32", "float inputs in float32", changes.convert, family="inputs"),
    Variant(
        "f64",
        "float inputs in float64, with x64 mode on for both sides",
        changes.convert,
        family="inputs",
        only_by_name=True,
    ),
    Variant("default", "matrix products in the device's default precision", changes.multiply, family="matmul"),
    Variant("tf32", "matrix products in tensorfloat32, where the device has it", changes.multiply, family="matmul"),
    Variant("high", "matrix products in high precision (3 passes on a TPU)", changes.multiply, family="matmul"),
    Variant("highest", "matrix products in the precision of their inputs", changes.multiply, family="matmul"),
    Variant("accumulate-f32", "products and sums of bf16 and f16 accumulated in float32", changes.accumulate_f32),
    Variant(
        "mixed-bf16",
        "products in bfloat16, everything else unchanged: parameters stay float32",
        changes.mix,
        family="inputs",
    ),
    Variant(
        "mixed-f16",
        "products in float16, everything else unchanged; the loss is scaled",
        changes.mix,
        family="inputs",
    ),
    Variant(
        "static",
        "an argument static, or traced, over a list of its values (static=n=1,2,3)",
        measures=sweeps.measure_static,
        untold="it needs an argument and its values: static=n=1,2,3",
        unjitted="only a jitted function has static arguments",
    ),
    Variant(
        "shapes",
        "inputs of many sizes: exact, padded, in buckets (shapes=x.0=100,130,200)",
        measures=sweeps.measure_shapes,
        untold="it needs axes and sizes: shapes=x.0=100,130,200",
        unjitted="only a jitted function is compiled for each shape",
    ),
    Variant(
        "alignment",
        "sizes n-1, n, n+1, padded to 128 and to a power of two (alignment=x.0=1000)",
        measures=sweeps.measure_alignment,
        untold="it needs axes: alignment=x.0+w.0, or with a size: alignment=x.0=1000",
    ),
    Variant("unroll", "loops of scan with 4 iterations written out (unroll=8)", changes.unroll),
    Variant(
        "hoist",
        "products in a scan that don't need the carry, computed before it for all iterations",
        changes.hoist_products,
    ),
    Variant(
        "loop",
        "the function as one iteration, step(i, state), of a loop in five ways (loop=50)",
        measures=changes.measure_loops,
        untold="it needs a trip count, loop=50, or a condition of the state, loop=model.py:unfinished; "
        "the function is one iteration, step(i, state)",
    ),
    Variant(
        "vmap",
        "batches of examples: loop, vmap, jit(vmap), vmap(jit), throughput (vmap=x=1..256)",
        measures=sweeps.measure_vmap,
        untold="it needs batch sizes: vmap=x=1..256, where x gets a batch axis",
    ),
    Variant(
        "in_axes",
        "vmap with shared arguments (in_axes=None), or with copies of them (in_axes=x=64)",
        measures=sweeps.measure_in_axes,
        untold="it needs the arguments with a batch axis, and its size: in_axes=x=64",
    ),
    Variant(
        "remat",
        "gradient with jax.checkpoint: recomputed in the backward pass, not kept",
        gradients.remat,
        gradients.measure_remat,
    ),
    Variant(
        "accumulate-gradients",
        "gradient as the mean over micro-batches, one after the other",
        measures=gradients.measure_accumulation,
        cuts_batch=True,
    ),
    _OVER_DEVICES,
    replace(
        _OVER_DEVICES,
        name="mesh",
        title="batch and matrices sharded over meshes of two axes",
        measures=partial(devices.measure_meshes, "8x1,4x2,2x4", "mesh (data x model)"),
    ),
    Variant(
        "pipeline",
        f"{devices.TITLE} (pipeline=model.py:STAGES=1,2,4)",
        measures=devices.measure_pipeline,
        needs=_DEVICES,
        untold="it needs the stages, which a program doesn't show: pipeline=model.py:STAGES, "
        "a list of functions y = stage(x)",
    ),
    Variant(
        "flags",
        "other flags of XLA (flags=--xla_…)",
        measures=process_settings.measure_flags,
        untold="it needs the flags: flags=--xla_cpu_enable_fast_math=true",
    ),
    Variant(
        "sync",
        "each call waits for its result: asynchronous dispatch off",
        measures=process_settings.measure_sync,
        needs="the CPU backend",
        only_by_name=True,
    ),
    Variant(
        "cache",
        "a start with a filled persistent compilation cache, and one with an empty cache",
        measures=process_settings.measure_cache,
        only_by_name=True,
    ),
    Variant(
        "donate",
        "arguments donated, so that outputs reuse their memory",
        changes.donate,
        unjitted="only a jitted function can donate its arguments",
    ),
)

VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _LISTED}

MOST_PROMISING = ("jit", "hoist", "unroll", "accumulate-gradients", "donate", "mixed-bf16", "mixed-f16", "bf16", "f16")
"""The variants that gained most when they applied. If the user names no variants, these come first, and the others
follow."""
OF_ACCELERATORS = ("default", "tf32", "high", "highest")
"""A CPU multiplies in one way: there they are the same program."""


def choose_promising(backend: str) -> dict[str, Variant]:
    """The variants that can help on this backend, the most promising first."""
    left_out = OF_ACCELERATORS if backend == "cpu" else ()
    rank = {name: i for i, name in enumerate(MOST_PROMISING)}
    names = [name for name, variant in VARIANTS.items() if not variant.only_by_name and name not in left_out]
    return {name: VARIANTS[name] for name in sorted(names, key=lambda name: rank.get(name, len(rank)))}
