"""Finds a static argument that takes many values: each is a program of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.named_lines import inner_function_at
from benchax.auditing.origins import made_by
from benchax.auditing.passed_values import declared_static_at, made_at, takes_all_but_arrays_as_static
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.syntax import own_or_called, where_of
from benchax.results.audit import Finding, Where
from benchax.results.watch import Compile
from benchax.source_files import owner_of
from benchax.units import seconds

MANY = 3
"""Values; "a limited set of static values" is what static arguments are for."""
MANY_WHOLE = 8
"""Of whole numbers, that are no mere info: fewer mostly decide about shapes, as the sizes of three data sets do."""
_WHOLE = re.compile(r"static .+?: -?\d+ → -?\d+ \(", re.DOTALL)
_NAMED = re.compile(r"static (.+?): ", re.DOTALL)
# The words of watching/reasons.py for a class whose instances are equal only to themselves.
_NO_EQUALITY = "has no __eq__"
_INNER = re.compile(r"<function (\S+\.<locals>\.\S+) at ")
_FUNCTION = re.compile(r"<(function|bound method) |functools\.partial\(")


@rule("static-churn", "does a static argument take many values?", "warning", of="both")
def static_churn(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    by_argument: dict[tuple[str, str | None, str], list[tuple[Compile, str]]] = {}
    for c in e.watch.recompiles:
        for reason in c.reasons:
            if reason.kind == "static" and (named := _NAMED.match(reason.text)):
                by_argument.setdefault((c.function, c.defined, named[1]), []).append((c, reason.text))
    for (function, defined, argument), recompiles in by_argument.items():
        if len(recompiles) + 1 >= MANY:
            yield _finding(function, defined, argument, recompiles)


def _finding(function: str, defined: str | None, argument: str, recompiles: list[tuple[Compile, str]]) -> Finding:
    lost_s = sum(c.total_s for c, _ in recompiles)
    is_same = any(_NO_EQUALITY in text for _, text in recompiles)
    is_function = any(_FUNCTION.search(text) for _, text in recompiles)
    values = len(recompiles) + 1
    is_implicit = _is_implicit(function, where_of(defined))
    made_anew = _made_anew(where_of(recompiles[0][0].where), [text for _, text in recompiles])
    place = where_of(defined)
    # A function that a package makes anew for a function of its own is none that the user could make once.
    is_packages = is_function and made_anew is None and place is not None and owner_of(place[0]) == "package"
    is_few = values < MANY_WHOLE and all(_WHOLE.match(text) for _, text in recompiles)
    seen = [f"{values} programs for {values} values; all but the first took {seconds(lost_s)}, by JAX's own clock"]
    seen += list_some([f"{f'{c.where}: ' if c.where else ''}{text} ({seconds(c.total_s)})" for c, text in recompiles])
    return static_churn.finding(
        f"static argument {argument} of {function} took {values} values",
        seen,
        _advice(is_same, is_function, is_implicit, is_packages).format(argument=argument, function=function),
        where=made_anew or _where(function, place, argument, [c for c, _ in recompiles]),
        severity="info" if is_packages or is_few else None,
        gain=Gain(f"estimated: {seconds(lost_s)} of this run, if one program serves all values"),
    )


def _advice(is_same: bool, is_function: bool, is_implicit: bool, is_packages: bool) -> str:
    if is_packages:
        return _OF_PACKAGE
    if is_same:
        return _EQUALITY
    return _ONE_FUNCTION if is_function else _NO_ARRAY if is_implicit else _AS_ARRAY


def _where(function: str, defined: Where | None, argument: str, compiles: list[Compile]) -> Where | None:
    """The line that declares it static; where a library takes it so by itself, the one that gives it a value."""
    called = where_of(compiles[0].where)
    if defined is None or owner_of(defined[0]) != "user":
        return own_or_called(defined, called)
    if _is_implicit(function, defined):
        is_one_line = len({c.where for c in compiles}) == 1
        return made_at(called, argument) or made_by(called, function, argument) or (called if is_one_line else defined)
    return declared_static_at(defined, function) or defined


def _made_anew(called: Where | None, texts: list[str]) -> Where | None:
    """The line of the inner function or lambda that is another object each time; None for other values."""
    names = {name for text in texts for name in _INNER.findall(text)}
    return inner_function_at(called, names.pop()) if len(names) == 1 else None


def _is_implicit(function: str, defined: Where | None) -> bool:
    """Is it static though nobody has declared it so?"""
    return takes_all_but_arrays_as_static(defined) and declared_static_at(defined, function) is None


_OF_PACKAGE = (
    "{function} is a package's, which makes {argument} anew in each call of yours: make one call for all of the data, "
    "or look in its documentation for how it keeps a program."
)
_ONE_FUNCTION = (
    "Define the function that {argument} is or holds once, not as a lambda or an inner def that is made anew each "
    "time, and pass what changes to it as an argument that is an array."
)
_NO_ARRAY = (
    "Give {argument} as an array, jnp.asarray(…): for equinox.filter_jit what is no array is static, and each value is "
    "compiled on its own."
)
_AS_ARRAY = (
    "Pass {argument} as an array and not as static, unless it decides about shapes or about Python control flow. If it "
    "decides, use jax.lax.cond or jax.lax.fori_loop inside, or pad to a few values."
)
_EQUALITY = (
    "Give the class of the argument __eq__ and __hash__, or make it a frozen dataclass: then equal values share one "
    "program."
)
