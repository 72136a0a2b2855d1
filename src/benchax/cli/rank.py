"""`benchax rank`: functions that should do the same, on the same inputs: who is fastest, and are results equal?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.compare_shown import ComparisonProgress, check_drawable, draw
from benchax.errors import UsageError

if TYPE_CHECKING:
    from benchax.case import Case
    from benchax.comparing.ranking import Comparisons

EXAMPLE = "benchax rank model.py:loop model.py:vectorised f32[1000000]"


def rank(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FUNCTION FUNCTION... [INPUT...]",
            help="Functions as MODULE:FUNCTION or FILE.py:FUNCTION, and the inputs of all, as for `benchax run`: "
            "f32[1000000], 3, axis=0. A text with a colon stands in quotes of its own.",
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="Whose result and time the others are held against.")
    ] = None,
    eager: Annotated[bool, typer.Option("--eager", help="The functions as they are: not jitted.")] = False,
    resolution: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Same means within this: 1% finds +2 %, and takes longer (5%)."),
    ] = None,
    max_time: Annotated[str | None, typer.Option(help="Begin no further process after this long: 30, 2min.")] = None,
    timeout: Annotated[str | None, typer.Option(help="No stage in a worker may take longer.")] = None,
    seed: Annotated[str | None, typer.Option(help="Seed of the data made from specs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios there: .png, .svg, .pdf.")] = None,
) -> None:
    """Rank functions that should do the same: by time, with ties, and only those whose results agree.

    Exit codes: 0 fine, 1 a function gives another result than the baseline, 2 an error (also a function that failed).
    """
    from benchax.cli.run import printing_to_stderr
    from benchax.comparing.judging import resolution_of
    from benchax.comparing.sequential import effort_for
    from benchax.options import resolve
    from benchax.paired_runs.compare import side_by_side
    from benchax.units import parse_seconds

    check_drawable(plot)
    options = resolve(command_line={"timeout_s": timeout, "seed": seed})
    effort = effort_for(resolution_of(resolution), None if max_time is None else parse_seconds(max_time))
    functions, inputs = split_words(what or [])
    names = labels(functions)
    first = _baseline(names, baseline)
    cases = printing_to_stderr(lambda: {label: _case(word, inputs, eager) for label, word in names.items()})
    with ComparisonProgress() as progress:
        found = side_by_side({first: cases[first]} | cases, options, effort, progress)
    _show(found, as_json)
    if plot is not None:
        draw(found, plot)
    differs = any(c.numerics and not c.numerics.agrees for c in found)
    raise typer.Exit(2 if any(c.failure for c in found) else 1 if differs else 0)


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(functions, inputs): a function is a word with a colon that is no literal and no keyword."""
    functions = [word for word in words if _is_function(word)]
    if len(functions) < 2:
        listed = f"{functions[0]!r} with" if functions else "here"
        raise UsageError(f"there is nothing to rank {listed}", "at least two functions, then their inputs", EXAMPLE)
    return functions, [word for word in words if word not in functions]


def _is_function(word: str) -> bool:
    from benchax.discovery import literal
    from benchax.specs import is_spec

    key, equals, _ = word.partition("=")
    is_keyword = bool(equals) and key.isidentifier()
    return ":" in word and not is_keyword and not is_spec(word) and literal(word) == word


def labels(functions: Sequence[str]) -> dict[str, str]:
    """Words by label: the name of the function, or the whole word where two have that name.

    Raises:
        UsageError: a word is given twice.
    """
    names = [word.rpartition(":")[2] for word in functions]
    found = {name if names.count(name) == 1 else word: word for name, word in zip(names, functions, strict=True)}
    if len(found) < len(functions):
        twice = next(word for word in functions if functions.count(word) > 1)
        raise UsageError(f"the function {twice!r} is given twice", "functions that differ", EXAMPLE)
    return found


def _baseline(names: Mapping[str, str], baseline: str | None) -> str:
    from benchax.errors import one_of

    if baseline is None:
        return next(iter(names))
    for label, word in names.items():
        if baseline in (label, word):
            return label
    raise UsageError(f"--baseline {baseline!r} is none of the functions", one_of(names, baseline))


def _case(word: str, inputs: Sequence[str], eager: bool) -> Case:
    from benchax.case import Benchmark, make_case
    from benchax.discovery import resolve_target, target_cases
    from benchax.workloads import benchmark_of

    if inputs:
        (case,) = target_cases(word, inputs)
    else:
        fn: Any = resolve_target(word)
        if isinstance(fn, Benchmark) or benchmark_of(fn):
            raise UsageError(f"{word!r} brings its own inputs", "inputs for all functions, after them", EXAMPLE)
        case = make_case(fn, name=word.rpartition(":")[2])
    return case.eager() if eager else case


def _show(found: Comparisons, as_json: bool) -> None:
    import json

    from benchax.cli.console import line, show
    from benchax.reporting.comparisons import document

    if as_json:
        line(json.dumps(found.asdict()))
    else:
        show(document(found, has_asides=False))
