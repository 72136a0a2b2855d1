"""Cases: names that people know, parameters whose identity is exact and lasting, inputs made when their turn comes."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refusal

import benchax
from benchax.case import Benchmark, Case, benchmark, check_work, make_case, param_value
from benchax.keywords import positions
from benchax.model import CaseId, Opaque
from benchax.wrappers import name_of

# Any Unicode but lone surrogates, which no encoding can carry.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def double(x: Any) -> Any:
    return x + x


def triple(x: Any) -> Any:
    return 3 * x


class Scale:
    """A callable object without a name of its own."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        return self.factor * x

    def __repr__(self) -> str:
        return f"Scale({self.factor})"


def ids(cases: list[Case]) -> list[tuple[Any, ...]]:
    return [tuple(value for _, value in case.id.params) for case in cases]


# How a parameter is stored. By `repr`, which tells 1 from 1.0 from True and 0.0 from -0.0, and shows two NaNs alike.


ARRAY = np.arange(6.0)
DISTINCT = [
    None, "None", True, 1, 1.0, 1 + 0j, "True", "1", b"1", 0.0, -0.0, 2**64, float(2**64), "nan", float("nan"),
    float("inf"), -float("inf"), (), "()", (1,), ("1",), ((1,),), [2], {"a": 1}, {"a": 2}, double, triple,
    jax.jit(double), functools.partial(double, 1), functools.partial(double, 2), Scale(1), Scale(2), int,
    np.int64(1), np.int32(1), np.float32(1), np.bool_(True), jnp.int32(1), np.float32,
    np.dtype("float32"), jnp.bfloat16, "float32",
    ARRAY, ARRAY + 1, ARRAY.astype("float32"), ARRAY.reshape(2, 3), ARRAY.reshape(3, 2), jnp.arange(6),
    np.arange(6), np.arange(6, dtype=">i8"), np.array(1.0), np.array(1), jax.random.key(0), jax.random.key(1),
]  # fmt: skip


def test_what_is_distinct_is_stored_distinctly() -> None:
    by_text: dict[str, list[Any]] = {}
    for value in DISTINCT:
        by_text.setdefault(repr(param_value(value)), []).append(value)

    assert [alike for alike in by_text.values() if len(alike) > 1] == []


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ([1, [2, "x"]], (1, (2, "x"))),
        (double, Opaque("function", f"{__name__}.double")),
        (Scale(2), Opaque("Scale", "Scale(2)")),
        (np.float32(0.5), Opaque("float32", "float32(0.5)")),
        (np.float64(0.5), Opaque("float64", "float64(0.5)")),  # which is a float, too
        (np.float32, Opaque("type", "numpy.float32")),
        (1 + 2j, Opaque("complex", "(1+2j)")),
        (b"x", Opaque("bytes", "b'x'")),
        (float("nan"), Opaque("float", "nan")),
        (object(), Opaque("object", "<object object>")),
    ],
)
def test_what_json_has_no_word_for_is_stored_by_type_and_text(value: Any, stored: Any) -> None:
    assert repr(param_value(value)) == repr(stored)


def test_an_array_shows_its_type_and_shape_and_a_digest() -> None:
    found = param_value(np.zeros((2, 3), "float32"))

    assert (found.type, found.text.partition("#")[0]) == ("ndarray", "float32[2, 3]")
    assert found == param_value(np.zeros((2, 3), "float32"))


def test_an_identity_is_the_same_in_another_process_and_needs_no_jax() -> None:
    code = (
        "import functools, json, math, sys, numpy as np; from benchax.case import benchmark, make_case, param_value\n"
        "values = [math.sqrt, functools.partial(math.hypot, 1), object(), np.arange(9), 'é', {'a': (1, 2)}]\n"
        "benchmark(len, args=lambda n: (n,), n=[1]).cases()[0].inputs(); make_case(len, (1,)).eager()\n"
        "print(json.dumps(['jax' in sys.modules, *(repr(param_value(v)) for v in values)]))"
    )

    runs = [
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    ]

    assert runs[0] == runs[1]
    is_jax_loaded, *values = json.loads(runs[0])
    assert (is_jax_loaded, len(set(values))) == (False, 6)


# Texts and names


@given(TEXT)
@example("x" * 10_000)
@example('line one\nline two, "quoted"\x00')
def test_a_text_reaches_the_identity_unchanged(text: str) -> None:
    (case,) = benchmark(double, args=lambda value: value, name=text or "f", tag=text, value=[text]).cases()

    assert case.id == CaseId(text or "f", (("value", text),), tag=text)


LONE = "bad \ud800 text"


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: make_case(double, name=LONE), "name"),
        (lambda: make_case(double, tag=LONE), "tag"),
        (lambda: benchmark(double, name=LONE), "name"),
        (lambda: benchmark(double, tag=LONE), "tag"),
        (lambda: benchmark(double, args=lambda s: s, s=[LONE]), "parameter"),
        (lambda: param_value(("x", [LONE])), "parameter"),
    ],
)
def test_a_lone_surrogate_cannot_be_stored(make: Callable[[], Any], what: str) -> None:
    problem = f"{what} 'bad \\ud800 text' is not valid Unicode (it holds a lone surrogate)"
    assert refusal(make) == f"{problem}\nexpected any Unicode text"


def test_a_name_is_a_text() -> None:
    assert refusal(make_case, double, name=3) == "name 3 is a int\nexpected a text"
    assert refusal(make_case, double, tag=None) == "tag None is a NoneType\nexpected a text"
    assert refusal(benchmark, double, name=["a", "b"]) == (
        "option 'name' in the call cannot be ['a', 'b']\nexpected a text or None"
    )


def test_a_parameter_is_a_list_of_values_and_a_function_is_what_args_takes() -> None:
    assert (
        refusal(benchmark, double, n=3)
        == "parameter 'n' of benchmark 'double' is 3\nexpected a list of values, such as n=[3]"
    )
    assert "hint: args=... takes the function that makes the inputs" in refusal(benchmark, double, inputs=double)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (double, "double"), (lambda x: x, "<lambda>"), (functools.partial(double, 1), "double"),
        (functools.partial(functools.partial(double), 1), "double"), (functools.partial(Scale(2)), "Scale"),
        (Scale(2), "Scale"), (Scale(2).__call__, "__call__"), (jax.jit(double), "double"),
        (jax.jit(functools.partial(double)), "double"), (functools.partial(jax.jit(double)), "double"),
        (jax.vmap(double), "double"), (jnp.sort, "sort"), (jnp.add, "add"), (len, "len"), (int, "int"),
    ],
)  # fmt: skip
def test_a_case_is_named_as_people_know_the_function_or_as_they_say(fn: Any, name: str) -> None:
    assert name_of(fn) == make_case(fn).id.name == name
    assert make_case(fn, name="mine").id.name == benchmark(fn, name="mine").name == "mine"


# Cases of one call


def test_a_case_holds_the_call_as_it_was_given() -> None:
    x = np.ones(3)

    case = make_case(np.roll, (x, 2), {"axis": 0}, static=["axis"], donate=0, tag="t")

    args, kwargs = case.inputs()
    assert (args[0] is x, args[1], kwargs) == (True, 2, {"axis": 0})
    assert (case.fn, case.static, case.donate, case.jit) == (np.roll, ("axis",), (0,), True)
    assert case.id == CaseId("roll", tag="t")


def test_a_benchmark_brings_its_inputs_where_none_are_given() -> None:
    marked = benchmark(double, name="twice", args=("f32[8]",), donate=0)
    several = benchmark(double, args=lambda n: (f"f32[{n}]",), n=[1, 2])

    case = make_case(marked)

    assert (case.fn, case.inputs(), case.donate, case.id.name) == (double, (("f32[8]",), {}), (0,), "twice")
    assert make_case(marked, (3.0,)).inputs() == ((3.0,), {})
    assert "benchmark 'double' has 2 cases, one for each combination of n" in refusal(make_case, several)


def test_without_jit_a_case_is_the_eager_variant_which_differs_in_nothing_else() -> None:
    case = make_case(double, (1,), static=(0,), tag="t")

    eager = case.eager()

    assert (
        make_case(double, jit=False).id
        == benchmark(double, jit=False).cases()[0].id
        == eager.id.__class__("double", variant="eager")
    )
    assert (eager.jit, eager.id) == (False, CaseId("double", variant="eager", tag="t"))
    assert (eager.fn, eager.static, eager.inputs()) == (case.fn, case.static, case.inputs())
    assert (case.jit, case.id.variant) == (True, "")


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ((), ()), (0, (0,)), ("axis", ("axis",)), ([0, "axis"], (0, "axis")), (range(2), (0, 1)),
        (iter(["a"]), ("a",)), (-1, (-1,)),
    ],
)  # fmt: skip
def test_arguments_are_listed_by_position_or_name(given_: Any, expected: tuple[int | str, ...]) -> None:
    assert positions(given_, "static") == expected


@pytest.mark.parametrize("what", ["static", "donate"])
@pytest.mark.parametrize(
    ("value", "one"),
    [(1.5, "1.5"), (True, "True"), (None, "None"), ((0, True), "True"), (["x", None], "None"), ([(0, 1)], "(0, 1)")],
)
def test_what_is_neither_a_position_nor_a_name_is_quoted(what: str, value: Any, one: str) -> None:
    assert refusal(make_case, double, **{what: value}) == (
        f"{what}={value!r} holds {one}\nexpected positions and names of arguments, such as (0, 'axis')"
    )


# @benchmark


@pytest.mark.parametrize("mark", [benchmark, benchmark(), benchmark(args=("f32[3]",))])
def test_a_benchmark_may_have_parentheses_and_can_still_be_called(mark: Callable[..., Any]) -> None:
    @mark
    def subtract(a: int, b: int) -> int:
        return a - b

    assert isinstance(subtract, Benchmark)
    assert [case.id for case in subtract.cases()] == [CaseId("subtract")]
    assert subtract(5, b=3) == 2


@pytest.mark.parametrize("mark", [lambda **how: benchmark(double, **how), lambda **how: benchmark(**how)(double)])
def test_a_benchmark_hands_everything_to_its_cases(mark: Callable[..., Benchmark]) -> None:
    marked = mark(
        args=lambda n: (n,), tag="t", static=0, donate="x", options={"seed": 3}, name="f", jit=False, n=[1]
    )  # fmt: skip

    (case,) = marked.cases()

    assert case.id == CaseId("f", (("n", 1),), variant="eager", tag="t")
    assert (case.static, case.donate, case.jit, case.options) == ((0,), ("x",), False, {"seed": 3})
    assert case.inputs() == ((1,), {})


def test_every_combination_of_the_parameters_is_a_case_in_their_order() -> None:
    marked = benchmark(double, args=lambda n, flag, s: (n,), n=[2, 1], flag=[True, False], s=["x", "y"])

    cases = marked.cases()

    assert cases[0].id.params == (("n", 2), ("flag", True), ("s", "x"))
    assert ids(cases) == [(n, flag, s) for n in (2, 1) for flag in (True, False) for s in ("x", "y")]


@pytest.mark.parametrize(
    "values", [(1, 2), iter([1, 2]), (i for i in (1, 2)), np.array([1, 2]), {1: "a", 2: "b"}.keys()]
)
def test_values_may_come_from_any_iterable_and_are_kept(values: Any) -> None:
    marked = benchmark(double, args=lambda n: (n,), n=values)

    first, second = marked.cases(), marked.cases()

    assert [case.inputs()[0][0] for case in first] == [1, 2]
    assert ids(first) == ids(second)


def test_inputs_are_made_when_their_turn_comes_and_anew_each_time() -> None:
    made: list[int] = []
    first, second = benchmark(double, args=lambda n: (made.append(n),), n=[1, 2]).cases()
    before = list(made)

    second.inputs()
    first.inputs()
    first.inputs()

    assert (before, made) == ([], [2, 1, 1])


@pytest.mark.parametrize(
    ("args", "call"),
    [
        ((), ((), {})),
        (("f32[3]", 2), (("f32[3]", 2), {})),
        (["f32[3]"], (("f32[3]",), {})),
        ("f32[3]", (("f32[3]",), {})),
        ({"x": "f32[3]"}, ((), {"x": "f32[3]"})),
        (lambda: ("f32[3]",), (("f32[3]",), {})),
        (lambda: "f32[3]", (("f32[3]",), {})),
        (lambda: {"x": 1}, ((), {"x": 1})),
        (lambda: None, ((None,), {})),
    ],
)
def test_inputs_may_be_a_tuple_one_value_or_keywords(args: Any, call: Any) -> None:
    (case,) = benchmark(double, args=args).cases()

    assert case.inputs() == call


@pytest.mark.parametrize("name", ["dtype", "x_dtype", "kind", "dtypes", "dtype_of"])
def test_a_short_dtype_reaches_the_factory_as_its_long_name_if_the_parameter_is_called_so(name: str) -> None:
    names = ["bf16", "f32", "float16", "odd"]
    cases = benchmark(double, args=lambda **params: (params[name],), **{name: names}).cases()

    long = ["bfloat16", "float32", "float16", "odd"] if name in ("dtype", "x_dtype") else names
    assert ids(cases) == [(each,) for each in names]
    assert [case.inputs()[0][0] for case in cases] == long


def test_the_factory_is_given_the_values_themselves() -> None:
    (case,) = benchmark(double, args=lambda op, shape: (op, shape), op=[triple], shape=[[1, 2]]).cases()

    assert case.inputs() == ((triple, [1, 2]), {})
    assert ids([case]) == [(Opaque("function", f"{__name__}.triple"), (1, 2))]


def test_chosen_values_replace_those_of_the_benchmark() -> None:
    marked = benchmark(double, args=lambda size, m: (size, m), size=[1, 2], m=[3, 4])

    chosen = marked.cases({"m": [9]})

    assert ids(chosen) == [case.inputs()[0] for case in chosen] == [(1, 9), (2, 9)]
    assert len(marked.cases()) == 4
    assert refusal(marked.cases, {"sise": [1]}) == (
        "benchmark 'double' has no parameter 'sise'\nexpected 'size'? Choices: m, size"
    )


BAD_BENCHMARKS: dict[str, Callable[[], Any]] = {
    **{f"a list as function {value!r}": lambda value=value: benchmark(value) for value in (["f32[8]"], "f32[8]", 3)},
    "inputs by position": lambda: benchmark("f32[8]", "f32[8,8]"),
    **{f"n={v!r}": lambda v=v: benchmark(double, args=len, n=v) for v in ("ab", b"ab", 3, 1.5, None, True, [], {})},
    **{f"args={a!r}": lambda a=a: benchmark(double, args=a, n=[1], m=[2]) for a in (("f32[3]",), {"x": 1}, "f32[3]")},
    "inputs under another name": lambda: benchmark(double, inputs=("f32[3]",)),
    "two lambdas": lambda: benchmark(double, args=len, op=[lambda x: x, lambda x: x + 1]),
    "two objects": lambda: benchmark(double, args=len, op=[object(), object()]),
    "two methods": lambda: benchmark(double, args=len, op=[Scale(1).__call__, Scale(2).__call__]),
}


def test_a_benchmark_that_cannot_be_is_answered_with_the_line_that_works(snapshot: Any) -> None:
    """Values that cannot be told apart would be rows of one case, and their times would be compared."""
    assert {what: refusal(make) for what, make in BAD_BENCHMARKS.items()} == snapshot


def test_what_is_of_this_process_does_not_travel_to_another(tmp_path: Path) -> None:
    case = dataclasses.replace(make_case(abs, (1,)), inputs=tuple, listen=print, reference=tuple, folder=tmp_path)

    there = pickle.loads(pickle.dumps(case))

    assert (there.listen, there.reference, there.fn, there.id) == (None, None, abs, CaseId("abs"))


# ---- amounts ---------------------------------------------------------------------------------------------------------


def test_amounts_become_floats_and_functions_stay_what_they_are() -> None:
    assert check_work({"samples": 32, "tokens 日本\n": 0.5}) == {"samples": 32.0, "tokens 日本\n": 0.5}
    assert (check_work(len), check_work(None)) == (len, None)


@pytest.mark.parametrize("work", [{}, 3, [("samples", 32)], "samples"])
def test_what_is_no_amounts_by_name_is_refused(work: Any) -> None:
    assert refusal(check_work, work).startswith(f"invalid work={work!r}\nexpected amounts of one call by name")


@pytest.mark.parametrize("amount", [0, -1, math.inf, math.nan, True, "32", None])
def test_an_amount_is_a_finite_number_above_0(amount: Any) -> None:
    said = refusal(check_work, {"samples": amount})

    assert f"holds 'samples': {amount!r}" in said
    assert said.endswith("each above 0")


# ---- modes -----------------------------------------------------------------------------------------------------------


SHORT: dict[str, Any] = {
    "timer": "wall", "max_time_s": 0.02, "min_time_s": 0.01, "memory": False, "store": "off",
}  # fmt: skip


def loss(x: Any, y: Any) -> Any:
    return ((x - y) ** 2).sum()


@pytest.mark.parametrize(
    ("mode", "same_as"), [("forward", loss), ("grad", jax.grad(loss)), ("forward_and_grad", jax.value_and_grad(loss))]
)
def test_a_mode_is_what_jax_makes_of_the_loss(mode: str, same_as: Any) -> None:
    x, y = jnp.arange(4.0), jnp.ones(4)

    case = make_case(loss, (x, y), mode=mode)

    jax.tree.map(np.testing.assert_array_equal, case.fn(x, y), same_as(x, y))


@pytest.mark.parametrize("fn", [loss, jax.jit(loss)])
def test_the_gradient_is_measured_checked_and_has_an_identity_of_its_own(fn: Any) -> None:
    grad = benchax.bench(fn, "f32[64]", "f32[64]", mode="grad", **SHORT)

    assert (grad.case.label, grad.failure) == ("loss[mode=grad]", None)
    assert grad.numerics is not None
    assert grad.numerics.agrees


def test_the_gradient_is_with_respect_to_the_first_floats_that_are_not_static() -> None:
    def scaled(key: Any, factor: float, x: Any) -> Any:
        return factor * x.sum()

    case = make_case(scaled, (jnp.arange(2), 3.0, jnp.ones(2)), static=1, mode="grad")

    np.testing.assert_array_equal(jax.jit(case.fn, static_argnums=1)(jnp.arange(2), 3.0, jnp.ones(2)), [3.0, 3.0])


@pytest.mark.parametrize("args", [(2.0,), ({"w": jnp.ones(2), "b": 0.5}, jnp.ones(2))])
def test_a_number_of_python_is_differentiated_eagerly_as_it_is_under_jit(args: Any) -> None:
    """The eager gradient was with respect to another argument, and the compiled one was called wrong."""
    case = make_case(lambda *args: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(args)), args, mode="grad")

    eager, compiled = case.fn(*args), jax.jit(case.fn)(*args)

    assert jax.tree.structure(eager) == jax.tree.structure(compiled) == jax.tree.structure(args[0])
    assert jax.tree.all(jax.tree.map(jnp.allclose, eager, compiled))


@pytest.mark.parametrize(("fn", "spec"), [(lambda x: 2 * x, "f32[8]"), (lambda n: n.sum(), "i32[8]")])
def test_what_is_no_loss_fails_while_it_is_traced(fn: Any, spec: str) -> None:
    m = benchax.bench(fn, spec, mode="grad", **SHORT)

    assert m.failure is not None
    assert m.failure.stage == "trace"
    assert "gradient" in m.failure.message.lower()


def test_a_mode_that_is_none_and_a_gradient_that_there_is_not_are_refused() -> None:
    compiled = jax.jit(jnp.sum).lower(jnp.ones(8)).compile()

    assert refusal(make_case, loss, mode="gradd").startswith("invalid mode='gradd'\nexpected 'grad'?")
    assert "compiled already" in refusal(make_case, compiled, (jnp.ones(8),), mode="grad")


def test_a_function_keeps_its_own_mode() -> None:
    m = benchax.bench(jnp.pad, "f32[4]", 1, mode="edge", static=(1, "mode"), **SHORT)

    assert (m.failure, m.case.label) == (None, "pad")


def test_the_cases_of_a_benchmark_have_its_mode_and_are_eager_beside_it() -> None:
    made = benchmark(loss, args=lambda n: (f"f32[{n}]",) * 2, n=[2, 3], mode="grad", jit=False)
    named = benchmark(loss, args=lambda mode, work: (mode, work), mode=["same", "full"], work=[1])

    assert [case.id.label for case in made.cases()] == ["loss[n=2, mode=grad] eager", "loss[n=3, mode=grad] eager"]
    assert [case.id.params for case in named.cases()] == [(("mode", m), ("work", 1)) for m in ("same", "full")]
