"""What benchax raises: one form of message, one base class, and names that are listed with the nearest one first."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refusal

import benchax
from benchax import errors
from benchax.clock import elapsed_s, stamp
from benchax.errors import BenchaxError, MissingPackage, UsageError, one_of, require

KINDS = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, BenchaxError)]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BenchaxError("no such row"), "no such row"),
        (BenchaxError("no such row", "a number"), "no such row\nexpected a number"),
        (BenchaxError("no such row", hint="benchax list"), "no such row\n\nhint: benchax list"),
        (BenchaxError("no row", "a number", "benchax list"), "no row\nexpected a number\n\nhint: benchax list"),
    ],
)
def test_a_message_says_what_was_wrong_what_was_expected_and_what_to_do(error: BenchaxError, text: str) -> None:
    assert str(error) == text


@kinds
def test_an_error_survives_the_way_between_processes_and_is_caught_as_a_benchax_error(kind: type[BenchaxError]) -> None:
    error = kind("wrong: 'é\n'", "right", "do it")

    with pytest.raises(BenchaxError) as caught:
        raise pickle.loads(pickle.dumps(error))

    assert type(caught.value) is kind
    assert (caught.value.problem, caught.value.expected, caught.value.hint) == ("wrong: 'é\n'", "right", "do it")
    assert str(caught.value) == str(error)


@kinds
def test_every_error_is_in_the_tree_of_the_docstring(kind: type[BenchaxError]) -> None:
    assert f"{kind.__name__} " in (errors.__doc__ or "")


THIRTY = [f"a{i:02}" for i in range(30)]


@pytest.mark.parametrize(
    ("names", "given", "listed"),
    [
        (["wall", "loop"], None, "one of: loop, wall"),
        (["seed", "timer", "store"], "tmer", "'timer'? Choices: seed, store, timer"),
        (["seed", "timer"], "xyzzy", "one of: seed, timer"),
        (THIRTY, "nothing alike", f"one of: {', '.join(THIRTY)}"),
        (["sort", *THIRTY], "srot", "'sort'? Choices: 31 names, such as sort"),
        (["sort", *THIRTY], "nothing alike", "one of 31 names, such as a00, a01, a02, a03, a04"),
    ],
)
def test_names_are_listed_the_nearest_first_and_of_many_only_a_few(
    names: list[str], given: str | None, listed: str
) -> None:
    assert one_of(names, given) == listed


def test_a_package_that_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(MissingPackage) as caught:
        require("no_such_package.part", doing="a table of rows")

    assert str(caught.value) == (
        "a table of rows needs the package 'no_such_package', which is not installed\n\n"
        "hint: pip install no_such_package"
    )
    assert isinstance(caught.value.__cause__, ImportError)


# ---- calls that cannot be meant: each is an error of ours that quotes what was given, before anything runs ----------


def untouched(x: Any, n: Any = 1) -> Any:
    raise AssertionError("nothing is called where the call cannot be meant")


CALLS: dict[str, Callable[[], Any]] = {
    "compare-nan": lambda: benchax.compare([untouched, math.hypot], 1.0, max_time_s=math.nan),
    "compare-text": lambda: benchax.compare([untouched, math.hypot], 1.0, max_time_s="x"),
    "audit-rules": lambda: benchax.audit(untouched, 1.0, rules=3),
    "audit-no-rules": lambda: benchax.audit(untouched, 1.0, rules=" ,"),
    "experiment-variants": lambda: benchax.experiment(untouched, 1.0, variants="zz,"),
    "experiment-numbers": lambda: benchax.experiment(untouched, 1.0, variants=[1, "jit"]),
    "profile-spec": lambda: benchax.profile(untouched, ["f32[8]"]),
    "break-even": lambda: benchax.break_even(None, None),
    "load": lambda: benchax.load(3),
    "load-zero": lambda: benchax.load("a\0b"),
    "store-zero": lambda: benchax.bench(untouched, 1.0, store="\0"),
    "elapsed": lambda: elapsed_s(1, 2),
    "elapsed-text": lambda: elapsed_s("a", np.zeros(2, np.uint32)),
    "deadline-text": lambda: benchax.with_deadline(untouched, 1)("a"),
    "deadline-static": lambda: benchax.with_deadline(untouched, 1, static_argnums=9),
    "bench-static": lambda: benchax.bench(untouched, 1.0, static_argnums=9),
    "bench-donate": lambda: benchax.bench(untouched, 1.0, donate="y"),
    "repeats": lambda: benchax.compiled_grid([untouched], repeats=10**12),
    "count": lambda: benchax.compiled_grid([untouched], jnp.ones(3)),
    "nothing": lambda: benchax.bench(),
}


def test_what_cannot_be_meant_is_refused_before_anything_runs(project: Any, snapshot: Any) -> None:
    assert {name: refusal(call) for name, call in CALLS.items()} == snapshot


def test_arguments_beyond_the_signature_may_be_static_where_it_takes_any_number() -> None:
    def total(*xs: Any, **named: Any) -> Any:
        return sum(xs) * named["scale"]

    limited = benchax.with_deadline(total, 10.0, static=(3, "scale"))

    assert float(limited(1.0, 2.0, 3.0, 4, scale=2)) == 20.0


@pytest.mark.parametrize("seconds", [1e10, 1e17])
def test_a_deadline_beyond_what_words_of_a_clock_hold_is_not_met(seconds: float) -> None:
    total = benchax.with_deadline(lambda n: jax.lax.fori_loop(0, n, lambda i, x: x + i, 0), seconds)

    assert int(total(100)) == 4950


def test_what_is_no_time_is_refused_while_tracing_too() -> None:
    def program(x: Any) -> Any:
        x, start = stamp(x)
        return elapsed_s(start, x)

    with pytest.raises(UsageError, match=r"isn't a time\nexpected times as `stamp` returns them"):
        jax.jit(program)(jnp.ones(3))
