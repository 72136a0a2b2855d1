"""`benchax checklist`: what reaches the library, what is shown, exit codes. Nothing is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Benchax

from benchax.auditing.evidence import TrialCall
from benchax.model import Failure
from benchax.results.audit import Checklist, Tick

Given = list[dict[str, Any]]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, project: Path) -> Given:
    """What the library was given; `never` does not end."""
    calls: Given = []

    def walk(case: Any, **options: Any) -> tuple[Checklist, TrialCall]:
        calls.append(options)
        obstacle = Failure("timeout", "first run", "it took too long") if case.id.name == "never" else None
        ticks = (Tick("Compilation", "Use jit", "yes", "nothing found by not-jitted", ("not-jitted",)),)
        return Checklist(case.id.label, "f32[8]", ticks), TrialCall("compiled", obstacle)

    monkeypatch.setattr("benchax.auditing.checklist.walk_checklist", walk)
    (project / "code.py").write_text("def plus(x):\n    return x + 1\nnever = lambda x: x\n")
    return calls


def test_it_has_the_defaults_of_the_function(benchax: Benchax, given: Given) -> None:
    done = benchax("checklist", "code.py:plus", "f32[8]")

    assert done.code == 0
    assert "Use jit" in done.out
    assert [{**each, "report": None} for each in given] == [
        {"max_time_s": 60.0, "timeout_s": 300.0, "seed": 0, "report": None}
    ]


def test_it_passes_its_options_on(benchax: Benchax, given: Given) -> None:
    done = benchax("checklist", "code.py:plus", "f32[8]", "--max-time", "500ms", "--seed", "3", "--json")

    assert (json.loads(done.out)["name"], given[0]["max_time_s"], given[0]["seed"]) == ("plus", 0.5, 3)


def test_what_could_not_be_called_is_an_error(benchax: Benchax, given: Given) -> None:
    assert benchax("checklist", "code.py:never", "f32[8]").code == 2
