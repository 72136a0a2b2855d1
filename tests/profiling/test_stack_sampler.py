"""What a sample says of a stack: the user's own frames, and the innermost one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType

from benchax.profiling.marks import SampledFrame, decode
from benchax.profiling.stack_sampler import describe_stack


@dataclass
class Batch:
    frames: list[tuple[SampledFrame, ...]]

    def __post_init__(self) -> None:
        frame: FrameType | None = sys._getframe(1)  # the __init__ that dataclasses have made
        self.frames.append(decode(describe_stack(frame)))


def test_code_that_a_program_has_made_is_no_line_of_the_users() -> None:
    found: list[tuple[SampledFrame, ...]] = []

    Batch(found)

    (stack,) = found
    own = [frame.function for frame in stack if frame.owner == "user" and frame.file == __file__]
    assert own[0] == "test_code_that_a_program_has_made_is_no_line_of_the_users"
    assert [frame.owner for frame in stack if frame.function == "__init__"] == ["python"]
