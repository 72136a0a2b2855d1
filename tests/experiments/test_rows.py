"""From what was seen to a row: which results are wrong, and the sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparisons_by_hand import compared as by_hand

from benchax.experiments import experiment
from benchax.experiments.lab import Observation
from benchax.experiments.variant import add_comparison, refused_row, seen_row, wrongness
from benchax.model import Failure, Memory, Numerics, Remark
from benchax.results.experiment import Errors, VariantRow

MIB = 2**20


def seen(errors: Errors | None = None, peak: int | None = 2 * MIB, bound: float = 3.5e-4) -> Observation:
    plan = Memory(predicted_peak_bytes=peak, temp_bytes=0)
    return Observation("f32[8]", 0.1, "digest", plan, None, "f32[8]", errors, bound, None)


def float64(max_rel: float | None, **more: int) -> Errors:
    return Errors("float64", max_rel, max_rel, **more)


def row(peak: int | None, max_rel: float = 1e-7, name: str = "bf16") -> VariantRow:
    return seen_row(name, "title", seen(float64(max_rel), peak))


@pytest.mark.parametrize(
    ("tolerance", "now", "before", "why"),
    [
        (None, float64(1e-4), float64(1e-7), ""),
        (None, float64(1e-2), float64(1e-7), "off by 1.0 %"),
        (0.1, float64(1e-2), float64(1e-7), ""),
        (None, float64(1e-2), float64(2e-2), ""),  # the function itself is as far off
        (0.1, float64(0.0, overflows=3), float64(0.0), "3 values are infinite"),
        (0.1, float64(0.0, nans=2), float64(0.0), "2 values are NaN"),
        (0.1, float64(0.0, nans=2), float64(0.0, nans=2), ""),
        (None, None, None, ""),
    ],
)
def test_results_are_wrong_beyond_the_tolerance_and_the_error_of_the_function_itself(
    tolerance, now, before, why
) -> None:
    found = wrongness(tolerance, seen(now), seen(before))

    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(("rounding_rel", "is_wrong"), [(None, True), (0.01, True), (0.05, False)])
def test_a_low_precision_may_be_as_far_off_as_rounding_the_inputs_makes_it(rounding_rel, is_wrong) -> None:
    """The gradient of a net with relu jumps where an input is rounded: 16 % in float64, and 16 % in bf16."""
    now = replace(seen(float64(0.16)), rounding_rel=rounding_rel)

    assert bool(wrongness(0.088, now, seen(float64(1e-6)))) == is_wrong


@pytest.mark.parametrize(
    ("ratio", "peak", "max_rel", "expected"),
    [
        (0.5, 1 * MIB, 1e-7, "saves 1.00 MiB and 5.00 µs (2.00×, 1.98 – 2.02); equal results"),
        (2.0, 3 * MIB, 1e-7, "costs 1.00 MiB and 10.0 µs (0.500×, 0.495 – 0.505); equal results"),
        (0.5, 3 * MIB, 1e-3, "saves 5.00 µs (2.00×, 1.98 – 2.02); costs 1.00 MiB; errors up to 1.0e-3"),
        (1.0, 1 * MIB, 1e-7, "saves 1.00 MiB; as fast as before; equal results"),
    ],
)
def test_a_sentence_says_gains_losses_and_errors(ratio, peak, max_rel, expected) -> None:
    found = add_comparison(row(peak, max_rel), by_hand(1, ratio), row(2 * MIB))

    assert found.sentence.startswith(expected)


def test_an_unclear_verdict_claims_no_time() -> None:
    found = add_comparison(row(None), by_hand(1, 0.9, verdict="unclear", why="too few samples"), row(None))

    assert found.sentence == "time unclear: too few samples; equal results"


def test_a_side_that_failed_while_it_was_timed_is_a_failed_row() -> None:
    failure = Failure("out_of_memory", "rounds", "no memory left")

    found = add_comparison(row(None), by_hand(1, None, failure=failure), row(None))

    assert (found.status, found.reason) == ("failed", "out of memory in rounds: no memory left")


def test_other_dtypes_of_outputs_are_told_by_the_errors_and_not_by_the_comparison() -> None:
    remark = Remark("outputs-differ", "error", "bf16 gives another result")

    found = add_comparison(row(None), by_hand(1, 0.5, remarks=(remark,)), row(None))

    assert found.comparison is not None
    assert found.comparison.remarks == ()


def test_a_result_that_differs_and_has_no_errors_to_be_judged_by_is_wrong() -> None:
    wrong = Numerics("baseline", agrees=False, why="the output is f32[3] where the reference is f32[4]")

    found = add_comparison(replace(row(None), errors=None), by_hand(1, 0.5, numerics=wrong), row(None))

    assert (found.status, found.reason, found.comparison) == ("wrong_result", wrong.why, None)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(2.0, "saves 10.0 µs (9.80 – 10.2 µs)"), (0.5, "costs 5.00 µs (4.95 – 5.05 µs)"), (1.0, "makes no difference")],
)
def test_what_is_slower_without_a_variant_is_what_the_variant_saves(ratio, expected) -> None:
    found = experiment.contribution("donate", by_hand(1, ratio), row(1 * MIB), row(3 * MIB))

    assert found.sentence == f"{expected}; saves 2.00 MiB"
    assert found.saved_bytes == 2 * MIB


def test_a_contribution_that_was_not_measured_has_no_number() -> None:
    failed = refused_row("all but f16", "", "not_available", "the others cannot be on without it")

    found = experiment.contribution("f16", None, row(1 * MIB), failed)

    assert (found.saved_s, found.saved_bytes, found.sentence) == (None, None, "the others cannot be on without it")
