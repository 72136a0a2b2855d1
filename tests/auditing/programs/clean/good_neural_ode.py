# runs
# needs: diffrax
"""Neural ODE for a spiral (diffrax + equinox)."""
import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

POINTS, BATCH, STEPS = 40, 16, 60


class Field(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(2, 2, 32, 2, activation=jnp.tanh, key=key)

    def __call__(self, t, y, args):
        return self.mlp(y**3)


class NeuralODE(eqx.Module):
    field: Field

    def __call__(self, ts, y0):
        sol = diffrax.diffeqsolve(
            diffrax.ODETerm(self.field),
            diffrax.Heun(),
            t0=ts[0],
            t1=ts[-1],
            dt0=ts[1] - ts[0],
            y0=y0,
            saveat=diffrax.SaveAt(ts=ts),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
            max_steps=256,
        )
        return sol.ys


def spirals(key, n, ts):
    matrix = jnp.array([[-0.1, 2.0], [-2.0, -0.1]])
    y0 = jax.random.uniform(key, (n, 2), minval=-1.0, maxval=1.0)
    flow = jax.vmap(lambda t: jax.scipy.linalg.expm(t * matrix))(ts)
    return jnp.einsum("tij,nj->nti", flow, y0)


tx = optax.adabelief(3e-3)


def mse(model, ts, ys):
    pred = jax.vmap(model, in_axes=(None, 0))(ts, ys[:, 0])
    return jnp.mean((pred - ys) ** 2)


@eqx.filter_jit
def train_step(model, opt_state, ts, ys, key):
    idx = jax.random.randint(key, (BATCH,), 0, ys.shape[0])
    loss, grads = eqx.filter_value_and_grad(mse)(model, ts, ys[idx])
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


def main():
    k_data, k_test, k_model, k_loop = jax.random.split(jax.random.key(0), 4)
    ts = jnp.linspace(0.0, 3.0, POINTS)
    train, test = spirals(k_data, 256, ts), spirals(k_test, 64, ts)
    model = NeuralODE(Field(k_model))
    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    for i, key in enumerate(jax.random.split(k_loop, STEPS), start=1):
        model, opt_state, loss = train_step(model, opt_state, ts, train, key)
        if i % 30 == 0:
            print(f"step {i}: loss {float(loss):.5f}")
    print("test error", float(eqx.filter_jit(mse)(model, ts, test)))


if __name__ == "__main__":
    main()
