"""Rules about dtypes and keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.recorder.log import Carried

# ---- low-precision-accumulation --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sum_that_loses_digits_is_told_with_both_errors(ask_about: Any) -> None:
    finding = ask_about("low-precision-accumulation", jax.lax.cumsum, "bf16[4096]").one

    assert finding.gain.startswith("measured: error ")
    before, after = (float(text) for text in finding.gain.removeprefix("measured: error ").split(" → "))
    assert before > 2 * after > 0


@pytest.mark.slow
def test_a_sum_that_a_loop_adds_up_is_found(ask_about: Any) -> None:
    """10,000 ones are 256 in bf16."""

    def mean_of_ones(x: Any) -> Any:
        total, _ = jax.lax.scan(lambda total, one: (total + one, None), jnp.zeros((), x.dtype), jnp.ones_like(x))
        return total / x.size

    finding = ask_about("low-precision-accumulation", jax.jit(mean_of_ones), "bf16[10000]").one

    assert finding.seen[0] == "largest error against a run in float64: 9.7e-1 → 0 of the largest value"


def test_a_carry_that_no_run_in_float64_fits_is_found_by_its_terms_and_the_reason_is_shown(ask_about: Any) -> None:
    """The function begins its sum in bf16 whatever its inputs are, so JAX refuses it float64 terms."""

    def from_literal(x: Any) -> Any:
        return jax.lax.scan(lambda total, one: (total + one, None), jnp.zeros((), jnp.bfloat16), x)[0]

    finding = ask_about("low-precision-accumulation", from_literal, "bf16[1000]").one

    assert finding.title == "a loop adds up 1000 terms in bfloat16"
    assert "the run in float64 failed (TypeError: scan body function carry" in finding.seen[-1]
    assert finding.gain is None


def test_products_that_the_device_accumulates_in_float32_are_fine(ask_about: Any) -> None:
    """XLA:CPU does (jaxlib 0.10.2)."""
    assert (
        ask_about("low-precision-accumulation", lambda a, b: a @ b, "bf16[16,1024]", "bf16[1024,16]").outcome == "fine"
    )


def test_without_sums_of_low_precision_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about("low-precision-accumulation", lambda a: a.sum(), "f32[16]").outcome == "not applicable"
    assert ask_about("low-precision-accumulation", lambda a: a + 1, "bf16[16]").outcome == "not applicable"


def test_a_callback_which_makes_nothing_is_no_sum(ask_about: Any) -> None:
    def shows(a: Any) -> Any:
        jax.debug.callback(lambda value: None, a)
        return a.sum()

    assert ask_about("low-precision-accumulation", shows, "f32[16]").outcome == "not applicable"


@pytest.mark.slow
def test_an_error_of_nothing_cannot_be_made_smaller(ask_about: Any) -> None:
    assert ask_about("low-precision-accumulation", lambda a: jax.lax.cumsum(a * 0), "bf16[64]").outcome == "fine"


def test_what_is_not_called_is_told_by_how_often_it_adds(ask_about: Any) -> None:
    def add_up(xs: Any) -> Any:
        return jax.lax.scan(lambda total, x: (total + x, None), jnp.zeros((), xs.dtype), xs)[0]

    read = {"why_not_called": "it is only read"}

    finding = ask_about("low-precision-accumulation", add_up, "bf16[1000]", parts=read).one
    assert finding.title == "a loop adds up 1000 terms in bfloat16"
    assert finding.gain is None
    assert ask_about("low-precision-accumulation", add_up, "bf16[100]", parts=read).outcome == "not checked"


NOT_CALLED = {"why_not_called": "functions of a program are read"}


def average(totals: Any, xs: Any) -> Any:
    def body(totals: Any, x: Any) -> Any:
        count = totals["count"] + 1
        return {"count": count, "rate": totals["rate"] + x.astype(totals["rate"].dtype)}, None

    return jax.lax.scan(body, totals, xs)[0]


def test_of_a_loop_that_is_only_read_the_addition_and_the_argument_are_named(ask_about: Any) -> None:
    totals = {"count": jnp.zeros(()), "rate": jax.ShapeDtypeStruct((3,), "bfloat16")}

    finding = ask_about("low-precision-accumulation", average, totals, "f32[1000,3]", parts=NOT_CALLED).one

    added = f"{__file__}:{average.__code__.co_firstlineno + 3}"
    assert finding.title == "a loop adds up 1000 terms in bfloat16"
    assert "bf16[3], the argument totals['rate'], to which 1000 terms are added" in finding.seen[0]
    assert f"added at {added}" in finding.seen


def average_from_nothing(xs: Any) -> Any:
    zero = jnp.zeros(3, "bfloat16")
    return jax.lax.scan(lambda total, x: (total + x.astype(total.dtype), None), zero, xs)[0]


def test_the_line_where_a_sum_begins_is_named(ask_about: Any) -> None:
    finding = ask_about("low-precision-accumulation", average_from_nothing, "f32[1000,3]", parts=NOT_CALLED).one

    assert finding.where == (__file__, average_from_nothing.__code__.co_firstlineno + 1)


MODEL = """\
import jax, jax.numpy as jnp
def begin(dtype=jnp.bfloat16):
    return jnp.zeros(3, dtype)
def mean(total, xs):
    return jax.lax.scan(lambda t, x: (t + x.astype(t.dtype), None), total, xs)[0]
if data:
    total = begin(half)
    total = mean(total, data)
"""


@pytest.mark.parametrize(("call", "lines"), [("", [5, 2]), (":8", [3, 5, 2])])
def test_the_addition_the_dtype_and_the_line_that_makes_the_argument_are_named(
    ask_about: Any, tmp_path: Any, call: str, lines: list[int]
) -> None:
    file, made = tmp_path / "model.py", dict[str, Any](data=None)
    file.write_text(MODEL)
    exec(compile(MODEL, str(file), "exec"), made)

    parts = NOT_CALLED | {"called_at": f"{file}{call}" if call else ""}
    finding = ask_about("low-precision-accumulation", made["mean"], made["begin"](), "f32[1000,3]", parts=parts).one

    assert finding.where == (str(file), lines[0])
    assert {(str(file), line) for line in lines} <= set(finding.lines)
    assert f"added at {file}:5" in finding.seen


def average_from_zero(xs: Any) -> Any:
    dtype = jnp.bfloat16
    start, count = jnp.zeros((), dtype), 0.0
    first = jnp.zeros((), dtype)
    carry = jax.lax.scan(lambda c, x: ((c[0] + 1, c[1] + x.astype(c[1].dtype)), None), (count, first), xs)[0]
    return carry, start


def test_of_a_sum_that_begins_with_a_number_the_addition_and_the_dtype_are_named(ask_about: Any) -> None:
    finding = ask_about("low-precision-accumulation", average_from_zero, "f32[1000]", parts=NOT_CALLED).one

    first_line = average_from_zero.__code__.co_firstlineno
    assert {(__file__, first_line + 1), (__file__, first_line + 4)} <= set(finding.lines)


@dataclass(frozen=True)
class Precision:
    weights: Any = jnp.float32
    counts: Any = jnp.bfloat16  # written


class Tally(NamedTuple):
    hits: Any
    left: Any


def count_in_waves(where: Any) -> Any:
    precision = Precision()
    start = Tally(jnp.zeros(4, precision.counts), jnp.int32(0))

    def step(tally: Any, where: Any) -> Any:
        hits = tally.hits.at[where].add(jnp.ones(where.shape, tally.hits.dtype))
        return Tally(hits, tally.left + 1), None

    return jax.lax.scan(lambda tally, where: (jax.lax.scan(step, tally, where)[0], None), start, where)[0]


def test_counts_of_nested_loops_are_told_where_their_dtype_is_written(ask_about: Any) -> None:
    """20 waves of 10 steps add 8 terms each to 4 elements."""
    finding = ask_about("low-precision-accumulation", count_in_waves, "i32[20,10,8]", parts=NOT_CALLED).one

    lines = Path(__file__).read_text().splitlines()
    written = next(i for i, line in enumerate(lines, 1) if line.endswith("# written"))
    assert finding.title == "a loop adds up 400 terms in bfloat16"
    assert (__file__, written) in finding.lines


def only_where_positive(xs: Any) -> Any:
    return jax.lax.scan(lambda c, x: (jnp.where(x > 0, c + x, c), None), jnp.zeros((), xs.dtype), xs)[0]


def rounded_each_time(xs: Any) -> Any:
    def add(total: Any, x: Any) -> Any:
        return (total.astype(jnp.float32) + x).astype(total.dtype), None

    return jax.lax.scan(add, jnp.zeros((), xs.dtype), xs)[0]


def by_segment(xs: Any) -> Any:
    return jax.ops.segment_sum(xs, jnp.arange(xs.size) % 3, 3)


def in_a_batch(xs: Any) -> Any:
    return jax.vmap(only_where_positive)(jnp.stack([xs, xs]))


@pytest.mark.parametrize("fn", [only_where_positive, rounded_each_time, by_segment, in_a_batch])
def test_sums_are_found_in_whatever_form_they_add(ask_about: Any, fn: Any) -> None:
    assert "terms" in ask_about("low-precision-accumulation", fn, "bf16[1000]", parts=NOT_CALLED).one.title


def begins_anew(xs: Any) -> Any:
    return jax.lax.scan(lambda c, x: (jnp.where(x > 0, c + x, 0), None), jnp.zeros((), xs.dtype), xs)[0]


def decays(xs: Any) -> Any:
    return jax.lax.scan(lambda c, x: (0.9 * c + 0.1 * x, None), jnp.zeros((), xs.dtype), xs)[0]


def into_many(xs: Any) -> Any:
    return jnp.zeros(100, xs.dtype).at[jnp.arange(xs.size) % 100].add(xs)


@pytest.mark.parametrize("fn", [begins_anew, decays, into_many])
def test_what_begins_anew_or_decays_or_gets_few_terms_is_no_long_sum(ask_about: Any, fn: Any) -> None:
    assert ask_about("low-precision-accumulation", fn, "bf16[1000]", parts=NOT_CALLED).outcome == "not checked"


def add_loss(total: Any, w: Any, x: Any) -> Any:
    return total + jnp.sum(x * w).astype(total.dtype), w - (0.1 * w * x).astype(w.dtype)


def test_sums_of_calls_that_are_given_their_own_result_are_found(ask_about: Any) -> None:
    """A step of an optimiser is made of what it is added to, and is no sum of independent terms."""
    given = ("bf16[]", "bf16[3]", "f32[3]")

    found = ask_about(
        "low-precision-accumulation", add_loss, *given, parts=NOT_CALLED | {"carried": Carried(500, ((0, 0), (1, 1)))}
    ).one

    assert found.title == "calls in a loop add up 500 terms in bfloat16"
    few = NOT_CALLED | {"carried": Carried(100, ((0, 0),))}
    assert ask_about("low-precision-accumulation", add_loss, *given, parts=few).findings == []


# ---- weak-type-promotion ---------------------------------------------------------------------------------------------


def doubled(a: Any) -> Any:
    return a * np.float32(2.0)


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_strongly_typed_scalar_that_widens_an_array_is_named_with_its_line(ask_about: Any, in_loop: bool) -> None:
    def looped(a: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, b: doubled(b).astype(b.dtype), a)

    finding = ask_about("weak-type-promotion", looped if in_loop else doubled, "bf16[100]").one

    assert finding.title == "a scalar widens bf16[100] to float32"
    assert finding.where == (__file__, doubled.__code__.co_firstlineno + 1)
    assert finding.seen[1] == "200 B more to compute with, as traced"


def test_a_scalar_among_the_inputs_counts_as_well(ask_about: Any) -> None:
    assert ask_about("weak-type-promotion", lambda a, s: a * s, "bf16[100]", "f32[]").outcome == "finding"


@pytest.mark.parametrize("other", [2.0, jnp.bfloat16(2.0), "f32[100]"])
def test_numbers_scalars_of_its_type_and_wide_arrays_are_fine(ask_about: Any, other: Any) -> None:
    assert ask_about("weak-type-promotion", lambda a, b: a * b, "bf16[100]", other).findings == []


@pytest.mark.parametrize(
    "widen", [lambda a: a.astype(jnp.float32), lambda a: jnp.asarray(a, jnp.float32)], ids=["astype", "asarray"]
)
def test_an_array_that_its_author_widens_is_fine(ask_about: Any, widen: Any) -> None:
    assert ask_about("weak-type-promotion", lambda a: widen(a) * np.float32(2.0) * 3.0, "bf16[100]").findings == []


def test_an_output_that_would_compile_again_when_fed_back_is_an_info(ask_about: Any) -> None:
    finding = ask_about("weak-type-promotion", lambda a: jnp.where(a > 0, 1.0, 2.0), "f32[]").one

    assert finding.severity == "info"
    assert finding.seen == ("result is a weakly typed f32[], args[0] a strongly typed one",)


def test_in_a_program_what_is_compiled_again_is_told_by_another_rule(ask_about: Any) -> None:
    parts = {"why_not_called": "it belongs to a program"}

    assert (
        ask_about("weak-type-promotion", lambda a: jnp.where(a > 0, 1.0, 2.0), "f32[]", parts=parts).outcome == "fine"
    )


# ---- float64-promotion -----------------------------------------------------------------------------------------------

SCALES = np.arange(5.0)


@pytest.fixture
def x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def scaled(a: Any) -> Any:
    return a * SCALES


@pytest.mark.usefixtures("x64")
def test_the_line_where_float64_comes_in_is_named(ask_about: Any) -> None:
    finding = ask_about("float64-promotion", scaled, "f32[5]").one

    assert finding.title == "float64 out of float32 inputs"
    assert finding.where == (__file__, scaled.__code__.co_firstlineno + 1)
    assert finding.seen[0].startswith("convert_element_type makes f64[5] at ")
    assert finding.seen[-1] == "2 of 2 equations make float64 arrays, 80 B as traced"


@pytest.mark.usefixtures("x64")
def test_python_numbers_widen_nothing(ask_about: Any) -> None:
    assert ask_about("float64-promotion", lambda a: a * 2.0, "f32[5]").outcome == "fine"


@pytest.mark.usefixtures("x64")
def test_float64_inputs_ask_for_it(ask_about: Any) -> None:
    assert ask_about("float64-promotion", lambda a: a * 2.0, "f64[5]").outcome == "not applicable"


@pytest.mark.usefixtures("x64")
def test_python_numbers_alone_ask_for_it(ask_about: Any) -> None:
    answered = ask_about("float64-promotion", lambda rate: rate * jnp.arange(5.0), 0.5)

    assert answered.why == "its inputs are Python numbers, and with jax_enable_x64 these are float64"


def test_without_x64_nothing_is_float64(ask_about: Any) -> None:
    answered = ask_about("float64-promotion", scaled, "f32[5]")

    assert (answered.outcome, answered.why) == (
        "not applicable",
        "jax_enable_x64 is off, so nothing is float64",
    )


def descend(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w), jnp.sum(x)


@pytest.mark.usefixtures("x64")
def test_a_state_of_float32_that_meets_float64_is_found_at_the_line_that_makes_it(ask_about: Any) -> None:
    parts = {"wide_lines": {"f64[900,64]": (f"{__file__}:7",)}}

    finding = ask_about("float64-promotion", descend, "f32[64,64]", "f64[300,64]", parts=parts).one

    assert finding.title == "computes in float64 what it returns as float32"
    assert finding.seen[0] == "float64 among its inputs: x f64[300,64]"
    assert finding.where == (__file__, 7)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (descend, ("f64[64,64]", "f64[300,64]")),
        (descend, ("f64[64,64]", "f32[300,64]")),
        (lambda w, x: (w, x @ w), ("f32[64,64]", "f64[300,64]")),
        (lambda w, x: jnp.sum((x @ w) ** 2), ("f32[64,64]", "f64[300,64]")),
    ],
)
def test_float64_that_is_kept_or_belongs_to_the_state_is_asked_for(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about("float64-promotion", fn, *inputs).outcome == "not applicable"


@pytest.mark.usefixtures("x64")
def test_a_little_float64_beside_a_state_of_float32_is_fine(ask_about: Any) -> None:
    def step(w: Any, clock: Any) -> Any:
        return jnp.tanh(w @ w), jnp.sum(clock)

    assert ask_about("float64-promotion", step, "f32[256,256]", "f64[8]").outcome == "fine"


# ---- key-reuse -------------------------------------------------------------------------------------------------------

SECOND_NAME = "def draw(key):\n    k, l = key, key\n    a = jax.random.normal(k)\n    return a + jax.random.normal(l)\n"
KEYS = [jax.random.key(0), jax.random.PRNGKey(0)]


def twice(key: Any) -> Any:
    a = jax.random.normal(key, (3,))
    return a + jax.random.uniform(key, (3,))


def test_the_line_of_the_second_use_is_named(ask_about: Any) -> None:
    line = twice.__code__.co_firstlineno

    finding = ask_about("key-reuse", twice, KEYS[0]).one

    assert finding.where == (__file__, line + 2)
    assert finding.seen == (f"drawn from at {__file__}:{line + 1}", f"drawn from at {__file__}:{line + 2}")


def test_a_program_that_gives_the_same_key_at_each_call_is_found(ask_about: Any) -> None:
    fn = jax.jit(lambda x, key: x * jax.random.normal(jax.random.fold_in(key, 3), x.shape))

    assert ask_about("key-reuse", fn, jnp.ones(3), KEYS[1]).outcome == "fine"
    found = ask_about("key-reuse", fn, jnp.ones(3), KEYS[1], parts={"repeated_inputs": frozenset({1})})
    assert found.one.title == "each call draws the same random numbers"


def test_the_line_that_passes_the_same_key_is_told(ask_about: Any) -> None:
    fn = jax.jit(twice)
    parts = {"repeated_inputs": frozenset({0}), "called_at": "train.py:7"}

    found = ask_about("key-reuse", fn, KEYS[1], parts=parts).findings

    (finding,) = [one for one in found if one.title == "each call draws the same random numbers"]
    assert finding.where == (str(Path("train.py").absolute()), 7)
    assert finding.seen[0] == "it is called at train.py:7"
    assert len([text for text in finding.seen if "is drawn" in text]) == 2
    assert finding.advice.startswith("Pass another key at train.py:7")


def test_a_number_that_changes_makes_other_keys(ask_about: Any) -> None:
    fn = jax.jit(lambda key, step: jax.random.normal(jax.random.fold_in(key, step)))

    assert ask_about("key-reuse", fn, KEYS[1], 3, parts={"repeated_inputs": frozenset({0})}).outcome == "fine"


def noisy(x: Any, key: Any) -> Any:
    return x + jax.random.normal(key, x.shape)


def draws_in_a_body(x: Any, key: Any) -> Any:
    def body(total: Any, part: Any) -> Any:
        part = 2 * part
        return total + noisy(part, key), None

    return jax.lax.scan(body, x[0], x)[0]


def passes_a_key_on_again(x: Any, key: Any) -> Any:
    x = noisy(x, key)
    return noisy(x, key)


def test_of_a_loop_the_line_of_its_body_is_named_that_passes_the_key(ask_about: Any) -> None:
    finding = ask_about("key-reuse", draws_in_a_body, jnp.ones((4, 3)), KEYS[0]).one

    assert finding.where == (__file__, draws_in_a_body.__code__.co_firstlineno + 3)
    assert f"{__file__}:{noisy.__code__.co_firstlineno + 1}" in finding.seen[0]


class Search(NamedTuple):
    x: Any
    key: Any


def draw_of_carry(state: Any) -> Any:
    x = 2 * state.x
    return Search(x + jax.random.normal(state.key, x.shape), state.key)


def unpack_and_draw(state: Any) -> Any:
    x, key = state
    sub, _ = jax.random.split(key)
    return Search(x + noisy(x, sub), key)


def draw_of_closure(x: Any, key: Any) -> Any:
    def body(x: Any, _: Any) -> Any:
        return draw_by_helper(x, jax.random.split(key)[0]), None

    return jax.lax.scan(body, x, None, length=3)[0]


def draw_by_helper(x: Any, key: Any) -> Any:
    first, key = jax.random.split(key)
    keys = jax.random.split(first, 2)
    return x + noisy(x, keys[0])


def whole_loop(step: Any) -> Any:
    return lambda x, key: jax.lax.scan(lambda s, _: (step(s), None), Search(x, key), None, length=3)[0]


@pytest.mark.parametrize(
    ("fn", "chooses", "line"),
    [
        (whole_loop(draw_of_carry), draw_of_carry, 2),
        (whole_loop(unpack_and_draw), unpack_and_draw, 3),
        (draw_of_closure, draw_of_closure, 2),
    ],
)
def test_of_a_loop_each_line_on_the_way_to_the_draw_is_named(ask_about: Any, fn: Any, chooses: Any, line: int) -> None:
    finding = ask_about("key-reuse", fn, jnp.ones(3), KEYS[0]).one

    assert (__file__, chooses.__code__.co_firstlineno + line) in finding.lines


def test_a_second_name_of_a_key_is_named(ask_about: Any, tmp_path: Path) -> None:
    file, made = tmp_path / "model.py", dict[str, Any](jax=jax)
    file.write_text(SECOND_NAME)
    exec(compile(SECOND_NAME, str(file), "exec"), made)

    finding = ask_about("key-reuse", made["draw"], KEYS[0]).one

    assert {(str(file), line) for line in (2, 3, 4)} <= set(finding.lines)


def test_of_two_uses_inside_of_one_function_the_second_call_of_it_is_named(ask_about: Any) -> None:
    finding = ask_about("key-reuse", passes_a_key_on_again, jnp.ones(3), KEYS[0]).one

    assert finding.where == (__file__, passes_a_key_on_again.__code__.co_firstlineno + 2)
