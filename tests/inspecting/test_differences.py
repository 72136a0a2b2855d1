"""What differs between two programs: no more than what differs, whatever is renamed because of it."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.inspecting.differences import JAXPR, SSA, align_and_diff, difference
from benchax.inspecting.inspect import inspect
from benchax.results.inspection import Inspection, NumberChange, Place, TextDifference


def chain(x, w):
    y = x @ w
    z = jnp.sin(y)
    return jax.lax.fori_loop(0, 4, lambda _, v: jnp.tanh(v) + z, jnp.cos(z)).sum()


def longer_chain(x, w):
    y = x @ w + 1
    z = jnp.sin(y)
    return jax.lax.fori_loop(0, 4, lambda _, v: jnp.tanh(v) + z, jnp.cos(z)).sum()


@pytest.fixture(scope="module")
def before() -> Inspection:
    return inspect(chain, "f32[4,4]", "f32[4,4]")


@pytest.fixture(scope="module")
def after() -> Inspection:
    return inspect(longer_chain, "f32[4,4]", "f32[4,4]")


def changed(text: TextDifference) -> list[str]:
    return [line for line in text.unified.splitlines()[2:] if line[0] in "+-"]


def test_a_function_with_another_name_is_the_same_program(before: Inspection) -> None:
    def renamed(a, b):
        return chain(a, b)

    found = difference(before, inspect(renamed, "f32[4,4]", "f32[4,4]"))

    assert found.is_none
    assert [(text.stage, text.is_same) for text in found.texts] == [
        ("jaxpr", True), ("stablehlo", True), ("hlo", True)
    ]  # fmt: skip
    assert "equations" in found.unchanged


def test_one_more_equation_is_one_more_line_however_many_names_follow(before: Inspection, after: Inspection) -> None:
    found = difference(before, after)
    jaxpr, stablehlo, hlo = found.texts

    assert not found.is_none
    assert (found.before, found.after) == ("chain(f32[4,4], f32[4,4])", "longer_chain(f32[4,4], f32[4,4])")
    assert [re.sub(r"\b[a-z]{1,2}\b(?=[: ]|$)", "_", line) for line in changed(jaxpr)] == [
        "-    _:f32[4,4] = sin _",
        "+    _:f32[4,4] = add _ 1.0:f32[]",
        "+    _:f32[4,4] = sin _",
    ]
    assert (stablehlo.added, stablehlo.removed) == (4, 1)
    assert not hlo.is_same
    assert NumberChange("add", 2, 3) in found.primitives
    assert [c for c in found.numbers if c.name == "equations"] == [NumberChange("equations", 8, 9)]


def test_a_difference_in_wiring_alone_is_seen() -> None:
    minus = inspect(lambda x, y: jnp.sin(x) - jnp.sin(y), "f32[4]", "f32[4]", name="f")
    turned = inspect(lambda x, y: jnp.sin(y) - jnp.sin(x), "f32[4]", "f32[4]", name="f")

    found = difference(minus, turned)

    assert not found.is_none
    assert found.numbers == ()
    assert all(changed(text) for text in found.texts if not text.is_same)
    assert {text.stage for text in found.texts if not text.is_same} >= {"jaxpr", "stablehlo"}


def test_names_of_inner_functions_are_no_difference() -> None:
    """jax 0.9.2 has @relu_2 where 0.10.2 has @relu_0; which of them is called is one all the same."""

    def module(one: str, two: str, called: str) -> Inspection:
        text = f"call @{one}(%0)\ncall @{called}(%1)\nfunc.func private @{one}(\nfunc.func private @{two}(\n"
        return Inspection("f", "", Place(), stablehlo=text)

    assert difference(module("relu", "relu_2", "relu_2"), module("relu", "relu_0", "relu_0")).is_none
    assert not difference(module("relu", "relu_2", "relu_2"), module("relu", "relu_0", "relu")).is_none


def test_what_one_side_does_not_know_is_not_compared(before: Inspection) -> None:
    compiled = jax.jit(chain).lower(*[jax.ShapeDtypeStruct((4, 4), jnp.float32)] * 2).compile()

    found = difference(before, inspect(compiled, "f32[4,4]", "f32[4,4]"))

    assert [text.stage for text in found.texts] == ["hlo"]
    assert {absent.what for absent in found.absent} == {"jaxpr", "stablehlo"}
    assert all(absent.why for absent in found.absent)
    assert "equations" not in found.unchanged
    assert found.primitives == ()
    assert all(change.before is not None and change.after is not None for change in found.numbers)


LINES = st.lists(
    st.sampled_from(["{} = add {} {}", "{} = mul {} {}", "  body of {} and {} {}", "é\x0b {} {} {}"]).map(
        lambda line: line.format("%1", "%22", "%arg0")
    )
    | st.text("%ab12 =:\n", max_size=12),
    max_size=12,
).map("\n".join)


@given(LINES, LINES)
def test_whatever_differs_is_shown_and_what_is_equal_is_not(before: str, after: str) -> None:
    for language in (JAXPR, SSA):
        assert bool(align_and_diff(before, after, ("a", "b"), language)) == (before.splitlines() != after.splitlines())


def test_no_two_values_of_one_computation_get_the_same_name() -> None:
    """The second parameter aligns with that of another computation, whose first is called the same."""
    before = "c0:\n  %0 = parameter(0)\n  %1 = exp(%0)\n  %2 = [8] parameter(1)\n  %3 = dot(%1, %2)"
    after = "c0:\n  %0 = parameter(0)\n  %1 = exp(%0)\nc1:\n  %0 = sin()\n  %1 = [8] parameter(1)\n  %2 = tan(%1)"

    removed = [line for line in align_and_diff(before, after, ("one", "two"), SSA)[3:] if not line.startswith("+")]

    defined = [line[1:].split(" = ")[0].strip() for line in removed if " = " in line]
    assert len(set(defined)) == len(defined)


def test_ten_thousand_equations_are_compared_in_time_that_grows_with_them() -> None:
    """Not quadratic: the lines are all alike, which is the worst that can happen to an alignment."""
    lines = [f"%{i} = sine(%{i - 1})" for i in range(1, 10_000)]
    changed_in_the_middle = [*lines[:5000], "%x = cosine(%4999)", *lines[5000:]]

    shown = align_and_diff("\n".join(lines), "\n".join(changed_in_the_middle), ("a", "b"), SSA)

    assert "+%x = cosine(%4999)" in shown


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("%0 = a\n%1 = b(%0)", "%0 = x\n%1 = a\n%2 = b(%1)", ["+%0 = x", " %1 = a", " %2 = b(%1)"]),
        ("%0 = a", "%1 = a", ["-%0 = a", "+%1 = a"]),
        (
            "%0 = a\n%1 = c(%0)\n%2 = d(%0)\n%3 = b(%1)",
            "%0 = a\n%1 = b(%0)",
            [" %0 = a", "-%1' = c(%0)", "-%2' = d(%0)", "-%1 = b(%1')", "+%1 = b(%0)"],
        ),
        (
            "c0:\n  %5 = a\nc1:\n  %0 = q\n  %1 = r(%0)",
            "c0:\n  %0 = a\nc1:\n  %0 = q\n  %1 = s(%0)",
            ["   %0 = a", " c1:", "   %0 = q", "-  %1 = r(%0)", "+  %1 = s(%0)"],
        ),
    ],
    ids=[
        "lines of after as they are",
        "names alone",
        "no counterpart: an apostrophe",
        "each computation has its names",
    ],
)
def test_only_what_differs_is_shown(before: str, after: str, shown: list[str]) -> None:
    head, other, place, *found = align_and_diff(before, after, ("one", "two"), SSA)

    assert (head, other, place[:2], found) == ("--- one", "+++ two", "@@", shown)
