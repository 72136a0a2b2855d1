"""Describes a function's two ways to run, for `benchax run --break-even`.

The text has the operations that an eager call starts one by one, the result of the compiler, and the types of inputs
and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchax.errors import BenchaxError
from benchax.units import plural

if TYPE_CHECKING:
    from benchax.case import Case
    from benchax.model import CaseId
    from benchax.results.inspection import Argument

MOST_ARGUMENTS = 3


def describe_programs(cases: Mapping[CaseId, Case]) -> list[str]:
    """Returns a sentence for each jitted case, with its name if there are several. Builds each again, without a run."""
    said = [(id.label, describe_program(case)) for id, case in cases.items()]
    return [f"{label}: {text}" if len(said) > 1 else text for label, text in said]


def describe_program(case: Case) -> str:
    """Returns a text such as: An eager call starts 7 operations one by one; the compiled program has 1 fusion. It takes
    i32[8] and gives f32[8]."""
    from benchax.inspecting.inspect import inspect_case

    try:
        found = inspect_case(case)
    except BenchaxError as error:
        return f"Its operations and fusions are not known, because {error.problem}"
    if found.jaxpr is None or found.counts is None:
        missing = "jaxpr" if found.jaxpr is None else "counts"
        return f"Its operations and fusions are not known, because {found.why_absent(missing)}"
    operations = plural(found.jaxpr.outer_equations, "operation")
    fusions = plural(found.counts.fusions, "fusion") if found.counts.fusions else "no fusion"
    return (
        f"An eager call starts {operations} one by one; the compiled program has {fusions}. "
        f"It takes {_list(found.jaxpr.inputs)} and gives {_list(found.jaxpr.outputs)}."
    )


def _list(arguments: Sequence[Argument]) -> str:
    specs = [each.spec for each in arguments]
    more = len(specs) - MOST_ARGUMENTS
    return ", ".join(specs[:MOST_ARGUMENTS]) + (f" and {more} more" if more > 0 else "") or "nothing"
