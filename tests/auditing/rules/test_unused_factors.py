"""Factors that are made and not used."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "unused-factors"
SQUARE, TALL, WIDE = "f32[200,200]", "f32[2000,20]", "f32[20,2000]"


def spectrum(a: Any) -> Any:
    _, s, _ = jnp.linalg.svd(a)
    return s.sum()


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (spectrum, SQUARE),
        (spectrum, TALL),
        (lambda a: jnp.linalg.svd(a, full_matrices=False).S, SQUARE),
        (lambda a: jax.vmap(spectrum)(jnp.stack([a, a])), SQUARE),
        (lambda a: jax.lax.fori_loop(0, 3, lambda _, a: a / spectrum(a), a), SQUARE),
    ],
)
def test_singular_vectors_that_nobody_reads_are_found(ask_about: Any, fn: Any, inputs: Any) -> None:
    finding = ask_about(ID, fn, inputs).one

    assert finding.title == "makes singular vectors and uses the singular values alone"
    assert "compute_uv=False" in finding.advice


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda a: (lambda u, s, vh: u[:, :20] * s @ vh)(*jnp.linalg.svd(a)), TALL),
        (lambda a: (lambda u, s, vh: a @ vh[:5].T)(*jnp.linalg.svd(a)), TALL),
        (lambda a: (lambda u, s, vh: u.T[0] * s[0])(*jnp.linalg.svd(a)), TALL),
        (lambda a: (lambda u, s, vh: vh[:20].T * s)(*jnp.linalg.svd(a)), WIDE),
        (lambda a: jax.vmap(lambda a: jnp.linalg.svd(a)[0][:, :3])(jnp.stack([a, a])), TALL),
    ],
)
def test_a_basis_of_the_whole_space_for_a_thin_matrix_is_found(ask_about: Any, fn: Any, inputs: Any) -> None:
    finding = ask_about(ID, fn, inputs).one

    assert "2000,2000] of singular vectors and uses 20 of them at most" in finding.title
    assert "full_matrices=False" in finding.advice


def test_eigenvectors_that_nobody_reads_are_found(ask_about: Any) -> None:
    assert "jnp.linalg.eigvals(a)" in ask_about(ID, lambda a: jnp.linalg.eig(a)[0], SQUARE).one.advice


def test_a_complete_basis_of_which_the_first_columns_are_used_is_found(ask_about: Any) -> None:
    finding = ask_about(ID, lambda a: jnp.linalg.qr(a, mode="complete")[0][:, :20], TALL).one

    assert finding.title == "makes f32[2000,2000] of a basis and uses 20 columns at most"


def test_it_names_the_line_and_what_is_not_read(ask_about: Any) -> None:
    finding = ask_about(ID, spectrum, SQUARE).one

    assert finding.where == (__file__, spectrum.__code__.co_firstlineno + 1)
    assert finding.seen[0] == (
        "svd of f32[200,200] makes f32[200,200] and f32[200,200], 312 KiB, which are never read: "
        "about 64.0 MFLOP too many"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (spectrum, SQUARE),
        (lambda a: jnp.linalg.svd(a)[2] + 1.0, TALL),
        (lambda a: jnp.linalg.eig(a)[0], SQUARE),
        (lambda a: jnp.linalg.qr(a, mode="complete")[0][:, :20], TALL),
    ],
)
def test_what_is_compared_gives_the_same(ask_about: Any, result_of: Any, fn: Any, inputs: Any) -> None:
    ((before, after),) = ask_about(ID, fn, inputs, ratio=0.4).pairs

    for was, now in zip(result_of(before), result_of(after), strict=True):
        np.testing.assert_allclose(np.sort(np.abs(was), None), np.sort(np.abs(now), None), rtol=1e-2, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda a: jnp.linalg.svd(a, compute_uv=False), SQUARE),
        (lambda a: (lambda u, s, vh: u * s @ vh)(*jnp.linalg.svd(a)), SQUARE),
        (lambda a: (lambda u, s, vh: u[:, 20:])(*jnp.linalg.svd(a)), TALL),
        (lambda a: jnp.linalg.svd(a), TALL),
        (lambda a: (lambda u, s, vh: u @ u.T[:, :5])(*jnp.linalg.svd(a)), TALL),
        (jax.grad(lambda a: jnp.linalg.svd(a, compute_uv=False).sum()), SQUARE),
        (jax.grad(lambda a: jnp.linalg.svd(a, full_matrices=False)[1].sum()), SQUARE),
        (lambda a: jnp.linalg.eigh(a)[0], SQUARE),
        (lambda a: jnp.linalg.qr(a)[1], TALL),
        (lambda a: jnp.linalg.qr(a, mode="complete")[1], TALL),
        (lambda a: jnp.linalg.qr(a, mode="complete")[0][:, 20:], TALL),
        (jnp.linalg.pinv, TALL),
        (spectrum, "f32[50,50]"),
        (jax.vmap(spectrum), "f32[100,3,3]"),
    ],
)
def test_what_is_used_or_cannot_be_left_out_is_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, inputs).outcome == "fine"


def test_of_other_platforms_nothing_is_claimed(ask_about: Any) -> None:
    assert ask_about(ID, spectrum, SQUARE, parts={"platform": "gpu"}).outcome == "not checked"
