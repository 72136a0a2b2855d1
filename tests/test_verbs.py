"""One verb, one name: what all public functions have in common; `tests/cli/test_options.py` has it of all commands."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from refusals import refusal

import benchax
from benchax.errors import UsageError
from benchax.experiments.experiment import pipeline
from benchax.experiments.variants.changes import loops
from benchax.keywords import check_kinds, guard_keywords, takes


def plus(x: Any, n: Any = 1) -> Any:
    raise AssertionError("nothing is called where an option is refused")


VERBS: dict[str, Callable[..., Any]] = {
    name: found for name in benchax.__all__ if inspect.isfunction(found := getattr(benchax, name))
} | {"loops": loops, "pipeline": pipeline}
WORDS: dict[str, tuple[Any, ...]] = {
    "audit": (plus, "f32[8]"),
    "bench": (plus, "f32[8]"),
    "benchmark": (plus,),
    "checklist": (plus, "f32[8]"),
    "compare": ([plus, math.hypot], "f32[8]"),
    "compare_jax": ("0.9.2,0.10.2",),
    "compare_ref": ("main",),
    "compare_stored": (),
    "compiled_grid": ([plus],),
    "experiment": (plus, "f32[8]"),
    "grid": ([plus], ["f32[8]"]),
    "inspect": (plus, "f32[8]"),
    "loops": (plus, "f32[8]", 3),
    "pipeline": ([plus, plus], "f32[8,8]"),
    "profile": (plus, 1.0),
    "scaling": (plus, "f32[8@data]"),
}
"""A call of each that measures."""
QUICK = {
    "benchmark": "it only marks",
    "break_even": "arithmetic on two rows",
    "load": "reads rows; nothing is measured",
    "max_compiles": "a block of the user's own code, to which the terminal belongs",
    "no_recompile": "a block of the user's own code",
    "watch": "a block of the user's own code",
    "watch_cache": "a block of the user's own code",
    "watch_transfers": "a block of the user's own code",
    "with_deadline": "makes a function",
}
"""Verbs without `progress`, and why."""


def options_of(verb: str) -> dict[str, inspect.Parameter]:
    return {p.name: p for p in inspect.signature(VERBS[verb]).parameters.values() if p.kind is not p.VAR_KEYWORD}


def with_option(wanted: str) -> Iterator[Any]:
    """(verb, option) for each option whose name matches."""
    for verb in VERBS:
        for name in options_of(verb):
            if re.fullmatch(wanted, name):
                yield pytest.param(verb, name, id=f"{verb}-{name}")


DURATIONS = list(with_option(r".*_s"))
SEEDS = list(with_option("seed"))


def test_every_verb_is_known_here() -> None:
    assert {*WORDS, *QUICK} == set(VERBS)


# ---- durations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "option"), DURATIONS)
@pytest.mark.parametrize("given", [2.5, 3, "2.5", "500ms", "2min"])
def test_a_duration_is_a_number_or_a_text_with_a_unit(verb: str, option: str, given: Any) -> None:
    """What is refused is the progress, which is looked at last, and before anything is done."""
    with pytest.raises(UsageError) as error:
        VERBS[verb](*WORDS[verb], **{option: given}, progress="loud")

    assert error.value.problem == "invalid progress='loud'"


@pytest.mark.parametrize(("verb", "option"), [each for each in DURATIONS if each.values[0] != "compiled_grid"])
@pytest.mark.parametrize("given", [0, -1.0, "soon", "0ms", True, math.inf])
def test_what_is_no_duration_is_refused_in_one_text(verb: str, option: str, given: Any) -> None:
    with pytest.raises(UsageError) as error:
        VERBS[verb](*WORDS[verb], **{option: given})

    assert str(error.value) == (
        f"option {option!r} in the call cannot be {given!r}\nexpected a time above 0, such as 0.5, 500ms or 2min"
    )


@pytest.mark.parametrize(("given", "seconds"), [(2.5, 2.5), ("500ms", 0.5), ("2min", 120.0)])
def test_a_deadline_is_a_duration(given: Any, seconds: float) -> None:
    assert benchax.with_deadline(plus, given).seconds == seconds


# ---- seeds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "option"), SEEDS)
@pytest.mark.parametrize("given", [1.5, 2.0, -1, True, "x"])
def test_a_seed_is_a_whole_number(verb: str, option: str, given: Any) -> None:
    with pytest.raises(UsageError) as error:
        VERBS[verb](*WORDS[verb], seed=given)

    assert str(error.value) == f"option 'seed' in the call cannot be {given!r}\nexpected a whole number from 0 up"


@pytest.mark.parametrize(("verb", "option"), SEEDS)
def test_without_a_seed_that_of_the_project_holds(verb: str, option: str) -> None:
    assert options_of(verb)[option].default is None


# ---- progress ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", sorted(WORDS.keys() - QUICK.keys()))
def test_what_may_take_long_shows_its_progress(verb: str) -> None:
    """A function, True, False or None; None is the default."""
    assert options_of(verb)["progress"].default is None
    with pytest.raises(UsageError, match=r"^invalid progress='loud'\nexpected a function of a ProgressEvent, True"):
        VERBS[verb](*WORDS[verb], progress="loud")


# ---- what the functions themselves are given ---------------------------------------------------------------------

SLIPS = [
    pytest.param(verb, name, slip, id=f"{verb}-{slip}")
    for verb in WORDS
    for name in options_of(verb)
    if (slip := re.sub("_(s|bytes)$", "", name)) != name
]


@pytest.mark.parametrize(("verb", "name", "slip"), SLIPS)
def test_what_is_nearly_an_option_is_refused_with_the_right_name(verb: str, name: str, slip: str) -> None:
    with pytest.raises(UsageError) as error:
        VERBS[verb](*WORDS[verb], **{slip: 3})

    assert error.value.problem.startswith(f"{slip}=3 isn't an option of {verb}")
    assert re.match(f"{name}=|'{name}'\\?", error.value.expected)


@pytest.mark.parametrize("verb", ["audit", "bench", "checklist", "compare", "experiment", "inspect"])
def test_an_option_of_others_is_no_argument_of_the_function(verb: str) -> None:
    with pytest.raises(UsageError, match=f"max_warmup_s=1 isn't an option of {verb}"):
        VERBS[verb](*WORDS[verb], max_warmup_s=1)


@pytest.mark.parametrize("verb", ["audit", "bench", "checklist", "compare", "experiment"])
def test_what_the_function_takes_as_well_is_refused(verb: str) -> None:
    def noisy(x: Any, seed: int = 0) -> Any:
        return x + seed

    words = ([noisy, plus], "f32[8]") if verb == "compare" else (noisy, "f32[8]")
    with pytest.raises(UsageError, match=f"seed=3 is both an option of {verb} and an argument of the function"):
        VERBS[verb](*words, seed=3)


# ---- static and donated arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [verb for verb in WORDS if "static" in options_of(verb) and verb != "benchmark"])
@pytest.mark.parametrize("name", ["static", "static_argnums", "static_argnames", "donate", "donate_argnums"])
def test_the_names_of_jit_are_understood_where_ours_are(verb: str, name: str) -> None:
    """`make_case` reads them, for all; here none of them goes astray before that."""
    with pytest.raises(UsageError, match="progress='loud'"):
        VERBS[verb](*WORDS[verb], **{name: "n" if name.endswith("names") else 1}, progress="loud")


def test_the_names_of_jit_mark_arguments_of_a_benchmark() -> None:
    found = benchax.benchmark(plus, static_argnums=1, static_argnames="n", donate_argnums=[0])

    assert (found.template.static, found.template.donate, dict(found.params)) == ((1, "n"), (0,), {})


def test_a_function_with_a_deadline_has_static_arguments_by_either_name() -> None:
    names = ({"static": (1, "n")}, {"static_argnums": 1}, {"static_argnames": "n"}, {"static": "n"})

    assert len({str(sorted(benchax.with_deadline(plus, 1.0, **each)._static, key=str)) for each in names}) == 1


def test_who_calls_a_function_as_it_stands_says_where_static_arguments_go() -> None:
    with pytest.raises(
        UsageError, match=r"static_argnums=1 isn't an option of profile(.|\n)*jax.jit\(f, static_argnums"
    ):
        benchax.profile(plus, 1.0, 2, static_argnums=1)


# ---- which keywords of a call are ours -----------------------------------------------------------------------------


@guard_keywords(is_set_in_project=True)
def measure(fn: Any, *args: Any, max_time_s: Any = None, seed: Any = None, **kwargs: Any) -> dict[str, Any]:
    return kwargs


def noisy(x: Any, seed: int = 0) -> Any:
    return x + seed


def anything(x: Any, **options: Any) -> Any:
    return x, options


def test_what_is_no_option_or_an_argument_of_the_function_goes_there() -> None:
    assert measure(anything, 1, learning_rate=3) == {"learning_rate": 3}
    assert measure(lambda x, max_time: x, 1, max_time=3) == {"max_time": 3}
    assert measure(noisy, 1, seed=None) == {}


def test_a_builtin_takes_no_name_that_we_know_of() -> None:
    assert not takes(max, "key")
    assert takes(noisy, "seed")
    assert not takes(anything, "learning_rate")


# ---- kinds -----------------------------------------------------------------------------------------------------------


def every_kind(
    name: str | None = None,
    count: int = 1,
    mode: Literal["a", "b"] = "a",
    rules: Iterable[str] = (),
    given: Mapping[str, Any] | None = None,
    fn: Callable[..., Any] | None = None,
    folder: Path | None = None,
    anything: Any = None,
) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"name": "x"}, {"name": None}, {"count": 3}, {"count": "500"}, {"count": np.int32(3)}, {"count": np.zeros(())},
        {"rules": ["a", "b"]}, {"rules": "a,b"}, {"given": {"a": 1}}, {"folder": "here"}, {"anything": object()},
        {"unknown": 3},
    ],
)  # fmt: skip
def test_what_an_annotation_allows_passes(options: dict[str, Any]) -> None:
    check_kinds(every_kind, options)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("name", 3, "3\nexpected a text or None"),
        ("count", [1], "[1]\nexpected a whole number"),
        ("count", np.zeros(2), "array([0., 0.])\nexpected a whole number"),
        ("count", ["x" * 10_000], f"['{'x' * 58}… (10,004 characters)\nexpected a whole number"),
        ("mode", 3, "3\nexpected 'a' or 'b'"),
        ("rules", 3, "3\nexpected a list of texts"),
        ("given", [1], "[1]\nexpected a dict or None"),
    ],
)
def test_what_it_excludes_is_quoted_with_what_is_expected(name: str, value: Any, text: str) -> None:
    assert refusal(check_kinds, every_kind, {name: value}) == f"option {name!r} in the call cannot be {text}"
