"""An argument static and traced: programs counted in a real worker, run times by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from labs_by_hand import ScriptedLab, swept

from benchax.case import make_case
from benchax.errors import NotMeasured, UsageError
from benchax.experiments.variants.static_arguments import StaticVariant


def power(x: Any, n: int) -> Any:
    return x**n


def branching(x: Any, n: int) -> Any:
    return x + 1 if n > 2 else x - 1


def by_type(x: Any, n: Any) -> Any:
    return x * 2 if isinstance(n, int) else x * 3


def test_each_static_value_has_its_program_and_traced_they_share_one() -> None:
    lab = ScriptedLab({"n=3": 0.5})
    rows, _ = swept(StaticVariant(), "n=2,3,4", power, "f32[8]", 2, lab=lab)

    assert rows["static: traced"].sentence.startswith("1 program for 3 values")
    assert rows["static"].sentence.startswith("3 programs for 3 values")
    assert rows["static"].sentence.endswith("same for n=2, n=4; faster for n=3")
    assert "pays after about" in dict(rows["static"].facts)["n=3"]
    one, other = lab.outputs("n=3")
    assert jnp.allclose(one, other, rtol=1e-5)
    assert lab.pairs["n=3"].one.static == ()
    assert lab.pairs["n=3"].other.static == (1,)


def test_a_function_that_needs_it_static_fails_traced_with_advice_and_the_other_row_stays() -> None:
    lab = ScriptedLab()
    rows, _ = swept(StaticVariant(), {"n": [1, 3]}, branching, "f32[8]", 2, lab=lab, static=("n",))

    assert rows["static: traced"].status == "failed"
    assert "TracerBoolConversionError" in rows["static: traced"].reason
    assert "static" in dict(rows["static: traced"].facts)["what to do"]
    assert rows["static"].status == "ok"
    assert "traced it fails" in rows["static"].reason
    assert not lab.pairs


def test_another_result_is_a_wrong_one_and_not_timed() -> None:
    lab = ScriptedLab()
    rows, _ = swept(StaticVariant(), "n=2", by_type, "f32[8]", 2, lab=lab)

    assert rows["static"].status == "wrong_result"
    assert not lab.pairs


@pytest.mark.parametrize(("told", "quoted"), [("m=1", "'m'"), ("n=", "''"), ("n", "None"), ("1,2", "''")])
def test_what_cannot_be_read_is_quoted(told: str, quoted: str) -> None:
    with pytest.raises(UsageError) as caught:
        swept(StaticVariant(), told, power, "f32[8]", 2)

    assert quoted in str(caught.value)


def test_without_values_it_says_what_it_has_to_be_told() -> None:
    with pytest.raises(NotMeasured, match="static=n=1,2,3"):
        StaticVariant().plan(make_case(power, ("f32[8]", 2)))
