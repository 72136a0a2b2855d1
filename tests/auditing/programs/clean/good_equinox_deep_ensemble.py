# runs
"""Deep ensemble in equinox, trained and evaluated under vmap, each member with its own key."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

MEMBERS, STEPS, BATCH = 4, 200, 32


def make_member(key):
    return eqx.nn.MLP(2, 2, 64, 2, activation=jax.nn.tanh, key=key)


def nll(model, x, y):
    mean, raw = jax.vmap(model)(x).T
    scale = jax.nn.softplus(raw) + 1e-3
    return -jnp.mean(jax.scipy.stats.norm.logpdf(y, mean, scale))


def make_fit(tx, static):
    def fit(params, x, y, key):
        def body(carry, k):
            p, s = carry
            idx = jax.random.randint(k, (BATCH,), 0, x.shape[0])
            loss, g = jax.value_and_grad(lambda p: nll(eqx.combine(p, static), x[idx], y[idx]))(p)
            u, s = tx.update(g, s)
            return (optax.apply_updates(p, u), s), loss

        (params, _), losses = jax.lax.scan(body, (params, tx.init(params)), jax.random.split(key, STEPS))
        return params, losses[-1]

    return jax.jit(jax.vmap(fit, in_axes=(0, None, None, 0)))


@eqx.filter_jit
def mixture(models, x):
    @eqx.filter_vmap(in_axes=(eqx.if_array(0), None))
    def each(model, x):
        mean, raw = jax.vmap(model)(x).T
        return mean, jax.nn.softplus(raw) + 1e-3

    mean, scale = each(models, x)
    total = jnp.mean(scale**2 + mean**2, axis=0) - jnp.mean(mean, axis=0) ** 2
    return jnp.mean(mean, axis=0), jnp.sqrt(total)


def surface(x):
    return jnp.sin(3 * x[:, 0]) + x[:, 1] ** 2


def main():
    k_x, k_n, k_test, k_init, k_fit = jax.random.split(jax.random.key(1), 5)
    x = jax.random.uniform(k_x, (2000, 2), minval=-1.0, maxval=1.0)
    y = surface(x) + 0.1 * jax.random.normal(k_n, (2000,))
    models = eqx.filter_vmap(make_member)(jax.random.split(k_init, MEMBERS))
    params, static = eqx.partition(models, eqx.is_inexact_array)
    params, losses = make_fit(optax.adam(2e-3), static)(params, x, y, jax.random.split(k_fit, MEMBERS))
    print("final losses", [round(v, 3) for v in losses.tolist()])
    x_test = jax.random.uniform(k_test, (500, 2), minval=-1.5, maxval=1.5)
    mean, std = mixture(eqx.combine(params, static), x_test)
    inside = jnp.all(jnp.abs(x_test) < 1.0, axis=1)
    print(f"std inside {float(jnp.mean(std, where=inside)):.3f} outside {float(jnp.mean(std, where=~inside)):.3f}")
    print(f"rmse inside {float(jnp.sqrt(jnp.mean((mean - surface(x_test)) ** 2, where=inside))):.3f}")


if __name__ == "__main__":
    main()
