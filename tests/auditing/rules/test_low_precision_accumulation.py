"""Sums of bf16."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from benchax.auditing.recorder.views import Carried

ID = "low-precision-accumulation"


@pytest.mark.slow
def test_a_sum_that_loses_digits_is_told_with_both_errors(ask_about: Any) -> None:
    finding = ask_about(ID, jax.lax.cumsum, "bf16[4096]").one

    assert finding.gain.startswith("measured: error ")
    before, after = (float(text) for text in finding.gain.removeprefix("measured: error ").split(" → "))
    assert before > 2 * after > 0


@pytest.mark.slow
def test_a_sum_that_a_loop_adds_up_is_found(ask_about: Any) -> None:
    """10,000 ones are 256 in bf16."""

    def mean_of_ones(x: Any) -> Any:
        total, _ = jax.lax.scan(lambda total, one: (total + one, None), jnp.zeros((), x.dtype), jnp.ones_like(x))
        return total / x.size

    finding = ask_about(ID, jax.jit(mean_of_ones), "bf16[10000]").one

    assert finding.seen[0] == "largest error against a run in float64: 9.7e-1 → 0 of the largest value"


def test_a_carry_that_no_run_in_float64_fits_is_found_by_its_terms_and_the_reason_is_shown(ask_about: Any) -> None:
    """The function begins its sum in bf16 whatever its inputs are, so JAX refuses it float64 terms."""

    def from_literal(x: Any) -> Any:
        return jax.lax.scan(lambda total, one: (total + one, None), jnp.zeros((), jnp.bfloat16), x)[0]

    finding = ask_about(ID, from_literal, "bf16[1000]").one

    assert finding.title == "a loop adds up 1000 terms in bfloat16"
    assert "the run in float64 failed (TypeError: scan body function carry" in finding.seen[-1]
    assert finding.gain is None


def test_products_that_the_device_accumulates_in_float32_are_fine(ask_about: Any) -> None:
    """XLA:CPU does (jaxlib 0.10.2)."""
    assert ask_about(ID, lambda a, b: a @ b, "bf16[16,1024]", "bf16[1024,16]").outcome == "fine"


def test_without_sums_of_low_precision_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a.sum(), "f32[16]").outcome == "not applicable"
    assert ask_about(ID, lambda a: a + 1, "bf16[16]").outcome == "not applicable"


def test_a_callback_which_makes_nothing_is_no_sum(ask_about: Any) -> None:
    def shows(a: Any) -> Any:
        jax.debug.callback(lambda value: None, a)
        return a.sum()

    assert ask_about(ID, shows, "f32[16]").outcome == "not applicable"


def test_what_does_not_trace_is_not_asked(ask_about: Any) -> None:
    answered = ask_about(ID, lambda a: a if a.sum() > 0 else -a, "bf16[16]")

    assert (answered.outcome, answered.why.startswith("it does not trace")) == ("not applicable", True)


@pytest.mark.slow
def test_an_error_of_nothing_cannot_be_made_smaller(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: jax.lax.cumsum(a * 0), "bf16[64]").outcome == "fine"


def test_what_is_not_called_is_told_by_how_often_it_adds(ask_about: Any) -> None:
    def add_up(xs: Any) -> Any:
        return jax.lax.scan(lambda total, x: (total + x, None), jnp.zeros((), xs.dtype), xs)[0]

    read = {"why_not_called": "it is only read"}

    finding = ask_about(ID, add_up, "bf16[1000]", parts=read).one
    assert finding.title == "a loop adds up 1000 terms in bfloat16"
    assert finding.gain is None
    assert ask_about(ID, add_up, "bf16[100]", parts=read).outcome == "not checked"


NOT_CALLED = {"why_not_called": "functions of a program are read"}


def average(totals: Any, xs: Any) -> Any:
    def body(totals: Any, x: Any) -> Any:
        count = totals["count"] + 1
        return {"count": count, "rate": totals["rate"] + x.astype(totals["rate"].dtype)}, None

    return jax.lax.scan(body, totals, xs)[0]


def test_of_a_loop_that_is_only_read_the_addition_and_the_argument_are_named(ask_about: Any) -> None:
    totals = {"count": jnp.zeros(()), "rate": jax.ShapeDtypeStruct((3,), "bfloat16")}

    finding = ask_about(ID, average, totals, "f32[1000,3]", parts=NOT_CALLED).one

    added = f"{__file__}:{average.__code__.co_firstlineno + 3}"
    assert finding.title == "a loop adds up 1000 terms in bfloat16"
    assert "bf16[3], the argument totals['rate'], to which 1000 terms are added" in finding.seen[0]
    assert f"added at {added}" in finding.seen


def average_from_nothing(xs: Any) -> Any:
    zero = jnp.zeros(3, "bfloat16")
    return jax.lax.scan(lambda total, x: (total + x.astype(total.dtype), None), zero, xs)[0]


def test_the_line_where_a_sum_begins_is_named(ask_about: Any) -> None:
    finding = ask_about(ID, average_from_nothing, "f32[1000,3]", parts=NOT_CALLED).one

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
    finding = ask_about(ID, made["mean"], made["begin"](), "f32[1000,3]", parts=parts).one

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
    finding = ask_about(ID, average_from_zero, "f32[1000]", parts=NOT_CALLED).one

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
    finding = ask_about(ID, count_in_waves, "i32[20,10,8]", parts=NOT_CALLED).one

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
    assert "terms" in ask_about(ID, fn, "bf16[1000]", parts=NOT_CALLED).one.title


def begins_anew(xs: Any) -> Any:
    return jax.lax.scan(lambda c, x: (jnp.where(x > 0, c + x, 0), None), jnp.zeros((), xs.dtype), xs)[0]


def decays(xs: Any) -> Any:
    return jax.lax.scan(lambda c, x: (0.9 * c + 0.1 * x, None), jnp.zeros((), xs.dtype), xs)[0]


def into_many(xs: Any) -> Any:
    return jnp.zeros(100, xs.dtype).at[jnp.arange(xs.size) % 100].add(xs)


@pytest.mark.parametrize("fn", [begins_anew, decays, into_many])
def test_what_begins_anew_or_decays_or_gets_few_terms_is_no_long_sum(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, "bf16[1000]", parts=NOT_CALLED).outcome == "not checked"


def add_loss(total: Any, w: Any, x: Any) -> Any:
    return total + jnp.sum(x * w).astype(total.dtype), w - (0.1 * w * x).astype(w.dtype)


def test_sums_of_calls_that_are_given_their_own_result_are_found(ask_about: Any) -> None:
    """A step of an optimiser is made of what it is added to, and is no sum of independent terms."""
    given = ("bf16[]", "bf16[3]", "f32[3]")

    found = ask_about(ID, add_loss, *given, parts=NOT_CALLED | {"carried": Carried(500, ((0, 0), (1, 1)))}).one

    assert found.title == "calls in a loop add up 500 terms in bfloat16"
    few = NOT_CALLED | {"carried": Carried(100, ((0, 0),))}
    assert ask_about(ID, add_loss, *given, parts=few).findings == []
