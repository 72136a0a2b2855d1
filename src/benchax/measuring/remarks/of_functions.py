"""Remarks about the function that was measured: what it was given, what it computes and changes, and is it right?

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchax.environment import count_cores
from benchax.measuring.remarks.evidence import RowEvidence
from benchax.measuring.state import label
from benchax.model import Remark
from benchax.program.cost import INLINE_FLOPS
from benchax.program.hlo import aliased_parameters, entry_uses_parameters, opaque_calls
from benchax.program.jaxpr import equations, user_line
from benchax.program.work import least_operations
from benchax.static_leaves import find_hidden
from benchax.units import count, plural, seconds, size

UNUSED_INPUTS = (
    "the compiled program does not depend on its inputs: it was folded into a constant, or computes the same in "
    "every call"
)
FOLDED_SHARE = 0.01
CALLBACKS = {
    "debug_print": "jax.debug.print",
    "debug_callback": "jax.debug.callback",
    "pure_callback": "jax.pure_callback",
    "io_callback": "io_callback",
}
"""By the name of the primitive. Before JAX 0.8, jax.debug.print is a jax.debug.callback."""


def wrong_result(e: RowEvidence) -> Remark | None:
    if e.numerics is None or e.numerics.agrees:
        return None
    reference = {"eager": "eager", "float64": "float64"}[e.numerics.reference]
    return Remark("wrong-result", "error", f"the compiled result differs from the {reference} one: {e.numerics.why}")


def not_verified(e: RowEvidence) -> Remark | None:
    return Remark("not-verified", "warning", f"the result was not verified: {e.undecided}") if e.undecided else None


def nonfinite_result(e: RowEvidence) -> Remark | None:
    return describe_nonfinite_result(e.notes.nonfinite, "the result")


def describe_nonfinite_result(nonfinite: str, what: str) -> Remark | None:
    """None if all of it is finite.

    Args:
        nonfinite: as `numerics.describe_nonfinite` says it.
        what: whose values these are.
    """
    if not nonfinite:
        return None
    return Remark(
        "nonfinite-result",
        "warning",
        f"Not all values of {what} are finite ({nonfinite}); equal ones count as agreement. Check the inputs.",
    )


def no_outputs(e: RowEvidence) -> Remark | None:
    if not e.notes.returns_nothing or e.program.kind == "eager":
        return None
    return Remark(
        "no-outputs",
        "warning",
        "The function returns nothing, so there is nothing to check, and XLA removes all work without side effects. "
        "Return the result.",
    )


def host_callbacks(e: RowEvidence) -> Remark | None:
    if e.built.traced is None:
        return None
    found = (each.equation for each in equations(e.built.traced.jaxpr) if each.equation.primitive.name in CALLBACKS)
    listed = [f"{CALLBACKS[equation.primitive.name]} at {user_line(equation)}" for equation in found]
    if not listed:
        return None
    return Remark(
        "host-callbacks",
        "warning",
        f"Each call runs Python on the host, and its time includes that: {_listed(list(dict.fromkeys(listed)))}.",
    )


def fake_devices(e: RowEvidence) -> Remark | None:
    if e.devices is None or not e.devices.is_fake:
        return None
    cores = plural(count_cores(), "core")
    return Remark(
        "fake-devices",
        "warning",
        f"{e.devices.count} fake devices share {cores} of this CPU. Counts, bytes, and results match real devices. "
        "Times don't.",
    )


def numpy_inputs(e: RowEvidence) -> Remark | None:
    if not e.inputs.numpy_bytes:
        return None
    transfer = e.stages.transfer_in
    moved = f", {seconds(transfer.median_s)} here," if transfer else ""
    verb = "hands them over without a copy" if transfer and transfer.is_zero_copy else "transfers them"
    return Remark(
        "numpy-inputs",
        "warning",
        f"inputs of {size(e.inputs.numpy_bytes)} came as NumPy arrays and were put on the device once, before "
        f"timing; a call with NumPy arrays {verb}{moved} every time",
    )


def narrowed(e: RowEvidence) -> Remark | None:
    if not e.inputs.narrowed:
        return None
    what = ", ".join(e.inputs.narrowed)
    return Remark("narrowed", "warning", f"inputs were narrowed from {what}: JAX's 64-bit mode (jax_enable_x64) is off")


def no_inputs(e: RowEvidence) -> Remark | None:
    if e.has_data or e.program.kind == "eager":
        return None
    return Remark(
        "no-inputs",
        "warning",
        "the function takes no arrays, so all that it computes is known when it is compiled and XLA may fold it "
        "into a constant: pass the data as arguments",
    )


def folded(e: RowEvidence) -> Remark | None:
    """The compiled program does almost none of the written work: XLA folded it into constants, or it is unused.

    XLA's counts are a first look. They count a cumulative sum of n as n² operations in the written form, and as n in
    the compiled form. The remark uses benchax's own count of both texts.
    """
    if not e.has_data or not e.hlo or e.notes.returns_nothing or (e.cost and e.cost.has_loops):
        return None
    if entry_uses_parameters(e.hlo) is False:
        return Remark("folded", "warning", UNUSED_INPUTS)
    written, left = e.count_written_flops(), e.cost.flops if e.cost else None
    # Nobody can look into the calls of libraries; a program of transcendentals alone has no FLOPs by XLA's count.
    if not written or written < INLINE_FLOPS or (left or 0.0) >= FOLDED_SHARE * written or opaque_calls(e.hlo):
        return None
    before, after = least_operations(e.written_hlo()), least_operations(e.hlo)
    if before is None or after is None or before < INLINE_FLOPS or after >= FOLDED_SHARE * before:
        return None
    return Remark(
        "folded",
        "warning",
        f"of {count(before, 'FLOP')} written, {count(after, 'FLOP')} are left in the compiled program: the rest was "
        "computed when it was compiled, or its results are not used",
    )


def not_jitted(e: RowEvidence) -> Remark | None:
    if e.program.was_jitted or e.program.kind == "eager":
        return None
    hidden = [label(path, e.inputs.labels) for path in find_hidden((e.inputs.args, e.inputs.kwargs))]
    static = f" with static {_listed(hidden)}" if hidden else ""
    return Remark(
        "not-jitted",
        "info",
        f"You passed an unjitted function, so benchax measured {e.program.jitted_by}(f){static}. To measure it without "
        "jit, use --no-jit (jit=False).",
    )


def impure(e: RowEvidence) -> Remark | None:
    if not e.purity.difference:
        return None
    return Remark(
        "impure",
        "error",
        f"Two traces of the function differ: {e.purity.difference}. It reads a value that changes on its own (random "
        "numbers of Python or NumPy, the time, a counter), and a compiled program keeps the first value. Pass such "
        "values as arguments.",
    )


def reads_clock(e: RowEvidence) -> Remark | None:
    if not e.purity.clock_reads:
        return None
    return Remark(
        "reads-clock",
        "warning",
        f"it reads the clock while it is traced ({_listed(e.purity.clock_reads)}), and a compiled call does not: the "
        "program keeps what was read first. Pass the time as an argument; to time a part of it, use benchax.clock",
    )


def changed_by_tracing(e: RowEvidence) -> Remark | None:
    if not e.purity.changed:
        return None
    listed = _listed([f"{name!r} ({change})" for name, change in e.purity.changed.items()])
    return Remark(
        "changed-by-tracing",
        "info",
        f"each trace changes {listed}, and a compiled call does not: what Python does there is done when it is built",
    )


def stateful(e: RowEvidence) -> Remark | None:
    if not e.mutated:
        return None
    return Remark(
        "stateful",
        "info",
        f"each call changes {_listed(e.mutated)} in place: every timer times these changes with the outputs, and every "
        "call starts from the same values",
    )


def state_dropped(e: RowEvidence) -> Remark | None:
    if not e.notes.dropped:
        return None
    return Remark(
        "state-dropped",
        "error",
        f"called eagerly, it changes {_listed(e.notes.dropped)} in place; compiled, it does not, and neither does it "
        "do the work that leads there. jax.jit takes objects of Flax NNX for trees of arrays: use flax.nnx.jit, or "
        "return the new state",
    )


def undetermined_state(e: RowEvidence) -> Remark | None:
    if not e.notes.undetermined:
        return None
    return Remark(
        "undetermined-state",
        "warning",
        f"{_listed(e.notes.undetermined)} cannot be verified: the compiled and the eager run differ, and by as "
        "much as rounding alone changes it. So it is where an optimizer divides a gradient of zero by its own size",
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def donation_unused(e: RowEvidence) -> Remark | None:
    if not e.built.donates or not e.hlo or aliased_parameters(e.hlo):
        return None
    return Remark(
        "donation-unused",
        "warning",
        "a donated argument was not used: no output has its shape, dtype and layout, so nothing was saved",
    )
