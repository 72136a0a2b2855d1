"""What holds for every variant, whoever wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.discovery import resolve_target
from benchax.errors import NotMeasured, UsageError
from benchax.experiments.experiment import choose_variants, run_experiment, time_limit
from benchax.experiments.functions import arguments
from benchax.experiments.variant import Asked, CommonAxis, Variant
from benchax.experiments.variants import VARIANTS, choose_promising


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda variant: variant.name)
def test_a_variant_says_what_it_does_and_what_it_has_to_be_told(variant: Variant) -> None:
    """It changes a case or measures; remat does both: among others it changes the case in the first of its ways."""
    does = {variant.changes is not None, variant.measures is not None}
    assert does == ({True} if variant.name == "remat" else {True, False})
    assert re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", variant.name)
    assert variant.title
    if variant.untold:
        with pytest.raises(NotMeasured, match=re.escape(variant.untold)):
            variant.plan(make_case(abs, ("f32[4]",)))


# ---- What sweeping variants are told ----


SQUARE = make_case(lambda x: x, (jnp.ones((2, 2)),))


def asked(variant: str, case: Any = SQUARE, given: Any = None) -> Asked:
    return Asked(VARIANTS[variant], case, given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("n=1,2", ("n", "1,2")),
        ("1..8", ("", "1..8")),
        ("x.0+w.1", ("x.0+w.1", None)),
        ({"n": [1, 2]}, ("n", [1, 2])),
        ([1, 2], ("", [1, 2])),
    ],
)
def test_arguments_stand_before_the_equals_sign_and_values_behind(given: Any, expected: tuple[str, Any]) -> None:
    assert asked("static", given=given).halves() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1,2", (1, 2)), ("'a',None", ("a", None)), ("(1, 2),3", ((1, 2), 3)), ("same,valid", ("same", "valid"))],
)
def test_values_are_read_as_python_and_words_as_texts(text: str, expected: tuple[Any, ...]) -> None:
    assert asked("static").values(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("130,100,100", (100, 130)), ("1..8", (1, 2, 4, 8)), ("3..13,5", (3, 5, 6, 12))]
)
def test_sizes_are_sorted_and_dots_double(text: str, expected: tuple[int, ...]) -> None:
    assert asked("vmap").sizes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "8..1", "a", "1.5", "9" * 40, "1..x", None, 3.5])
def test_sizes_that_are_none_are_quoted(text: Any) -> None:
    with pytest.raises(UsageError) as caught:
        asked("vmap").sizes(text)

    assert repr(text) in str(caught.value)


def read_or_refused(read: Callable[[str], tuple[Any, ...]], text: str) -> tuple[Any, ...] | str:
    """The values, or what the refusal says."""
    try:
        return read(text)
    except UsageError as error:
        return str(error)


@given(st.text(max_size=40))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    vmap = asked("vmap", SQUARE, text)

    for read in (vmap.values, vmap.sizes, lambda text: vmap.axes(vmap.halves()[0])):
        assert read_or_refused(read, text)  # neither nothing nor an error without words


def test_arguments_go_by_name_or_position_and_static_ones_have_no_axes() -> None:
    case = make_case(lambda x, n, *, w: x, (jnp.ones((2, 3)), 4), {"w": jnp.ones(3)}, static=("n",))
    shapes = asked("shapes", case)

    assert arguments(case, shapes.inputs) == {"x": 0, "w": "w"}
    assert shapes.axes("x.1+w") == (CommonAxis(0, 1), CommonAxis("w", 0))
    assert shapes.axes("0") == (CommonAxis(0, 0),)
    with pytest.raises(UsageError, match="'n'"):
        shapes.axes("n")
    with pytest.raises(UsageError, match="has no axis 2"):
        shapes.axes("x.2")


def test_what_is_named_is_that_of_the_file_of_the_function(project: Path) -> None:
    """No second import, which would make other classes; another file is imported once."""
    (project / "code.py").write_text("class Own: pass\ndef f(x): return x\n")
    (project / "other.py").write_text("class Other: pass\n")
    f: Any = resolve_target("code.py:f")

    names = ["code.py:Own", "other.py:Other", "./other.py:Other"]
    own, other, again = map(asked("loop", make_case(f)).named_object, names)

    assert own is f.__globals__["Own"]
    assert other is again
    assert asked("loop").named_object("jax.numpy:sin") is jnp.sin


@pytest.mark.parametrize("name", ["", ":", "f", ":f", "code.py:", "code.py"])
def test_what_is_no_name_is_quoted(name: str) -> None:
    with pytest.raises(UsageError, match="MODULE:NAME") as caught:
        asked("loop").named_object(name)

    assert f"loop is given the name {name!r}" in caught.value.problem


# ---- What an experiment tries where nothing is named: what can help here, the most promising first, in a minute ----


@pytest.mark.parametrize(
    ("backend", "left_out"),
    [("cpu", {"default", "tf32", "high", "highest"}), ("gpu", set())],
)
def test_what_cannot_help_on_a_backend_is_left_out(backend: str, left_out: set[str]) -> None:
    only_by_name = {"eager", "f64", "devices", "mesh", "sync", "cache"}
    assert set(VARIANTS) - set(choose_promising(backend)) == left_out | only_by_name


def test_the_most_promising_come_first_and_what_is_named_is_tried_whatever_it_promises() -> None:
    assert list(choose_promising("cpu"))[:5] == ["jit", "hoist", "unroll", "accumulate-gradients", "donate"]
    assert choose_variants(["eager", "f64"]) == ({"eager": VARIANTS["eager"], "f64": VARIANTS["f64"]}, True)


@pytest.mark.parametrize(
    ("asked_s", "names", "limit_s"),
    [(None, None, 60.0), (5.0, None, 5.0), (None, ["bf16"], None), (5.0, ["bf16"], 5.0)],
)
def test_a_minute_is_the_limit_where_nothing_was_asked_for(asked_s: Any, names: Any, limit_s: Any) -> None:
    assert time_limit(asked_s, names) == limit_s


def logistic(x: jax.Array) -> jax.Array:
    """The logistic map, in which a difference doubles with each iteration."""
    return jax.lax.fori_loop(0, 100, lambda i, x: 3.9999 * x * (1 - x), x)


def test_a_chaotic_function_is_said_to_be_one() -> None:
    case = make_case(logistic, (jnp.linspace(0.1, 0.9, 64),))

    found = run_experiment(case, ["donate"], ScriptedLab())

    (remark,) = found.remarks
    assert remark.code == "chaotic"
    assert "chaotic systems" in remark.message
    assert "errors of variants say nothing" in remark.message
    assert run_experiment(make_case(jnp.sin, ("f32[64]",)), ["donate"], ScriptedLab()).remarks == ()
