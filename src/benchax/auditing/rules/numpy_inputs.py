"""Finds NumPy arrays that are given to a compiled function: they cross to the device anew in each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.origins import made_by
from benchax.auditing.rule import NotApplicable, list_some, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.measuring.inputs import fit, make_inputs, static_arguments
from benchax.measuring.program import program_of
from benchax.results.audit import Finding, Where
from benchax.results.transfers import ObservedTransfer
from benchax.specs import spec_of
from benchax.static_leaves import reveal
from benchax.units import count, percent, seconds, size

ADVICE = (
    "Place them once, before the calls: x = jax.device_put(x). A loader can place the next batch while the "
    "device works on this one."
)
CONVERSIONS = ("stage", "asarray", "array", "_array_copy", "copy", "convert_element_type")
"""What jnp.asarray and jnp.array send is asked for: whether it is the same each time is another rule's,
repeated-device-put."""
OFTEN = 5
"""A program has to send its data once, and may do so in pieces."""
LARGE_BYTES = 1 << 20
"""In a program, less than this, sent from one line in all the time that was watched, is an info."""
RATE, LEAST_SHARE = 1e9, 0.05
"""Bytes a second, and the share of a program's time below which it is an info as well: an H100 took 1.4 to 8 GB a
second from NumPy (docs/verified), a core of a CPU copies faster, and converts float64 at about this rate."""
EACH_S, NEGLIGIBLE_SHARE = 5e-6, 0.002
"""Of each array, some of which is Python's (2 µs on a core of a cloud machine), and the share of a program's time below
which nothing is said."""


@rule("numpy-inputs", "do its inputs come from NumPy in each call?", "warning", of="both")
def numpy_inputs(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    yield from _of_program(e) if isinstance(e, ProgramEvidence) else _of_function(e)


def _of_function(e: Evidence) -> Iterable[Finding]:
    args, kwargs = e.given
    static = static_arguments(e.case, args, kwargs)
    dynamic = {f"args[{i}]": v for i, v in enumerate(args) if i not in static}
    dynamic |= {f"kwargs[{k!r}]": v for k, v in kwargs.items() if k not in static}
    arrays = {path: leaf for path, leaf in _leaves(dynamic) if isinstance(leaf, np.ndarray)}
    if not arrays:
        if not any(isinstance(leaf, jax.Array) for _, leaf in _leaves(dynamic)):
            raise NotApplicable("no input is an array of the caller's")
        return
    closed_over = e.failure is None and not e.plain_case.donate
    result = try_variant(e, "inputs on the device", *_hold_inputs(e)) if closed_over else None
    seen = list_some([f"{path} is a NumPy {spec_of(a)}, {size(a.nbytes)}" for path, a in arrays.items()])
    wide = [path for path, a in arrays.items() if jax.dtypes.canonicalize_dtype(a.dtype) != a.dtype]
    seen += [f"converted to 32 bits in each call: {', '.join(list_some(wide))}"] if wide else []
    seen += [result.sentence] if result else ["gain not measured: a donated array can be given only once"]
    total = sum(a.nbytes for a in arrays.values())
    # On CPU an array that begins at a multiple of 64 bytes is taken over without a copy: then nothing is to be gained.
    is_free = result is not None and result.comparison is not None and result.comparison.verdict == "same"
    yield numpy_inputs.finding(
        f"{count(len(arrays), 'NumPy array')} of {size(total)} among its inputs",
        seen,
        ADVICE,
        where=e.def_where,
        gain=result.gain if result else None,
        severity="info" if is_free else None,
    )


def _of_program(e: ProgramEvidence) -> Iterable[Finding]:
    transfers = e.transfers
    if transfers is None or "host to device" not in transfers.sees:
        raise NotMeasured("transfers to the device could not be seen")
    for (by, where), sent in _by_line(e, transfers.of("host to device")).items():
        if (finding := _of_line(e, by, where, sent)) is not None:
            yield finding


def _by_line(
    e: ProgramEvidence, sent: Iterable[ObservedTransfer]
) -> Mapping[tuple[str, str | None], list[ObservedTransfer]]:
    """By function and line; eager operations of one line, of which an index alone takes two, have no name."""
    called = {(line["function"], line["where"]) for line in e.facts.get("lines") or ()}
    lines: dict[tuple[str, str | None], list[ObservedTransfer]] = {}
    for t in sent:
        # Single numbers are JAX's own more often than not: `jnp.ones` and `grad` make them of NumPy's.
        is_asked_for = t.by in CONVERSIONS
        if t.what.startswith("NumPy ") and "[]" not in t.what and t.count >= OFTEN and not is_asked_for:
            by = "" if called and (t.by, t.where) not in called else t.by
            lines.setdefault((by, t.where), []).append(t)
    return lines


def _of_line(e: ProgramEvidence, by: str, where: str | None, sent: Sequence[ObservedTransfer]) -> Finding | None:
    total = sum(t.size_bytes for t in sent)
    operations = ", ".join(dict.fromkeys(t.by for t in sent))
    seen = list_some(
        [f"{t.what}{'' if by else f', by {t.by}'}: {count(t.count)} times, {size(t.size_bytes)}" for t in sent],
        what="shapes",
    )
    made, names = _made_at(e, by, where)
    if names:
        at = f", made at {made[0]}:{made[1]}" if made is not None else ""
        seen += [f"given as {', '.join(names)}, the same each time{at}"]
    wall_s, is_quick = e.watch.wall_s, False
    if not names and wall_s is not None and total / RATE < LEAST_SHARE * wall_s:
        if total / RATE + sum(t.count for t in sent) * EACH_S < NEGLIGIBLE_SHARE * wall_s:
            return None
        is_quick = True
        seen += [f"at {RATE / 1e9:g} GB a second less than {percent(LEAST_SHARE)} of the {seconds(wall_s)}"]
    return numpy_inputs.finding(
        f"{f'{by} takes' if by else f'eager {operations} take'} NumPy arrays in each call: {size(total)}",
        seen,
        ADVICE,
        where=where_of(where),
        severity="info" if total < LARGE_BYTES or is_quick else None,
    )


def _made_at(e: ProgramEvidence, by: str, where: str | None) -> tuple[Where | None, list[str]]:
    """(the line that makes the arrays of NumPy which are the same in each call from a line, if that is one line; their
    names)"""
    lines = [line for line in e.facts.get("lines") or () if line["where"] == where and line["function"] == by]
    names = [name for line in lines for name, n, same in line.get("of_numpy", ()) if same + 1 >= n >= OFTEN]
    # To be sent once they have to be sent where they are kept, wherever they come from.
    made = {made_by(where_of(where), by, name, as_kept=True) for name in names}
    return (made.pop() if len(made) == 1 else None), names


def _leaves(tree: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in tree.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(value):
            yield name + jax.tree_util.keystr(path), leaf


# ---- the same call with arrays of NumPy and with arrays on the device ---------------------------------------------


def _hold_inputs(e: Evidence) -> tuple[Case, Case]:
    """(on the device, as they were given): calls without arguments, which make theirs before the first."""
    # Inputs of a case are on the device before any clock starts; what the function holds itself crosses in each call.
    inputs = _nothing
    device, host = (
        replace(e.case, fn=_Held(e.case, e.seed, on_device), inputs=inputs, static=(), donate=(), jit=False)
        for on_device in (True, False)
    )
    return device, host


def _nothing() -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return (), {}


class _Held:
    def __init__(self, case: Case, seed: int, on_device: bool) -> None:
        self.case, self.seed, self.on_device = case, seed, on_device
        self.made: Any = None

    def __call__(self) -> Any:
        if self.made is None:
            self.made = (program_of(self.case).call, *self._inputs())
        call, args, kwargs = self.made
        return call(*args, **kwargs)

    def _inputs(self) -> tuple[Any, Any]:
        placed = make_inputs(self.case, self.seed)
        if self.on_device:
            return placed.args, placed.kwargs
        given = jax.tree.map(_as_given, self.case.inputs(), reveal((placed.args, placed.kwargs)))
        return fit(self.case, given, placed.static)


def _as_given(given: Any, placed: Any) -> Any:
    return given if isinstance(given, np.ndarray) else placed
