"""Functions that were typed: in cells, of which IPython keeps the text, and at the prompt of Python, which does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.eager import vmap_of_jit
from benchax.auditing.rules.loops import unrolled_loop
from benchax.auditing.rules.tracing import impure_function
from benchax.case import make_case
from benchax.reporting.audit import quote_source

CELL = """\
import jax, jax.numpy as jnp

seen = []

def f(x):
    seen.append(x.shape)
    for _ in range(100):
        x = jnp.sin(x) * 1.1 + jnp.cos(x)
    return x
"""


@pytest.fixture
def of_a_cell() -> Iterator[Callable[..., Any]]:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    assert shell.run_cell(CELL).success
    yield shell.user_ns["f"]
    shell.history_manager.end_session()


@pytest.fixture
def of_a_prompt() -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(compile(CELL, "<stdin>", "exec"), space)
    return space["f"]


def test_a_function_of_a_cell_is_the_users_and_its_lines_are_quoted(of_a_cell: Callable[..., Any]) -> None:
    evidence = Evidence(make_case(of_a_cell, ("f32[4]",)))
    (impure,), _ = ask(impure_function, evidence)
    (unrolled,), _ = ask(unrolled_loop, evidence)

    assert (impure.where, unrolled.where) == ((of_a_cell.__code__.co_filename, 6), (of_a_cell.__code__.co_filename, 7))
    assert impure.where is not None
    (quoted,) = quote_source(impure.where)
    assert "> " in quoted.text
    assert "seen.append(x.shape)" in quoted.text


def test_of_a_function_without_text_nothing_is_called_fine_that_could_not_be_read(
    of_a_prompt: Callable[..., Any],
) -> None:
    evidence = Evidence(make_case(of_a_prompt, ("f32[4]",)))
    _, unrolled = ask(unrolled_loop, evidence)
    _, mapped = ask(vmap_of_jit, evidence)
    found, _ = ask(impure_function, evidence)

    for checked in (unrolled, mapped):
        assert checked.outcome == "not checked"
        assert checked.why == "the source of the function cannot be read: it was typed at a prompt of Python"
    assert len(found) == 1  # what was seen while it ran needs no source
