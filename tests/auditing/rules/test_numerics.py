"""Rules of the pack numerics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular

from benchax.auditing.recorder.log import Carried

# ---- cancelling-variance ---------------------------------------------------------------------------------------------

NOISE = np.random.default_rng(0).standard_normal((4000, 3)).astype(np.float32)
FAR = (NOISE + 1e5).astype(np.float32)


def of_means(x: Any) -> Any:
    return jnp.mean(x**2, axis=0) - jnp.mean(x, axis=0) ** 2


def of_sums(x: Any) -> Any:
    n = x.shape[0]
    mean = x.sum(0) / n
    return jnp.sqrt(jnp.maximum((x * x).sum(0) / n - mean * mean, 0.0))


def of_windows(x: Any) -> Any:
    kernel = jnp.ones(60) / 60
    mean = jnp.convolve(x[:, 0], kernel, mode="valid")
    return jnp.convolve(jnp.square(x[:, 0]), kernel, mode="valid") - jnp.square(mean)


def window_sums(x: Any) -> Any:
    return jax.lax.reduce_window(x, jnp.zeros(3)[0], jax.lax.add, (60, 1), (1, 1), "VALID")


def of_reduced_windows(x: Any) -> Any:
    mean = window_sums(x) / 60
    return window_sums(x * x) / 60 - mean**2


@pytest.mark.parametrize(("fn", "line"), [(of_means, 1), (of_sums, 3), (of_windows, 3), (of_reduced_windows, 2)])
def test_a_variance_of_large_numbers_is_found_with_what_is_left(ask_about: Any, fn: Any, line: int) -> None:
    found = ask_about("cancelling-variance", fn, FAR).one

    assert found.title == "the mean of squares minus the square of the mean leaves no digits in float32"
    assert found.where == (__file__, fn.__code__.co_firstlineno + line)
    assert "100 % of" in found.seen[0]
    assert found.seen[1].startswith("the mean of squares is about 1e+10, which float32 has in steps of 1.2e+03;")


@pytest.mark.parametrize("fn", [of_means, of_sums, of_windows, of_reduced_windows])
def test_of_numbers_near_zero_it_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about("cancelling-variance", fn, NOISE).outcome == "fine"


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.var(x, axis=0),
        lambda x: jnp.mean((x - x.mean(0)) ** 2, axis=0),
        lambda x: x[:, 0] - x[:, 1] ** 2,  # nothing is a mean of squares
        lambda x: x[:, 0] ** 2 - x[:, 1] ** 2,
    ],
)
def test_other_differences_are_none(ask_about: Any, fn: Any) -> None:
    assert ask_about("cancelling-variance", fn, FAR).outcome == "not applicable"


def test_in_a_loop_whose_values_are_not_known_nothing_is_called_fine(ask_about: Any) -> None:
    def rows(x: Any) -> Any:
        return jax.lax.map(of_means, jnp.stack([x, x]))

    assert ask_about("cancelling-variance", rows, FAR).outcome == "not checked"


def test_a_column_that_never_changes_is_no_loss(ask_about: Any) -> None:
    mixed = NOISE.copy()
    mixed[:, 0] = 7.0

    assert ask_about("cancelling-variance", of_means, mixed).outcome == "fine"


# ---- explicit-inverse ------------------------------------------------------------------------------------------------

A, B = "f32[400,400]", "f32[400,3]"
EYE = 400


def invert(a: Any, b: Any) -> Any:
    inverse = jnp.linalg.inv(a)
    return jnp.tanh(inverse @ b)


@pytest.mark.slow
def test_it_names_both_lines_and_compares_with_a_solve_of_the_same_result(ask_about: Any, result_of: Any) -> None:
    answered = ask_about("explicit-inverse", invert, A, B, ratio=0.4)
    line = invert.__code__.co_firstlineno

    assert answered.one.where == (__file__, line + 1)
    assert answered.one.title == "inverts a matrix, f32[400,400], to multiply it by 3 columns"
    assert answered.one.severity == "warning"
    assert answered.one.seen[0] == "172 MFLOP for an inverse of 400 columns; 3 need 43.6 MFLOP"
    assert answered.one.seen[1] == f"multiplied at {__file__}:{line + 2}"
    assert answered.one.gain.endswith(", of this solve alone")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "advice"),
    [
        (lambda a, b: cho_solve(cho_factor(a), jnp.eye(EYE)) @ b, "cho_solve(factor, b)"),
        (lambda a, b: solve_triangular(a, jnp.eye(EYE), lower=True) @ b, "solve_triangular(l, b"),
    ],
)
def test_of_a_factor_the_advice_is_the_solve_that_takes_it(
    ask_about: Any, result_of: Any, fn: Any, advice: str
) -> None:
    answered = ask_about("explicit-inverse", fn, A, B, ratio=0.4)

    assert advice in answered.one.advice
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-4)


def test_beside_much_other_work_it_is_an_info(ask_about: Any) -> None:
    def step(a: Any, b: Any) -> Any:
        return invert(a, b), jax.lax.fori_loop(0, 100, lambda _, x: x @ a, a)

    assert ask_about("explicit-inverse", step, A, B).one.severity == "info"


# ---- sparse-matmul ---------------------------------------------------------------------------------------------------

N = 600
RING = np.zeros((N, N), np.float32)
RING[np.arange(N), (np.arange(N) + 1) % N] = 1.0
X = jnp.ones((N, 4))


def in_a_loop(a: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, _: (jnp.tanh(a @ x), None), x, length=3)[0]


def closed_over(x: Any) -> Any:
    return RING.T @ x


def through_a_loop_of_unknown_length(a: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda x: x.sum() > 1e9, lambda x: x @ a.T, x.T)


@pytest.mark.parametrize(
    ("fn", "given"), [(in_a_loop, (RING, X)), (closed_over, (X,)), (through_a_loop_of_unknown_length, (RING, X))]
)
def test_a_matrix_of_few_entries_is_found_with_their_number(ask_about: Any, fn: Any, given: Any) -> None:
    answered = ask_about("sparse-matmul", fn, *given, ratio=0.2)

    assert answered.one.title == "multiplies by f32[600,600]; 0.17 % of it is nonzero"
    assert answered.one.seen[0].startswith("600 of 360 k entries, in 1.37 MiB at ")
    assert answered.one.where == (__file__, fn.__code__.co_firstlineno + 1)
    assert "segment_sum" in answered.one.advice
    assert answered.one.gain.startswith("measured: ")


def full_after_a_few(a: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, a: a @ a, a) @ x


@pytest.mark.parametrize(
    ("fn", "given"),
    [
        (in_a_loop, (np.zeros((N, N), np.float32), X)),  # is to be filled
        (in_a_loop, (np.ones((N, N), np.float32), X)),
        (in_a_loop, (RING[:400, :400], X[:400])),  # small
        (full_after_a_few, (RING, X)),  # the loop carries it
        (lambda a, x: a + x.sum(), (RING, X)),
    ],
)
def test_what_is_to_be_filled_full_small_or_no_factor_is_fine(ask_about: Any, fn: Any, given: Any) -> None:
    assert ask_about("sparse-matmul", fn, *given).outcome == "fine"


# ---- fft-length ------------------------------------------------------------------------------------------------------


def filtered(x: Any, h: Any) -> Any:
    n = x.shape[-1]
    spectrum = jnp.fft.rfft(x) * jnp.fft.rfft(h)
    return jnp.fft.irfft(spectrum, n=n)


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (filtered, ("f32[32,1009]", "f32[1009]")),
        (jax.vmap(filtered), ("f32[32,2018]", "f32[32,2018]")),
        (lambda x: jnp.fft.fft2(x), ("c64[509,512]",)),
        (lambda x: jax.lax.scan(lambda c, r: (c + jnp.fft.fft(r), None), x[0], x)[0], ("c64[8,20011]",)),
        (lambda x, h: jax.scipy.signal.fftconvolve(x, h), ("f32[20000]", "f32[12]")),
    ],
)
def test_a_length_with_a_large_prime_factor_is_found(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about("fft-length", fn, *inputs).findings


def test_the_line_the_factor_and_the_next_good_length_are_told(ask_about: Any) -> None:
    first = ask_about("fft-length", filtered, "f32[32,2018]", "f32[2018]", ratio=0.3).findings[0]

    assert first.title == "transforms a length of 2018, which has the prime factor 1009"
    assert first.seen[0] == "f32[32,2018] by RFFT; the next length without prime factors above 7 is 2025"
    assert first.where == (__file__, filtered.__code__.co_firstlineno + 2)
    assert "n=2025" in first.advice
    assert first.gain.startswith("measured: ")


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (filtered, ("f32[32,1000]", "f32[1000]")),
        (filtered, ("f32[4,1009]", "f32[1009]")),
        (lambda x, w: (x @ w)[:8, :1009] + jnp.fft.fft(x[:8, :1009]).real, ("f32[2000,2000]", "f32[2000,2000]")),
    ],
    ids=["good", "few", "beside much else"],
)
def test_good_lengths_and_what_takes_little_time_are_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about("fft-length", fn, *inputs).outcome == "fine"


def test_without_a_transform_it_is_not_applicable(ask_about: Any) -> None:
    assert ask_about("fft-length", jnp.sin, "f32[8]").outcome == "not applicable"


# ---- long-convolution ------------------------------------------------------------------------------------------------

STREAM, TAPS = "f32[32768]", "f32[4000]"


def filtered_of_convolution(x: Any, kernel: Any) -> Any:
    response = jnp.convolve(x, kernel, mode="valid")
    return response**2


@pytest.mark.slow
def test_it_names_the_line_and_compares_with_the_fft_of_the_same_result(ask_about: Any, result_of: Any) -> None:
    answered = ask_about("long-convolution", filtered_of_convolution, STREAM, TAPS, ratio=0.2)

    assert answered.one.where == (__file__, filtered_of_convolution.__code__.co_firstlineno + 1)
    assert "times the operations of the FFT" in answered.one.title
    assert answered.one.seen[0].startswith("f32[1,1,4000] over f32[1,1,32768]: 230 MFLOP; the FFT takes ")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-2)


# ---- categorical-draws -----------------------------------------------------------------------------------------------

KEY = jax.random.key(0)
LOGITS = jnp.zeros(600)


def sites(key: Any, logits: Any) -> Any:
    return jax.random.categorical(key, logits, shape=(4000,))


def by_hand(key: Any, logits: Any) -> Any:
    return jnp.argmax(logits[None, :] + jax.random.gumbel(key, (4000, logits.size)), axis=-1)


def by_keys(key: Any, logits: Any) -> Any:
    return jax.vmap(lambda key: jax.random.categorical(key, logits))(jax.random.split(key, 4000))


def by_uniform_numbers(key: Any, logits: Any) -> Any:
    return jnp.argmax(logits - jnp.log(-jnp.log(jax.random.uniform(key, (4000, 600)))), axis=-1)


def in_a_loop_of_categories(key: Any, logits: Any) -> Any:
    return jax.lax.map(lambda key: sites(key, logits), jax.random.split(key, 3))


@pytest.mark.parametrize("fn", [sites, by_hand, by_keys, by_uniform_numbers, in_a_loop_of_categories])
def test_draws_with_a_number_for_each_category_are_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about("categorical-draws", fn, KEY, LOGITS).one

    assert finding.title == "4.00 k draws of 600 categories make a random number for each pair"
    assert "makes 2.40 M random numbers" in finding.seen[0]
    assert "; 4.00 k would be enough" in finding.seen[0]


def test_draws_of_several_distributions_are_told_together(ask_about: Any) -> None:
    def species(keys: Any, logits: Any) -> Any:
        return jax.vmap(sites)(keys, logits)

    finding = ask_about("categorical-draws", species, jax.random.split(KEY, 2), jnp.zeros((2, 600))).one

    assert finding.seen[0].endswith("; 8.00 k would be enough")


@pytest.mark.parametrize(("calls", "fn", "count"), [(0, sites, 0), (20, sites, 1), (0, in_a_loop_of_categories, 1)])
def test_what_a_program_does_once_may_make_more_numbers(ask_about: Any, calls: int, fn: Any, count: int) -> None:
    parts = {"why_not_called": "its program has ended", "carried": Carried(calls, ())}

    assert len(ask_about("categorical-draws", fn, KEY, LOGITS, parts=parts).findings) == count


# ---- permuted-draw ---------------------------------------------------------------------------------------------------

X_OF_PERMUTATION = jnp.zeros((60000, 2))


def batch(x: Any, key: Any) -> Any:
    rows = jax.random.permutation(key, x.shape[0])
    return x[rows[:256]]


def chosen(x: Any, key: Any) -> Any:
    return x[jax.random.choice(key, x.shape[0], (256,), replace=False)]


def in_a_loop_of_permutation(x: Any, key: Any) -> Any:
    return jax.lax.map(lambda key: batch(x, key), jax.random.split(key, 3))


@pytest.mark.parametrize("fn", [batch, chosen, in_a_loop_of_permutation])
def test_a_permutation_of_which_a_few_rows_are_used_is_found(ask_about: Any, fn: Any) -> None:
    assert ask_about("permuted-draw", fn, X_OF_PERMUTATION, KEY).one.title == "permutes 60.0 k rows to use 256 of them"


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "fn", "count"), [(0, batch, 0), (20, batch, 1), (0, in_a_loop_of_permutation, 1)])
def test_what_a_program_does_once_may_cost_a_permutation(ask_about: Any, calls: int, fn: Any, count: int) -> None:
    parts = {"why_not_called": "its program has ended", "carried": Carried(calls, ())}

    assert len(ask_about("permuted-draw", fn, X_OF_PERMUTATION, KEY, parts=parts).findings) == count


# ---- recomputed-prefix -----------------------------------------------------------------------------------------------

L = 24
E = jnp.ones((30, 32))


def cell(h: Any, x: Any) -> Any:
    h = jnp.tanh(h @ jnp.ones((32, 32)) + x)
    return h, h


def recurrent(tokens: Any) -> Any:
    x = E[tokens].swapaxes(0, 1)
    _, hs = jax.lax.scan(cell, jnp.zeros((tokens.shape[0], 32)), x)
    return hs.swapaxes(0, 1) @ E.T


def until_stop(tokens: Any, key: Any) -> Any:
    def write(state: Any) -> Any:
        at, tokens = state
        drawn = recurrent(tokens)[:, at].argmax(-1)
        return at + 1, tokens.at[:, at + 1].set(drawn)

    return jax.lax.while_loop(lambda state: (state[0] < L) & (state[1].sum() < 99), write, (0, tokens))[1]


def test_a_sequence_that_is_computed_for_one_position_is_found(ask_about: Any) -> None:
    found = ask_about("recomputed-prefix", until_stop, jnp.zeros((64, L + 1), jnp.int32), KEY).one

    assert found.title == "computes 25 positions in each iteration of a loop, to use one"
    assert found.where == (__file__, until_stop.__code__.co_firstlineno + 3)
    assert "carry the state" in found.advice
