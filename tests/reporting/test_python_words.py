"""What results advise where they show themselves in Python: options of calls, not flags of commands."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from comparisons_by_hand import compared
from measurement_strategies import RICH, measured
from results_by_hand import every_result

import benchax
from benchax.model import Absent, CaseId, Remark
from benchax.reporting.document import in_python, translate
from benchax.reporting.measurement import document
from benchax.reporting.terminal import to_text


@pytest.mark.parametrize(
    ("flags", "python"),
    [
        ("ask by --timer in_graph,loop", 'ask by timer="in_graph,loop"'),
        ("one was asked for; --processes 5", "one was asked for; processes=5"),
        ("--processes 5, or --processes 9 if it is noisy", "processes=5, or processes=9 if it is noisy"),
        ("a fresh one (--cold-process) shows the cost", "a fresh one (cold_process=True) shows the cost"),
        ("--no-jit (jit=False) measures the call", "jit=False measures the call"),
        ("measure it eagerly (jit=False, --no-jit).", "measure it eagerly (jit=False)."),
        ("Allow more time (--timeout, timeout_s=)", "Allow more time (timeout_s=)"),
        ("--resolution 1% tells that", 'resolution="1%" tells that'),
        ("nothing was run; --time runs it", "nothing was run; benchax.bench times it"),
    ],
)
def test_a_flag_is_the_option_that_it_is_in_python(flags: str, python: str) -> None:
    assert translate(flags) == python


def test_what_shows_itself_speaks_of_python_and_a_command_of_flags() -> None:
    m = replace(
        measured(),
        case=CaseId("--timer wall"),
        remarks=(Remark("x", "info", "see --processes 5"),),
        not_measured=(Absent("samples.loop", "ask by --timer loop"),),
    )

    assert benchax.bench  # any public name teaches rows to show themselves
    assert "see --processes 5" in to_text(document(m))
    for text in (str(m), m._repr_html_() or "", to_text(in_python(document(m)))):
        assert "see processes=5" in text
        assert "(.not_measured says why)" in text
        assert "--timer wall" in text  # a name stays a name
    assert 'ask by timer="loop"' in to_text(in_python(document(m, is_full=True)))


TIMED = replace(RICH, case=CaseId("sort"), signature="f32[1000]", failure=None)


def test_a_result_at_a_prompt_is_one_line_without_readings() -> None:
    assert benchax.bench  # any public name teaches them
    name = "a name\nof two lines"

    lines = {kind: repr(result) for kind, result in every_result(name).items() if kind != "ErrorRates"}

    assert {kind: line for kind, line in lines.items() if len(line.splitlines()) > 1 or len(line) > 160} == {}
    assert {kind for kind, line in lines.items() if not line.startswith(f"<{kind} ")} == set()
    assert repr(TIMED) == "<Measurement sort f32[1000]: wall 120 µs (110–130), loop 93.7 µs>"
    failed, bare = replace(TIMED, failure=RICH.failure), replace(TIMED, samples=())
    assert repr(failed) == "<Measurement sort f32[1000]: wrong output in verify: off by 0.1>"
    assert repr(bare) == "<Measurement sort f32[1000]: not timed>"
    assert repr(compared(0, 1.1)) == (
        "<Comparison matmul[n=256], run, now against v1.2: slower, ratio 1.10 (1.09–1.11)>"
    )
    assert "elapsed_s" not in repr(RICH.samples)


def test_the_parts_of_a_row_show_themselves_also_in_ipython() -> None:
    stages, summary, printed = RICH.stages, RICH.summary(), list[str]()
    stages._repr_pretty_(SimpleNamespace(text=printed.append), False)

    assert printed == [str(stages)]
    assert "250 ms" in str(stages)
    assert "Transfer(" not in str(stages)
    assert "120 µs  (110–130) 95 % interval for this process" in str(summary)
    assert "120 µs" in (summary._repr_html_() or "")
    assert "250 ms" in (stages._repr_html_() or "")
