"""Compares the eager call of each case with the jitted one: after how many calls does compiling pay?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MethodType

from benchax.case import Case
from benchax.comparing.break_even import of_comparison
from benchax.comparing.sequential import Effort
from benchax.errors import BenchaxError
from benchax.experiments.lab import Pair, time_pairs
from benchax.inspecting.inspect import inspect_case
from benchax.model import CaseId, Comparison, Measurement, Options
from benchax.progress import Listener
from benchax.results.inspection import Argument
from benchax.units import plural, seconds

MOST_ARGUMENTS = 3


def with_eager(case: Case) -> tuple[Case, ...]:
    """Returns the eager form of the case, and the case. If the function has no eager form, returns only the case."""
    is_jitted = hasattr(case.fn, "lower")
    fn = getattr(case.fn, "__wrapped__", None) if is_jitted else case.fn
    # A method that is jitted shows the function under the jit, which knows no instance.
    if not case.jit or fn is None or (is_jitted and isinstance(case.fn, MethodType)):
        return (case,)
    return replace(case.eager(), fn=fn), case


def find_pairs(cases: Sequence[Case], rows: Sequence[Measurement]) -> dict[CaseId, Pair]:
    """Returns the eager and the jitted call of each case that has both, by the id of the jitted one, if both ran."""
    ran = {row.case for row in rows if row.failure is None}
    by_id = {case.id: case for case in cases if case.id in ran}
    eager_ids = {id: replace(id, variant="eager") for id in by_id if id.variant != "eager"}
    return {
        id: Pair(id.label, "eager", by_id[eager], "jitted", by_id[id])
        for id, eager in eager_ids.items()
        if eager in by_id
    }


def compare_eager(
    pairs: Mapping[CaseId, Pair], rows: Sequence[Measurement], options: Options, report: Listener
) -> tuple[dict[CaseId, Comparison], list[str]]:
    """Compares the jitted call of each case that ran both ways with the eager one. The two run alternately.

    Args:
        pairs: what `find_pairs` found.

    Returns:
        The comparisons by the id of the jitted case, and sentences: when compiling pays, and what the program is.
    """
    found = time_pairs(list(pairs.values()), options, Effort(looks=(2, 3)), report)
    compared = {id: found[id.label] for id in pairs}
    programs = describe_programs([pair.other for pair in pairs.values()])
    return compared, [*describe_break_evens(rows, compared), *programs]


def describe_break_evens(rows: Sequence[Measurement], compared: Mapping[CaseId, Comparison]) -> list[str]:
    """For each case measured both ways, states after how many calls compiling pays, or why this is unknown."""
    sentences: dict[str, str] = {}
    for row in rows:
        c = compared.get(row.case)
        if c is not None and row.stages.build_s is not None:
            found = of_comparison(row.stages.build_s, c)
            unknown = f"Whether compiling ({seconds(row.stages.build_s)}) pays was not measured, because {c.why}"
            sentences[row.case.label] = unknown if found is None else str(found)
    return _label(sentences)


def describe_programs(cases: Sequence[Case]) -> list[str]:
    """Returns a sentence for each jitted case, with its name if there are several. Builds each again, without a run."""
    return _label({case.id.label: describe_program(case) for case in cases})


def _label(sentences: Mapping[str, str]) -> list[str]:
    return [f"{label}: {text}" if len(sentences) > 1 else text for label, text in sentences.items()]


def describe_program(case: Case) -> str:
    """Returns a text such as: An eager call starts 7 operations one by one; the compiled program has 1 fusion. It takes
    i32[8] and gives f32[8]."""
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
