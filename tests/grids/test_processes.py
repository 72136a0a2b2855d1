"""Grids with real workers: whatever a function does, the others are measured, and no process is left."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import psutil
import pytest
import warm_python

import benchax
from benchax.store.load import load
from benchax.workers.pool import shared_pool


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """But the pool's own: the one that keeps the workers, and those that wait for the next test."""
    warm_python.start()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    pool = shared_pool()
    waiting = {worker.pid for worker in pool._ready} | ({pool._keeper.process.pid} if pool._keeper else set())
    gone_by = time.monotonic() + 10
    while left := [
        c for c in psutil.Process().children(recursive=True) if c.pid not in before | waiting and is_alive(c)
    ]:
        assert time.monotonic() < gone_by, left


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def fine(x):
    return x * 2


def never_ends(x):
    return jax.lax.while_loop(lambda x: True, lambda x: x + 1, x)


def crashes_in_running(x):
    def kill(x):
        os.kill(os.getpid(), signal.SIGSEGV)
        return x

    return jax.pure_callback(kill, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def raises(x):
    raise ValueError("no")


def forks(x):
    if not os.fork():
        os.setsid()
        time.sleep(1000)
    return x


def too_big(x):
    return jnp.ones((2**38,)) + x[0]


def another_shape(x):
    return x[1:]


# One of each kind: workers/test_faults.py has every way in which a function spoils a worker.
EXPECTED = {
    fine: ("ok", ""),
    never_ends: ("timeout", "timeout in run: run took longer than 500 ms"),
    crashes_in_running: ("crashed", "crashed: SIGSEGV in run"),
    raises: ("error", "error: ValueError: no"),
    forks: ("ok", ""),
    too_big: ("out_of_memory", "out of memory in run"),
    another_shape: ("wrong_shape", "wrong shape: [3] where fine gave [4]"),
}


@pytest.mark.slow
def test_whatever_a_function_does_each_cell_has_its_status_and_the_next_is_measured(project: Path) -> None:
    functions = [f for each in EXPECTED for f in (each, fine)]  # every accident is followed by a fine function

    g = benchax.grid(functions, ["f32[4]"], timeout_s=0.5, memory_limit_bytes="8GiB")

    found = [cell for cell in g.cells if not cell.function.startswith("fine")]
    expected = {f.__name__: status for f, (status, _) in EXPECTED.items() if f is not fine}
    assert {cell.function: cell.status for cell in found} == expected
    messages = {cell.function: cell.message for cell in found}
    assert [
        f.__name__ for f, (_, m) in EXPECTED.items() if f is not fine and not messages[f.__name__].startswith(m)
    ] == []
    assert {cell.status for cell in g.cells if cell.function.startswith("fine")} == {"ok"}
    assert len(load()) == len(g.cells)


def test_an_infinite_loop_is_stopped_near_its_limit_and_the_others_are_measured(project: Path) -> None:
    shared_pool().prepare()
    begun = time.monotonic()

    g = benchax.grid([never_ends, fine], ["f32[4]"], timeout_s=1)

    assert 1 <= time.monotonic() - begun < 1 + 8  # generous: the machine may be busy
    assert g.status[:, 0].tolist() == ["timeout", "ok"]


def test_a_grid_ends_within_its_budget(project: Path) -> None:
    shared_pool().prepare()

    g = benchax.grid({f"n{i}": never_ends for i in range(40)}, ["f32[4]"], timeout_s=60, total_timeout_s=2, store=False)

    assert g.elapsed_s < 2 + 8
    assert set(g.status[:, 0]) <= {"timeout", "not_run"}
    assert "its share of the 2.00 s for the whole grid" in g.cells[0].message


def test_outputs_and_inputs_travel_whole_and_the_same_seed_gives_the_same_in_any_worker(project: Path) -> None:
    def f(x, y):
        return {"big": jnp.outer(x, x), "half": x.astype("bfloat16"), "y": y}

    def drawn(seed, *sizes):
        g = benchax.grid(
            [fine], sizes, make=lambda key, n: jax.random.normal(key, (n,)), trials=2, seed=seed, store=False
        )
        return g.outputs["fine"][8]

    g = benchax.grid([f], {"a": (jnp.arange(1000.0), 3)}, store=False)
    first = drawn(7, 4, 8)
    shared_pool().renew()

    (out,) = g.outputs["f"]["a"]
    assert (out["big"].shape, out["big"][999, 2], str(out["half"].dtype), out["y"]) == (
        (1000, 1000),
        1998,
        "bfloat16",
        3,
    )
    assert (first == drawn(7, 8)).all()
    assert (first != drawn(8, 8)).all()


@pytest.mark.slow
def test_no_backend_starts_in_this_program_for_a_grid(tmp_path: Path) -> None:
    """On an accelerator it would take the memory that the workers need."""
    code = (
        "import benchax; g = benchax.grid([abs], ['f32[4]', 'f32[8]'], store=False); "
        "import jax._src.xla_bridge as b; print(b.backends_are_initialized(), g.is_ok)"
    )
    done = warm_python.run([sys.executable, "-c", code], cwd=tmp_path, timeout=120)

    assert done.stdout.split() == ["False", "True"], done.stderr
