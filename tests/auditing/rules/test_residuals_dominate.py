"""What the forward pass keeps for the backward pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax_versions import tells_transposed

ID = "residuals-dominate"
SHAPES = ("f32[64,64]", "f32[2048,64]")


def loss(w: Any, x: Any) -> Any:
    for _ in range(6):
        x = jnp.tanh(x @ w)
    return (x**2).sum()


@tells_transposed
def test_the_residuals_of_deep_layers_are_counted_and_located(ask_about: Any) -> None:
    finding = ask_about(ID, jax.grad(loss), *SHAPES).one

    assert finding.seen[0] == f"f32[2048,64], 512 KiB, of tanh at {__file__}:{loss.__code__.co_firstlineno + 2}"
    assert any("are kept from the forward to the backward pass" in line for line in finding.seen)
    assert finding.gain.startswith("estimated: at most ")
    assert finding.gain_bytes > 1 << 20


@tells_transposed
def test_those_of_a_scan_are_its_stacked_results(ask_about: Any) -> None:
    def scanned(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=8)[0].sum()

    finding = ask_about(ID, jax.grad(scanned), *SHAPES).one

    assert finding.seen[0].startswith("f32[8,2048,64], 4.00 MiB, of scan")


def test_the_forward_pass_alone_keeps_nothing(ask_about: Any) -> None:
    assert ask_about(ID, loss, *SHAPES).outcome == "not applicable"


@tells_transposed
def test_small_residuals_are_fine(ask_about: Any) -> None:
    assert ask_about(ID, jax.grad(loss), "f32[8,8]", "f32[8,8]").outcome == "fine"


@tells_transposed
def test_checkpointed_layers_keep_no_residuals(ask_about: Any) -> None:
    assert ask_about(ID, jax.grad(jax.checkpoint(loss)), *SHAPES).outcome == "fine"
