"""The settings of a session, once something is measured or reported. `options.py` has the options that set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_jax_bench.options import OUTPUT_DIR

if TYPE_CHECKING:
    import pytest

    from benchax.comparing.gate import Limit
    from benchax.model import Metric


@dataclass(frozen=True)
class Pin:
    """The reference for all comparisons. `commit` None: the one that is checked out; `run` None: its first."""

    commit: str | None
    run: int | None

    def __str__(self) -> str:
        return (self.commit or "") + ("" if self.run is None else f":{self.run}")


@dataclass(frozen=True)
class BenchmarkSettings:
    """The values of the options `--benchmark-*` that have no counterpart among ours."""

    json: Path | None = None
    save: str | None = None
    autosave: bool = False
    compare: str | None = None
    """The beginning of a file's name; empty: the last one."""
    group_by: tuple[str, ...] = ("group",)
    sort: str | None = None
    columns: tuple[str, ...] | None = None
    name: str | None = None
    time_unit: str | None = None
    max_time: float | None = None
    min_rounds: int | None = None
    only: bool = False
    skip: bool = False

    @property
    def shows_statistics(self) -> bool:
        """Do the tables need all readings?"""
        by_time = self.sort is not None and self.sort not in ("name", "fullname")
        return by_time or bool(self.columns or self.time_unit) or self.compare is not None

    @property
    def keeps_documents(self) -> bool:
        """Is a file in the form of pytest-benchmark wanted?"""
        return self.json is not None or self.save is not None or self.autosave


@dataclass(frozen=True)
class PluginSettings:
    """The settings of a session. None: not set."""

    output_dir: Path = Path(OUTPUT_DIR)
    no_compare: bool = False
    no_judge: bool = False
    pin: Pin | None = None
    save_graph: bool = False
    plot: bool = False
    plot_xaxis: str = "run"
    plot_format: str = "png"
    timer: str | None = None
    verify: str | None = None
    timeout: float | None = None
    fail_slower: Mapping[Metric, Limit] | None = None
    ignore_unclear: bool = False
    json: Path | None = None
    only: str | None = None
    skip: str | None = None
    disable: bool = False
    fixture: bool = False
    benchmark: BenchmarkSettings = field(default_factory=BenchmarkSettings)


def settings_of(config: pytest.Config) -> PluginSettings:
    from pytest_jax_bench import stash  # which needs pytest; the rest works without

    said: dict[str, Any] = dict(config.stash[stash.VALUES])
    if "pin" in said:
        # A pair until now: `options.py` makes no dataclass.
        said["pin"] = Pin(*said["pin"])
    if "benchmark" in said:
        said["benchmark"] = BenchmarkSettings(**said["benchmark"])
    return PluginSettings(**said)
