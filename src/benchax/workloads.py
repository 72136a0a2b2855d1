"""Small functions to try benchax with, one for every kind of its advice, with their own inputs.

They have their own inputs, so `benchax run benchax.workloads:mlp` and `benchax.bench(mlp)` need nothing else. Examples,
tests and benchmarks of benchax use the same functions under the same names. All are plain functions, not jitted, in
float32.

    mlp          a few matrix products: dispatch is a good part of it        tutorial of JAX and pytest-jax-bench
    selu         memory traffic that jit fuses into one pass                 tutorial of JAX
    transformer  attention and a wide layer: compute
    rnn          a scan: many small steps that cannot overlap
    train_step   value and gradient, then Adam: for donation
    fft          a library call that XLA does not fuse

Data are random and scaled as initial weights are, so that no softmax saturates and no number overflows.

Example:
    >>> [case.fn.__name__ for case in benchax.workloads.cases()][:2]
    ['mlp', 'selu']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchax.case import BENCHMARK_OF, Benchmark, Case, benchmark

MLP_INPUTS = (("f32[128,4]", "f32[4,8]", "f32[8,12]"), "f32[1024,128]")


def mlp(layers: Sequence[Any], x: Any) -> Any:
    """Dense layers with relu between them.

    Args:
        layers: weights, f32[128,4], f32[4,8], f32[8,12].
        x: f32[1024,128].

    Returns:
        f32[1024,12].
    """
    import jax

    for w in layers[:-1]:
        x = jax.nn.relu(x @ w)
    return x @ layers[-1]


def selu(x: Any, alpha: float = 1.67, lambda_: float = 1.05) -> Any:
    """Scaled exponential linear unit (Klambauer et al., 2017) of x: f32[1000000]."""
    import jax.numpy as jnp

    return lambda_ * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)


def transformer(weights: dict[str, Any], x: Any, heads: int = 4) -> Any:
    """One block: causal attention, then two dense layers with gelu between; each on normalised input, and added to it.

    Args:
        weights: qkv f32[128,384], out f32[128,128], up f32[128,512], down f32[512,128].
        x: f32[4,128,128]: batch, places, width.

    Returns:
        f32[4,128,128].
    """
    import jax

    x = x + _attention(weights, _normalized(x), heads)
    return x + jax.nn.gelu(_normalized(x) @ weights["up"]) @ weights["down"]


def _attention(weights: dict[str, Any], x: Any, heads: int) -> Any:
    import jax
    import jax.numpy as jnp

    batch, places, width = x.shape
    qkv = (x @ weights["qkv"]).reshape(batch, places, 3, heads, width // heads)
    q, k, v = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    is_past = jnp.tril(jnp.ones((places, places), bool))
    shares = jax.nn.softmax(jnp.where(is_past, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(x.shape) @ weights["out"]


def _normalized(x: Any) -> Any:
    """Root mean square over the last axis is 1 (Zhang and Sennrich, 2019)."""
    import jax

    return x * jax.lax.rsqrt(jax.numpy.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def rnn(weights: dict[str, Any], xs: Any) -> Any:
    """Elman network: h = tanh(x @ w_x + h @ w_h), by `lax.scan`.

    Args:
        weights: w_x f32[32,64], w_h f32[64,64].
        xs: f32[100,16,32]: steps, batch, width.

    Returns:
        every h: f32[100,16,64].
    """
    import jax

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jax.numpy.tanh(x @ weights["w_x"] + h @ weights["w_h"])
        return h, h

    start = jax.numpy.zeros((xs.shape[1], weights["w_h"].shape[0]), xs.dtype)
    return jax.lax.scan(step, start, xs)[1]


State = dict[str, Any]


def train_step(state: State, x: Any, y: Any) -> tuple[State, Any]:
    """One step of Adam (Kingma and Ba, 2015, algorithm 1) on the mean squared error of `mlp`.

    The state comes back as it went in, so that it can be donated: `jax.jit(train_step, donate_argnums=0)`.

    Args:
        state: step i32[], and three lists of f32[64,256], f32[256,256], f32[256,10]: weights, mean, square.
        x: f32[128,64].
        y: f32[128,10].

    Returns:
        (state, loss f32[]).
    """
    import jax

    loss, grads = jax.value_and_grad(_loss)(state["weights"], x, y)
    return _adam(state, grads), loss


def _loss(weights: Sequence[Any], x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.mean((mlp(weights, x) - y) ** 2)


def _adam(state: State, grads: Any, rate: float = 1e-3, b1: float = 0.9, b2: float = 0.999) -> State:
    import jax

    step = state["step"] + 1
    mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["mean"], grads)
    square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["square"], grads)
    # Algorithm 1 with its last three lines rearranged as at the end of its section 2.
    size = rate * jax.numpy.sqrt(1 - b2**step) / (1 - b1**step)
    weights = jax.tree.map(lambda w, m, v: w - size * m / (jax.numpy.sqrt(v) + 1e-8), state["weights"], mean, square)
    return {"step": step, "weights": weights, "mean": mean, "square": square}


def fft(x: Any) -> Any:
    """Discrete Fourier transform of each row of x, c64[64,4096]."""
    import jax.numpy as jnp

    return jnp.fft.fft(x)


def _transformer_inputs() -> tuple[Any, ...]:
    shapes = {"qkv": (128, 384), "out": (128, 128), "up": (128, 512), "down": (512, 128)}
    return _weights(shapes), "f32[4,128,128]"


def _rnn_inputs() -> tuple[Any, ...]:
    return _weights({"w_x": (32, 64), "w_h": (64, 64)}), "f32[100,16,32]"


def _train_step_inputs() -> tuple[Any, ...]:
    import jax

    weights = list(_weights({"in": (64, 256), "inner": (256, 256), "out": (256, 10)}).values())
    mean, square = (jax.tree.map(jax.numpy.zeros_like, weights) for _ in range(2))
    state = {"step": jax.numpy.int32(0), "weights": weights, "mean": mean, "square": square}
    return state, "f32[128,64]", "f32[128,10]"


def _weights(shapes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Normal, of variance 1 / inputs."""
    import jax

    keys = jax.random.split(jax.random.key(0), len(shapes))
    drawn = zip(shapes.items(), keys, strict=True)
    return {name: jax.random.normal(key, shape) / shape[0] ** 0.5 for (name, shape), key in drawn}


BENCHMARKS: tuple[Benchmark, ...] = (
    benchmark(mlp, args=MLP_INPUTS),
    benchmark(selu, args=("f32[1000000]",)),
    benchmark(transformer, args=_transformer_inputs),
    benchmark(rnn, args=_rnn_inputs),
    benchmark(train_step, args=_train_step_inputs),
    benchmark(fft, args=("c64[64,4096]",)),
)


for _benchmark in BENCHMARKS:
    setattr(_benchmark.template.fn, BENCHMARK_OF, _benchmark)  # so that benchax.bench(mlp) has inputs, too


def cases() -> list[Case]:
    """Each workload with its own inputs."""
    return [case for each in BENCHMARKS for case in each.cases()]


def benchmark_of(fn: Callable[..., Any]) -> Benchmark | None:
    """The workload that `fn` is, with its inputs; None for any other function."""
    return next((each for each in BENCHMARKS if each.template.fn is fn), None)
