"""Programs that compile for longer than they run."""

from __future__ import annotations

import pytest

from benchax.auditing.audit import ask
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.live_evidence import LiveEvidence
from benchax.auditing.rules.compile_share import compile_share
from benchax.case import make_case
from benchax.results.audit import Checked, Finding
from benchax.results.cache import CacheUse
from benchax.results.watch import Compile, FunctionCount, Reason, Watch


def compiled(again: bool) -> Compile:
    reason = Reason("shape", "x: shape f32[3] → f32[4]") if again else Reason("first call", "first call")
    return Compile("step", "train.py:4", "train.py:9", False, False, 0.25, 0.25, 1.5, "x: f32[4]", (reason,), "Main")


def asked(
    share: float | None, again: int = 3, total_s: float = 4.0, cache: CacheUse | None = None
) -> tuple[list[Finding], Checked]:
    count = FunctionCount("step", "train.py:4", False, 2, 2, 2, 0, 0.5, 0.5, total_s - 1.0, total_s)
    watch = Watch(
        "all", [compiled(False), *[compiled(True)] * again], {("step", "train.py:4", False): count}, wall_s=8.0
    )
    facts = {"main_thread_share": share}
    return ask(compile_share, ProgramEvidence("python train.py", watch, cache=cache, facts=facts))


def test_a_large_share_is_told_with_what_it_went_into() -> None:
    (finding,), _ = asked(share=0.5, total_s=12.0)

    assert finding.title == "the main thread spends 50 % of its time on tracing, lowering and compiling"
    assert finding.seen == (
        "after the import of JAX, 12.0 s of 8.00 s went into it, 6.00 s of it for functions that had a program already",
        "step at train.py:4: 2 programs, 12.0 s",
    )


@pytest.mark.parametrize(("share", "total_s"), [(0.2, 4.0), (0.9, 0.5)])
def test_a_small_share_or_a_short_time_is_fine(share: float, total_s: float) -> None:
    findings, answer = asked(share, total_s=total_s)

    assert (findings, answer.outcome) == ([], "fine")


def test_what_is_compiled_once_is_an_info_and_can_be_kept() -> None:
    (finding,), _ = asked(share=0.5, again=0, total_s=12.0)

    assert finding.severity == "info"
    assert finding.seen[0] == "after the import of JAX, 12.0 s of 8.00 s went into it"
    assert "JAX_COMPILATION_CACHE_DIR" in finding.advice


def test_what_a_short_script_compiles_once_is_fine() -> None:
    findings, answer = asked(share=0.9, again=0, total_s=4.0)

    assert (findings, answer.outcome) == ([], "fine")


def test_what_is_mostly_compiled_again_is_a_warning() -> None:
    (finding,), _ = asked(share=0.5, total_s=11.9)

    assert finding.severity == "warning"
    assert finding.advice.startswith("See first to what is compiled again: step at train.py:4 (3 more, 6.00 s).")


def test_a_second_and_third_size_are_often_what_is_wanted() -> None:
    """As of the levels of a pyramid of images."""
    assert asked(share=0.9, again=2, total_s=6.0)[1].outcome == "fine"


def test_a_program_that_did_not_end_is_not_called_fine() -> None:
    _, answer = asked(share=None)

    assert answer.outcome == "not checked"


def test_of_one_function_it_says_nothing() -> None:
    _, answer = ask(compile_share, LiveEvidence(make_case(abs, (1.0,))))

    assert answer.outcome == "not applicable"


def test_where_no_cache_keeps_what_is_compiled_once_another_rule_tells_it() -> None:
    off = CacheUse(is_enabled=False, why_off="no folder is set")

    assert asked(share=0.5, again=0, total_s=12.0, cache=off)[1].outcome == "fine"
    assert asked(share=0.5, again=3, total_s=11.9, cache=off)[1].outcome == "finding"
