"""`benchax compare FUNCTION FUNCTION... [INPUT...]`: compares functions that should do the same, on the same inputs.

Which function is fastest, and are the results equal?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchax.cli.console import printing_to_stderr
from benchax.errors import UsageError, one_of

if TYPE_CHECKING:
    from benchax.case import Case
    from benchax.comparing.ranking import Comparisons

EXAMPLE = "benchax compare model.py:loop model.py:vectorised f32[1000000]"


def compare_functions(
    words: Sequence[str],
    options: Mapping[str, Any],
    *,
    baseline: str | None,
    is_jitted: bool,
    resolution: str | None,
    max_time_s: float | None,
) -> Comparisons:
    """Compares functions like `benchax.compare`, but takes their names.

    Args:
        words: the functions, and the inputs for all of them.
        options: options of the workers, from the command line.
    """
    from benchax.comparing.judging import resolution_of
    from benchax.comparing.sequential import effort_for
    from benchax.options import resolve
    from benchax.paired_runs.compare import side_by_side
    from benchax.progress import show_progress

    resolved, effort = resolve(command_line=options), effort_for(resolution_of(resolution), max_time_s)
    functions, inputs = split_words(words)
    names = labels(functions)
    first = _choose_baseline(names, baseline)
    cases = printing_to_stderr(lambda: {label: _case(word, inputs, is_jitted) for label, word in names.items()})
    with show_progress(True) as report:
        return printing_to_stderr(lambda: side_by_side({first: cases[first]} | cases, resolved, effort, report))


def differs(found: Comparisons) -> bool:
    """Does the result of a function differ from that of the baseline?"""
    return any(c.differs for c in found)


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns (functions, inputs). A function is a word with a colon that is neither a literal nor a keyword."""
    functions = [word for word in words if is_function(word)]
    if len(functions) < 2:
        listed = f"{functions[0]!r} with" if functions else "here"
        raise UsageError(f"there is nothing to compare {listed}", "at least two functions, then their inputs", EXAMPLE)
    return functions, [word for word in words if word not in functions]


def is_function(word: str) -> bool:
    from benchax.discovery import literal
    from benchax.specs import is_spec

    key, equals, _ = word.partition("=")
    is_keyword = bool(equals) and key.isidentifier()
    return ":" in word and not is_keyword and not is_spec(word) and literal(word) == word


def labels(functions: Sequence[str]) -> dict[str, str]:
    """Returns words by label. A label is the name of the function, or the whole word if two functions have that name.

    Raises:
        UsageError: a word is given twice.
    """
    names = [word.rpartition(":")[2] for word in functions]
    found = {name if names.count(name) == 1 else word: word for name, word in zip(names, functions, strict=True)}
    if len(found) < len(functions):
        twice = next(word for word in functions if functions.count(word) > 1)
        raise UsageError(f"the function {twice!r} is given twice", "functions that differ", EXAMPLE)
    return found


def _choose_baseline(names: Mapping[str, str], baseline: str | None) -> str:
    if baseline is None:
        return next(iter(names))
    for label, word in names.items():
        if baseline in (label, word):
            return label
    raise UsageError(f"--baseline {baseline!r} is none of the functions", one_of(names, baseline))


def _case(word: str, inputs: Sequence[str], is_jitted: bool) -> Case:
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
    return case if is_jitted else case.eager()
