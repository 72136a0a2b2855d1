"""What is computed again by jax.checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "needless-remat"
WS, X = "f32[6,128,128]", "f32[256,128]"


def block(h: Any, w: Any) -> Any:
    return h + jnp.tanh(h @ w)


@jax.checkpoint
def checkpointed(h: Any, w: Any) -> Any:
    return h + jnp.tanh(h @ w)


def scanned(one: Callable[..., Any]) -> Callable[..., Any]:
    def loss(ws: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, w: (one(h, w), None), x, ws)[0].mean()

    return jax.grad(loss)


def unrolled(ws: Any, x: Any) -> Any:
    return checkpointed(checkpointed(x, ws[0]), ws[1]).mean()


def test_the_share_the_memory_and_the_line_that_asks_for_it_are_told(ask_about: Any) -> None:
    finding = ask_about(ID, scanned(checkpointed), WS, X).one

    # The product runs forward, again, and twice for the derivative: a quarter. The derivative of tanh keeps two arrays,
    # tanh and 1 - tanh; newer versions of JAX keep one, 1 - tanh².
    keeps_one = "one_minus_square" in str(jax.make_jaxpr(jax.grad(jnp.tanh))(1.0))
    kept = "768 KiB" if keeps_one else "1.50 MiB"
    assert finding.title == f"computes 25 % of its operations again, to keep {kept} less"
    assert finding.severity == "info"
    # Of several uses in a file, the line that calls what was wrapped.
    assert finding.where == (__file__, scanned.__code__.co_firstlineno + 2)


def test_uses_in_the_file_are_named(ask_about: Any, tmp_path: Path) -> None:
    text = "def block(h, w):\n    return h + jnp.tanh(h @ w)\nblock = jax.remat(block)\n"
    (tmp_path / "model.py").write_text(text + "def call(h, w):\n    return block(h, w)\n")
    made = {"jax": jax, "jnp": jnp}
    exec(compile((tmp_path / "model.py").read_text(), str(tmp_path / "model.py"), "exec"), made)

    assert (str(tmp_path / "model.py"), 3) in ask_about(ID, scanned(made["call"]), WS, X).one.lines


def test_uses_one_after_another_are_counted_together(ask_about: Any) -> None:
    assert ask_about(ID, jax.grad(unrolled), WS, X).one.title.startswith("computes 2")


@pytest.mark.parametrize(
    "fn", [scanned(block), scanned(checkpointed).__wrapped__], ids=["not asked for", "no derivative"]
)  # fmt: skip
def test_without_it_in_a_derivative_it_is_not_applicable(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, WS, X).outcome == "not applicable"


def test_products_that_are_kept_and_much_memory_are_fine(ask_about: Any) -> None:
    kept = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)

    assert ask_about(ID, scanned(kept), WS, X).outcome == "fine"
    assert ask_about(ID, scanned(checkpointed), "f32[300,128,128]", "f32[4096,128]").outcome == "fine"
