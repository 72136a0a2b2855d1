"""Sums of bf16."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

ID = "low-precision-accumulation"


def test_a_sum_that_loses_digits_is_told_with_both_errors(ask_about: Any) -> None:
    finding = ask_about(ID, jax.lax.cumsum, "bf16[4096]").one

    assert finding.gain.startswith("measured: error ")
    before, after = (float(text) for text in finding.gain.removeprefix("measured: error ").split(" → "))
    assert before > 2 * after > 0


def test_a_sum_that_a_loop_adds_up_is_found(ask_about: Any) -> None:
    """10,000 ones are 256 in bf16."""

    def mean_of_ones(x: Any) -> Any:
        total, _ = jax.lax.scan(lambda total, one: (total + one, None), jnp.zeros((), x.dtype), jnp.ones_like(x))
        return total / x.size

    finding = ask_about(ID, jax.jit(mean_of_ones), "bf16[10000]").one

    assert finding.seen[0] == "largest error against a run in float64: 9.7e-1 → 0 of the largest value"


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


def average_from_nothing(xs: Any) -> Any:
    zero = jnp.zeros(3, "bfloat16")
    return jax.lax.scan(lambda total, x: (total + x.astype(total.dtype), None), zero, xs)[0]


def test_of_a_loop_that_is_only_read_the_addition_and_the_argument_are_named(ask_about: Any) -> None:
    totals = {"count": jnp.zeros(()), "rate": jax.ShapeDtypeStruct((3,), "bfloat16")}

    finding = ask_about(ID, average, totals, "f32[1000,3]", parts=NOT_CALLED).one

    added = f"{__file__}:{average.__code__.co_firstlineno + 3}"
    assert finding.title == "a loop adds up 1000 terms in bfloat16"
    assert "bf16[3], the argument totals['rate'], to which each of 1000" in finding.seen[0]
    assert f"added at {added}" in finding.seen


def test_the_line_where_a_sum_begins_is_named(ask_about: Any) -> None:
    finding = ask_about(ID, average_from_nothing, "f32[1000,3]", parts=NOT_CALLED).one

    assert finding.where == (__file__, average_from_nothing.__code__.co_firstlineno + 1)


def test_of_an_argument_the_only_line_that_makes_such_an_array_is_named(ask_about: Any, tmp_path: Any) -> None:
    text = (
        "import jax, jax.numpy as jnp\n"
        "def begin():\n    return jnp.zeros(3, jnp.bfloat16)\n"
        "def mean(total, xs):\n"
        "    return jax.lax.scan(lambda t, x: (t + x.astype(t.dtype), None), total, xs)[0]\n"
    )
    file, made = tmp_path / "model.py", dict[str, Any]()
    file.write_text(text)
    exec(compile(text, str(file), "exec"), made)

    finding = ask_about(ID, made["mean"], made["begin"](), "f32[1000,3]", parts=NOT_CALLED).one

    assert finding.where == (str(file), 3)
    assert f"added at {file}:5" in finding.seen


def average_from_zero(xs: Any) -> Any:
    dtype = jnp.bfloat16
    start, count = jnp.zeros((), dtype), 0.0
    first = jnp.zeros((), dtype)
    carry = jax.lax.scan(lambda c, x: ((c[0] + 1, c[1] + x.astype(c[1].dtype)), None), (count, first), xs)[0]
    return carry, start


def test_the_line_that_names_a_number_which_a_sum_begins_with_is_named(ask_about: Any) -> None:
    finding = ask_about(ID, average_from_zero, "f32[1000]", parts=NOT_CALLED).one

    assert finding.where == (__file__, average_from_zero.__code__.co_firstlineno + 3)
