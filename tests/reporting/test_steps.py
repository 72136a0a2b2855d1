"""The steps of a training loop in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchax.reporting.document import Document, Heading
from benchax.reporting.profile import describe_recording_cost, describe_split, describe_steps
from benchax.reporting.terminal import to_text
from benchax.results.profile import OneStep, PartKind, PartLine, ProgramsPerStep, RecordingCost, StepPart, StepSplit

LINE = PartLine("/home/me/loader.py:31", "batches", 0.58, samples=90)
SPLIT = StepSplit(
    "program",
    "jit_step",
    (0.01, 0.012, 0.011),
    (StepPart("input", 0.0058, 0.58, (LINE,)), StepPart("device", 0.0042, 0.42)),
    called_at="/home/me/train.py:12",
    programs=(ProgramsPerStep("jit_step", 1.0), ProgramsPerStep("jit_add", 13.0)),
    compiling_steps=2,
    samples=100,
    sampler_share=0.006,
    hottest="/home/me/model.py:7",
    hottest_share=0.9,
)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("input", "58 % of a step is data loading at loader.py:31; the device waits"),
        ("python", "58 % of a step is Python at loader.py:31 (batches); the device waits"),
        ("waiting", "58 % of a step is spent off the processor at loader.py:31 (batches); the device waits"),
        ("compile", "58 % of a step is tracing and compiling at loader.py:31, in 2 of 3 steps; the device waits"),
        ("transfer", "58 % of a step is moving data at loader.py:31; the device waits"),
        ("dispatch", "58 % of a step is JAX's own dispatch of 14 programs a step at loader.py:31; the device waits"),
        ("device", "58 % of a step is the device at work; 90 % of its work is of model.py:7"),
        (
            "unknown",
            "58 % of a step is spent at loader.py:31 (batches); what the device did was not measured, because a trace "  # noqa: ISC004
            "holds only calls that begin and end in it",
        ),
        ("unseen", "58 % of a step is Python in pieces too short to be sampled; the device waits"),
    ],
)
def test_one_sentence_says_what_most_of_a_step_is(kind: PartKind, expected: str) -> None:
    split = replace(SPLIT, parts=(StepPart(kind, 0.0058, 0.58, (LINE,)), *SPLIT.parts[1:]))

    assert describe_split(split) == expected


def test_a_second_part_that_is_large_is_told_too_and_work_of_the_device_is_the_usual_rest() -> None:
    compiling = StepPart("compile", 0.0042, 0.42, (LINE,))

    first = describe_split(replace(SPLIT, parts=(StepPart("device", 0.0058, 0.58), compiling)))

    assert first.endswith("; 42 % is tracing and compiling at loader.py:31, in 2 of 3 steps; the device waits")
    assert "42 %" not in describe_split(SPLIT)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (
            RecordingCost(4e-4, 1e-4, 1800),
            (
                "while nothing is recorded, a step takes 100 µs: recording its 1.80 k events makes it 4 times as long "
                "(400 µs), and the shares of short operations too large"
            ),
        ),
        (RecordingCost(1.01e-4, 1e-4, 30), "while nothing is recorded, a step takes 100 µs: recording adds little"),
        (
            RecordingCost(4e-4, None, 1800, "the program ended before it was"),
            (
                "what recording the 1.80 k events of a step adds to its time was not measured, because the program "
                "ended before it was"
            ),
        ),
    ],
    ids=["much", "little", "not measured"],
)
def test_a_recorded_time_does_not_pass_for_the_real_one(cost: RecordingCost, text: str) -> None:
    assert describe_recording_cost(cost, "a step") == text


OTHER = PartLine("/home/me/decode.py:4", "decode", 0.2)
SLOW = OneStep(7, 0.5, (("unseen", 0.49),), "unseen", 0.48, "/home/me/save.py:3")
EVALUATING = OneStep(49, 0.146, (), "device", 0.07, others=(ProgramsPerStep("jit_evaluate", 4),))
RARE = (ProgramsPerStep("jit_step", 1.0), ProgramsPerStep("jit_evaluate", 0.5))
SHOWN = {
    "no steps": replace(SPLIT, mark="none", name="", lengths_s=(2.0,), programs=()),
    "few samples": replace(SPLIT, samples=5),
    "no samples": replace(SPLIT, sampler_share=None),
    "Python while a device works": replace(SPLIT, parts=(StepPart("device", 0.0058, 0.58, (LINE,)),)),
    "several lines of a part": replace(
        SPLIT, parts=(StepPart("input", 0.0058, 0.58, (replace(LINE, share=0.38), OTHER)),)
    ),
    "the slowest step": replace(SPLIT, slowest=SLOW),
    "the slowest step called something alone": replace(SPLIT, slowest=EVALUATING),
    "a program that not each step calls": replace(SPLIT, warm_up=1, programs=RARE),
}


@pytest.mark.parametrize("name", SHOWN)
def test_steps_are_shown(name: str, snapshot: Any) -> None:
    title = Heading(describe_split(SHOWN[name]), 1)

    assert to_text(Document((title, *describe_steps(SHOWN[name])))) == snapshot
