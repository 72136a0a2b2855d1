"""Programs with the pitfall."""

import jax.numpy as jnp
import numpy as np

GIVEN_1 = jnp.eye(256)


def kron_i_a_x(g="f32[2,2]", v="f32[512]"):
    return jnp.kron(jnp.eye(256), g) @ v  # expect: kronecker-identity


def kron_of_given_i(i=GIVEN_1, g="f32[2,2]", v="f32[512]"):
    return jnp.kron(i, g) @ v  # expect: kronecker-identity


def np_eye_constant(g="f32[2,2]", v="f32[512]"):
    return jnp.kron(np.eye(256, dtype=np.float32), g) @ v  # expect: kronecker-identity
