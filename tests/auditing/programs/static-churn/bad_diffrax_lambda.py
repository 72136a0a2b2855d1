# runs
# needs: diffrax
# An equation of diffrax whose right side is a new lambda each time.
import diffrax
import jax.numpy as jnp

def solve(rate, y0):
    term = diffrax.ODETerm(lambda t, y, args: -rate * y)  # expect: static-churn
    return diffrax.diffeqsolve(  # expect: static-churn
        term, diffrax.Tsit5(), t0=0.0, t1=1.0, dt0=0.1, y0=y0
    ).ys[-1]

ends = [solve(rate, jnp.ones(3)) for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
print(jnp.stack(ends).sum())
