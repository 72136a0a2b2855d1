"""Rules about derivatives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_versions import IS_0_6, tells_transposed

# ---- where-gradient --------------------------------------------------------------------------------------------------

N = "f32[8]"


def root(x: Any) -> Any:
    y = jnp.where(x > 0, jnp.sqrt(x), 0.0)
    return y.sum()


def test_without_a_gradient_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about("where-gradient", root, N).why == "no gradient is taken in it"


def well(x: Any) -> Any:
    r = jnp.sqrt(x)
    energy = (1 - jnp.exp(-r)) ** 2
    return jnp.where(x > 0, energy, 0.0).sum()


def test_the_first_operation_without_a_derivative_is_named_and_its_line(ask_about: Any) -> None:
    finding = ask_about("where-gradient", jax.grad(well), N).one

    line = well.__code__.co_firstlineno
    assert finding.title == "the gradient is NaN where jnp.where leaves out sqrt"
    assert finding.where == (__file__, line + 1)
    assert finding.seen[0] == f"jnp.where is at {__file__}:{line + 3}"


# ---- derivative-mode -------------------------------------------------------------------------------------------------

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
    assert ask_about("derivative-mode", fn, X).one.title == title


def test_it_names_the_line_of_the_derivative(ask_about: Any) -> None:
    def step(x: Any) -> Any:
        y = 2 * x
        return x - jax.jacfwd(cost)(y)

    finding = ask_about("derivative-mode", step, X).one

    assert finding.where == (__file__, step.__code__.co_firstlineno + 2)
    assert finding.advice.startswith("Use jax.grad")


def test_where_it_is_made_in_one_line_and_called_in_another_both_are_named(ask_about: Any, tmp_path: Any) -> None:
    text = "import jax\ndef gradient_of(f):\n    return jax.jacfwd(f)\ndef step(f, x):\n    return gradient_of(f)(x)\n"
    file, made = tmp_path / "model.py", dict[str, Any]()
    file.write_text(text)
    exec(compile(text, str(file), "exec"), made)

    finding = ask_about("derivative-mode", lambda x: made["step"](cost, x), X).one

    assert finding.lines == [(str(file), 5), (str(file), 3)]


def test_a_variable_that_is_called_as_a_function_of_jax_is_followed(ask_about: Any, tmp_path: Any) -> None:
    text = (
        "import jax\ndef make(f):\n    jacobian = jax.jacfwd(f)\n    def step(x):\n        return jacobian(x)\n"
        "    return step\nother = jax.jacrev\n"
    )
    file, made = tmp_path / "model.py", dict[str, Any]()
    file.write_text(text)
    exec(compile(text, str(file), "exec"), made)

    assert (str(file), 3) in ask_about("derivative-mode", made["make"](cost), X).one.lines


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
    assert ask_about("derivative-mode", fn, X).outcome == "fine"


# ---- hessian-vector --------------------------------------------------------------------------------------------------

X_OF_HESSIAN, V = "f32[64]", "f32[64]"


def energy(x: Any) -> Any:
    return jnp.sum(jnp.tanh(jnp.outer(x, x)))


def forces(x: Any) -> Any:
    return jnp.tanh(jnp.outer(x, x)) @ x


def pooled(x: Any) -> Any:
    return jnp.sum(jax.lax.reduce_window(jnp.outer(x, x), -jnp.inf, jax.lax.max, (2, 2), (2, 2), "VALID") ** 2)


def log_determinant(x: Any) -> Any:
    return jnp.log(jnp.diag(jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(64)))).sum()


def curvature(x: Any, v: Any) -> Any:
    return v @ (jax.hessian(energy)(x) @ v)


@pytest.mark.parametrize(
    "fn",
    [
        curvature,
        lambda x, v: jax.jacfwd(forces)(x) @ v,
        lambda x, v: v @ jax.jacrev(forces)(x),
        lambda x, v: jax.jacobian(forces)(x).T @ jnp.stack([v, 2 * v], 1),
        lambda x, v: jax.hessian(pooled)(x) @ v,
        lambda x, v: jax.hessian(log_determinant)(x) @ v,
    ],
)
def test_a_matrix_of_derivatives_for_one_product_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about("hessian-vector", fn, X_OF_HESSIAN, V).one

    assert finding.title.startswith("makes f32[64,64] of derivatives for ")
    assert "along 64 directions" in finding.seen[0]


def solve(x: Any, v: Any, **options: Any) -> Any:
    hessian = jax.hessian(energy)(x)
    return jax.scipy.sparse.linalg.cg(lambda u: hessian @ u + 0.1 * u, v, **options)[0]


def power_iteration(x: Any, v: Any, steps: Any = 8) -> Any:
    hessian = jax.hessian(energy)(x)
    return jax.lax.fori_loop(0, steps, lambda i, u: hessian @ u, v)


def test_few_products_in_a_loop_are_found(ask_about: Any) -> None:
    finding = ask_about("hessian-vector", power_iteration, X_OF_HESSIAN, V).one

    assert (finding.title, finding.severity) == (
        "makes f32[64,64] of derivatives for products with 8 vectors",
        "warning",
    )
    assert finding.where == (__file__, power_iteration.__code__.co_firstlineno + 1)


@pytest.mark.parametrize(
    ("options", "severity", "said"),
    [({"maxiter": 8}, "warning", "its iterations, which are 9 at most"), ({}, "info", "each of its iterations")],
)
def test_a_matrix_for_an_iterative_solver_is_found(ask_about: Any, options: Any, severity: str, said: str) -> None:
    finding = ask_about("hessian-vector", lambda x, v: solve(x, v, **options), X_OF_HESSIAN, V).one

    assert (finding.title, finding.severity) == ("makes f32[64,64] of derivatives for an iterative solver", severity)
    assert said in finding.seen[0]
    assert finding.where == (__file__, solve.__code__.co_firstlineno + 1)


def test_it_names_the_line_of_the_product(ask_about: Any) -> None:
    assert ask_about("hessian-vector", curvature, X_OF_HESSIAN, V).one.where == (
        __file__,
        curvature.__code__.co_firstlineno + 1,
    )


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, v: jax.jvp(jax.grad(energy), (x,), (v,))[1],
        lambda x, v: jnp.linalg.solve(jax.hessian(energy)(x) + jnp.eye(64), v),
        lambda x, v: (j := jax.jacfwd(forces)(x)) @ jnp.diag(v) @ j.T,
        lambda x, v: (h := jax.hessian(energy)(x)) @ v + jnp.trace(h),
        lambda x, v: jax.jacfwd(forces)(x)[:2] @ v,
        lambda x, v: power_iteration(x, v, 60),
        lambda x, v: power_iteration(x, v, x[0].astype(int)),
        lambda x, v: jnp.eye(64) @ v + jax.grad(energy)(x),
        lambda x, v: jax.vmap(jax.grad(energy))(jnp.eye(64) * x) @ v,
    ],
)
def test_what_needs_the_matrix_or_makes_none_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about("hessian-vector", fn, X_OF_HESSIAN, V).outcome == "fine"


# ---- per-example-gradients -------------------------------------------------------------------------------------------

W, XS = jnp.ones((300, 200)), jnp.ones((64, 300))
ROWS = jnp.arange(64)


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def of_each(w: Any, xs: Any) -> Any:
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(w, xs)
    return gradients.mean(axis=0)


def of_rows(table: Any, rows: Any) -> Any:
    looked_up = lambda table, row: jnp.sum(table[row] ** 2)  # noqa: E731
    return jax.vmap(jax.value_and_grad(looked_up), (None, 0))(table, rows)[1].sum(0)


def in_a_loop(w: Any, xs: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, w: w - 0.1 * of_each(w, xs), w)


@tells_transposed
@pytest.mark.parametrize(("fn", "given"), [(of_each, (W, XS)), (of_rows, (W, ROWS)), (in_a_loop, (W, XS))])
def test_gradients_of_each_example_that_are_added_up_are_found(ask_about: Any, fn: Any, given: Any) -> None:
    finding = ask_about("per-example-gradients", fn, *given).one

    assert finding.title == "makes a gradient for each of 64 examples and uses their sum"
    assert finding.seen[-1] == "14.6 MiB of gradients together, and 234 KiB of their sums"
    assert finding.gain == "estimated: at most 14.4 MiB of memory"


@tells_transposed
def test_the_line_of_the_sum_is_named(ask_about: Any) -> None:
    assert ask_about("per-example-gradients", of_each, W, XS).one.where == (
        __file__,
        of_each.__code__.co_firstlineno + 2,
    )


@tells_transposed
def test_gradients_of_several_parameters_are_one_finding(ask_about: Any) -> None:
    def step(ws: Any, xs: Any) -> Any:
        gradients = jax.vmap(jax.grad(lambda ws, x: loss(ws[0], x) + loss(ws[1], x)), (None, 0))(ws, xs)
        return jax.tree.map(lambda g: g.mean(0), gradients)

    assert len(ask_about("per-example-gradients", step, (W, 2 * W), XS).one.seen) == 3


def clipped(w: Any, xs: Any) -> Any:
    gradients = jax.vmap(jax.grad(loss), (None, 0))(w, xs)
    norms = jnp.sqrt(jnp.sum(gradients**2, axis=(1, 2)))
    return jnp.sum(gradients / jnp.maximum(norms, 1.0)[:, None, None], axis=0)


@tells_transposed
@pytest.mark.parametrize(
    "fn",
    [
        clipped,
        lambda w, xs: jax.vmap(jax.grad(loss), (None, 0))(w, xs),
        lambda w, xs: jax.vmap(jax.grad(loss), (None, 0))(w[:3, :2], xs[:, :3]).mean(0),
        lambda w, xs: jax.vmap(jax.grad(loss), (None, 0))(w, xs).mean(axis=(1, 2)),
        lambda w, xs: jax.vmap(jax.grad(loss), (None, 0))(w, xs[:4]).mean(0),
    ],
    ids=["clipped each", "given back", "small", "means of each", "few examples"],
)
def test_gradients_that_are_needed_or_small_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about("per-example-gradients", fn, W, XS).outcome == "fine"


@pytest.mark.parametrize(
    "fn",
    [lambda w, xs: jax.grad(lambda w: jax.vmap(loss, (None, 0))(w, xs).mean())(w), lambda w, xs: jnp.sum(xs @ w)],
    ids=["of the mean", "none"],
)
def test_without_a_derivative_of_each_example_it_is_not_applicable(ask_about: Any, fn: Any) -> None:
    assert ask_about("per-example-gradients", fn, W, XS).outcome == ("not checked" if IS_0_6 else "not applicable")


# ---- needless-remat --------------------------------------------------------------------------------------------------

WS, X_OF_REMAT = "f32[6,128,128]", "f32[256,128]"


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
    finding = ask_about("needless-remat", scanned(checkpointed), WS, X_OF_REMAT).one

    # The product runs forward, again, and twice for the derivative: a quarter. The derivative of tanh keeps two arrays,
    # tanh and 1 - tanh; newer versions of JAX keep one, 1 - tanh².
    keeps_one = "one_minus_square" in str(jax.make_jaxpr(jax.grad(jnp.tanh))(1.0))
    kept = "768 KiB" if keeps_one else "1.50 MiB"
    assert finding.title == f"recomputes 25 % of its operations, to keep {kept} less"
    assert finding.severity == "info"
    # Of several uses in a file, the line that calls what was wrapped.
    assert finding.where == (__file__, scanned.__code__.co_firstlineno + 2)


def test_uses_in_the_file_are_named(ask_about: Any, tmp_path: Path) -> None:
    text = "def block(h, w):\n    return h + jnp.tanh(h @ w)\nblock = jax.remat(block)\n"
    (tmp_path / "model.py").write_text(text + "def call(h, w):\n    return block(h, w)\n")
    made = {"jax": jax, "jnp": jnp}
    exec(compile((tmp_path / "model.py").read_text(), str(tmp_path / "model.py"), "exec"), made)

    assert (str(tmp_path / "model.py"), 3) in ask_about(
        "needless-remat", scanned(made["call"]), WS, X_OF_REMAT
    ).one.lines


def test_uses_one_after_another_are_counted_together(ask_about: Any) -> None:
    assert ask_about("needless-remat", jax.grad(unrolled), WS, X_OF_REMAT).one.title.startswith("recomputes 2")


@pytest.mark.parametrize(
    "fn", [scanned(block), scanned(checkpointed).__wrapped__], ids=["not asked for", "no derivative"]
)  # fmt: skip
def test_without_it_in_a_derivative_it_is_not_applicable(ask_about: Any, fn: Any) -> None:
    assert ask_about("needless-remat", fn, WS, X_OF_REMAT).outcome == "not applicable"


def test_products_that_are_kept_and_much_memory_are_fine(ask_about: Any) -> None:
    kept = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)

    assert ask_about("needless-remat", scanned(kept), WS, X_OF_REMAT).outcome == "fine"
    assert ask_about("needless-remat", scanned(checkpointed), "f32[300,128,128]", "f32[4096,128]").outcome == "fine"


# ---- residuals-dominate ----------------------------------------------------------------------------------------------

SHAPES = ("f32[64,64]", "f32[2048,64]")


def deep(w: Any, x: Any) -> Any:
    for _ in range(6):
        x = jnp.tanh(x @ w)
    return (x**2).sum()


@tells_transposed
def test_the_residuals_of_deep_layers_are_counted_and_located(ask_about: Any) -> None:
    finding = ask_about("residuals-dominate", jax.grad(deep), *SHAPES).one

    assert finding.seen[0] == f"f32[2048,64], 512 KiB, of tanh at {__file__}:{deep.__code__.co_firstlineno + 2}"
    assert any("are kept from the forward to the backward pass" in line for line in finding.seen)
    assert finding.gain.startswith("estimated: at most ")
    assert finding.gain_bytes > 1 << 20


@tells_transposed
def test_those_of_a_scan_are_its_stacked_results(ask_about: Any) -> None:
    def scanned(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=8)[0].sum()

    finding = ask_about("residuals-dominate", jax.grad(scanned), *SHAPES).one

    assert finding.seen[0].startswith("f32[8,2048,64], 4.00 MiB, of scan")


def test_the_forward_pass_alone_keeps_nothing(ask_about: Any) -> None:
    assert ask_about("residuals-dominate", deep, *SHAPES).outcome == "not applicable"


@tells_transposed
def test_small_residuals_are_fine(ask_about: Any) -> None:
    assert ask_about("residuals-dominate", jax.grad(deep), "f32[8,8]", "f32[8,8]").outcome == "fine"


@tells_transposed
def test_checkpointed_layers_keep_no_residuals(ask_about: Any) -> None:
    assert ask_about("residuals-dominate", jax.grad(jax.checkpoint(deep)), *SHAPES).outcome == "fine"
