"""What fills the memory at its peak: held against XLA's own packing, hand counts, and plans that cannot be true."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchax.errors import NotAvailable
from benchax.program import hlo_module
from benchax.program.buffer_assignment import Assignment, buffer_assignment
from benchax.program.peak_memory import peak_memory
from benchax.results.memory import PeakMemory

N = 64
SIZE = N * N * 4
X = jax.ShapeDtypeStruct((N, N), jnp.float32)
WS = jax.ShapeDtypeStruct((6, N, N), jnp.float32)


def layers(ws: Any, x: Any) -> Any:
    for i in range(6):
        x = jnp.sin(x @ ws[i])
    return (x**2).sum()


def scanned(ws: Any, x: Any) -> Any:
    return (jax.lax.scan(lambda x, w: (jnp.sin(x @ w), None), x, ws)[0] ** 2).sum()


def recomputed(ws: Any, x: Any) -> Any:
    body = jax.checkpoint(lambda x, w: (jnp.sin(x @ w), None))
    return (jax.lax.scan(body, x, ws)[0] ** 2).sum()


def waiting(x: Any) -> Any:
    """Loops in branches in a loop, of unknown length."""

    def again(state: Any) -> Any:
        x, n = state
        turned = jax.lax.cond(n % 2 == 0, lambda x: jnp.sin(x @ x), lambda x: scanned(jnp.stack([x] * 3), x) + x, x)
        return turned @ x, n + 1

    return jax.lax.while_loop(lambda state: state[0].sum() < 10, again, (x, 0))


def written(x: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda i, big: big.at[i].set(x.sum() + i), jnp.zeros((N, N))) @ x


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "chain": (lambda x: ((x @ x) @ (x @ x + 1)) @ x, (X,)),
    "gradient": (jax.grad(layers), (WS, X)),
    "scan": (scanned, (WS, X)),
    "gradient of a scan": (jax.grad(scanned), (WS, X)),
    "recomputed": (jax.grad(recomputed), (WS, X)),
    "nested": (waiting, (X,)),
    "written in place": (written, (X,)),
    "tuples": (lambda x: jnp.argsort(x, axis=1) @ jnp.argsort(x @ x, axis=0), (X,)),
    "library": (lambda x: jnp.linalg.inv(x @ x.T), (X,)),
    "random": (lambda x: jax.random.normal(jax.random.key(0), (N, N)) @ x, (X,)),
}


@functools.cache
def compiled(name: str) -> tuple[Assignment, str]:
    fun, args = PROGRAMS[name]
    program = jax.jit(fun).lower(*args).compile()
    plan = buffer_assignment(program)
    assert plan is not None
    return plan, program.as_text() or ""


def read(plan: Assignment | None, text: str) -> PeakMemory | None:
    return peak_memory(plan, text, hlo_module.parse(text))


def peak_of(name: str) -> PeakMemory:
    found = read(*compiled(name))
    assert found is not None
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_needed_at_once_fills_the_memory_that_xla_planned(name: str) -> None:
    # XLA packs values by their lives; read wrongly, they would need more than that, or leave much of it empty.
    found = peak_of(name)

    assert 0.98 * found.planned_bytes <= found.live_bytes <= found.planned_bytes
    assert found.live_bytes == max(found.timeline)
    assert sum(value.size_bytes for value in found.values) == found.live_bytes
    assert 0 <= found.position < found.instructions


@pytest.mark.slow
@given(
    steps=st.lists(st.tuples(st.sampled_from(["sin", "matmul", "add", "at", "loop"]), st.integers(0, 9)), max_size=8),
    is_differentiated=st.booleans(),
)
@settings(max_examples=15)
def test_of_any_program_the_two_readings_agree(steps: list[tuple[str, int]], is_differentiated: bool) -> None:
    def run(x: Any) -> Any:
        values = [x]
        for name, which in steps:
            a, b = values[-1], values[which % len(values)]
            values.append(
                {
                    "sin": lambda a, b: jnp.sin(a) * b,
                    "matmul": lambda a, b: a @ b,
                    "add": lambda a, b: a + b.T,
                    "at": lambda a, b: a.at[3].set(b[2]),
                    "loop": lambda a, b: jax.lax.fori_loop(0, 3, lambda _, v: jnp.tanh(v @ b), a),
                }[name](a, b)
            )
        return sum(value.sum() for value in values)

    program = jax.jit(jax.grad(run) if is_differentiated else run).lower(X).compile()

    found = read(buffer_assignment(program), program.as_text() or "")

    assert found is None or found.live_bytes <= found.planned_bytes


def test_six_layers_keep_six_cosines_for_the_way_back() -> None:
    # On the way forward each layer leaves cos(x @ w), and its input; the first input is an argument.
    residuals = [value for value in peak_of("gradient of a scan").values if value.role == "residual"]

    assert {value.spec for value in residuals} == {f"f32[6,{N},{N}]"}
    assert {value.source.rpartition(":")[0] for value in residuals} == {__file__}
    assert peak_of("gradient of a scan").sum_of("residual") in (12 * SIZE, 18 * SIZE)


def test_what_a_checkpoint_does_not_keep_is_no_residual() -> None:
    kept, again = peak_of("gradient of a scan"), peak_of("recomputed")

    assert 0 < again.sum_of("residual") < kept.sum_of("residual")
    assert kept.live_bytes - again.live_bytes <= kept.sum_of("residual")
    assert "recomputed" in {value.role for value in again.values}


def test_what_is_overwritten_in_place_counts_once() -> None:
    assert peak_of("written in place").live_bytes < 2 * SIZE


def test_a_copy_comes_from_where_its_operand_comes_from() -> None:
    program = jax.jit(lambda x: jnp.sin(x).T.reshape(-1)[::3].sum() + jnp.linalg.det(x)).lower(X).compile()

    found = read(buffer_assignment(program), program.as_text() or "")

    assert found is not None
    assert all(value.op_name for value in found.values if value.name.startswith("copy"))


def test_values_that_would_share_bytes_at_one_time_are_not_believed() -> None:
    plan, text = compiled("gradient")
    moved = tuple(a._replace(values=tuple(v._replace(offset=0) for v in a.values)) for a in plan)

    with pytest.raises(
        NotAvailable, match=r"have the same bytes in the plan, and by the program's text both are needed"
    ):
        read(moved, text)


def test_a_plan_that_is_too_small_for_what_is_needed_is_not_believed() -> None:
    plan, text = compiled("gradient")

    with pytest.raises(NotAvailable, match=r"\d+ B are needed at once by the program's text, and the plan has 10 B"):
        read(tuple(a._replace(size_bytes=10) if a.kind == "temporary" else a for a in plan), text)


def test_a_value_that_the_text_does_not_show_is_told() -> None:
    plan, text = compiled("chain")
    strange = tuple(a._replace(values=tuple(v._replace(name="dot.99") for v in a.values)) for a in plan)

    with pytest.raises(NotAvailable, match=r"a value of dot\.99, which the program's text does not show"):
        read(strange, text)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("is_scheduled=true", "is_scheduled=false", "not in the order in which its instructions run"),
        (" fusion(", " fusion-start(", "beside others, and how long its buffers live is not read"),
    ],
)
def test_a_text_that_does_not_tell_how_long_values_live_is_refused(old: str, new: str, why: str) -> None:
    plan, text = compiled("library")

    with pytest.raises(NotAvailable, match=why):
        read(plan, text.replace(old, new))


def test_without_a_plan_there_is_no_peak() -> None:
    with pytest.raises(NotAvailable, match="this JAX or backend does not hand it out"):
        read(None, compiled("chain")[1])


def test_a_program_without_temporaries_has_no_peak() -> None:
    program = jax.jit(lambda x: x + 1).lower(X).compile()

    assert read(buffer_assignment(program), program.as_text() or "") is None
