"""Large outputs on new pages."""

from __future__ import annotations

import sys
from typing import Any

import pytest

ID = "page-faulting-output"
LARGE = "f32[4096,2304]"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")


@pytest.mark.serial
def test_the_faults_of_a_large_output_are_counted_and_what_they_cost_is_estimated(ask_about: Any) -> None:
    finding = ask_about(ID, lambda a: a + 1, LARGE).one

    assert finding.title == "36.0 MiB of outputs and temporaries are new pages in each call"
    assert "page faults per call" in finding.seen[0]
    assert finding.gain.startswith("estimated: up to ")
    assert finding.gain_s > 0


def test_an_output_on_the_pages_of_a_donated_argument_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a + 1, LARGE, donate=(0,)).outcome == "fine"


def test_a_small_output_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a + 1, "f32[1024]").outcome == "fine"


@pytest.mark.serial
def test_a_function_that_returns_a_number_is_not_told_to_return_less(ask_about: Any) -> None:
    def total(a: Any) -> Any:
        return (a.T.reshape(a.shape) * a).sum()

    found = ask_about(ID, total, LARGE)

    assert found.one.title.endswith(" of temporaries are new pages in each call")
    assert "return less" not in found.one.advice
    assert "batch_size" in found.one.advice
