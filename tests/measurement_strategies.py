"""Measurements to test with: RICH uses every field, `measurements()` draws any, ROWS are for exports."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union

from hypothesis import strategies as st

from benchax.model import (
    Absent,
    CallFloor,
    CaseId,
    Census,
    Comparison,
    Cost,
    Devices,
    DeviceShare,
    EarlierRuns,
    Environment,
    Failure,
    Measurement,
    Memory,
    Noise,
    Numerics,
    Opaque,
    Options,
    Program,
    Ranks,
    RankTimes,
    Remark,
    Samples,
    Stages,
    Transfer,
    Version,
    WorkPerCall,
)
from benchax.options import DEFAULTS
from benchax.reporting.exports import FORMATS, entries

HOST = Environment("host", "Linux 6.1", "3.11.2")

RICH = Measurement(
    case=CaseId(
        name='bench_fft.py::fft[a,b] "quoted" naïve 🦊\nsecond line\x00end',
        params=(
            ("n", 256), ("scale", 1.0), ("is_real", True), ("label", "1"), ("nothing", None), ("limit", float("inf")),
            ("gap", float("nan")), ("minus_zero", -0.0), ("seed", 2**100), ("least", -(2**100)),
            ("shape", (3, (4, 5.5), ())), ("sharding", Opaque("NamedSharding", "P('x', None)")),
        ),
        variant="eager", tag="before/after, 50 %",
    ),
    environment=Environment(
        host="node-17", os="Linux 6.1.0-28-amd64", python="3.11.2", processor="AMD EPYC 9654", cores=4,
        affinity=(0, 1, 2, 3), memory_bytes=16 * 2**30, governor="performance", huge_pages="madvise",
        virtual_machine=True, benchax="0.1.0", jax="0.10.2", jaxlib="0.10.2", numpy="2.4.6", backend="cpu",
        device_kind="cpu", device_count=1, process_count=1, platform_version="cpu",
        config={"jax_enable_x64": False, "jax_default_matmul_precision": None},
        flags={"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"},
        commit="0123456789abcdef0123456789abcdef01234567", branch="main", is_dirty=True,
    ),
    options=Options(
        timer="wall,loop", max_time_s=2.0, min_time_s=0.1, max_samples=500, relative_width=0.01, sample_time_s=0.001,
        max_warmup_s=1.0, verify="eager", memory=True, cold_process=False, seed=42, store=".benchmarks", isolate=True,
        timeout_s=30.0, memory_limit_bytes=2**32, stages="samples", processes=3, nprocs=2,
    ),
    run_id="2025-11-21T01:35:00-4f1c",
    started_at="2025-11-21T01:35:00.123456+00:00",
    signature="f32[1024,128], key, axis=0",
    failure=Failure("wrong_output", "verify", "off by 0.1", advice="look at axis", traceback="Traceback …"),
    stages=Stages(
        transfer_in=Transfer(524288, (1e-4, 9.5e-5), is_zero_copy=False), trace_s=0.002, lower_s=0.011, compile_s=0.25,
        first_run_s=0.003, dispatch_s=8e-6, call_floor=CallFloor((8.1e-6, 8e-6), (1.3e-5, 1.29e-5)),
        transfer_out=Transfer(524288, (1e-6,), is_zero_copy=True), cache="miss", cold="process",
    ),
    samples=(
        Samples(
            "wall", 1, (1.2e-4, 1.1e-4, 1.3e-4, 1.15e-4, 1.25e-4, 1.2e-4), stop="count",
            answers="latency a caller sees",
        ),
        Samples(
            "loop", 64, (6.1e-3, 5.9e-3), disturbed=(False, True), resolution_s=3e-8, overhead_s=1.25e-7,
            clock_tier="prebuilt", regime="thunks", stop="time", process=1, answers="cost inside a bigger program",
            census=Census("branch", (("sine", 32768.0, 32768.0), ("add", 65537.0, 65536.0))), trials=(1, 1),
        ),
    ),
    memory=Memory(
        argument_bytes=524288, output_bytes=524288, temp_bytes=1048576, alias_bytes=4, code_bytes=4096,
        constant_bytes=16, captured_bytes=8, predicted_peak_bytes=2097164, compiler_peak_bytes=1048592,
        compiled_rise_bytes=1572864, eager_rise_bytes=3145728, eager_rise_low_bytes=3000000, method="VmHWM", devices=2,
    ),
    cost=Cost(flops=1.3e6, transcendentals=0.0, bytes_accessed=2e6, has_loops=True),
    numerics=Numerics(
        "float64", agrees=False, worst="out[0]['x']", max_abs=0.1, max_rel=0.05, max_ulp=400000.0, nonfinite=2,
        tolerance=1e-5, why="out[0]['x'] differs",
    ),
    noise=Noise(load_1m=0.5, others_share=0.02, steal_share=0.001, pace_scatter=0.03),
    earlier_runs=EarlierRuns("5a" * 32, {"in_graph": (1.02e-06, 9.98e-07)}),
    program=Program("0123456789abcdef" * 4, 1928),
    work=WorkPerCall({"samples": 32.0, "bytes": 2.5e6}, 2.1e10),
    devices=Devices(2, False, ("data=2",), (DeviceShare("cpu:0", 1e-4, 2e-5, 1e-5),)),
    ranks=Ranks(
        (RankTimes(0, "node-17", (1e-3, 1.1e-3), 0.2), RankTimes(1, "node-18", (6e-3, 6.1e-3), 0.25, 2)),
        1, (2e-6, 3e-6), 4,
    ),
    remarks=(Remark("slow-clock", "warning", "the clock moves in steps of 30 ns"),),
    not_measured=(Absent("stages.dispatch_s", "the call is synchronous", is_by_choice=True),),
)  # fmt: skip

# Every code point but the surrogates, and texts that are too long for a column with a limit.
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.sampled_from(["\x00", 'a,b\n"c"\r\n', "$float", '"', "\ud7ff\U0010ffff"]),
    st.sampled_from(["x", "é\x00\n", "🦊"]).map(lambda text: text * 10_000),
)
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([2**63, -(2**63), -(2**63) - 1, 2**100]))
OPAQUE = st.builds(Opaque, TEXT, TEXT)
PARAM = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT, OPAQUE),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


def exact(value: Any) -> str:
    """All that is compared of `value`: two NaNs are alike, and 1, 1.0 and True differ, unlike by ==."""
    if dataclasses.is_dataclass(value):
        fields = (f"{f.name}={exact(getattr(value, f.name))}" for f in dataclasses.fields(value) if f.compare)
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(exact, value))})"
    return repr(value)


def case_ids() -> st.SearchStrategy[CaseId]:
    return values_of(CaseId)


def measurements() -> st.SearchStrategy[Measurement]:
    return values_of(Measurement)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that the annotation allows, so that a field added to `model` is tested without a change here."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        stored = [f for f in dataclasses.fields(hint) if not f.metadata.get("is_stored_apart")]
        return st.builds(hint, **{f.name: values_of(hints[f.name]) for f in stored})
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is tuple and arguments[-1] is ...:
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(TEXT, values_of(arguments[1]), max_size=3)
    return {
        Any: PARAM,
        str: TEXT,
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats() | st.integers(),
        type(None): st.none(),
    }[hint]


def measured(
    name: str = "f",
    *,
    run: str = "run",
    commit: str | None = "c0ffee",
    elapsed_s: tuple[float, ...] = (1.0, 2.0, 3.0),
    **params: Any,
) -> Measurement:
    """A small measurement for tests that care about little of it."""
    return Measurement(
        case=CaseId(name, tuple(params.items())),
        environment=dataclasses.replace(HOST, commit=commit),
        options=DEFAULTS,
        run_id=run,
        started_at="2025-11-21T01:35:00.000000+00:00",
        samples=(Samples("wall", 1, elapsed_s),),
    )


# ---- rows as the formats are tested with -----------------------------------------------------------------------------

ODD = 'a, b; "c" |x| `y` <&>\nline 2\ttab\r\x00\x1b naïve 🦊'
SIX_S = (1.2e-4, 1.1e-4, 1.3e-4, 1.15e-4, 1.25e-4, 1.2e-4)

FULL = dataclasses.replace(
    RICH,
    case=CaseId("fft", (("n", 256), ("dtype", "f32")), tag="new"),
    failure=None,
    cost=Cost(flops=1.3e6),
    memory=dataclasses.replace(RICH.memory, devices=1),
)
"""Every number; times by wall (six samples) and loop."""
BARE = dataclasses.replace(measured("sum", elapsed_s=(2e-6,)), memory=Memory())
"""One sample: no interval. No compile time, no memory."""
FAILED = dataclasses.replace(
    measured("bad"), samples=(), failure=Failure("timeout", "compile", "over 3 s", "try less", "Trace\nback")
)
ROWS = (FULL, BARE, FAILED)

SLOWER = Comparison(
    FULL.case, "run", Version("v1"), Version("now"), "slower", ratio=1.2, low=1.1, high=1.3, baseline_value=1e-4,
    candidate_value=1.2e-4, confirmed=True,
)  # fmt: skip


def text(format: str, rows: tuple[Measurement, ...] = ROWS, comparisons=(), timer: str | None = None) -> str:
    return FORMATS[format](entries(rows, comparisons, timer))


def document(format: str, rows: tuple[Measurement, ...] = ROWS, comparisons=(), timer: str | None = None) -> Any:
    """Read as the strictest readers do."""
    return json.loads(text(format, rows, comparisons, timer), parse_constant=_refuse)


def _refuse(token: str) -> None:
    raise AssertionError(f"{token} is not JSON")


def named(name: str) -> Measurement:
    """Timed, and called so."""
    return dataclasses.replace(measured(), case=CaseId(name), samples=(Samples("wall", 1, SIX_S),))
