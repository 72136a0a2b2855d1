"""Exported programs give what the function gives, are the same bytes for the same function, and else say why not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python
from jax_versions import leaves_lines_out
from measuring.conftest import SHORT

from benchax import api
from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.measuring import engine
from benchax.measuring import exported as exporting
from benchax.measuring.engine import measure
from benchax.measuring.exported import ImportedProgram, digest_source, exported, leaves_of
from benchax.measuring.prepare import prepare
from benchax.measuring.record import quiet
from benchax.measuring.timers.base import Subject
from benchax.model import Measurement
from benchax.workers.executors import Isolated
from benchax.workers.pool import Pool

STORED = replace(SHORT, store="somewhere", stages="build", memory=False)


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    """A pytree of the user's own, which whoever runs the program later does not have."""

    weight: Any
    bias: Any


def built(fn: Any, *args: Any, kwargs: Any = None, **of_the_case: Any) -> Subject:
    case = make_case(fn, args, kwargs, **of_the_case)
    return prepare(case).subject


def row(fn: Any, *args: Any, **of_the_case: Any) -> Measurement:
    return measure(make_case(fn, args, **of_the_case), STORED, run_id="test")


def dense(layer: Layer, x: dict[str, Any]) -> dict[str, Any]:
    return {"y": x["left"] @ layer.weight + layer.bias, "n": (x["left"].sum(), [x["right"]])}


X = jnp.linspace(-2, 3, 24, dtype=jnp.float32).reshape(4, 6)
CONSTANT = np.arange(24.0, dtype=np.float32).reshape(4, 6)
LAYER = Layer(jnp.ones((6, 3)) * 0.5, jnp.arange(3.0))

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "plain": (lambda x: jnp.sin(x) @ x.T, X),
    "two inputs, one left out of the program": (lambda x, y: x + 1, X, X),
    "no inputs": (lambda: jnp.arange(5.0),),
    "nested": (dense, LAYER, {"left": X, "right": jnp.int32(3)}),
    "none among the inputs": (lambda x, mask: x if mask is None else x * mask, X, None),
    "weak float": (lambda x, factor: x * factor, X, 2.5),
    "weak int": (lambda x, n: x * n, X.astype(jnp.bfloat16), 3),
    "python bool": (lambda x, flag: jnp.where(flag, x, -x), X, True),
    "python complex": (lambda x, z: x * z, X, 1 + 2j),
    "typed key": (lambda key: jax.random.normal(key, (3,)), jax.random.key(7)),
    "another kind of key": (lambda key: jax.random.bits(key, (3,)), jax.random.key(7, impl="rbg")),
    "raw key": (lambda key: jax.random.normal(key, (3,)), jax.random.PRNGKey(7)),
    "loop": (lambda x: jax.lax.fori_loop(0, 5, lambda i, c: c * 0.5 + i, x), X),
    "captured constants": (lambda x: x + CONSTANT, X),
    "custom call of jaxlib": (lambda x: jnp.linalg.svd(x, compute_uv=False), X),
    "two custom calls": (lambda x: jnp.linalg.qr(x)[1] + jnp.linalg.eigvalsh(x.T @ x)[0], X),
    "spec": (lambda x: jnp.fft.fft(x), "f32[16]"),
}


def assert_same(outputs: Any, expected: Any) -> None:
    one, other = jax.tree.leaves(outputs), jax.tree.leaves(expected)
    assert [(x.shape, x.dtype) for x in one] == [(x.shape, x.dtype) for x in other]
    for x, y in zip(one, other, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_program_gives_what_the_function_gives(name: str) -> None:
    subject = built(*FUNCTIONS[name])

    program = exported(subject)
    assert program.content is not None
    imported, leaves = ImportedProgram(program.content), leaves_of(subject)

    assert_same(imported(*leaves.args), subject.call())
    assert_same(imported.program().call(*leaves.args), subject.call())
    assert (program.size_bytes, len(program.sha256)) == (len(program.content), 64)


def test_static_arguments_by_position_and_name_are_part_of_the_program() -> None:
    def power(x: Any, n: int, *, keep: bool) -> Any:
        return x**n if keep else x

    declared = built(power, X, 3, kwargs={"keep": True}, static=[1, "keep"])
    known = built(jax.jit(power, static_argnums=1, static_argnames="keep"), X, 3, kwargs={"keep": True})

    for subject in (declared, known):
        program = exported(subject)
        assert program.content is not None
        assert_same(ImportedProgram(program.content)(*leaves_of(subject).args), X**3)
        assert leaves_of(subject).signature == "f32[4,6]"


def test_the_program_donates_what_the_function_donates() -> None:
    def step(unused: Any, state: dict[str, Any], x: Any) -> dict[str, Any]:
        return {name: value + x.sum() for name, value in state.items()}

    subject = built(step, X, {"a": X + 1, "b": X + 2}, X, donate=[1])
    program = exported(subject)
    assert program.content is not None
    leaves = [leaf + 0 for leaf in leaves_of(subject).args]

    outputs = ImportedProgram(program.content).program().call(*leaves)

    assert [leaf.is_deleted() for leaf in leaves] == [False, True, True, False]
    assert_same(outputs, subject.call())


# ---- the same program, the same bytes ---------------------------------------------------------------------------


@leaves_lines_out
def test_a_program_does_not_tell_where_its_code_lay() -> None:
    program = exported(built(lambda x: jnp.tanh(x), X))

    assert program.content is not None
    assert b"test_exported" not in program.content
    assert jax.config.jax_traceback_in_locations_limit > 0


def test_the_data_are_no_part_of_the_program_and_the_shapes_are() -> None:
    def make(factor: int) -> Callable[[Any], Any]:
        return lambda x: jnp.tanh(x) @ x.T * factor

    here = exported(built(make(2), X)).sha256

    assert exported(built(make(2), X + 1)).sha256 == here
    assert exported(built(make(2), X[:2])).sha256 != here
    assert exported(built(make(3), X)).sha256 != here


SCRIPT = """
import jax.numpy as jnp
from benchax.case import make_case
from benchax.measuring.engine import measure
from benchax.options import resolve
def halves(x):
    return jnp.sin(x) / 2
options = resolve({"stages": "build", "store": "somewhere", "memory": False}, environ={})
print(measure(make_case(halves, ("f32[8]",)), options, run_id="").program.sha256)
"""


@pytest.mark.slow
def test_two_processes_make_the_same_program() -> None:
    said = [warm_python.run([sys.executable, "-c", SCRIPT], check=True) for _ in range(2)]

    one, other = (each.stdout.strip() for each in said)
    assert one == other
    assert len(one) == 64


# ---- refused ----------------------------------------------------------------------------------------------------


def printing(x: Any) -> Any:
    jax.debug.print("{}", x.sum())
    return x


def test_a_program_with_too_much_data_in_it_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    subject = built(lambda x: x + weights, jnp.ones(2000))
    monkeypatch.setattr(exporting, "MOST_BYTES", 4096)

    with pytest.raises(NotMeasured) as error:
        exported(subject)

    assert error.value.problem.startswith("its program takes ")
    assert error.value.problem.endswith(", more than the 4.00 KiB that are kept")


SEVERAL = """
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from benchax.case import make_case
from benchax.measuring.engine import measure
from benchax.options import resolve
x = jax.device_put(jnp.ones(8), NamedSharding(Mesh(jax.devices(), "d"), PartitionSpec("d")))
options = resolve({"stages": "build", "store": "somewhere", "memory": False}, environ={})
m = measure(make_case(lambda x: x * 2, (x,)), options, run_id="")
print(jax.device_count(), m.status, m.program, m.why_absent("program"))
"""


def test_inputs_on_several_devices_are_not_exported() -> None:
    assert warm_python.run_on_devices(2, SEVERAL) == "2 ok None its inputs are on several devices\n"


# ---- in a row ---------------------------------------------------------------------------------------------------


def test_a_row_that_is_not_stored_says_so(short: Any) -> None:
    found = measure(make_case(jnp.sin, (X,)), replace(short, stages="build"), run_id="test")

    assert found.program is None
    assert found.why_absent("program") == "the row is not stored"


def test_an_export_that_fails_costs_no_row() -> None:
    found = row(printing, X)

    assert found.status == "ok"
    assert found.program is None
    assert (found.why_absent("program") or "").startswith("it cannot be exported (NotImplementedError: ")
    assert found.stages.compile_s is not None


def test_the_program_comes_back_from_a_worker_process() -> None:
    case = make_case(lambda x: jnp.cos(x) * 3, (X,))

    with Pool() as pool:
        found = Isolated(pool=pool).run(case, STORED, run_id="test", progress=quiet)

    assert found.failure is None
    assert found.program is not None
    assert found.program.content is not None
    assert_same(ImportedProgram(found.program.content)(X), jnp.cos(X) * 3)


# ---- stored programs --------------------------------------------------------------------------------------------
#
# A program that a store has is not exported again: by what it is known, and what that tells apart.

ONES, ZEROS = np.ones(4, np.float32), np.zeros(4, np.float32)


def digest(fn, *args) -> str:
    traced = jax.jit(fn).trace(*args)
    return digest_source(traced, traced.lower())


def test_equal_programs_have_one_digest() -> None:
    """Those of two sessions: what they hold are functions, whose addresses differ."""
    assert digest(lambda x: jax.nn.relu(x) * 2, ONES) == digest(lambda z: jax.nn.relu(z) * 2, ZEROS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((lambda x, y: x + 1, ONES, ZEROS), (lambda x, y: y + 1, ONES, ZEROS)),  # their lowered texts are equal
        ((lambda x: x + ONES, ONES), (lambda x: x + ZEROS, ONES)),  # their jaxprs read the same
        ((lambda x: x + 1, ONES), (lambda x: x + 1, ONES[:2])),
        ((lambda x: x + 1, ONES), (lambda x: x + 2, ONES)),
    ],
)
def test_programs_that_differ_have_two(one, other) -> None:
    assert digest(*one) != digest(*other)


def test_what_holds_large_arrays_has_none() -> None:
    large = jnp.ones(100_000)

    assert digest(lambda x: x + large, 1.0) == ""


def test_a_stored_program_is_looked_up_and_stands_in_the_new_row(tmp_path, monkeypatch) -> None:
    exports: list[str] = []
    real = engine.exported
    monkeypatch.setattr(engine, "exported", lambda subject: (exports.append(""), real(subject))[1])
    options = {"store": str(tmp_path), "stages": "build", "memory": False}

    def measure(number: int):
        case = make_case(lambda x: x * number, (ONES,), name="f")
        (row,) = api.run([case], call=options)
        return row

    first, again, changed = measure(2), measure(2), measure(3)

    assert len(exports) == 2
    assert first.program == again.program != changed.program
    assert again.program is not None
    assert again.program.content is None
    stored = api.opened(str(tmp_path)).query(case="f")
    assert [row.program for row in stored] == [first.program, again.program, changed.program]
