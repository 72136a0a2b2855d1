"""Compiled programs are released in processes of ours, and left alone in those of users."""

from __future__ import annotations

import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
import warm_python

import benchax
from benchax.measuring import stages
from benchax.measuring.stages import count_programs, release_programs
from benchax.watching.compiles import watch_compiles


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    jax.clear_caches()
    monkeypatch.setattr(stages, "MOST", 5)
    monkeypatch.setattr(stages, "_kept", count_programs())


def compiled(call: Callable[[], object]) -> int:
    with watch_compiles() as log:
        call()
    return log.compiles


def test_programs_go_once_there_are_many_new_ones() -> None:
    kept = count_programs()
    for n in range(10, 18):
        jax.block_until_ready(jnp.sin(jnp.ones(n)))
    assert count_programs() > kept + 5

    release_programs()

    assert count_programs() <= kept


def test_a_few_stay() -> None:
    def call() -> object:
        return jax.block_until_ready(jnp.sin(x))

    x = jnp.ones(21)
    assert compiled(call) == 1

    release_programs()

    assert compiled(call) == 0


def test_no_backend_is_started_to_look() -> None:
    """On an accelerator the process that only sends jobs to workers would take their memory."""
    look = "from benchax.measuring.stages import release_programs; release_programs()"
    told = "import jax; print(jax._src.xla_bridge.backends_are_initialized())"

    done = warm_python.run([sys.executable, "-c", f"{look}; {told}"], check=True)

    assert done.stdout.strip() == "False"


def test_bench_leaves_functions_of_the_user_compiled() -> None:
    x = jnp.ones(23)
    mine = jax.jit(lambda x: jnp.cos(x) + 1)
    mine(x)

    for n in range(3):
        benchax.bench(lambda x: jnp.tanh(x) * 2 + 1, f"f32[{n + 30}]", stages="first_run", memory=False, store="off")

    assert compiled(lambda: mine(x)) == 0
