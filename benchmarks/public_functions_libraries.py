"""Rows of `public_functions.py`: flax, equinox, diffrax, blackjax, numpyro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from public_functions import Call, PublicFunction, make_input, require

KEY = 7


def _row(library: str, name: str, make: Callable[[], Call], *packages: str) -> PublicFunction:
    def made() -> Call:
        for package in (library, *packages):
            require(package)
        return make()

    return PublicFunction(name, library, made)


# flax


def _linen(build: Callable[[Any], Any], *texts: str) -> Callable[[], Call]:
    """A module of flax.linen: (variables, inputs) → outputs."""

    def make() -> Call:
        from flax import linen

        module = build(linen)
        inputs = tuple(make_input(text, f"linen {i}") for i, text in enumerate(texts))
        return module.apply, (module.init(jax.random.key(KEY), *inputs), *inputs), {}

    return make


def _linen_step() -> Call:
    import optax
    from flax import linen

    model = linen.Sequential([linen.Dense(64), linen.relu, linen.LayerNorm(), linen.Dense(8)])
    x, y, optimizer = make_input("f32[64,32]", "x"), make_input("f32[64,8]", "y"), optax.adamw(1e-3)
    weights = model.init(jax.random.key(KEY), x)

    def step(weights: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradient = jax.value_and_grad(lambda w: jnp.mean((model.apply(w, x) - y) ** 2))(weights)
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, value

    return step, (weights, optimizer.init(weights), x, y), {}


def _nnx(build: Callable[[Any, Any], Any], *texts: str) -> Callable[[], Call]:
    """A module of flax.nnx, split: (state, inputs) → outputs. Those that change are in the group "state"."""

    def make() -> Call:
        from flax import nnx

        graph, state = nnx.split(build(nnx, nnx.Rngs(0)))
        inputs = tuple(make_input(text, f"nnx {i}") for i, text in enumerate(texts))
        return (lambda state, *inputs: nnx.merge(graph, state)(*inputs)), (state, *inputs), {}

    return make


FLAX = {
    "linen_dense": _linen(lambda linen: linen.Dense(128), "f32[64,128]"),
    "linen_conv": _linen(lambda linen: linen.Conv(16, (3, 3)), "f32[2,16,16,8]"),
    "linen_layer_norm": _linen(lambda linen: linen.LayerNorm(), "f32[256,128]"),
    "linen_batch_norm": _linen(lambda linen: linen.BatchNorm(use_running_average=True), "f32[256,128]"),
    "linen_embed": _linen(lambda linen: linen.Embed(100, 64), "i32[256]"),
    "linen_attention": _linen(lambda linen: linen.MultiHeadDotProductAttention(4), "f32[2,32,64]"),
    "linen_lstm": _linen(lambda linen: linen.RNN(linen.LSTMCell(32)), "f32[4,16,32]"),
    "nnx_linear": _nnx(lambda nnx, r: nnx.Linear(128, 128, rngs=r), "f32[64,128]"),
    "nnx_conv": _nnx(lambda nnx, r: nnx.Conv(8, 16, (3, 3), rngs=r), "f32[2,16,16,8]"),
    "nnx_rms_norm": _nnx(lambda nnx, r: nnx.RMSNorm(128, rngs=r), "f32[256,128]"),
    "nnx_attention": _nnx(lambda nnx, r: nnx.MultiHeadAttention(4, 64, decode=False, rngs=r), "f32[2,32,64]"),
    "nnx_gru": _nnx(lambda nnx, r: nnx.RNN(nnx.GRUCell(32, 32, rngs=r)), "f32[4,16,32]"),
}


# equinox


def _equinox(build: Callable[[Any, Any], Any], *texts: str, batched: bool = False) -> Callable[[], Call]:
    """A module of equinox under filter_jit: (module, inputs) → outputs."""

    def make() -> Call:
        import equinox

        module = build(equinox.nn, jax.random.key(KEY))
        inputs = tuple(make_input(text, f"equinox {i}") for i, text in enumerate(texts))
        call = equinox.filter_jit(lambda module, *inputs: (jax.vmap(module) if batched else module)(*inputs))
        return call, (module, *inputs), {}

    return make


def _lstm(nn: Any, key: Any) -> Any:
    cell = nn.LSTMCell(32, 32, key=key)
    start = (jnp.zeros(32), jnp.zeros(32))
    import equinox

    return equinox.Partial(lambda cell, x: jax.lax.scan(lambda s, v: (cell(v, s), None), start, x)[0][0], cell)


def _equinox_gradient() -> Call:
    import equinox

    mlp = equinox.nn.MLP(32, 8, 64, 2, key=jax.random.key(KEY))
    fn = equinox.filter_jit(equinox.filter_value_and_grad(lambda m, x, y: jnp.mean((jax.vmap(m)(x) - y) ** 2)))
    return fn, (mlp, make_input("f32[64,32]", "x"), make_input("f32[64,8]", "y")), {}


def _equinox_step() -> Call:
    import equinox
    import optax

    mlp, optimizer = equinox.nn.MLP(32, 8, 64, 2, key=jax.random.key(KEY)), optax.adam(1e-3)

    @equinox.filter_jit
    def step(mlp: Any, state: Any, x: Any, y: Any) -> Any:
        value_and_grad = equinox.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x) - y) ** 2))
        value, gradient = value_and_grad(mlp)
        updates, state = optimizer.update(gradient, state, equinox.filter(mlp, equinox.is_array))
        return equinox.apply_updates(mlp, updates), state, value

    state = optimizer.init(equinox.filter(mlp, equinox.is_array))
    return step, (mlp, state, make_input("f32[64,32]", "x"), make_input("f32[64,8]", "y")), {}


EQUINOX = {
    "mlp": _equinox(lambda nn, key: nn.MLP(32, 8, 64, 2, key=key), "f32[128,32]", batched=True),
    "linear": _equinox(lambda nn, key: nn.Linear(128, 128, key=key), "f32[64,128]", batched=True),
    "conv2d": _equinox(lambda nn, key: nn.Conv2d(8, 16, 3, padding=1, key=key), "f32[8,24,24]"),
    "attention": _equinox(lambda nn, key: nn.MultiheadAttention(4, 64, key=key), *["f32[48,64]"] * 3),
    "layer_norm": _equinox(lambda nn, key: nn.LayerNorm(128), "f32[256,128]", batched=True),
    "group_norm": _equinox(lambda nn, key: nn.GroupNorm(4, 16), "f32[16,32,32]"),
    "embedding": _equinox(lambda nn, key: nn.Embedding(100, 64, key=key), "i32[256]", batched=True),
    "max_pool": _equinox(lambda nn, key: nn.MaxPool2d(2, 2), "f32[16,32,32]"),
    "lstm": _equinox(_lstm, "f32[32,32]"),
    "rotary_embedding": _equinox(lambda nn, key: nn.RotaryPositionalEmbedding(64), "f32[128,64]"),
}


# diffrax, blackjax, numpyro


def _diffrax(solver: str, adaptive: bool, steps: int = 64) -> Callable[[], Call]:
    def make() -> Call:
        import diffrax

        term = diffrax.ODETerm(lambda t, y, k: jnp.stack([y[1], -k * jnp.sin(y[0]) - 0.1 * y[1]]))
        controller = diffrax.PIDController(rtol=1e-4, atol=1e-4) if adaptive else diffrax.ConstantStepSize()

        def solve(y: Any, k: Any) -> Any:
            found = diffrax.diffeqsolve(
                term, getattr(diffrax, solver)(), 0.0, 3.0, 3.0 / steps, y, args=k,
                stepsize_controller=controller, max_steps=4 * steps, throw=False,
            )  # fmt: skip
            return found.ys

        return solve, (make_input("f32[2,16]", "y"), make_input("p:f32[16]", "k")), {}

    return make


def _kvaerno() -> Call:
    import diffrax

    def solve(y: Any, k: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, k: jnp.stack([y[1], k * (1 - y[0] ** 2) * y[1] - y[0]]))
        controller = diffrax.PIDController(rtol=1e-2, atol=1e-2)
        found = diffrax.diffeqsolve(
            term, diffrax.Kvaerno3(), 0.0, 0.3, 0.1, y, args=k,
            stepsize_controller=controller, max_steps=64, throw=False,
        )  # fmt: skip
        return found.ys

    return solve, (make_input("f32[2]", "y"), make_input("p:f32[]", "k")), {}


def _log_density(x: Any) -> Any:
    return -0.5 * jnp.sum(x**2) - 0.1 * jnp.sum(jnp.cos(3 * x))


def _blackjax(name: str, **settings: Any) -> Callable[[], Call]:
    def make() -> Call:
        import blackjax

        mass = {"inverse_mass_matrix": jnp.ones(32)} if name in ("hmc", "nuts") else {}
        kernel = (
            blackjax.additive_step_random_walk(_log_density, blackjax.mcmc.random_walk.normal(0.1 * jnp.ones(32)))
            if name == "rmh"
            else getattr(blackjax, name)(_log_density, **settings, **mass)
        )
        state = kernel.init(make_input("f32[32]", "position"))
        return kernel.step, (jax.random.key(KEY), state), {}

    return make


def _model(x: Any, y: Any) -> None:
    import numpyro
    from numpyro import distributions as dist

    w = numpyro.sample("w", dist.Normal(0, 1).expand([8]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(x @ w, scale), obs=y)


def _regression() -> tuple[Any, Any]:
    return make_input("f32[256,8]", "x"), make_input("f32[256]", "y")


def _numpyro_density() -> Call:
    from numpyro.infer.util import log_density

    values = {"w": make_input("f32[8]", "w"), "scale": make_input("p:f32[]", "scale")}
    return (lambda values, x, y: log_density(_model, (x, y), {}, values)[0]), (values, *_regression()), {}


def _numpyro_gradient() -> Call:
    density, (values, x, y), kwargs = _numpyro_density()
    return jax.grad(density), (values, x, y), kwargs


def _numpyro_svi() -> Call:
    from numpyro.infer import SVI, Trace_ELBO, autoguide
    from numpyro.optim import Adam

    svi = SVI(_model, autoguide.AutoNormal(_model), Adam(1e-2), Trace_ELBO())
    x, y = _regression()
    return svi.update, (svi.init(jax.random.key(KEY), x, y), x, y), {}


def _numpyro_hmc() -> Call:
    from numpyro.infer.hmc import hmc

    init, step = hmc(lambda z: -_log_density(z), algo="HMC")
    start = init(
        make_input("f32[32]", "z"), num_warmup=0, step_size=0.1, trajectory_length=0.8,
        adapt_step_size=False, adapt_mass_matrix=False, rng_key=jax.random.key(KEY),
    )  # fmt: skip
    return step, (start,), {}


ROWS = [
    *[_row("flax", name, make) for name, make in FLAX.items()],
    _row("flax", "linen_training_step", _linen_step, "optax"),
    *[_row("equinox", name, make) for name, make in EQUINOX.items()],
    _row("equinox", "filter_value_and_grad", _equinox_gradient),
    _row("equinox", "training_step", _equinox_step, "optax"),
    _row("diffrax", "tsit5", _diffrax("Tsit5", adaptive=False)),
    _row("diffrax", "tsit5_adaptive", _diffrax("Tsit5", adaptive=True)),
    _row("diffrax", "heun", _diffrax("Heun", adaptive=False, steps=100)),
    _row("diffrax", "kvaerno3", _kvaerno),
    _row("blackjax", "hmc", _blackjax("hmc", step_size=0.1, num_integration_steps=8)),
    _row("blackjax", "nuts", _blackjax("nuts", step_size=0.3)),
    _row("blackjax", "rmh", _blackjax("rmh")),
    _row("blackjax", "mala", _blackjax("mala", step_size=0.05)),
    _row("numpyro", "log_density", _numpyro_density),
    _row("numpyro", "grad_log_density", _numpyro_gradient),
    _row("numpyro", "svi_update", _numpyro_svi),
    _row("numpyro", "hmc_step", _numpyro_hmc),
]
