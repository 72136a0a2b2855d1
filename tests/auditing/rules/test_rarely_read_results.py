"""Work for results that a loop reads in few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.auditing.recorder.views import Carried

ID = "rarely-read-results"
W, X = "f32[200,200]", "f32[64,200]"
CARRIED = Carried(100, ((0, 0),))
LOOP = "for i in range(n):\n    w, m = step(w, x)\n    if i % 50 == 0:\n        print(m)\n"


def spectrum(w: Any) -> Any:
    return jnp.linalg.eigvalsh(w @ w.T)


def with_spectrum(w: Any, x: Any) -> Any:
    loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    return w - g, (loss, spectrum(w))


def with_loss(w: Any, x: Any) -> Any:
    loss, g = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
    return w - g, loss


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "train.py").write_text(LOOP)
    return {"called_at": f"{tmp_path / 'train.py'}:2", "carried": CARRIED}


def test_the_share_the_names_and_the_line_in_the_function_are_told(ask_about: Any, parts: Any) -> None:
    finding = ask_about(ID, with_spectrum, W, X, parts=parts).one

    assert finding.title.endswith(" % of its operations are for results that are read in few steps")
    assert finding.seen[0] == f"m of the call at {parts['called_at']}: read where i % 50 == 0, at line 3"
    assert "eigh" in " ".join(finding.seen)
    assert (__file__, with_spectrum.__code__.co_firstlineno + 2) in finding.lines


def test_a_loss_that_the_gradient_needs_anyway_is_fine(ask_about: Any, parts: Any) -> None:
    assert ask_about(ID, with_loss, W, X, parts=parts).outcome == "fine"


def test_results_that_are_read_in_each_step_are_fine(ask_about: Any, parts: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP.replace("if i % 50 == 0", "if True"))

    assert ask_about(ID, with_spectrum, W, X, parts=parts).outcome == "fine"


def test_a_state_that_comes_back_as_another_array_is_no_result_that_nobody_reads(ask_about: Any, parts: Any) -> None:
    def two(w: Any, v: Any, x: Any) -> Any:
        return w - x.sum(), (jnp.tanh(v @ v), spectrum(w).sum())

    carried = parts | {"carried": Carried(100, ((0, 0),))}

    assert ask_about(ID, two, W, W, X, parts=carried).outcome == "fine"
    assert ask_about(ID, two, W, W, X, parts=carried | {"repeated_inputs": frozenset({1})}).outcome == "finding"


@pytest.mark.parametrize(
    "carried", [Carried(), Carried(100), Carried(3, ((0, 0),)), Carried(100, ((0, 0), (1, 1), (1, 2)))]
)
def test_what_is_no_step_of_a_loop_is_not_asked(ask_about: Any, parts: Any, carried: Carried) -> None:
    assert ask_about(ID, with_spectrum, W, X, parts=parts | {"carried": carried}).outcome == "not applicable"
