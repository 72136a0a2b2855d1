"""Versions side by side in one process: on buffers that they share and that are renewed; or the failure of a side."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.case import make_case
from benchax.measuring import paired
from benchax.measuring.exported import exported
from benchax.measuring.paired import LEAST_ROUNDS, MOST_ROUNDS, PairedAnswer, PairedRequest, Side, take_blocks
from benchax.measuring.prepare import prepare
from benchax.measuring.timers import wall
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.paired_runs.paired_run import remarks

X = "f32[64]"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "WARMUP_S", 0.001)
    monkeypatch.setattr(paired, "BLOCK_NS", 5_000_000)


def sine(x: Any) -> Any:
    return jnp.sin(x) + 1


def twice(x: Any) -> Any:
    return jnp.sin(x) + jnp.ones((), x.dtype)


def off(x: Any) -> Any:
    return jnp.sin(x) + 1.5


def host_sine(x: Any) -> Any:
    return jax.pure_callback(lambda v: np.sin(v) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def compiles_anew(x: Any) -> Any:
    return eqx.filter_jit(lambda y: jax.nn.gelu(y))(x)


def draw(key: Any, n: Any) -> Any:
    return jax.random.normal(key, (4,)) * n.sum()


def native(label: str, fn: Any, *args: Any, **of_the_case: Any) -> Side:
    return Side(label, make_case(fn, args or (X,), **of_the_case))


def broken(x: Any) -> Any:
    raise ValueError("it is broken")


def late(x: Any) -> Any:
    return jax.pure_callback(lambda value: 1 / 0, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def leave(x: Any) -> Any:
    raise SystemExit(3)


class Tired:
    """Can be called once."""

    calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.calls > 1:
            raise RuntimeError("it is tired")
        return sine(x)


def program(fn: Any, *args: Any, **of_the_case: Any) -> bytes:
    case = make_case(fn, args or (X,), **of_the_case)
    content = exported(prepare(case).subject).content
    assert content is not None
    return content


def builds(document: PairedAnswer) -> list[int]:
    return [len(side.builds) for side in document.sides]


def taken(*sides: Side, blocks: int = 1, **request: Any) -> Any:
    return take_blocks(PairedRequest(sides, blocks=blocks, **request), lambda stage, **facts: None)


def failure(*sides: Side) -> tuple[int, Any]:
    document = taken(*sides)
    assert document.wall_ns is None
    return document.failed_side, document.failure


def test_operations_are_counted_once_for_each_trip_of_a_loop_or_not_at_all() -> None:
    """Ten times the trips are ten times the work, which XLA's own count doesn't show."""

    def loop(trips: Any) -> Any:
        return lambda x: jax.lax.fori_loop(0, trips, lambda _, y: y @ y, x)

    def until(x: Any) -> Any:
        return jax.lax.while_loop(lambda y: y.sum() < 1e6, lambda y: y + 1, x)

    sides = (native(name, fn, "f32[8,8]") for name, fn in (("ten", loop(10)), ("hundred", loop(100)), ("until", until)))
    ten, hundred, until_large = (side.flops for side in taken(*sides).sides)

    assert ten >= 10 * 2 * 8**3
    assert hundred == pytest.approx(10 * ten, rel=0.01)
    assert until_large is None


# ---- what comes back --------------------------------------------------------------------------------------------


def test_each_round_of_each_block_has_wall_and_processor_time_of_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    sample = paired.BuildableVersion.sample

    def listening(version: Any, iterations: int, wakes: bool) -> tuple[int, int]:
        asked.append(iterations)
        return sample(version, iterations, wakes)

    monkeypatch.setattr(paired.BuildableVersion, "sample", listening)
    document = taken(native("a", sine), native("b", twice), native("c", sine), blocks=2)
    ns, processor = document.wall_ns, document.cpu_ns

    assert (ns.shape[0], ns.shape[2], ns.dtype) == (2, 3, np.int64)
    assert (processor.shape, processor.dtype) == (ns.shape, np.int64)
    assert LEAST_ROUNDS <= ns.shape[1] <= MOST_ROUNDS
    assert (ns > 0).all()
    assert (processor > 0).all()
    assert set(asked) == {document.iterations}
    assert document.iterations >= 1
    assert (document.failure, document.signature) == (None, "f32[64]")
    assert document.noise.load_1m is not None


def test_a_side_with_inputs_of_its_own_gets_them_in_each_block() -> None:
    """By name, too: without positional arguments, Python has one empty tuple for all calls."""
    seen: dict[str, set[str]] = {"float32": set(), "bfloat16": set()}

    def side(dtype: str) -> Side:
        x = jnp.ones(8, dtype)
        case = make_case(lambda *, x: seen[dtype].add(str(x.dtype)) or x + 1, (), {"x": x}, jit=False)
        return Side(dtype, case, has_own_inputs=True)

    document = taken(side("float32"), side("bfloat16"), blocks=2)

    assert document.failure is None
    assert seen == {"float32": {"float32"}, "bfloat16": {"bfloat16"}}


def test_beside_the_rounds_each_side_is_called_in_a_row() -> None:
    calls: list[str] = []

    def say(stage: str, **facts: Any) -> None:
        if stage == "rounds":
            calls.clear()

    sides = tuple(native(label, lambda x, label=label: calls.append(label) or x, jit=False) for label in ("a", "b"))
    document = take_blocks(PairedRequest(sides, blocks=1), say)

    in_rounds = 2 * (document.iterations + 1)  # at most: last in one round, and first in the next
    rows = [(label, len(list(row))) for label, row in groupby(calls)]
    assert {label for label, length in rows if length > in_rounds} == {"a", "b"}
    assert all(0 < side.alone_s < 1 for side in document.sides)


def test_programs_that_are_compiled_while_a_side_is_timed_are_counted_for_that_side() -> None:
    document = taken(native("kept", eqx.filter_jit(jax.nn.gelu)), native("fresh", compiles_anew, jit=False))

    kept, fresh = (side.compiles for side in document.sides)
    assert (kept, fresh > 0) == (0, True)


def test_programs_that_are_one_are_not_timed_where_that_is_wanted() -> None:
    """Although they came about on different lines. What functions do in Python is in no program."""
    one, other = program(sine), program(lambda x: jnp.sin(x) + jnp.ones((), x.dtype))
    sides = Side("old", program=one), Side("new", program=other)

    document = taken(*sides, skips_equal=True)
    others = [
        taken(*sides),
        taken(sides[0], Side("new", program=program(off)), skips_equal=True),
        taken(native("a", sine), native("b", sine), skips_equal=True),
    ]

    assert (document.is_same_program, document.wall_ns, document.cpu_ns) == (True, None, None)
    assert document.sides[0].sha256
    assert [(each.is_same_program, each.wall_ns.size > 0) for each in others] == [(False, True)] * 3


def test_functions_run_as_they_are_and_an_unjitted_one_says_how_many_operations_it_is() -> None:
    jitted = jax.jit(sine)
    sides = native("a", lambda x: jitted(x), jit=False), native("b", host, jit=False), native("c", jitted)

    document = taken(*sides)

    assert [side.operations for side in document.sides] == [1, None, None]
    assert [side.sha256 is not None for side in document.sides] == [False] * 3
    assert [side.plan is None for side in document.sides] == [True, True, False]
    assert document.not_exported == [None]
    assert all(side.agreement.agrees for side in document.sides[1:])


def host(x: Any) -> Any:
    """Cannot be traced."""
    return jnp.asarray(np.sin(np.asarray(x)) + 1)


def test_all_are_built_at_first_and_every_other_one_in_each_block_unless_building_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = taken(native("a", sine), native("b", sine), blocks=4)
    monkeypatch.setattr(paired, "REBUILD_NS", 1)
    once = taken(native("a", sine), native("b", sine), blocks=4)

    assert (builds(document), builds(once)) == ([2, 3], [1, 1])
    assert len(once.wall_ns) == 4


# ---- functions and programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("program_first", [True, False])
def test_beside_a_program_a_function_becomes_one_too(program_first: bool) -> None:
    content = program(sine)
    sides = [Side("old", program=content), native("now", sine)]

    document = taken(*(sides if program_first else reversed(sides)))

    assert [side.sha256 is not None for side in document.sides] == [True, True]
    assert len({side.sha256 for side in document.sides}) == 1
    assert document.not_exported == [None, None]
    assert document.sides[1].agreement.agrees


@pytest.mark.parametrize(
    ("first", "second", "specs", "leaves", "signature"),
    [
        (sine, twice, (X,), None, "f32[64]"),
        (draw, draw, ("key", "i32[3]"), None, "key, i32[3]"),
        (sine, twice, (X,), (jnp.zeros(64) - 0.5,), "f32[64]"),
    ],
    ids=["random", "keys and integers", "given"],
)
def test_programs_alone_run_on_data_of_their_shapes(first, second, specs, leaves, signature) -> None:
    sides = Side("old", program=program(first, *specs)), Side("new", program=program(second, *specs), leaves=leaves)

    document = taken(*sides)

    assert (document.failure, document.signature) == (None, signature)
    assert [side.sha256 is not None for side in document.sides] == [True, True]
    assert document.sides[1].agreement.agrees


UNEXPORTED = {
    "calls back": (native("now", host_sine), "it cannot be exported (NotImplementedError: "),
    "eager": (
        native("now", sine, jit=False),
        "a function that is given without jit cannot be called inside another compiled program",
    ),
    "a Compiled": (
        native("now", jax.jit(sine).lower(jax.ShapeDtypeStruct((64,), "float32")).compile()),
        "a function that is given as a Compiled cannot be called inside another compiled program",
    ),
}


@pytest.mark.parametrize("name", UNEXPORTED)
def test_a_function_that_cannot_be_exported_runs_as_it_is_and_says_why(name: str) -> None:
    side, why = UNEXPORTED[name]

    document = taken(Side("old", program=program(sine)), side, blocks=2)

    assert [side.sha256 is not None for side in document.sides] == [True, False]
    assert document.sides[1].sha256 is None
    assert document.not_exported[0] is None
    assert document.not_exported[1].startswith(why)
    assert document.sides[1].agreement.agrees
    assert (document.wall_ns > 0).all()


@pytest.mark.parametrize("is_stored", [False, True])
def test_donating_functions_run_beside_each_other(is_stored: bool) -> None:
    old = Side("a", program=program(sine, donate=[0])) if is_stored else native("a", sine, donate=[0])
    document = taken(old, native("b", twice, donate=[0]), blocks=2)

    assert document.failure is None
    assert (document.wall_ns > 0).all()
    assert document.sides[1].agreement.agrees


# ---- outputs ----------------------------------------------------------------------------------------------------


def test_what_is_not_finite_and_what_returns_nothing_is_told_of_each_side() -> None:
    def logarithm(x: Any) -> Any:
        return jnp.log(-1 - x * x)

    def nothing(x: Any) -> None:
        jnp.sin(x)

    document = taken(native("a", sine), native("nan", logarithm), native("none", nothing))

    assert [side.nonfinite == "" for side in document.sides] == [True, False, True]
    assert [side.returns_nothing for side in document.sides] == [False, False, True]
    said = [(r.code, r.message) for r in remarks(document, ["a", "nan", "none"]) if r.severity == "warning"]
    assert [code for code, _ in said] == ["nonfinite-result", "no-outputs"]
    assert said[0][1].startswith("Not all values of the result of nan are finite (")
    assert taken(native("one", nothing), native("other", nothing)).sides[1].agreement is None


def test_outputs_that_differ_are_told_of_the_side_that_differs() -> None:
    sides = native("a", sine), native("same", twice), native("off", off), native("short", lambda x: sine(x)[:2])
    document = taken(*sides)

    same, differs, short = (side.agreement for side in document.sides[1:])
    assert same.agrees
    assert not short.agrees
    assert short.why == "leaf [0] is float32[2] where the reference is float32[64]"
    assert not differs.agrees
    assert differs.reference == "baseline"
    assert differs.max_abs == pytest.approx(0.5, rel=1e-3)
    assert differs.why


def test_outputs_are_not_compared_where_an_earlier_process_did() -> None:
    document = taken(native("a", sine), native("off", off), compares_outputs=False)

    assert [side.agreement for side in document.sides] == [None, None]


# ---- what goes wrong --------------------------------------------------------------------------------------------


def test_inputs_that_cannot_be_made_are_the_failure_of_who_gives_them() -> None:
    def missing() -> Any:
        raise FileNotFoundError("weights.npz")

    giver = make_case(sine, (X,))
    side, told = failure(Side("old", program=program(sine)), Side("now", type(giver)(sine, missing, giver.id)))

    assert (side, told.stage) == (1, "inputs")
    assert "weights.npz" in told.message


@pytest.mark.parametrize(
    ("make", "stage", "message"),
    [
        (lambda: native("it", broken), "build", "ValueError: it is broken (at "),
        (lambda: native("it", late), "build", "division by zero"),
        (lambda: native("it", leave), "build", "SystemExit: 3"),
        (lambda: native("it", Tired(), jit=False), "warm-up", "RuntimeError: it is tired"),
        (
            lambda: Side("it", program=program(sine, "f32[32]")),
            "inputs",
            "the inputs are f32[64], and this version takes f32[32]",
        ),
        (lambda: Side("it", program=b"nothing of the kind"), "import", ""),
    ],
    ids=["trace", "run", "exit", "later", "other inputs", "no program"],
)
def test_a_side_that_fails_is_named_with_the_stage(make: Callable[[], Side], stage: str, message: str) -> None:
    side, told = failure(native("a", sine), make())

    assert (side, told.stage) == (1, stage)
    assert message in told.message + told.traceback


# ---- rounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample_ns", "patience", "expected"),
    [
        (10**9, 1, LEAST_ROUNDS),
        (50_000, 1, MOST_ROUNDS),
        (250_000, 1, 10),
        (250_000, 3, 30),
        (50_000, 3, 3 * MOST_ROUNDS),
    ],
)
def test_rounds_take_the_time_of_a_block_within_their_limits(sample_ns: int, patience: int, expected: int) -> None:
    assert paired.BLOCK_NS == 5_000_000
    assert paired.rounds(2, sample_ns, patience) == expected


# ---- buffers ----------------------------------------------------------------------------------------------------


@pytest.fixture
def pointers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the first input of each side lies when it is timed. The arrays are held, so that no place is used twice."""
    seen: list[int] = []
    held: list[Any] = []
    prepare = wall.prepare

    def looking(subject: Subject) -> PreparedTimer:
        held.append(subject.inputs.args[0])
        seen.append(held[-1].unsafe_buffer_pointer())
        return prepare(subject)

    monkeypatch.setattr(wall, "prepare", looking)
    return seen


@pytest.mark.parametrize("kind", ["functions", "programs", "mixed"])
def test_buffers_are_shared_by_the_sides_and_new_in_each_block(kind: str, pointers: list[int]) -> None:
    sides = {
        "functions": (native("a", sine), native("b", twice)),
        "programs": (Side("a", program=program(sine)), Side("b", program=program(twice))),
        "mixed": (Side("a", program=program(sine)), native("b", twice)),
    }[kind]

    taken(*sides, blocks=3)

    assert pointers[::2] == pointers[1::2]
    assert len(set(pointers)) == 3


def test_the_data_are_the_same_in_all_processes_and_the_order_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    data: list[np.ndarray] = []
    builds: list[list[str]] = []
    prepare, sides = wall.prepare, tuple(native(f"{i}", sine) for i in range(6))

    def looking(subject: Subject) -> PreparedTimer:
        data.append(np.asarray(subject.inputs.args[0]))
        return prepare(subject)

    monkeypatch.setattr(wall, "prepare", looking)
    for order_seed in (1, 2):
        said: list[str] = []
        take_blocks(
            PairedRequest(sides, blocks=1, order_seed=order_seed), lambda stage, said=said, **_: said.append(stage)
        )
        builds.append([stage for stage in said if stage.startswith("build of")])

    assert all((each == data[0]).all() for each in data)
    assert builds[0] != builds[1]


# ---- the persistent cache ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("was_on", [True, False])
def test_the_persistent_cache_is_off_meanwhile_and_as_it_was_afterwards(
    was_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_enable_compilation_cache": was_on,
    }
    before = {name: getattr(jax.config, name) for name in names}
    meanwhile: list[bool] = []
    try:
        for name, value in names.items():
            jax.config.update(name, value)

        def traced(x: Any) -> Any:
            meanwhile.append(jax.config.jax_enable_compilation_cache)
            return sine(x)

        taken(native("a", traced), native("b", sine))
        taken(native("a", sine), native("b", lambda x: x.nothing))  # also where it fails

        assert meanwhile
        assert not any(meanwhile)
        assert jax.config.jax_enable_compilation_cache is was_on
        assert list(tmp_path.iterdir()) == []
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


# ---- executables that processes share ---------------------------------------------------------------------------


def test_only_what_was_compiled_is_timed_being_built(tmp_path: Path) -> None:
    """Also where both sides are one program: each compiles it once. Settings are as before afterwards."""
    before = jax.config.jax_compilation_cache_dir
    sides = (Side("a", program=program(sine)), Side("b", program=program(sine)))

    first = taken(*sides, blocks=3, programs=str(tmp_path))
    second = taken(*sides, blocks=3, programs=str(tmp_path))
    alone = taken(*sides, blocks=3)

    assert [builds(first), builds(second), builds(alone)] == [[1, 1], [0, 0], [2, 2]]
    assert (first.wall_ns > 0).all()
    assert (second.wall_ns > 0).all()
    assert first.sides[0].plan
    assert second.sides[0].plan is None
    assert jax.config.jax_compilation_cache_dir == before


def test_a_function_beside_a_program_is_traced_and_exported_by_the_first_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power(x: Any, n: int) -> Any:
        return x**n

    jitted = jax.jit(power, static_argnums=1)  # which arguments are static is known by tracing alone
    both = (Side("then", program=program(jitted, X, 3)), native("now", jitted, X, 3))
    first = taken(*both, programs=str(tmp_path))
    for module, name in ((paired, "exported"), (paired.Prepared, "trace")):
        monkeypatch.setattr(module, name, lambda *given: pytest.fail("it is there already"))

    second = taken(*both, programs=str(tmp_path))

    assert [side.sha256 for side in second.sides] == [side.sha256 for side in first.sides]
    assert [side.sha256 is not None for side in second.sides] == [True, True]
    assert second.sides[1].agreement.agrees
