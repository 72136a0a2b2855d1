"""Programs with the pitfall."""

import jax.numpy as jnp
import numpy as np

M = np.random.default_rng(0).normal(size=(400, 400)).astype(np.float32)
T = np.random.default_rng(0).normal(size=(900, 200)).astype(np.float32)


def svd_a_1(m=T):
    return jnp.linalg.svd(m)[1]  # expect: unused-factors


def max_of_svd_thin_1(m=T):
    return jnp.linalg.svd(m, full_matrices=False)[1].max()  # expect: unused-factors


def svd_full_u_k(m=T):
    return (lambda u, s, v: u[:, :200] * s @ v)(*jnp.linalg.svd(m))  # expect: unused-factors


def svd_full_u_0(m=T):
    return jnp.linalg.svd(m)[0][:, 0]  # expect: unused-factors


def eig_a_0(m=M):
    return jnp.linalg.eig(m)[0]  # expect: unused-factors


def qr_complete_q_n(m=T):
    return jnp.linalg.qr(m, mode="complete")[0][:, :200]  # expect: unused-factors


def qr_complete_q_t_n(m=T):
    return jnp.linalg.qr(m, mode="complete")[0].T[:200] @ m  # expect: unused-factors
