"""Calls that cannot be meant: each is an error of ours that quotes what was given, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import benchax
from benchax.clock import elapsed_s, stamp
from benchax.compiled_grids.compiled import MOST_REPEATS
from benchax.errors import UsageError


def untouched(x: Any, n: Any = 1) -> Any:
    raise AssertionError("nothing is called where the call cannot be meant")


CALLS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "compare-nan": (
        lambda: benchax.compare([untouched, math.hypot], 1.0, max_time_s=math.nan),
        "option 'max_time_s' in the call cannot be nan",
        "a time above 0",
    ),
    "compare-text": (
        lambda: benchax.compare([untouched, math.hypot], 1.0, max_time_s="x"),
        "option 'max_time_s' in the call cannot be 'x'",
        "a time above 0",
    ),
    "audit-rules": (
        lambda: benchax.audit(untouched, 1.0, rules=3),
        "option 'rules' in the call cannot be 3",
        "a list of texts",
    ),
    "audit-no-rules": (lambda: benchax.audit(untouched, 1.0, rules=" ,"), "there are no names in ' ,'", "None for all"),
    "experiment-variants": (
        lambda: benchax.experiment(untouched, 1.0, variants="zz,"),
        "there is no variant 'zz'",
        "one of: ",
    ),
    "experiment-numbers": (
        lambda: benchax.experiment(untouched, 1.0, variants=[1, "jit"]),
        "option 'variants' in the call cannot be [1, 'jit']",
        "a list of texts",
    ),
    "profile-spec": (
        lambda: benchax.profile(untouched, ["f32[8]"]),
        "benchax.profile was given the spec 'f32[8]'",
        "arrays, such as",
    ),
    "break-even": (lambda: benchax.break_even(None, None), "None is no row", "two measurements"),
    "load": (lambda: benchax.load(3), "rows cannot be in 3", "a folder"),
    "load-zero": (lambda: benchax.load("a\0b"), "rows cannot be in 'a\\x00b'", "a folder"),
    "store-zero": (
        lambda: benchax.bench(untouched, 1.0, store="\0"),
        "option 'store' in the call cannot be '\\x00'",
        "the name of a folder",
    ),
    "elapsed": (lambda: elapsed_s(1, 2), "2 is no time", "u32[..., 2]"),
    "elapsed-text": (lambda: elapsed_s("a", np.zeros(2, np.uint32)), "'a' is no time", "u32[..., 2]"),
    "deadline-text": (
        lambda: benchax.with_deadline(untouched, 1)("a"),
        "an argument of untouched under with_deadline is 'a'",
        "arrays and numbers",
    ),
    "deadline-static": (
        lambda: benchax.with_deadline(untouched, 1, static_argnums=9),
        "static=9 is no argument of the function",
        "0 (x), 1 (n)",
    ),
    "bench-static": (
        lambda: benchax.bench(untouched, 1.0, static_argnums=9),
        "static=9 is no argument of the function",
        "0 (x), 1 (n)",
    ),
    "bench-donate": (
        lambda: benchax.bench(untouched, 1.0, donate="y"),
        "donate='y' is no argument of the function",
        "0 (x), 1 (n)",
    ),
    "repeats": (
        lambda: benchax.compiled_grid([untouched], repeats=10**12),
        "repeats cannot be 1000000000000",
        f"a whole number from 1 to {MOST_REPEATS:,}",
    ),
    "count": (
        lambda: benchax.compiled_grid([untouched], jnp.ones(3)),
        "compiled_grid is called with too many positional arguments",
        "compiled_grid(functions), and options by name",
    ),
    "nothing": (
        lambda: benchax.bench(),
        "bench is called with missing a required argument: 'fn'",
        "bench(fn, *args, **kwargs), and options by name",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_cannot_be_meant_is_refused_before_anything_runs(name: str, project: Any) -> None:
    call, problem, expected = CALLS[name]

    with pytest.raises(UsageError) as error:
        call()

    assert error.value.problem.startswith(problem)
    assert expected in error.value.expected


def test_false_is_no_progress_for_whoever_takes_any(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = benchax.inspect(jnp.tanh, "f32[8]", progress=False)

    assert found.signature == "f32[8]"
    assert capsys.readouterr() == ("", "")


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

    with pytest.raises(UsageError, match=r"is no time\nexpected times as `stamp` returns them"):
        jax.jit(program)(jnp.ones(3))
