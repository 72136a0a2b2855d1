"""Whole derivatives in the dearer mode."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "derivative-mode"
X = "f32[1500]"


def cost(x: Any, scale: Any = 1.0) -> Any:
    return jnp.sum((jnp.roll(x, 1) - x) ** 2 * scale) + jnp.sum(jnp.tanh(x))


def simulate(x: Any) -> Any:
    return jax.lax.scan(lambda u, _: (u - 0.1 * jnp.sin(u), u[0]), x, None, length=9)[1].sum()


def tridiagonal(k: Any, x: Any) -> Any:
    """Off the diagonal, k; on it, 4 but for the ends."""
    side = jnp.full(x.shape, -k)
    diagonal = jnp.full(x.shape, 4.0).at[0].multiply(k)
    return jax.lax.linalg.tridiagonal_solve(side.at[0].set(0), diagonal, side.at[-1].set(0), x[:, None])[:, 0]


def switch(x: Any) -> Any:
    return jax.lax.cond(x[0] > 0, cost, lambda x: jnp.sum(x**2), x)


def along_each(x: Any) -> Any:
    return jax.vmap(lambda v: jax.jvp(cost, (x,), (v,))[1])(jnp.eye(1500))


def slopes_by_label(x: Any) -> Any:
    return jax.vmap(lambda label: jax.grad(lambda s: jnp.tanh(s * label @ x) ** 2)(0.3))(jnp.eye(1500))


def rates_by_label(x: Any) -> Any:
    """Labels are points here, not directions: the function is not linear in them."""
    return jax.vmap(lambda label: jax.jvp(lambda s: jnp.tanh(s * label @ x), (0.3,), (1.0,))[1])(jnp.eye(1500))


def of_tree(x: Any) -> Any:
    return jax.jacfwd(lambda p: cost(p["a"]) * jnp.sum(p["b"]))({"a": x, "b": jnp.ones((3, 4))})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "title"),
    [
        (lambda x: jax.jacfwd(cost)(x), "differentiates 1 output by 1500 inputs in forward mode"),
        (lambda x: jax.jacfwd(simulate)(x), "differentiates 1 output by 1500 inputs in forward mode"),
        (lambda x: jax.jacfwd(switch)(x), "differentiates 1 output by 1500 inputs in forward mode"),
        (along_each, "differentiates 1 output by 1500 inputs in forward mode"),
        (of_tree, "differentiates 1 output by 1512 inputs in forward mode"),
        (
            lambda x: jax.jacfwd(lambda x: jnp.stack([cost(x), x.sum()]))(x),
            "differentiates 2 outputs by 1500 inputs in forward mode",
        ),
        (
            lambda x: jax.lax.fori_loop(0, 3, lambda _, x: x - jax.jacfwd(cost)(x), x),
            "differentiates 1 output by 1500 inputs in forward mode",
        ),
        (
            lambda x: jax.jacrev(lambda k: tridiagonal(k, x))(2.0),
            "differentiates 1500 outputs by 1 input in reverse mode",
        ),
        (lambda x: jax.jacrev(lambda t: jnp.sin(t * x))(2.0), "differentiates 1500 outputs by 1 input in reverse mode"),
    ],
)
def test_the_dearer_mode_is_found(ask_about: Any, fn: Any, title: str) -> None:
    assert ask_about(ID, fn, X).one.title == title


def test_it_names_the_line_of_the_derivative(ask_about: Any) -> None:
    def step(x: Any) -> Any:
        y = 2 * x
        return x - jax.jacfwd(cost)(y)

    finding = ask_about(ID, step, X).one

    assert finding.where == (__file__, step.__code__.co_firstlineno + 2)
    assert finding.advice.startswith("Use jax.grad")


def test_where_it_is_made_in_one_line_and_called_in_another_both_are_named(ask_about: Any, tmp_path: Any) -> None:
    text = "import jax\ndef gradient_of(f):\n    return jax.jacfwd(f)\ndef step(f, x):\n    return gradient_of(f)(x)\n"
    file, made = tmp_path / "model.py", dict[str, Any]()
    file.write_text(text)
    exec(compile(text, str(file), "exec"), made)

    finding = ask_about(ID, lambda x: made["step"](cost, x), X).one

    assert finding.lines == [(str(file), 5), (str(file), 3)]


def test_a_variable_that_is_called_as_a_function_of_jax_is_followed(ask_about: Any, tmp_path: Any) -> None:
    text = (
        "import jax\ndef make(f):\n    jacobian = jax.jacfwd(f)\n    def step(x):\n        return jacobian(x)\n"
        "    return step\nother = jax.jacrev\n"
    )
    file, made = tmp_path / "model.py", dict[str, Any]()
    file.write_text(text)
    exec(compile(text, str(file), "exec"), made)

    assert (str(file), 3) in ask_about(ID, made["make"](cost), X).one.lines


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.jacrev(cost)(x),
        lambda x: jax.grad(cost)(x),
        lambda x: jax.jacfwd(lambda t: jnp.sin(t * x))(2.0),
        lambda x: jax.hessian(cost)(x[:200]),
        lambda x: jax.jacfwd(jnp.tanh)(x[:300]),
        lambda x: jax.jacfwd(cost)(x[:20]),
        lambda x: jax.vmap(jax.grad(cost))(jnp.eye(300) * x[:300]),
        slopes_by_label,
        rates_by_label,
        lambda x: jnp.eye(1500) @ x,
    ],
)
def test_what_the_other_mode_does_not_spare_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X).outcome == "fine"
