"""Each remark: when it is made, what it says, and that it is not made otherwise. Real measurements where one is
enough."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.case import make_case
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.measuring.remarks import remarks
from benchax.measuring.remarks.evidence import RowEvidence
from benchax.measuring.sampling import Warmup
from benchax.measuring.stages import BuiltProgram
from benchax.model import CallFloor, Cost, Memory, Noise, Samples, Stages, Transfer

MIB = 2**20


@pytest.fixture
def evidence():
    """That of a quiet, jitted, well-behaved function of 100 µs: nothing to remark."""
    case = make_case(jax.jit(lambda x: x), (jnp.ones(3),))
    return RowEvidence(
        platform="cpu",
        program=program_of(case),
        inputs=make_inputs(case, 0),
        built=BuiltProgram(),
        stages=Stages(),
        samples=(samples("wall", 300e-6), samples("loop", 250e-6)),
        warmup=Warmup(10, True, 0, 300e-6, (3e-4, 3e-4)),
        compiles_while_timed=0,
        has_data=True,
        output_bytes=12,
        memory=Memory(temp_bytes=0),
        cost=Cost(flops=500.0),
        count_written_flops=lambda: 500.0,
        inline_flops=500.0,
        hlo="",
        numerics=None,
        noise=Noise(load_1m=0.5, others_share=0.01, steal_share=0.0),
    )


def samples(timer, per_call_s, resolution_s=4e-8):
    return Samples(timer, 1, (per_call_s,) * 10, resolution_s=resolution_s)


def said(evidence):
    return {r.code: r.message for r in remarks(evidence)}


def codes(measurement):
    return {r.code for r in measurement.remarks}


def test_nothing_to_remark_is_no_remark(evidence):
    assert said(evidence) == {}


def test_compiling_while_being_timed(bench):
    sizes = iter(range(3, 10_000))

    def grows(x):
        return jax.jit(lambda y: y + 1)(jnp.ones(next(sizes)))

    measurement = bench(grows, jnp.ones(3), jit=False)

    (found,) = [r for r in measurement.remarks if r.code == "recompiled"]
    assert found.severity == "error"
    assert "compiled while the function was being timed" in found.message


def test_a_warm_function_is_not_said_to_recompile_though_the_timers_compile_their_own(bench):
    assert "recompiled" not in codes(bench(lambda k: jax.random.split(k, 3), "key"))


def test_warming_up_that_did_not_end(evidence):
    unsteady = replace(evidence, warmup=Warmup(40, False, 3, 1e-4, (4e-4, 2e-4, 1e-4)))

    assert said(unsteady)["not-steady"].startswith("still changing after 40 warm-up calls (3 of them compiled)")


def test_numpy_inputs_are_named_with_their_bytes(bench):
    measurement = bench(lambda x: x + 1, np.ones((64, 64), np.float32))

    (message,) = [r.message for r in measurement.remarks if r.code == "numpy-inputs"]
    assert message.startswith("inputs of 16.0 KiB came as NumPy arrays and were put on the device once, before timing")
    assert "numpy-inputs" not in codes(bench(lambda x: x + 1, jnp.ones(64)))


@pytest.mark.parametrize(
    ("is_zero_copy", "text"),
    [(True, "hands them over without a copy, 2.00 µs here"), (False, "transfers them, 2.00 µs")],
)
def test_numpy_inputs_that_are_not_copied_are_not_said_to_be(is_zero_copy, text, evidence):
    inputs = replace(evidence.inputs, numpy_bytes=2**14)
    stages = Stages(transfer_in=Transfer(2**14, (2e-6,), is_zero_copy))

    assert text in said(replace(evidence, inputs=inputs, stages=stages))["numpy-inputs"]


def test_inputs_narrowed_from_64_bits(bench):
    assert "narrowed" in codes(bench(lambda x: x + 1, "f64[8]"))


def test_a_function_without_arguments(bench):
    assert "no-inputs" in codes(bench(lambda: jnp.ones(8) @ jnp.ones(8)))
    assert "no-inputs" not in codes(bench(lambda x: x + 1, 1.5))


def test_a_program_that_does_not_depend_on_its_inputs(bench):
    measurement = bench(lambda x: jnp.arange(8.0).sum(), "f32[8]")

    (message,) = [r.message for r in measurement.remarks if r.code == "folded"]
    assert "does not depend on its inputs" in message


def test_loops_are_not_taken_for_folded_work(evidence):
    """Their bodies are counted once after, and differently before."""
    loop = replace(
        evidence,
        hlo="ENTRY e { ROOT p = f32[] parameter(0) }",
        count_written_flops=lambda: 1e6,
        cost=Cost(10.0, has_loops=True),
    )

    assert "folded" not in said(loop)


@pytest.mark.parametrize(
    ("fn", "is_said"),
    [(lambda x: x + 1, True), (jax.jit(lambda x: x + 1), False), (functools.partial(lambda x, n: x + n, n=1), True)],
)
def test_a_function_that_was_not_jitted(fn, is_said, bench):
    assert ("not-jitted" in codes(bench(fn, "f32[8]"))) is is_said


def with_floor(evidence, floor_s, call_s):
    return replace(evidence, stages=Stages(call_floor=CallFloor(tuple(floor_s), tuple(call_s))))


def test_the_figures_of_dispatch_bound_are_those_of_its_share(evidence):
    """Seen on a busy machine: "takes 52 µs here; that is 61 % of your 46 µs"."""
    busy = with_floor(evidence, [28e-6, 52e-6, 60e-6], [46e-6, 46e-6, 90e-6])

    assert said(busy)["dispatch-bound"].startswith(
        "a call that does next to nothing takes 28 µs here; that is 61 % of your shortest, 46 µs."
    )


def test_dispatch_bound_says_what_a_call_costs_that_does_nothing(evidence):
    bound = with_floor(evidence, [8e-6, 8.1e-6, 9e-6], [12.9e-6, 13e-6, 40e-6])

    assert said(bound)["dispatch-bound"] == (
        "a call that does next to nothing takes 8.1 µs here; that is 62 % of your 13 µs. Inside a bigger program, or "
        "with more work in each call, this is not paid each time"
    )
    equal = with_floor(evidence, [8e-6] * 3, [7.9e-6] * 3)
    assert said(equal)["dispatch-bound"].startswith(
        "a call that does next to nothing takes 8.0 µs here; that is as long as yours (7.9 µs)."
    )


@pytest.mark.parametrize(
    ("floor_s", "call_s"),
    [
        ([8e-6] * 3, [20e-6] * 3),
        # Load made the floor slow now and then: the least of both do not agree with the medians.
        ([8e-6, 90e-6, 95e-6], [80e-6, 81e-6, 100e-6]),
        # ... and here the calls: the medians do not agree with the least.
        ([8e-6, 8e-6, 8e-6], [9e-6, 90e-6, 95e-6]),
    ],
)
def test_dispatch_bound_is_not_said_without_evidence(evidence, floor_s, call_s):
    assert "dispatch-bound" not in said(with_floor(evidence, floor_s, call_s))


def test_a_difference_of_two_timers_is_no_evidence_of_dispatch(evidence):
    """As beside a timer that measures a part of the function only: 14 µs of 534 µs."""
    apart = replace(evidence, samples=(samples("wall", 534e-6), samples("in_graph", 14e-6)))

    assert "dispatch-bound" not in said(apart)
    assert "dispatch-bound" not in said(with_floor(apart, [60e-6] * 3, [534e-6] * 3))


def test_a_long_call_far_above_its_loop_is_not_called_dispatch(evidence):
    odd = said(replace(evidence, samples=(samples("wall", 38e-3), samples("loop", 3e-3))))

    assert "dispatch-bound" not in odd
    assert odd["resident-far-below-wall"].startswith(
        "repeated inside one program it takes 3.00 ms (loop); no call took less than 38.0 ms. Reasons that are known: "
        "the start of a program of many operations, outputs"
    )


@pytest.mark.parametrize(("floor_s", "severity"), [(25e-6, "warning"), (35e-6, "info"), (100e-6, "info")])
def test_what_a_call_takes_beyond_its_repetition_and_the_cost_of_calling_is_told(evidence, floor_s, severity):
    """A convolution that XLA:CPU runs by Eigen: 18 µs in a loop, 136 µs as a call."""
    readings = (samples("wall", 137e-6), samples("in_graph", 18e-6))
    found = remarks(replace(with_floor(evidence, [floor_s] * 3, [137e-6] * 3), samples=readings))
    (remark,) = [remark for remark in found if remark.code == "resident-far-below-wall"]

    assert remark.severity == severity
    assert remark.message.startswith(
        f"repeated inside one program it takes 18.0 µs (in_graph), and a call that does next to nothing "
        f"at least {floor_s * 1e6:.0f} µs; no call took less than 13"
    )


def test_a_call_that_is_the_sum_of_its_known_parts_needs_no_word(evidence):
    readings = (samples("wall", 137e-6), samples("in_graph", 18e-6))

    assert "resident-far-below-wall" not in said(replace(evidence, samples=readings)), "nobody knows the cost of a call"
    whole = with_floor(evidence, [112e-6] * 3, [137e-6] * 3)
    assert "resident-far-below-wall" not in said(replace(whole, samples=readings))


def test_the_python_of_a_wrapper_is_a_known_part_of_its_calls_also_without_a_floor(evidence):
    wrapped = replace(evidence, program=replace(evidence.program, kind="wrapper"))
    readings = (samples("wall", 126e-6), samples("device", 19e-6))
    found = said(replace(wrapped, samples=readings))["resident-far-below-wall"]

    assert found.startswith("the device runs it for 19.0 µs (device); no call took less than 12")
    assert "Reasons that are known: the Python of the wrapper around it, the start" in found
    near = said(replace(wrapped, samples=(samples("wall", 126e-6), samples("in_graph", 90e-6))))
    assert "resident-far-below-wall" not in near


@pytest.mark.parametrize("timer", ["device", "in_graph", "loop"])
def test_a_part_that_takes_longer_than_the_whole_is_a_contradiction(timer: str, evidence):
    odd = said(replace(evidence, samples=(samples("wall", 260e-6), samples(timer, 490e-6))))

    assert odd["more-than-a-call"].startswith(f"{timer} reads 490 µs, which is a part of the 260 µs of a whole call")
    assert "these readings do not tell which" in odd["more-than-a-call"]
    fine = said(replace(evidence, samples=(samples("wall", 260e-6), samples(timer, 262e-6))))
    assert "more-than-a-call" not in fine


def test_runs_that_are_recorded_one_at_a_time_take_longer(evidence):
    found = said(replace(evidence, samples=(samples("in_graph", 6e-6), samples("device", 8.9e-6))))

    assert found["one-at-a-time"] == (
        "device reads 8.90 µs, of runs that are recorded one at a time, with Python in between; repeated without a "
        "pause the function takes 6.00 µs (in_graph)"
    )
    alike = said(replace(evidence, samples=(samples("in_graph", 6e-6), samples("device", 6.2e-6))))
    assert "one-at-a-time" not in alike


def test_crossing_the_inline_limit(evidence):
    above = replace(evidence, samples=(samples("wall", 30e-6),), inline_flops=1000.0)

    assert (
        said(above)["inline-limit"].startswith("1 kFLOP is at or above") or "1.00 kFLOP" in said(above)["inline-limit"]
    )
    assert "µs" not in said(above)["inline-limit"]
    measured = said(with_floor(above, [21e-6] * 3, [90e-6] * 3))["inline-limit"]
    assert "dispatched to the thread pool: a call that does next to nothing there takes 21 µs here;" in measured
    assert "inline-limit" not in said(replace(above, is_dispatch_async=False))
    assert "inline-limit" not in said(replace(above, inline_flops=999.0))
    assert "inline-limit" not in said(replace(above, platform="gpu"))
    assert "inline-limit" not in said(replace(above, samples=(samples("wall", 5e-3),)))


@pytest.mark.parametrize(
    ("output", "temp", "what"), [(32 * MIB, 0, "outputs of 32.0 MiB"), (4, 64 * MIB, "temporaries of 64.0 MiB")]
)
def test_big_arrays_page_fault_on_cpu(evidence, output, temp, what):
    big = replace(evidence, output_bytes=output, memory=Memory(temp_bytes=temp))

    assert said(big)["page-faults"].startswith(what)
    assert ("donating" in said(big)["page-faults"]) is what.startswith("outputs")
    assert "page-faults" not in said(replace(big, has_glibc=False))
    assert "page-faults" not in said(replace(big, platform="gpu"))
    assert "page-faults" not in said(replace(evidence, output_bytes=31 * MIB))


def test_donation_that_was_not_used(bench):
    assert "donation-unused" in codes(bench(lambda x: x.sum(), "f32[64]", donate=[0]))
    assert "donation-unused" not in codes(bench(lambda x: x + 1, "f32[64]", donate=[0]))


def test_loop_bodies_that_are_counted_once(bench):
    def scanned(x):
        return jax.lax.scan(lambda c, _: (jnp.sin(c @ c), None), x, None, length=10)[0]

    assert "loop-counted-once" in codes(bench(scanned, "f32[32,32]"))
    assert "loop-counted-once" not in codes(bench(lambda x: x @ x, "f32[32,32]"))


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        (Noise(others_share=0.4), "other processes used 40 % of the CPU"),
        (Noise(steal_share=0.05), "the hypervisor took 5.0 %"),
        (
            Noise(others_share=0.4, steal_share=0.05),
            "other processes used 40 % of the CPU and the hypervisor took 5.0 %",
        ),
    ],
)
def test_a_busy_machine(evidence, noise, text):
    assert text in said(replace(evidence, noise=noise))["busy"]


def test_what_is_not_known_of_the_machine_is_no_remark(evidence):
    assert "busy" not in said(replace(evidence, noise=Noise()))


def test_a_coarse_clock(evidence):
    coarse = replace(evidence, samples=(samples("wall", 300e-6, resolution_s=16e-6),))

    assert said(coarse)["coarse-clock"] == "the clock steps by 16.0 µs, more than 1 % of a sample of wall (300 µs)"


def test_errors_come_first(evidence):
    both = replace(evidence, compiles_while_timed=2, inline_flops=5e3, samples=(samples("wall", 30e-6),))

    assert [r.severity for r in remarks(both)] == ["error", "info"]


def between(timer, low_s, high_s, **fields):
    """Samples whose median lies between two readings, as its interval does."""
    return Samples(timer, 1, (low_s, high_s) * 10, **fields)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (("device", 150e-6, 160e-6), ("in_graph", 230e-6, 240e-6), "device reads 155 µs where in_graph reads 235 µs"),
        (("in_graph", 58e-6, 60e-6), ("loop", 79e-6, 81e-6), "in_graph reads 59.0 µs where loop reads 80.0 µs"),
        (("in_graph", 79e-6, 81e-6), ("loop", 58e-6, 60e-6), "loop reads 59.0 µs where in_graph reads 80.0 µs"),
    ],
)
def test_timers_of_the_same_work_whose_intervals_do_not_meet(evidence, one, other, text):
    found = said(replace(evidence, samples=(between(*one), between(*other))))

    assert found["timers-apart"].startswith(f"{text}, of the same work")


def test_timers_whose_intervals_meet_are_not_apart(evidence):
    wide = (between("in_graph", 58e-6, 80e-6), between("loop", 79e-6, 81e-6), between("device", 58e-6, 81e-6))

    assert "timers-apart" not in said(replace(evidence, samples=wide))


def test_calls_of_two_lengths_are_told_from_their_mean(evidence):
    uneven = replace(
        evidence, samples=(samples("wall", 30e-6),), inline_flops=1e4, warmup=Warmup(9, True, 0, 2e-5, least_s=14e-6)
    )

    assert said(uneven)["uneven-calls"].startswith("wall reads 30.0 µs, and the shortest call took 14.0 µs")
    assert "uneven-calls" not in said(replace(uneven, warmup=Warmup(9, True, 0, 2e-5, least_s=25e-6)))
    assert "uneven-calls" not in said(replace(uneven, inline_flops=10.0))


def test_a_median_without_an_interval_is_remarked_where_one_process_is_all(evidence):
    few = replace(evidence, samples=(Samples("wall", 1, (30e-6,) * 5),))

    assert said(few)["no-interval"].startswith("the median by wall has no interval")
    assert "no-interval" not in said(replace(few, processes=5))
    assert "no-interval" not in said(replace(few, samples=(samples("wall", 30e-6),)))
