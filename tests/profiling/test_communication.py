"""Communication by hand: what collectives take, and what of it nothing else hides; and once for real."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

import pytest
import warm_python
from hypothesis import given
from hypothesis import strategies as st
from jax_versions import tells_runs
from xspace_by_hand import US, Event, op, plane, program, space

from benchax.profiling.trace import profile_of
from benchax.program.work import OPCODES
from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.results.profile import Device, Profile


def line(name: str, opcode: str, *operands: str, **called: str) -> str:
    computations = "".join(f", {key}=%{value}" for key, value in called.items())
    return f"{name} = f32[] {opcode}({', '.join(f'%{one}' for one in operands)}){computations}"


REDUCES = program(
    line("dot.1", "dot"),
    line("all-reduce.2", "all-reduce", "dot.1", to_apply="add"),
    line("while.3", "while", body="body"),
    line("all-gather-start.5", "all-gather-start", "dot.1"),
    line("all-gather-done.6", "all-gather-done", "all-gather-start.5"),
    add=[line("add.9", "add")],
    body=[line("all-to-all.4", "all-to-all"), line("sin.7", "sine")],
)


def cpu(*lines: Sequence[Event], of: bytes = REDUCES) -> Profile:
    return profile_of(space(of, plane("/host:CPU", {f"pool/{i}": line for i, line in enumerate(lines)})))


def tpu(*events: tuple[str, int, int], of: bytes = REDUCES) -> Profile:
    """Name, start and length in microseconds."""
    line = [Event(name, a * US, b * US, {"hlo_op": name, "program_id": 6}) for name, a, b in events]
    return profile_of(space(of, plane("/device:TPU:0", {"XLA Ops": line})))


def told_us(p: Profile) -> tuple[float | None, float | None]:
    (device,) = p.devices
    return tuple(None if s is None else round(s * 1e6, 6) for s in (device.communication_s, device.exposed_s))  # type: ignore[return-value]


END_OF_5 = Event("end: dot.1", 3 * US, 1, {"_c": 5})


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([[op("all-reduce.2", 0, 10 * US)], [op("dot.1", 4 * US, 3 * US), op("dot.1", 9 * US, 5 * US)]], (10, 6)),
        ([[op("all-reduce.2", 0, 10 * US)], [op("all-reduce.2", 4 * US, 8 * US)]], (12, 12)),
        ([[op("while.3", 0, 10 * US), op("all-to-all.4", 2 * US, 5 * US), op("sin.7", 7 * US, US)]], (5, 5)),
        # XLA:CPU makes one machine function of a small loop.
        ([[op("while.3", 0, 4 * US)], [op("all-reduce.2", 2 * US, 5 * US)]], (5, 3)),
        ([[op("dot.1", 0, 2 * US, _p=5)], [END_OF_5, op("all-reduce.2", 3 * US, 4 * US)]], (4, 4)),
    ],
    ids=["another operation", "another collective", "its loop", "a loop without a body", "ended before"],
)
def test_a_collective_is_hidden_by_work_that_runs_beside_it_and_by_nothing_else(
    lines: list[list[Event]], told: tuple[float, float]
) -> None:
    assert told_us(cpu(*lines)) == told


def test_each_device_has_its_own() -> None:
    p = cpu([op("all-reduce.2", 0, 4 * US)], [op("dot.1", 0, 4 * US, device_ordinal=1)])

    assert [(d.name, d.communication_s) for d in p.devices] == [("cpu:0", pytest.approx(4e-6)), ("cpu:1", 0.0)]


@pytest.mark.parametrize("opcode", OPCODES)
def test_every_collective_counts(opcode: str) -> None:
    found = program(line("x.1", opcode), line("y.2", f"{opcode}-start"), line("z.3", f"{opcode}-done", "y.2"))

    assert told_us(cpu([op("x.1", 0, US)], of=found)) == (1, 1)
    assert told_us(tpu(("y.2", 0, 1), ("z.3", 4, 2), of=found)) == (6, 6)


def test_an_asynchronous_one_is_under_way_from_its_start_to_the_end_of_its_done() -> None:
    p = tpu(("all-gather-start.5", 0, 1), ("dot.1", 2, 5), ("all-gather-done.6", 9, 3))

    assert told_us(p) == (12, 7)
    assert (p.devices[0].busy_s, p.devices[0].idle_s, p.devices[0].gaps) == (pytest.approx(12e-6), 0, ())


def test_each_done_belongs_to_the_start_before_it() -> None:
    turns = [(name, t + a, 1) for t in (0, 100) for name, a in (("all-gather-start.5", 0), ("all-gather-done.6", 9))]

    p = tpu(*turns)

    assert told_us(p) == (20, 20)
    assert p.devices[0].idle_s == pytest.approx(90e-6)
    assert "half-communications" not in codes(p)


def test_runs_that_overlap_have_a_start_and_an_end_each() -> None:
    halves = [("all-gather-start.5", 1, 0), ("all-gather-start.5", 2, 2), ("all-gather-done.6", 1, 9),
              ("all-gather-done.6", 2, 11)]  # fmt: skip
    events = [Event(name, at * US, US, {"hlo_op": name, "program_id": 6, "run_id": run}) for name, run, at in halves]

    p = profile_of(space(REDUCES, plane("/device:TPU:0", {"XLA Ops": events})))

    assert told_us(p) == (12, 12)
    assert "half-communications" not in codes(p)


@pytest.mark.parametrize(
    ("name", "at"), [("all-gather-start.5", 0), ("all-gather-done.6", 0), ("all-gather-start.5", 60)]
)
def test_half_a_communication_counts_as_long_as_it_was_seen_and_that_is_said(name: str, at: int) -> None:
    whole = ("all-gather-start.5", 50, 1), ("all-gather-done.6", 55, 1)

    p = tpu((name, at, 2), *whole)

    assert told_us(p) == (8, 8)
    assert "half-communications" in codes(p)
    assert "communication took at least what is counted here" in " ".join(str(p).split())


def test_on_a_gpu_the_kernel_of_the_start_on_its_own_stream_is_the_communication() -> None:
    stats = {"hlo_module": "jit_f", "program_id": 6}
    compute = [Event("gemm", 0, 6 * US, {"hlo_op": "dot.1", **stats}), Event("MemcpyD2H", 12 * US, US)]
    spoken = [Event("ncclDevKernel_AllGather", 4 * US, 6 * US, {"hlo_op": "all-gather-start.5", **stats})]

    p = profile_of(
        space(REDUCES, plane("/device:GPU:0", {"Stream #7(Compute)": compute, "Stream #20(Collective)": spoken}))
    )

    assert told_us(p) == (6, 4)
    assert codes(p) == set()


def test_what_is_wrapped_counts_by_what_is_inside() -> None:
    wrapped = program(
        line("fusion.1", "fusion", calls="fused"),
        line("async-start.2", "async-start", calls="speaks"),
        line("async-update.3", "async-update", "async-start.2"),
        line("async-done.4", "async-done", "async-update.3"),
        line("async-start.5", "async-start", calls="computes"),
        line("async-done.6", "async-done", "async-start.5"),
        fused=[line("reduce-scatter.7", "reduce-scatter")],
        speaks=[line("all-to-all.8", "all-to-all")],
        computes=[line("dot.9", "dot")],
    )

    assert told_us(tpu(("fusion.1", 0, 2), of=wrapped)) == (2, 2)
    assert told_us(tpu(("async-start.2", 0, 1), ("async-done.4", 8, 1), of=wrapped)) == (9, 9)
    assert told_us(tpu(("async-start.5", 0, 1), ("async-done.6", 8, 1), of=wrapped)) == (0, 0)
    # What XLA's text leaves out is inside of an asynchronous one.
    assert told_us(tpu(("all-gather.10", 0, 2), ("unheard-of.3", 5, 1), of=wrapped)) == (None, None)
    assert told_us(tpu(("all-gather.10", 0, 2), of=wrapped)) == (2, 2)


def test_what_an_operation_hid_is_not_told_where_its_end_is_told_late() -> None:
    """XLA:CPU begins what waited for an operation before it writes that this has ended."""
    p = cpu(
        [op("dot.1", 0, 2 * US, _p=5)], [op("all-reduce.2", 3 * US, 4 * US), Event("end: dot.1", 7 * US, 1, {"_c": 5})]
    )

    assert told_us(p) == (4, None)
    assert "100 % of busy" not in str(p)
    assert "it is not known what ran during the communication" in " ".join(str(p).split())
    assert "exposed-unknown" in codes(p)


def test_where_the_trace_does_not_hold_the_program_it_is_not_known() -> None:
    without = profile_of(space(plane("/host:CPU", {"a": [op("all-reduce.2", 0, US)]})))
    half = cpu([op("all-reduce.2", 0, US), op("all-reduce.2", 2 * US, US, program_id=7)])

    assert told_us(without) == told_us(half) == (None, None)
    assert "communication is not known on cpu:0: of 1 of 2 calls" in " ".join(str(half).split())


def test_without_collectives_it_is_measured_to_be_none_and_not_shown() -> None:
    p = cpu([op("dot.1", 0, US)])

    assert told_us(p) == (0, 0)
    assert "communication" not in str(p)


def test_it_is_shown_under_its_device() -> None:
    p = Profile("f", "cpu", (), (Device("cpu:0", 0.040, 0.01, (), 0.0123, 0.0081),))

    (line,) = [line for line in str(p).splitlines() if "communication" in line]
    assert " ".join(line.split()) == ("communication 12.3 ms, 31 % of busy 8.10 ms of it while nothing else ran")


times = st.lists(
    st.tuples(st.sampled_from(["dot.1", "all-reduce.2"]), st.integers(0, 30), st.integers(1, 9)), min_size=1
)


@given(times)
def test_covered_seconds_are_counted_one_by_one(events: list[tuple[str, int, int]]) -> None:
    covered: Mapping[str, set[int]] = {"dot.1": set(), "all-reduce.2": set()}
    for name, start, length in events:
        covered[name].update(range(start, start + length))

    p = cpu([op(name, start * US, length * US) for name, start, length in events])

    spoken = covered["all-reduce.2"]
    assert told_us(p) == (len(spoken), len(spoken - covered["dot.1"]))


REAL = """
import json, jax
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import benchax
mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
x = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, PartitionSpec("d")))
f = jax.jit(lambda x: jnp.tanh(x).sum(0) @ x.T)
f(x).block_until_ready()
with benchax.profile() as p:
    for _ in range(3):
        f(x).block_until_ready()
total_s = sum(op.self_s for op in p.ops if op.category == "all-reduce")
print(json.dumps([total_s, [[d.name, d.busy_s, d.communication_s, d.exposed_s] for d in p.devices]]))
"""


@tells_runs
def test_real_devices_that_sum_over_one_another_communicate() -> None:
    done = warm_python.run([sys.executable, "-c", REAL])

    assert done.returncode == 0, done.stderr
    total_s, devices = json.loads(done.stdout.splitlines()[-1])
    assert sorted(name for name, *_ in devices) == ["cpu:0", "cpu:1"]
    assert all(0 < communication <= busy for _, busy, communication, _ in devices)
    assert all(exposed is None or exposed <= communication for _, _, communication, exposed in devices)
    assert sum(communication for _, _, communication, _ in devices) == pytest.approx(total_s)


def codes(p: Profile) -> set[str]:
    return {remark.code for remark in p.remarks}
