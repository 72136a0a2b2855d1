"""What spoils the times of a comparison is said beside it."""

from __future__ import annotations

from benchax.model import Noise
from benchax.paired_runs.paired_run import doubts


def test_each_version_that_compiled_while_it_was_timed_is_named() -> None:
    (remark,) = doubts({"kept": 0, "fresh": 2}, [])

    assert (remark.code, remark.severity) == ("recompiled", "error")
    assert remark.message.startswith(
        "2 programs were compiled while fresh was being timed: the times contain compiling"
    )


def test_of_a_busy_machine_the_busiest_process_is_told() -> None:
    (remark,) = doubts({}, [Noise(others_share=0.02), Noise(others_share=0.4), Noise()])

    assert (remark.code, remark.severity) == ("busy", "warning")
    assert "other processes used 40 % of the CPU" in remark.message


def test_of_an_idle_machine_and_of_one_that_tells_nothing_there_is_nothing_to_say() -> None:
    assert doubts({"a": 0, "b": 0}, [Noise(), Noise(others_share=0.05, steal_share=0.0)]) == ()
