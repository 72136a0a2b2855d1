"""What workers have of the process that asks them, what a pool adds to it, and that this process stays as it is."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from source_tree import PACKAGE
from workers.conftest import ask

from benchax.errors import NotAvailable
from benchax.workers.pool import Pool

X64 = "jax_enable_x64"


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"warm": False, "reuse": False}])
def test_what_a_pool_adds_reaches_its_workers_and_not_this_process_while_they_work(how: dict[str, Any]) -> None:
    here: list[tuple[Any, Any]] = []

    def look(say: Any) -> Any:
        say("run")
        return {"variable": os.environ.get("SOME_SETTING"), "dtype": str(jnp.zeros(1).dtype)}, ()

    with Pool(environ={"SOME_SETTING": "there"}, jax_config={X64: True}, **how) as pool:
        ended = ask(pool, look, lambda message: here.append((os.environ.get("SOME_SETTING"), jax.config.values[X64])))

    assert ended.document == {"variable": "there", "dtype": "float64"}
    assert here == [(None, False)]


@pytest.mark.slow
def test_flags_that_hold_from_the_start_of_a_process_are_those_of_the_pool() -> None:
    before = os.environ.get("XLA_FLAGS")

    with Pool(warm=False, reuse=False, jax_config={"jax_num_cpu_devices": 3}) as three:
        ended = ask(three, lambda say: ({"devices": jax.device_count(), "flags": os.environ.get("XLA_FLAGS")}, ()))

    assert ended.document == {"devices": 3, "flags": before}


def test_a_setting_that_this_jax_lacks_is_refused() -> None:
    """Workers pass over it, and a measurement would take that for the usual value."""
    with pytest.raises(NotAvailable, match=r"because this JAX has no setting jax_enable_x46$"):
        Pool(jax_config={"jax_enable_x46": True})


def test_a_value_that_jax_refuses_is_a_failure_in_its_words() -> None:
    with Pool(warm=False, jax_config={"jax_default_matmul_precision": "sharp"}) as pool:
        failure = ask(pool, lambda say: ({}, ())).failure

    assert (failure.kind, failure.stage) == ("error", "start")
    assert "sharp" in failure.message


# ---- the rule ---------------------------------------------------------------------------------------------------

CHANGES_ITS_OWN_PROCESS = {
    "cli/main.py": "of a command, before JAX is there: it shares an accelerator with workers of its own",
    "clusters/ray_agents.py": "in the agent, where Ray has set a number of threads, and before Ray reads its settings",
    "workers/worker.py": "in the worker",
    "experiments/variants/process_settings.py": "in the worker",
    "measuring/jax_settings.py": "in the worker, or while this process lowers or compiles what it measures",
}


def _changes(file: Path) -> list[str]:
    """Statements that set a variable of the environment or a setting of JAX."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        changed = [t.value for t in targets if isinstance(t, ast.Subscript)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            changed.append(node.func.value)
        found += [text for each in changed if (text := ast.unparse(each)) in ("os.environ", "jax.config")]
    return found


CHANGING = {"update", "pop", "clear", "setdefault"}


@pytest.mark.slow
def test_nobody_changes_this_process_to_reach_another_one() -> None:
    """A new file in this list needs a reason that is about its own process: workers are reached by `Pool(environ=)`."""
    changing = {file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py") if _changes(file)}

    assert changing == CHANGES_ITS_OWN_PROCESS.keys()
