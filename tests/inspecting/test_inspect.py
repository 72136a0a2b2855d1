"""`benchax.inspect`: everything that can be called, nothing ever run, and a reason for each part that is missing."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import sparse

import benchax
from benchax.errors import BenchaxError, UsageError
from benchax.inspecting.differences import JAXPR, SSA, align_and_diff, difference
from benchax.inspecting.inspect import inspect, inspect_case
from benchax.results.inspection import Inspection, NumberChange, Place, TextDifference
from benchax.watching.compiles import watch_compiles
from benchax.workloads import cases

PARTS = ("jaxpr", "stablehlo", "hlo", "counts", "xla_cost", "memory", "buffers", "constants", "donation", "collectives")


def double(x: Any) -> Any:
    return x * 2 + 1


class Wrapper:
    """Holds a jit, and shows only `lower` (as equinox.filter_jit does)."""

    def __init__(self, fun: Any) -> None:
        self.jitted = jax.jit(fun)

    def __call__(self, *args: Any) -> Any:
        return self.jitted(*args)

    def lower(self, *args: Any) -> Any:
        return self.jitted.lower(*args)


def test_a_plain_function_shows_everything() -> None:
    found = benchax.inspect(double, "f32[8,8]", name="twice")

    assert [part for part in PARTS if getattr(found, part) is None] == []
    # One fused loop keeps nothing meanwhile.
    assert [(absent.what, absent.why) for absent in found.absent] == [
        ("peak", "the program has no temporaries: it needs only arguments, outputs and constants")
    ]
    assert (found.name, found.signature) == ("twice", "f32[8,8]")
    assert json.loads(json.dumps(found.asdict()))["counts"]["flops"] == 128
    assert found.place.jax == jax.__version__
    assert "stablehlo.multiply" in (found.stablehlo or "")
    assert (found.hlo or "").startswith("HloModule")


def test_nothing_is_run_and_nothing_is_allocated() -> None:
    """Inputs of 40 GB, and a callback that would tell."""
    ran: list[int] = []

    def noisy(x: Any) -> Any:
        jax.debug.callback(lambda: ran.append(1))
        return x * 2

    found = benchax.inspect(noisy, "f32[100000,100000]")
    jax.effects_barrier()

    assert ran == []
    assert found.memory is not None
    assert found.memory.argument_bytes == 4 * 10**10


def test_a_jitted_function_keeps_its_compiled_programs() -> None:
    """Those for other shapes too, which a measurement would make it forget."""
    jitted = jax.jit(double)
    x = jnp.ones((3, 5))
    jitted(x)

    benchax.inspect(jitted, "f32[8]")

    with watch_compiles() as log:
        jitted(x)
    assert not log.was_asked


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ("f32[8,8]", "f32[8,8]"),
        (jax.ShapeDtypeStruct((8, 8), jnp.float32), "f32[8,8]"),
        (np.ones((8, 8), np.float32), "f32[8,8]"),
        (jnp.ones((8, 8)), "f32[8,8]"),
        # As JAX would take them.
        ("f64[8]", "f32[8]"),
        ("i64[8]", "i32[8]"),
        ("key", "key"),
        ("key[3]", "key[3]"),
    ],
)
def test_every_kind_of_input_makes_the_same_program(given: Any, spec: str) -> None:
    found = benchax.inspect(lambda x: x[..., None], given)

    assert found.jaxpr is not None
    assert [a.spec for a in found.jaxpr.inputs] == [spec]


def test_a_key_is_placed_as_other_arrays_are() -> None:
    with pytest.raises(UsageError, match=r"'key\[8@data\]' is sharded over data, and there is no mesh"):
        benchax.inspect(jax.random.bits, "key[8@data]")


def test_what_has_no_jaxpr_says_why() -> None:
    compiled = benchax.inspect(jax.jit(double).lower(jnp.ones(8)).compile(), jnp.ones(8))
    wrapper = benchax.inspect(Wrapper(double), jnp.ones(8))

    assert (compiled.jaxpr, compiled.stablehlo, wrapper.jaxpr) == (None, None, None)
    assert {compiled.why_absent(what) for what in ("jaxpr", "constants.captured", "stablehlo")} == {
        "it was given as a Compiled, which is built already"
    }
    assert "no .trace()" in (wrapper.why_absent("jaxpr") or "")
    assert [found.counts and found.counts.flops for found in (compiled, wrapper)] == [16, 16]
    assert wrapper.stablehlo is not None


def test_static_arguments_keep_the_positions_of_the_others() -> None:
    """A shape in place of an array is not taken for a static argument."""
    jitted = functools.partial(jax.jit, static_argnums=0)(lambda n, x: x * n)

    for found in (benchax.inspect(jitted, 3, "f32[4]"), benchax.inspect(lambda n, x: x * n, 3, "f32[4]", static=0)):
        assert found.jaxpr is not None
        assert [a.path for a in found.jaxpr.inputs] == ["args[1]"]


def test_an_unusable_donation_is_explained_and_its_warning_kept_as_a_remark() -> None:
    found = benchax.inspect(lambda x: x.sum(), "f32[8]", donate=0)

    assert found.donation is not None
    assert found.donation.arguments[0].why_not == "no output has its shape and dtype, f32[8]"
    assert [r.code for r in found.remarks] == ["warned"]
    assert "donated buffers were not usable" in found.remarks[0].message


def test_the_workload_with_a_loop_counts_every_step() -> None:
    (rnn,) = [case for case in cases() if case.id.name == "rnn"]

    found = inspect_case(rnn)

    assert found.counts is not None
    assert found.counts.flops == pytest.approx(100 * (2 * 16 * 64 * (32 + 64) + 16 * 64), rel=0.01)
    assert found.xla_cost is not None
    assert found.xla_cost.flops == pytest.approx(found.counts.flops / 100, rel=0.01)


def test_work_that_cannot_be_counted_says_why() -> None:
    def on_the_host(x: jax.Array) -> jax.Array:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    found = inspect(on_the_host, jnp.ones(8))

    assert found.counts is not None
    assert found.counts.flops is None
    for what in ("flops", "transcendentals", "bytes_accessed"):
        assert "can't be inspected" in (found.why_absent(f"counts.{what}") or "")
    assert "no reason was recorded" not in str(found)


def test_the_work_of_one_branch_is_no_bound() -> None:
    """A call that takes the smaller branch does less than was counted."""

    def either(is_needed: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(is_needed, lambda x: x @ x, lambda x: x, x)

    shown = str(inspect(either, jnp.asarray(False), jnp.ones((64, 64))))

    assert "at least" not in shown
    assert "524 kFLOP  not exact; on one device" in shown


def test_a_function_of_jax_itself_is_not_said_to_come_from_our_own_files() -> None:
    found = benchax.inspect(jnp.sort, "f32[64]")

    ours = str(Path(benchax.__file__).parent)
    assert found.hlo is not None
    assert ours not in found.hlo
    assert found.buffers is not None
    assert [b.source for b in found.buffers.buffers if ours in b.source] == []


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this JAX has no references")
def test_a_function_that_changes_a_reference_is_inspected() -> None:
    """JAX can't say how its outputs are laid out."""

    def add(total: Any, x: Any) -> Any:
        total[...] += x
        return x.sum()

    found = benchax.inspect(add, jax.new_ref(jnp.zeros(4)), "f32[4]")

    assert found.counts is not None
    assert found.collectives is not None


def test_a_value_that_leaked_from_another_trace_is_refused_in_words() -> None:
    held: list[Any] = []
    jax.jit(lambda x: held.append(x * 2) or x)(jnp.ones(3))

    with pytest.raises(BenchaxError, match="leak"):
        benchax.inspect(lambda x: x + held[0], "f32[3]")


@jax.tree_util.register_pytree_node_class
class Quantity:
    """Holds arrays, and looks like one."""

    shape, dtype = (3,), jnp.float32

    def __init__(self, value: Any, scale: Any) -> None:
        self.value, self.scale = value, scale

    def tree_flatten(self) -> tuple[tuple[Any, Any], None]:
        return (self.value, self.scale), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, Any]) -> Quantity:
        return cls(*children)


@pytest.mark.slow
def test_containers_with_a_shape_and_a_dtype_are_inputs_and_outputs_like_any_other() -> None:
    matrix = sparse.BCOO.fromdense(jnp.eye(8))

    multiplied = benchax.inspect(lambda m, x: m @ x, matrix, "f32[8]")
    scaled = benchax.inspect(lambda q: Quantity(q.value * q.scale, q.scale), Quantity(jnp.ones(3), jnp.ones(())))

    assert multiplied.counts is not None
    assert scaled.memory is not None
    assert scaled.memory.argument_bytes == 4 * 3 + 4


def test_what_cannot_be_inspected_is_an_error_that_quotes_it() -> None:
    with pytest.raises(BenchaxError, match=r"(?s)^clip does not trace: TracerBool.*hint: .*argument x.*lax\.cond"):
        benchax.inspect(lambda x: x if x > 0 else 0.0, "f32[]", name="clip")
    with pytest.raises(UsageError, match=r"unknown dtype 'f33' in 'f33\[8\]'"):
        benchax.inspect(double, "f33[8]")
    with pytest.raises(UsageError, match="operation by operation there is no program"):
        benchax.inspect(double, "f32[8]", jit=False)
    with pytest.raises(UsageError, match="name='a' is both an option of inspect and an argument"):
        benchax.inspect(lambda x, name: x, "f32[8]", name="a")


def test_progress_is_told_the_stages_of_the_build() -> None:
    told: list[benchax.ProgressEvent] = []

    benchax.inspect(jnp.sort, "f32[8]", progress=told.append)

    assert [(event.item, event.doing) for event in told] == [("sort", each) for each in ("trace", "lower", "compile")]


@pytest.mark.slow
def test_the_jaxpr_is_plain_text_in_ipython(tmp_path: Path) -> None:
    """JAX colours it there, and escape codes stood in files and in `--json`."""
    code = "import benchax; print(repr(benchax.inspect(abs, 'f32[3]').jaxpr.text))"

    shown = warm_python.run([sys.executable, "-m", "IPython", "-c", code], cwd=tmp_path, check=True).stdout

    assert "lambda" in shown
    assert r"\x1b" not in shown


# ---- What differs between two programs: no more than what differs, whatever is renamed because of it ----------------


def chain(x, w):
    y = x @ w
    z = jnp.sin(y)
    return jax.lax.fori_loop(0, 4, lambda _, v: jnp.tanh(v) + z, jnp.cos(z)).sum()


def longer_chain(x, w):
    y = x @ w + 1
    z = jnp.sin(y)
    return jax.lax.fori_loop(0, 4, lambda _, v: jnp.tanh(v) + z, jnp.cos(z)).sum()


@pytest.fixture(scope="module")
def before() -> Inspection:
    return inspect(chain, "f32[4,4]", "f32[4,4]")


@pytest.fixture(scope="module")
def after() -> Inspection:
    return inspect(longer_chain, "f32[4,4]", "f32[4,4]")


def changed(text: TextDifference) -> list[str]:
    return [line for line in text.unified.splitlines()[2:] if line[0] in "+-"]


def test_a_function_with_another_name_is_the_same_program(before: Inspection) -> None:
    def renamed(a, b):
        return chain(a, b)

    found = difference(before, inspect(renamed, "f32[4,4]", "f32[4,4]"))

    assert found.is_none
    assert [(text.stage, text.is_same) for text in found.texts] == [
        ("jaxpr", True), ("stablehlo", True), ("hlo", True)
    ]  # fmt: skip
    assert "equations" in found.unchanged


def test_one_more_equation_is_one_more_line_however_many_names_follow(before: Inspection, after: Inspection) -> None:
    found = difference(before, after)
    jaxpr, stablehlo, hlo = found.texts

    assert not found.is_none
    assert (found.before, found.after) == ("chain(f32[4,4], f32[4,4])", "longer_chain(f32[4,4], f32[4,4])")
    assert [re.sub(r"\b[a-z]{1,2}\b(?=[: ]|$)", "_", line) for line in changed(jaxpr)] == [
        "-    _:f32[4,4] = sin _",
        "+    _:f32[4,4] = add _ 1.0:f32[]",
        "+    _:f32[4,4] = sin _",
    ]
    assert (stablehlo.added, stablehlo.removed) == (4, 1)
    assert not hlo.is_same
    assert NumberChange("add", 2, 3) in found.primitives
    assert [c for c in found.numbers if c.name == "equations"] == [NumberChange("equations", 8, 9)]


def test_a_difference_in_wiring_alone_is_seen() -> None:
    minus = inspect(lambda x, y: jnp.sin(x) - jnp.sin(y), "f32[4]", "f32[4]", name="f")
    turned = inspect(lambda x, y: jnp.sin(y) - jnp.sin(x), "f32[4]", "f32[4]", name="f")

    found = difference(minus, turned)

    assert not found.is_none
    assert found.numbers == ()
    assert all(changed(text) for text in found.texts if not text.is_same)
    assert {text.stage for text in found.texts if not text.is_same} >= {"jaxpr", "stablehlo"}


def test_names_of_inner_functions_are_no_difference() -> None:
    """jax 0.9.2 has @relu_2 where 0.10.2 has @relu_0; which of them is called is one all the same."""

    def module(one: str, two: str, called: str) -> Inspection:
        text = f"call @{one}(%0)\ncall @{called}(%1)\nfunc.func private @{one}(\nfunc.func private @{two}(\n"
        return Inspection("f", "", Place(), stablehlo=text)

    assert difference(module("relu", "relu_2", "relu_2"), module("relu", "relu_0", "relu_0")).is_none
    assert not difference(module("relu", "relu_2", "relu_2"), module("relu", "relu_0", "relu")).is_none


def test_what_one_side_does_not_know_is_not_compared(before: Inspection) -> None:
    compiled = jax.jit(chain).lower(*[jax.ShapeDtypeStruct((4, 4), jnp.float32)] * 2).compile()

    found = difference(before, inspect(compiled, "f32[4,4]", "f32[4,4]"))

    assert [text.stage for text in found.texts] == ["hlo"]
    assert {absent.what for absent in found.absent} == {"jaxpr", "stablehlo"}
    assert all(absent.why for absent in found.absent)
    assert "equations" not in found.unchanged
    assert found.primitives == ()
    assert all(change.before is not None and change.after is not None for change in found.numbers)


LINES = st.lists(
    st.sampled_from(["{} = add {} {}", "{} = mul {} {}", "  body of {} and {} {}", "é\x0b {} {} {}"]).map(
        lambda line: line.format("%1", "%22", "%arg0")
    )
    | st.text("%ab12 =:\n", max_size=12),
    max_size=12,
).map("\n".join)


@given(LINES, LINES)
def test_whatever_differs_is_shown_and_what_is_equal_is_not(before: str, after: str) -> None:
    for language in (JAXPR, SSA):
        assert bool(align_and_diff(before, after, ("a", "b"), language)) == (before.splitlines() != after.splitlines())


def test_no_two_values_of_one_computation_get_the_same_name() -> None:
    """The second parameter aligns with that of another computation, whose first is called the same."""
    before = "c0:\n  %0 = parameter(0)\n  %1 = exp(%0)\n  %2 = [8] parameter(1)\n  %3 = dot(%1, %2)"
    after = "c0:\n  %0 = parameter(0)\n  %1 = exp(%0)\nc1:\n  %0 = sin()\n  %1 = [8] parameter(1)\n  %2 = tan(%1)"

    removed = [line for line in align_and_diff(before, after, ("one", "two"), SSA)[3:] if not line.startswith("+")]

    defined = [line[1:].split(" = ")[0].strip() for line in removed if " = " in line]
    assert len(set(defined)) == len(defined)


def test_ten_thousand_equations_are_compared_in_time_that_grows_with_them() -> None:
    """Not quadratic: the lines are all alike, which is the worst that can happen to an alignment."""
    lines = [f"%{i} = sine(%{i - 1})" for i in range(1, 10_000)]
    changed_in_the_middle = [*lines[:5000], "%x = cosine(%4999)", *lines[5000:]]

    shown = align_and_diff("\n".join(lines), "\n".join(changed_in_the_middle), ("a", "b"), SSA)

    assert "+%x = cosine(%4999)" in shown


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("%0 = a\n%1 = b(%0)", "%0 = x\n%1 = a\n%2 = b(%1)", ["+%0 = x", " %1 = a", " %2 = b(%1)"]),
        ("%0 = a", "%1 = a", ["-%0 = a", "+%1 = a"]),
        (
            "%0 = a\n%1 = c(%0)\n%2 = d(%0)\n%3 = b(%1)",
            "%0 = a\n%1 = b(%0)",
            [" %0 = a", "-%1' = c(%0)", "-%2' = d(%0)", "-%1 = b(%1')", "+%1 = b(%0)"],
        ),
        (
            "c0:\n  %5 = a\nc1:\n  %0 = q\n  %1 = r(%0)",
            "c0:\n  %0 = a\nc1:\n  %0 = q\n  %1 = s(%0)",
            ["   %0 = a", " c1:", "   %0 = q", "-  %1 = r(%0)", "+  %1 = s(%0)"],
        ),
    ],
    ids=[
        "lines of after as they are",
        "names alone",
        "no counterpart: an apostrophe",
        "each computation has its names",
    ],
)
def test_only_what_differs_is_shown(before: str, after: str, shown: list[str]) -> None:
    head, other, place, *found = align_and_diff(before, after, ("one", "two"), SSA)

    assert (head, other, place[:2], found) == ("--- one", "+++ two", "@@", shown)
