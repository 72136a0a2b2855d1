"""The data of one call, for rules that need more of a function than its program."""

from __future__ import annotations

from typing import Any

import jax

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable
from benchax.errors import NotMeasured
from benchax.specs import is_spec


def check_real(e: Evidence) -> None:
    """Raises `NotApplicable` where its inputs were made up here of specs, and say nothing about real ones."""
    if any(isinstance(leaf, str) and is_spec(leaf) for leaf in jax.tree.leaves(e.given)):
        raise NotApplicable("its inputs are made up of specs, and real ones are others")


def inputs_of_call(e: Evidence) -> tuple[Any, ...]:
    """The inputs of the jaxpr at one call, None in place of those that were not kept.

    Raises:
        NotApplicable: as `check_real`.
        NotMeasured: none was kept.
    """
    check_real(e)
    if len(e.data) != len(e.closed_jaxpr.in_avals):
        raise NotMeasured("what it was called with was not kept, which is done of small arrays")
    return tuple(e.data)
