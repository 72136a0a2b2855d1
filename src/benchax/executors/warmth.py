"""What a worker does before its first job: every kind of thing that a job does, with something tiny.

The first trace, lowering, compilation and run in a process take 50 to 200 ms longer than the next ones. Two programs
are compiled, one of each way to call; the data come from NumPy, since random numbers of JAX would compile three more.
"""

from __future__ import annotations

import contextlib
import importlib

import jax
import jax.numpy as jnp
import numpy as np

from benchax.executors.task import Say, task

WARM_UP_S = 120.0
"""More than this it does not take, on the busiest machine."""


@task
def warm_up(modules: tuple[str, ...], say: Say) -> None:
    """Also imports `modules`, whose tasks earlier jobs have called."""
    say("warm-up")
    for module in modules:
        with contextlib.suppress(Exception):  # the job that needs it says so
            importlib.import_module(module)
    x = np.ones(4, np.float32)
    compiled = jax.jit(lambda x: jnp.sin(x) @ x + 1).trace(x).lower().compile()
    jax.block_until_ready(compiled(x))
    jax.block_until_ready(jax.jit(lambda x: x * 2)(x))
