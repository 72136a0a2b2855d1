"""The conditions of a compiled-grid run: inputs, machine, and load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchax.environment import host
from benchax.machine import noise
from benchax.measuring.inputs import signature
from benchax.measuring.remarks import describe_busy
from benchax.model import Remark
from benchax.reporting.tables import describe_machine


@dataclass(frozen=True)
class Circumstances:
    """The conditions of one call of a compiled grid. Hashable, since it travels with the arrays of a pytree."""

    inputs: str
    """Shapes and dtypes."""
    machine: str
    busy: Remark | None = None
    """The machine's load by other processes. None if it was idle, or the call too short to measure it (a quarter of a
    second).
    """

    def __str__(self) -> str:
        return f"{self.inputs} · {self.machine}"


def describe_circumstances(args: tuple[Any, ...], begun: noise.Reading) -> Circumstances:
    """Describes a call with `args` on the CPU, which has no other clock, since `begun`."""
    machine = describe_machine(replace(host(), backend="cpu"))
    return Circumstances(signature(args, {}, ()), machine, describe_busy(noise.finish(begun)))
