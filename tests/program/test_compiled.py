"""What compiled programs tell: the plan of the memory, against sizes by hand and XLA's own packing, and operations."""

from __future__ import annotations

import functools
import warnings
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_texts import f32
from hypothesis import given
from hypothesis import strategies as st

from benchax.errors import FormatError, NotAvailable
from benchax.model import Cost, Memory
from benchax.program import arguments, hlo
from benchax.program import compiled as compiled_programs
from benchax.program.compiled import (
    Assignment,
    buffer_assignment,
    buffers,
    cost,
    donation,
    inline_flops,
    memory_plan,
    peak_memory,
    read_assignment,
)
from benchax.results.inspection import Buffers, Donation, PeakMemory

BIG = jnp.ones((128, 128))
BYTES = BIG.nbytes
CAPTURED = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32)


def compiled(fun: Any, *args: Any, **options: Any) -> jax.stages.Compiled:
    return jax.jit(fun, **options).lower(*args).compile()


def test_the_peak_counts_arguments_outputs_temporaries_and_constants():
    """The temporary is in our sum, and not in the compiler's own peak on CPU."""
    program = compiled(lambda x: (x @ x) @ x, BIG)
    plan = memory_plan(program, captured_bytes=7)

    assert (plan.argument_bytes, plan.output_bytes, plan.temp_bytes, plan.alias_bytes) == (BYTES, BYTES, BYTES, 0)
    assert plan.predicted_peak_bytes == 3 * BYTES
    assert plan.compiler_peak_bytes in (None, 2 * BYTES)
    assert (plan.captured_bytes, plan.compiled_rise_bytes, plan.eager_rise_bytes, plan.method) == (7, None, None, None)
    assert plan.code_bytes != 0  # code of 0 bytes was not counted
    assert memory_plan(program, hlo_text="%c = f32[2]{0} constant({1, 2})").constant_bytes == 8


def test_a_donated_argument_counts_once_and_a_constant_counts():
    donated = memory_plan(compiled(lambda x: x + 1, BIG, donate_argnums=0))
    constant = memory_plan(compiled(lambda x: x @ CAPTURED, BIG))

    assert donated.alias_bytes == BYTES
    assert donated.predicted_peak_bytes == pytest.approx(BYTES, abs=64)
    assert (constant.constant_bytes, constant.predicted_peak_bytes) == (BYTES, 3 * BYTES)


@pytest.mark.parametrize("found", [None, NotImplementedError(), RuntimeError("UNIMPLEMENTED")])
def test_a_back_end_without_a_plan_leaves_it_unknown(found: Any):
    analysis = Mock(side_effect=found) if isinstance(found, Exception) else lambda: found
    program: Any = SimpleNamespace(memory_analysis=analysis, as_text=lambda: None)

    assert memory_plan(program, captured_bytes=3) == Memory(captured_bytes=3)


def test_without_the_text_there_is_no_peak_to_predict():
    """It would be too low by the constants."""
    program: Any = SimpleNamespace(memory_analysis=compiled(lambda x: x, BIG).memory_analysis, as_text=lambda: None)

    plan = memory_plan(program)

    assert plan.argument_bytes == BYTES
    assert (plan.constant_bytes, plan.predicted_peak_bytes) == (None, None)


# ---- buffer by buffer -------------------------------------------------------------------------------------------


X = f32(64, 64)
KIB16 = 64 * 64 * 4
W = jax.random.normal(jax.random.key(0), (64, 64))


def looping(x: Any) -> Any:
    return jax.lax.scan(lambda c, y: (jnp.tanh(c @ y), c.sum()), x, jnp.stack([x] * 5))


PLANNED = {
    "temporaries": (lambda x: ((x @ x) @ (x @ x + 1)) @ x, (X,), ()),
    "donated": (lambda x: (x @ x) @ x, (X,), (0,)),
    "constants and two outputs": (lambda x, y: (x @ W, {"a": y * 2}), (X, X), ()),
    "unused": (lambda x, y: y + 1, (X, X), ()),
    "loop": (looping, (X,), ()),
    "passed on": (lambda x: (x, x + 1), (X,), ()),
}


@functools.cache
def planned_program(name: str) -> tuple[jax.stages.Traced, jax.stages.Compiled, str]:
    fun, args, donate = PLANNED[name]
    traced = jax.jit(fun, donate_argnums=donate).trace(*args)
    program = traced.lower().compile()
    return traced, program, program.as_text() or ""


def kept_arguments(traced: Any, program: jax.stages.Compiled) -> tuple[hlo.Module, list[Any], tuple[int, ...] | None]:
    module, leaves = hlo.parse(program.as_text() or ""), arguments.inputs(traced)
    assert module.entry is not None
    parameters = sum(each.opcode == "parameter" for each in module.entry.instructions)
    return module, leaves, arguments.find_kept(program, leaves, parameters)


def planned(name: str, sums: Memory | None = None) -> Buffers:
    traced, program, text = planned_program(name)
    module, leaves, kept = kept_arguments(traced, program)
    return buffers(
        buffer_assignment(program), module, sums or memory_plan(program, hlo_text=text),
        paths=[leaves[i].path for i in kept or ()], outputs=arguments.outputs(traced),
    )  # fmt: skip


def total(found: Buffers, kind: str) -> int:
    return sum(b.size_bytes for b in found.buffers if b.kind == kind)


@pytest.mark.parametrize("name", PLANNED)
def test_in_sum_the_buffers_are_the_plan(name: str) -> None:
    plan = planned_program(name)[1].memory_analysis()
    assert plan is not None

    found = planned(name)

    assert found.method == "buffer assignment"
    assert found.unattributed == ()
    assert total(found, "argument") == plan.argument_size_in_bytes
    assert total(found, "temporary") == plan.temp_size_in_bytes
    assert total(found, "output") == plan.output_size_in_bytes - plan.alias_size_in_bytes


def test_a_buffer_knows_what_it_holds_and_the_line_that_made_it() -> None:
    found = planned("temporaries")

    (temporary,) = [b for b in found.buffers if b.kind == "temporary"]
    assert temporary.size_bytes == 2 * KIB16
    assert "dot_general" in temporary.op_name or "add" in temporary.op_name
    assert temporary.source.rpartition(":")[0] == str(Path(__file__))
    assert [v.spec for v in temporary.values] == ["f32[64,64]"] * len(temporary.values)
    assert [b.size_bytes for b in found.buffers] == sorted((b.size_bytes for b in found.buffers), reverse=True)


def test_inputs_and_outputs_are_called_as_the_user_calls_them() -> None:
    whats = {b.what for b in planned("constants and two outputs").buffers if b.size_bytes == KIB16}

    assert {"args[0]", "args[1]", "result[0]", "result[1]['a']"} < whats
    # A dropped argument does not lend its name.
    assert [b.what for b in planned("unused").buffers if b.kind == "argument"] == ["args[1]"]


def test_what_no_buffer_accounts_for_is_told() -> None:
    _, program, text = planned_program("temporaries")
    plan = memory_plan(program, hlo_text=text)
    more = Memory(argument_bytes=plan.argument_bytes, output_bytes=plan.output_bytes, temp_bytes=10**6)

    assert planned("temporaries", more).unattributed == (("temporary", 10**6 - 2 * KIB16),)


@pytest.mark.parametrize("message", [b"", b"\x0a\xff", b"not protobuf"])
def test_without_a_readable_plan_the_text_tells_less_and_says_so(
    message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plan:
        serialized_buffer_assignment_proto = message

    plan = memory_plan(planned_program("temporaries")[1])
    monkeypatch.setattr(jax.stages.Compiled, "memory_analysis", lambda self: Plan())

    found = planned("temporaries", plan)

    assert found.method == "program text"
    assert {(b.kind, b.what) for b in found.buffers} >= {("argument", "args[0]"), ("output", "result")}
    assert found.unattributed == (("temporary", 2 * KIB16),)


def test_without_the_program_itself_the_buffers_keep_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_programs, "_instruction_names", lambda program: {})

    found = planned("temporaries")

    assert found.unattributed == ()
    assert [b.what for b in found.buffers if b.kind == "argument"] == ["args[0]"]
    assert [v.name for b in found.buffers for v in b.values] == [""] * sum(len(b.values) for b in found.buffers)


@given(st.data())
def test_a_cut_plan_is_read_or_refused(data: st.DataObject) -> None:
    with suppress(FormatError):
        assert isinstance(read_assignment(data.draw(st.binary(max_size=60)), {}), tuple)
    plan = planned_program("loop")[1].memory_analysis()
    assert plan is not None
    message = plan.serialized_buffer_assignment_proto
    cut = message[: data.draw(st.integers(0, len(message)))]

    try:
        found = read_assignment(cut, {})
    except FormatError:
        return
    assert len(found) <= len(read_assignment(message, {}))


# ---- over time --------------------------------------------------------------------------------------------------


N = 64
WS = f32(6, N, N)


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


PEAKS: dict[str, tuple[Any, tuple[Any, ...]]] = {
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
def plan_and_text(name: str) -> tuple[Assignment, str]:
    fun, args = PEAKS[name]
    program = jax.jit(fun).lower(*args).compile()
    plan = buffer_assignment(program)
    assert plan is not None
    return plan, program.as_text() or ""


def read(plan: Assignment | None, text: str) -> PeakMemory | None:
    return peak_memory(plan, hlo.parse(text))


def peak_of(name: str) -> PeakMemory:
    found = read(*plan_and_text(name))
    assert found is not None
    return found


@pytest.mark.parametrize("name", PEAKS)
def test_what_is_needed_at_once_fills_the_memory_that_xla_planned(name: str) -> None:
    # XLA packs values by their lives; read wrongly, they would need more than that, or leave much of it empty.
    found = peak_of(name)

    assert 0.98 * found.planned_bytes <= found.live_bytes <= found.planned_bytes
    assert found.live_bytes == max(found.timeline)
    assert sum(value.size_bytes for value in found.values) == found.live_bytes
    assert 0 <= found.position < found.instructions
    # What is overwritten in place counts once.
    assert name != "written in place" or found.live_bytes < 2 * KIB16


def test_six_layers_keep_six_cosines_for_the_way_back() -> None:
    # On the way forward each layer leaves cos(x @ w), and its input; the first input is an argument.
    residuals = [value for value in peak_of("gradient of a scan").values if value.role == "residual"]

    assert {value.spec for value in residuals} == {f"f32[6,{N},{N}]"}
    assert {value.source.rpartition(":")[0] for value in residuals} == {__file__}
    assert peak_of("gradient of a scan").sum_of("residual") in (12 * KIB16, 18 * KIB16)


def test_what_a_checkpoint_does_not_keep_is_no_residual() -> None:
    kept, again = peak_of("gradient of a scan"), peak_of("recomputed")

    assert 0 < again.sum_of("residual") < kept.sum_of("residual")
    assert kept.live_bytes - again.live_bytes <= kept.sum_of("residual")
    assert "recomputed" in {value.role for value in again.values}


def test_a_copy_comes_from_where_its_operand_comes_from() -> None:
    program = jax.jit(lambda x: jnp.sin(x).T.reshape(-1)[::3].sum() + jnp.linalg.det(x)).lower(X).compile()

    found = read(buffer_assignment(program), program.as_text() or "")

    assert found is not None
    assert all(value.op_name for value in found.values if value.name.startswith("copy"))


def changed(plan: Assignment, is_of_all: bool = False, **changes: Any) -> Assignment:
    """The plan with other values in its allocations; `is_of_all`: with other allocations of temporaries."""
    if is_of_all:
        return tuple(a._replace(**changes) if a.kind == "temporary" else a for a in plan)
    return tuple(a._replace(values=tuple(v._replace(**changes) for v in a.values)) for a in plan)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"offset": 0}, r"have the same bytes in the plan, and by the program's text both are needed"),
        (
            {"is_of_all": True, "size_bytes": 10},
            r"\d+ B are needed at once by the program's text, and the plan has 10 B",
        ),
        ({"name": "dot.99"}, r"a value of dot\.99, which the program's text does not show"),
    ],
)
def test_a_plan_that_contradicts_the_text_is_not_believed(changes: dict[str, Any], why: str) -> None:
    plan, text = plan_and_text("gradient")

    with pytest.raises(NotAvailable, match=why):
        read(changed(plan, **changes), text)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("is_scheduled=true", "is_scheduled=false", "not in the order in which its instructions run"),
        (" fusion(", " fusion-start(", "so the life of its buffers is unknown"),
    ],
)
def test_a_text_that_does_not_tell_how_long_values_live_is_refused(old: str, new: str, why: str) -> None:
    plan, text = plan_and_text("library")

    with pytest.raises(NotAvailable, match=why):
        read(plan, text.replace(old, new))


def test_without_a_plan_or_temporaries_there_is_no_peak() -> None:
    program = jax.jit(lambda x: x + 1).lower(X).compile()

    assert read(buffer_assignment(program), program.as_text() or "") is None
    with pytest.raises(NotAvailable, match="this JAX or backend doesn't provide it"):
        read(None, program.as_text() or "")


# ---- donated arguments ------------------------------------------------------------------------------------------


def donated(fun: Any, *args: Any, donate: tuple[int, ...], kept: bool = True) -> Donation:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        traced = jax.jit(fun, donate_argnums=donate).trace(*args)
        compiled = traced.lower().compile()
    module, leaves, taken = kept_arguments(traced, compiled)
    return donation(module, leaves, arguments.outputs(traced), taken if kept else None)


def test_an_output_takes_over_a_donated_argument() -> None:
    found = donated(lambda s, x: {"new": s["w"] + x, "old": x}, {"w": f32(8)}, f32(8), donate=(0,))

    (argument,) = found.arguments
    assert (argument.path, argument.is_aliased, argument.output) == ("args[0]['w']", True, "result['new']")
    assert (found.asked_bytes, found.aliased_bytes) == (32, 32)
    assert donated(lambda x: x + 1, f32(8), donate=()) == Donation((), possible_bytes=32)


@pytest.mark.parametrize(
    ("fun", "why"),
    [
        (lambda x, y: y * 2, "the program does not use it"),
        (lambda x, y: x[:3] + y[0], r"no output has its shape and dtype, f32\[8\]"),
        (lambda x, y: x > y[0], "no output has its shape and dtype"),
    ],
)
def test_an_argument_that_no_output_took_over_says_why(fun: Any, why: str) -> None:
    found = donated(fun, f32(8), f32(5), donate=(0,))

    assert [a.is_aliased for a in found.arguments] == [False]
    assert found.arguments[0].why_not.startswith(why.replace("\\", ""))
    assert found.aliased_bytes == 0


def test_two_arguments_for_one_output_name_the_one_that_got_it() -> None:
    found = donated(lambda x, y: x + y, f32(8), f32(8), donate=(0, 1))

    (winner,) = [a for a in found.arguments if a.is_aliased]
    (loser,) = [a for a in found.arguments if not a.is_aliased]
    assert loser.why_not == f"every output of its shape and dtype, f32[8], reuses another argument: {winner.path}"


def test_numbers_of_parameters_are_mapped_back_over_dropped_arguments() -> None:
    """Parameter 0 of the program is the third argument."""
    found = donated(lambda a, b, c: c + 1, f32(8), f32(8), f32(8), donate=(0, 2))

    assert [(a.path, a.is_aliased) for a in found.arguments] == [("args[0]", False), ("args[2]", True)]


def test_where_it_is_not_known_what_was_dropped_nothing_is_claimed() -> None:
    found = donated(lambda a, b: b + 1, f32(8), f32(8), donate=(0, 1), kept=False)

    assert [a.is_aliased for a in found.arguments] == [None, None]
    assert found.aliased_bytes is None
    assert "doesn't report which it dropped" in found.arguments[0].why_not


def test_what_could_be_donated_is_what_has_an_output_like_it_that_no_argument_is_for() -> None:
    def fun(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a + 1, b + c + d[:8]

    # Two outputs like a, b and c, of which one takes the memory of a donated argument; none is like d.
    given = (f32(8), f32(8), f32(8), f32(9))
    assert donated(fun, *given, donate=()).possible_bytes == 64
    assert donated(fun, *given, donate=(0,)).possible_bytes == 32


def test_kept_arguments_are_guessed_only_where_all_are_kept() -> None:
    leaves = [arguments.ArgumentLeaf(f"args[{i}]", (), jnp.dtype("float32")) for i in range(3)]
    hidden: Any = object()  # a Compiled of a JAX that hides what it dropped

    assert arguments.find_kept(hidden, leaves, parameters=3) == (0, 1, 2)
    assert arguments.find_kept(hidden, leaves, parameters=2) is None


# ---- XLA's count of operations, and where it is no count ------------------------------------------------------------

SQUARE = jnp.ones((64, 64))
MATMUL = 2 * 64**3


def stage(found: Any) -> Any:
    """Stands for a Compiled whose analysis says `found`, or raises it."""
    return SimpleNamespace(cost_analysis=Mock(side_effect=repeat(found)))


def built(fun: Any, *args: Any) -> tuple[jax.stages.Compiled, str]:
    compiled = jax.jit(fun).lower(*args).compile()
    return compiled, compiled.as_text() or ""


def callback(x: jax.Array) -> jax.Array:
    return jax.pure_callback(lambda y: np.asarray(y), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_a_matmul_is_counted():
    compiled, text = built(lambda x, y: x @ y, SQUARE, SQUARE)

    assert cost(compiled, text) == Cost(flops=MATMUL, transcendentals=None, bytes_accessed=3 * SQUARE.nbytes)
    assert inline_flops(compiled) == MATMUL


def test_what_is_absent_is_not_zero_but_for_the_inline_rule():
    """tanh adds to the transcendentals only; XLA:CPU then sees 0 FLOP."""
    compiled, text = built(jnp.tanh, SQUARE)

    found = cost(compiled, text)

    assert found is not None
    assert (found.flops, found.transcendentals) == (None, SQUARE.size)
    assert inline_flops(compiled) == 0


def test_a_loop_is_counted_once_and_said_to_be_there():
    loop = built(lambda x: jax.lax.fori_loop(0, 10, lambda _, c: c @ x, x), SQUARE)
    unrolled = built(lambda x: (x @ x) @ x, SQUARE)

    found, straight = cost(*loop), cost(*unrolled)

    assert found is not None
    assert straight is not None
    assert found.has_loops
    assert found.flops == pytest.approx(MATMUL, rel=1e-3)
    assert not straight.has_loops
    assert straight.flops == 2 * MATMUL


@pytest.mark.parametrize("fun", [callback, lambda x: callback(x @ x) @ x, lambda x: jnp.linalg.cholesky(x @ x) @ x])
def test_a_sum_with_a_hole_in_it_is_not_shown(fun: Any):
    """XLA adds -1 for every custom call and then goes on adding."""
    compiled, text = built(fun, jnp.eye(64))

    assert cost(compiled, text) == Cost()
    assert inline_flops(compiled) == (compiled.cost_analysis() or {})["flops"]


@pytest.mark.parametrize("found", [None, [], "?", NotImplementedError(), RuntimeError("UNIMPLEMENTED")])
def test_no_analysis_is_no_cost(found: Any):
    assert cost(stage(found), "") is None
    assert inline_flops(stage(found)) is None


def test_negative_is_unknown():
    unknown = stage({"flops": -1.0, "bytes accessed": -1.0, "transcendentals": 2.0})

    assert cost(unknown, "") == Cost(transcendentals=2.0)
