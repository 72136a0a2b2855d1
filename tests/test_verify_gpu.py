"""`make verify-gpu` up to its first line that needs an accelerator, and the parts of it that need none."""

from __future__ import annotations

import importlib.util
import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import warm_python

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "verify_gpu.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("verify_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["verify_gpu"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_without_an_accelerator_it_says_what_is_missing_and_writes_nothing() -> None:
    folder = ROOT / "docs" / "verified"
    before = sorted(folder.glob("*")) if folder.exists() else None
    out = warm_python.run([sys.executable, str(SCRIPT)], env=os.environ | {"JAX_PLATFORMS": "cpu"})

    assert out.returncode == 2
    assert out.stderr.startswith("there is no accelerator: JAX ")
    assert "expected a GPU, and a jaxlib for it" in out.stderr
    assert (sorted(folder.glob("*")) if folder.exists() else None) == before


@pytest.mark.parametrize(("cupti_s", "passed"), [(20e-3, True), (20.9e-3, True), (21.5e-3, False), (18e-3, False)])
def test_cupti_passes_within_five_percent_of_the_known_duration(script: Any, cupti_s: float, passed: bool) -> None:
    found, text = script.compare_with_slope({"device": cupti_s, "wall": 20e-3}, 20e-3)

    assert found is passed
    assert f"{cupti_s * 1e3:.4g} ms" in text


def test_a_part_that_fails_or_does_not_end_costs_only_itself(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Any:
        raise ValueError("no such kernel")

    monkeypatch.setitem(script.PARTS, "clock", ("the clock of compiled code", broken))
    monkeypatch.setattr(script, "LIMIT_S", 0.01)

    assert script.main(["--part", "clock"]) == 1
    assert "ValueError: no such kernel" in capsys.readouterr().out
    late = script.run_command("demo", [sys.executable, "-c", "input()"])
    assert (late.passed, late.text) == (False, "it did not end within 0.01 s")
    left_out = script.run_command("demo", [sys.executable, "-c", "input()"], left_s=-1.0)
    assert (left_out.passed, left_out.text) == (False, "not run, because the parts before it took 480 s")


def test_the_page_is_named_after_device_and_day_and_hides_no_failure(script: Any) -> None:
    assert script.report_name("NVIDIA H200", date(2026, 11, 23)) == "nvidia-h200-2026-11-23.md"
    page = script.render("NVIDIA H200", "jax 0.10.2", [script.Part("tests", False, "1 failed")])
    assert "## tests: FAILED" in page
    assert "1 failed" in page
