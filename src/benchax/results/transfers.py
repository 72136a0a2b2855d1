"""`Transfers`: what went between host and device without being asked for, and from which line. Plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from benchax.model import Remark
from benchax.results import Displayed

Direction = Literal["host to device", "device to host"]


@dataclass(frozen=True)
class ObservedTransfer:
    """All transfers of one kind from one line."""

    direction: Direction
    where: str | None
    """file:line of the user; None where it cannot be seen."""
    what: str
    """numpy f32[64,64]; a Python float."""
    by: str
    """The function that took it, or what read it: step, jnp's add, __float__."""
    count: int
    size_bytes: int
    """The bytes of all of them together, in the dtype that the device has."""
    elapsed_s: float | None
    """The time that the host spent in them, including waiting for a result that was not ready. None: it is
    indistinguishable from the call around it."""
    in_a_row: int = 0
    """How many of them followed another one of this line with nothing called in between, as where all results are read
    at the end."""


@dataclass(eq=False)
class Transfers(Displayed):
    """The transfers so far. It grows while the block runs and does not change afterwards.

    Example:
        >>> with benchax.watch_transfers() as found:
        ...     _ = jax.jit(lambda x: x + 1)(np.ones(1000))
        >>> len(found.of("host to device"))
        1
    """

    found: dict[tuple[Direction, str | None, str, str], ObservedTransfer] = field(
        default_factory=dict[tuple[Direction, "str | None", str, str], ObservedTransfer], repr=False
    )
    sees: tuple[Direction, ...] = ()
    """Directions that can be seen on this JAX; of another one, nothing is known."""
    remarks: list[Remark] = field(default_factory=list[Remark])

    def add(self, transfer: ObservedTransfer) -> None:
        key = (transfer.direction, transfer.where, transfer.what, transfer.by)
        before = self.found.get(key)
        if before is not None:
            waited = None if transfer.elapsed_s is None else (before.elapsed_s or 0.0) + transfer.elapsed_s
            transfer = dataclasses.replace(
                transfer,
                count=before.count + transfer.count,
                size_bytes=before.size_bytes + transfer.size_bytes,
                elapsed_s=waited,
                in_a_row=before.in_a_row + transfer.in_a_row,
            )
        self.found[key] = transfer

    def of(self, direction: Direction) -> list[ObservedTransfer]:
        """The line that moved most bytes first."""
        ranked = sorted(self.found.values(), key=lambda t: (-t.size_bytes, -t.count))
        return [transfer for transfer in ranked if transfer.direction == direction]

    def count(self, direction: Direction) -> int | None:
        """How many; None where they cannot be seen."""
        return sum(t.count for t in self.of(direction)) if direction in self.sees else None

    def asdict(self) -> dict[str, Any]:
        """Everything, in plain types."""
        plain: Callable[[Any], dict[str, Any]] = dataclasses.asdict
        return {
            "transfers": [plain(t) for d in ("host to device", "device to host") for t in self.of(d)],
            "sees": list(self.sees),
            "remarks": [plain(r) for r in self.remarks],
        }
