"""The memory plan by buffer: in sum it is the plan, and each buffer knows what it is for."""

from __future__ import annotations

import functools
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchax.errors import FormatError
from benchax.model import Memory
from benchax.program import arguments, hlo_module
from benchax.program import buffer_assignment as module_under_test
from benchax.program.buffer_assignment import buffer_assignment, read_assignment
from benchax.program.buffers import buffers
from benchax.program.memory_plan import memory_plan
from benchax.program.source_tables import SourceTables
from benchax.results.memory import Buffers

X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
KIB16 = 64 * 64 * 4
W = jax.random.normal(jax.random.key(0), (64, 64))


def looping(x: Any) -> Any:
    return jax.lax.scan(lambda c, y: (jnp.tanh(c @ y), c.sum()), x, jnp.stack([x] * 5))


PROGRAMS = {
    "temporaries": (lambda x: ((x @ x) @ (x @ x + 1)) @ x, (X,), ()),
    "donated": (lambda x: (x @ x) @ x, (X,), (0,)),
    "constants and two outputs": (lambda x, y: (x @ W, {"a": y * 2}), (X, X), ()),
    "unused": (lambda x, y: y + 1, (X, X), ()),
    "loop": (looping, (X,), ()),
    "passed on": (lambda x: (x, x + 1), (X,), ()),
}


@functools.cache
def compiled(name: str) -> tuple[jax.stages.Traced, jax.stages.Compiled, str]:
    fun, args, donate = PROGRAMS[name]
    traced = jax.jit(fun, donate_argnums=donate).trace(*args)
    program = traced.lower().compile()
    return traced, program, program.as_text() or ""


def planned(name: str, memory: Memory | None = None) -> Buffers:
    traced, program, text = compiled(name)
    module = hlo_module.parse(text)
    leaves = arguments.inputs(traced)
    assert module.entry is not None
    kept = arguments.find_kept(program, leaves, sum(i.opcode == "parameter" for i in module.entry.instructions))
    return buffers(
        buffer_assignment(program), text, module, memory or memory_plan(program, hlo_text=text),
        paths=[leaves[i].path for i in kept or ()], outputs=arguments.outputs(traced),
    )  # fmt: skip


def total(found: Buffers, kind: str) -> int:
    return sum(b.size_bytes for b in found.buffers if b.kind == kind)


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_sum_the_buffers_are_the_plan(name: str) -> None:
    plan = compiled(name)[1].memory_analysis()
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


def test_a_dropped_argument_does_not_lend_its_name() -> None:
    assert [b.what for b in planned("unused").buffers if b.kind == "argument"] == ["args[1]"]


def test_what_no_buffer_accounts_for_is_told() -> None:
    _, program, text = compiled("temporaries")
    plan = memory_plan(program, hlo_text=text)
    more = Memory(argument_bytes=plan.argument_bytes, output_bytes=plan.output_bytes, temp_bytes=10**6)

    assert planned("temporaries", more).unattributed == (("temporary", 10**6 - 2 * KIB16),)


@pytest.mark.parametrize("message", [b"", b"\x0a\xff", b"not protobuf"])
def test_without_a_readable_plan_the_text_tells_less_and_says_so(
    message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plan:
        serialized_buffer_assignment_proto = message

    plan = memory_plan(compiled("temporaries")[1])
    monkeypatch.setattr(jax.stages.Compiled, "memory_analysis", lambda self: Plan())

    found = planned("temporaries", plan)

    assert found.method == "program text"
    assert {(b.kind, b.what) for b in found.buffers} >= {("argument", "args[0]"), ("output", "result")}
    assert found.unattributed == (("temporary", 2 * KIB16),)


def test_without_the_program_itself_the_buffers_keep_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "_instruction_names", lambda program: {})

    found = planned("temporaries")

    assert found.unattributed == ()
    assert [b.what for b in found.buffers if b.kind == "argument"] == ["args[0]"]
    assert [v.name for b in found.buffers for v in b.values] == [""] * sum(len(b.values) for b in found.buffers)


@given(st.binary(max_size=60))
@example(b"\x08\x00")
def test_bytes_that_are_no_message_are_an_error_that_is_known(message: bytes) -> None:
    with suppress(FormatError):
        assert isinstance(read_assignment(message, {}), tuple)


@given(st.data())
def test_a_cut_plan_is_read_or_refused(data: st.DataObject) -> None:
    plan = compiled("loop")[1].memory_analysis()
    assert plan is not None
    message = plan.serialized_buffer_assignment_proto
    cut = message[: data.draw(st.integers(0, len(message)))]

    try:
        found = read_assignment(cut, {})
    except FormatError:
        return
    assert len(found) <= len(read_assignment(message, {}))


def test_lines_are_found_in_the_form_of_older_versions_too() -> None:
    line = '  %a = f32[] add(%b, %c), metadata={op_name="jit(f)/add" source_file="/home/é.py" source_line=7}'
    module = hlo_module.parse(f"HloModule m\n\nENTRY %e (b: f32[]) -> f32[] {{\n{line}\n}}\n")
    assert module.entry is not None

    assert SourceTables("").line(module.entry.instructions[0]) == "/home/é.py:7"


def test_a_line_that_is_not_told_is_empty() -> None:
    module = hlo_module.parse(
        "ENTRY %e (b: f32[]) -> f32[] {\n  %a = f32[] add(%b, %c), metadata={stack_frame_id=9}\n}\n"
    )
    assert module.entry is not None

    assert SourceTables("StackFrames\n1 {file_location_id=1}\n").line(module.entry.instructions[0]) == ""
