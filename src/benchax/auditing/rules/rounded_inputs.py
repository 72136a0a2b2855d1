"""Finds numbers that 32 bits cannot tell apart: dates, coordinates and times whose large offset was not taken off."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import numpy as np

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.lost_digits import LostDigits, find_lost_digits
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding, Where
from benchax.specs import short_dtype

ADVICE = (
    "Take their origin off before they become JAX's, in NumPy, which has 64 bits: jnp.asarray(t - t[0]); and give the "
    "origin on, as a number of Python, to where it is needed. Or turn jax_enable_x64 on, at the price of all else in "
    "64 bits."
)


@rule("rounded-inputs", "are numbers that differ still different on the device?", "warning", of="both", pack="numerics")
def rounded_inputs(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    yield from _of_program(e) if isinstance(e, ProgramEvidence) else _of_function(e)


def _of_program(e: ProgramEvidence) -> Iterable[Finding]:
    if "lost_digits" not in e.facts:
        raise NotMeasured("what the program gives to devices was not noted")
    for where, lost in {one["where"]: LostDigits(**one["lost"]) for one in e.facts["lost_digits"]}.items():
        yield _finding(lost, where_of(where))


def _of_function(e: Evidence) -> Iterable[Finding]:
    arrays = [leaf for leaf in jax.tree.leaves(e.given) if isinstance(leaf, np.ndarray)]
    if not arrays:
        raise NotApplicable("no input is an array of NumPy's")
    lost = (find_lost_digits(array, jax.dtypes.canonicalize_dtype(array.dtype)) for array in arrays)
    yield from (_finding(one, e.def_where) for one in lost if one)


def _finding(lost: LostDigits, where: Where | None) -> Finding:
    before, after = short_dtype(lost.from_dtype), short_dtype(lost.to_dtype)
    if lost.to_dtype.startswith("int"):
        title = f"numbers in {before} wrap around in {after}"
    else:
        title = f"{lost.distinct} different numbers in {before} are {lost.left} in {after}"
    return rounded_inputs.finding(title, lost.sentences, ADVICE, where=where)
