# runs
# needs: numpyro
# Stochastic variational inference with numpyro.
import jax, jax.numpy as jnp, numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([4]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(x @ w, s), obs=y)

x = jax.random.normal(jax.random.key(0), (500, 4))
y = x @ jnp.arange(4.0)
svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO())
found = svi.run(jax.random.key(1), 1000, x, y, progress_bar=False)
print(found.losses[-1], found.params["w_auto_loc"])
