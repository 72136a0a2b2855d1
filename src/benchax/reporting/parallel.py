"""The devices of a program and its processes, as sections of a row: how busy each was, who was slowest, who last."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from benchax.model import Devices, DeviceShare, Measurement, Ranks, RankTimes, find_why
from benchax.reporting.document import Section, TextRow
from benchax.units import percent, plural, seconds, seconds_range

SMALL_SKEW_S = 50e-6
"""Ranks begin within a microsecond of one another, or, where one had no core, far later: a median hides which."""
MOST_ROWS = 8
"""The table lists up to this many devices or processes. For more, it shows the range."""


def describe_devices(devices: Devices) -> str:
    """4 fake devices"""
    return plural(devices.count, "fake device" if devices.is_fake else "device")


def sections_of_parallel(m: Measurement) -> list[Section]:
    """Nothing of a program on one device in one process."""
    found = [Section("devices", tuple(_devices(m)))] if m.devices else []
    return [*found, Section("processes", tuple(_ranks(m.ranks)))] if m.ranks else found


def _devices(m: Measurement) -> Iterable[TextRow]:
    devices = m.devices
    assert devices is not None
    yield TextRow(describe_devices(devices), "", "; ".join(devices.meshes) or "of no mesh that JAX names")
    shares = devices.shares
    if not shares:
        why = find_why(m.not_measured, "devices.shares")
        yield TextRow("at work", "not measured", f"because {why or 'they were not recorded'}", "faint")
    elif len(shares) <= MOST_ROWS:
        for share in sorted(shares, key=lambda each: each.name):
            yield TextRow(share.name, seconds(share.busy_s), f"at work in a call{_communication(share)}")
    else:
        busy_s = [share.busy_s for share in shares]
        yield TextRow(
            "at work", seconds(median(busy_s)), f"{seconds_range(min(busy_s), max(busy_s))} in a call, by device"
        )


def _communication(share: DeviceShare) -> str:
    """Returns a text such as ", 12 % of it in collectives, 3 µs of which nothing hid"."""
    if share.communication_s is None:
        return "; what of it is communication is not known"
    if not share.communication_s:
        return ", none of it in collectives"
    exposed = "" if share.exposed_s is None else f", {seconds(share.exposed_s)} of which nothing hid"
    part = percent(share.communication_s / share.busy_s)
    return f", {part} of it in collectives, waiting included ({seconds(share.communication_s)}{exposed})"


def _ranks(ranks: Ranks) -> Iterable[TextRow]:
    hosts = len({rank.host for rank in ranks.ranks})
    where = "one host" if hosts == 1 else plural(hosts, "host")
    yield TextRow(f"{len(ranks.ranks)} ranks", "", f"with {plural(ranks.devices_each, 'device')} each, on {where}")
    if ranks.barrier_skew_s:
        most = max(ranks.barrier_skew_s)
        few = percent(sum(skew <= SMALL_SKEW_S for skew in ranks.barrier_skew_s) / len(ranks.barrier_skew_s))
        detail = f"between the first and the last to begin, {few} of them up to {seconds(SMALL_SKEW_S)}, the most "
        detail += f"{seconds(most)}; kept out of the times"
        yield TextRow("start skew", seconds(median(ranks.barrier_skew_s)), detail)
        yield _since_start("first to end", median(ranks.least_s), "the fastest rank of each sample")
    listed = sorted(ranks.ranks, key=lambda rank: -rank.was_last)[:MOST_ROWS]
    for rank in sorted(listed, key=lambda rank: rank.rank):
        name, detail = f"rank {rank.rank}", _detail(rank, hosts)
        yield TextRow(name, "", detail) if rank.median_s is None else _since_start(name, rank.median_s, detail)
    if len(listed) < len(ranks.ranks):
        yield TextRow("", "", f"and {len(ranks.ranks) - len(listed)} more, which were last less often")


def _since_start(name: str, median_s: float, detail: str) -> TextRow:
    """A rank that waits for no other rank can end before the last rank begins. The time starts when the last rank
    begins."""
    if median_s > 0:
        return TextRow(name, seconds(median_s), detail)
    return TextRow(name, "not measured", f"because it mostly ended before the last rank had begun; {detail}")


def _detail(rank: RankTimes, hosts: int) -> str:
    last = f"last in {percent(rank.was_last / len(rank.elapsed_s))} of the samples" if rank.elapsed_s else "no samples"
    compiled = f", compiled in {seconds(rank.compile_s)}" if rank.compile_s is not None else ""
    return last + compiled + (f", on {rank.host}" if hosts > 1 else "")
