"""Finds arguments that could be donated: an output has their shape, dtype and sharding."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.places import jitted_at
from benchax.auditing.rule import NotApplicable, list_some, rule, try_variant, with_bytes
from benchax.auditing.traced import program_of
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.variants.donate import Donate
from benchax.inspecting.inspect import inspect_case
from benchax.program.index import Value
from benchax.results.audit import Finding
from benchax.units import size

LARGE_BYTES = 1 << 20
"""Smaller arrays come from the allocator's own stock and cost almost nothing."""


LARGE_COPY = 8 << 20
"""The size of the results that come back at each call. Copying this much takes a tenth of a millisecond or more, in
calls that can take less."""
UPDATES = {"scatter": 2, "scatter-add": 2, "dynamic_update_slice": 1}
"""Operations that change a part of their first operand, and the position of that part."""
PART = 16
"""The part is at most so small a share of the whole."""


@rule("donation-possible", "could outputs reuse the memory of arguments?", "info")
def donation_possible(e: Evidence) -> Iterable[Finding]:
    asked = e.inspection.donation
    if asked is not None and asked.arguments:
        raise NotApplicable("it donates arguments as it is")
    try:
        variant = Donate(held=e.held_arguments).change(e.case, seed=e.seed).case
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    donation = inspect_case(variant).donation
    if donation is None or donation.aliased_bytes is None:
        raise NotMeasured("it is not told which donated arguments would be used")
    taken = sorted((a for a in donation.arguments if a.is_aliased), key=lambda a: -a.size_bytes)
    saved = sum(a.size_bytes for a in taken)
    if saved < LARGE_BYTES:
        raise NotApplicable(f"nothing is donated, and {size(saved)} is all that could be: too little to speak of")
    seen = list_some([f"{a.path} {a.spec} → {a.output or 'an output'}, {size(a.size_bytes)}" for a in taken])
    result = try_variant(e, "donated", variant)
    # It happens: donating saved an FFT 2 MiB, and its calls were slower (docs/about/field-notes.md).
    if result.comparison is not None and result.comparison.verdict == "slower":
        raise NotApplicable(f"nothing is donated, and donating {size(saved)} would not pay: {result.sentence}")
    named = ", ".join(str(argument) for argument in variant.donate)
    copied = _copied_bytes(e)
    if copied >= LARGE_COPY:
        seen.append(f"{size(copied)} of them are copied as a whole in each call, to change a part")
    yield donation_possible.finding(
        f"copies {size(copied)} in each call, to change a part of it"
        if copied >= LARGE_COPY
        else f"{size(saved)} of its arguments could be donated",
        [*seen, result.sentence],
        f"If the caller needs them no more afterwards, donate them (arguments {named}): "
        "jax.jit(f, donate_argnums=...). A donated array cannot be read again.",
        related=[*jitted_at(e.def_where, e.case.id.name), ("defined here", e.def_where)],
        severity="warning" if copied >= LARGE_COPY else None,
        gain=with_bytes(result.gain, saved, f"measured: {size(saved)} less in the compiler's plan"),
    )


def _copied_bytes(e: Evidence) -> int:
    """Bytes of results that its program gives back to it, and that are an argument with a part of it changed."""
    inputs, outputs = program_of(e).inputs, program_of(e).outputs
    pairs = [(inputs[at], outputs[result]) for at, result in e.carried.positions if result < len(outputs)]
    return sum(given.size_bytes for given, output in pairs if _is_updated(given, output))


def _is_updated(given: Value, output: Value) -> bool:
    value = output
    while (op := value.maker) is not None and op.name in UPDATES:
        if PART * op.reads[UPDATES[op.name]].size_bytes > value.size_bytes:
            return False
        value = op.reads[0]
    return value is given and value is not output
