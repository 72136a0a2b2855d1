"""On how many devices and in how many processes a program ran, and what each of them took."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class DeviceShare:
    """The activity of one device in one call, from a recording."""

    name: str
    """cpu:0, gpu:3"""
    busy_s: float
    """Some operation ran: the union of their intervals."""
    communication_s: float | None = None
    """Some collective was under way, waiting for the others included; None: not known."""
    exposed_s: float | None = None
    """The part of that in which no other operation of the device was under way; None: not known."""


@dataclass(frozen=True)
class Devices:
    """The devices of a program that runs on several."""

    count: int
    is_fake: bool
    """One processor pretends to be all of them: counts, bytes and results are those of several, times are not."""
    meshes: tuple[str, ...] = ()
    """data=4,model=2 for each mesh that holds its inputs."""
    shares: tuple[DeviceShare, ...] = ()
    """By device; empty if it was not recorded."""


@dataclass(frozen=True)
class RankTimes:
    """One of several processes that run a program together."""

    rank: int
    host: str
    elapsed_s: tuple[float, ...] = ()
    """For each sample, from the common start to the end of its own call."""
    compile_s: float | None = None
    was_last: int = 0
    """In how many samples it ended last."""

    @property
    def median_s(self) -> float | None:
        return median(self.elapsed_s) if self.elapsed_s else None


@dataclass(frozen=True)
class Ranks:
    """The processes of a program, which start each sample together. Its time is that of the slowest."""

    ranks: tuple[RankTimes, ...]
    devices_each: int
    barrier_skew_s: tuple[float, ...] = ()
    """For each sample, how long after the first process the last one began: kept out of the times."""
    compared_outputs: int = 0
    """Pieces of outputs that several processes hold, and that are the same bytes in all of them."""

    @property
    def least_s(self) -> tuple[float, ...]:
        """For each sample the time of the process that ended first."""
        return tuple(map(min, zip(*(rank.elapsed_s for rank in self.ranks), strict=True)))
