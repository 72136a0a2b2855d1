"""What `measure` returns: all columns of the row as attributes, the measurements behind them, and a text to print."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchax import units
from benchax.errors import one_of

if TYPE_CHECKING:
    from benchax.model import Measurement

NAME_WIDTH = 12


@dataclass(frozen=True)
class BenchData:
    """`res.jit_median_ms` and every other column; `res.jit` and `res.eager` are benchax Measurements, None where that
    part was not asked for. NaN is no time, -1 is no size."""

    columns: Mapping[str, Any]
    jit: Measurement | None = None
    eager: Measurement | None = None
    name: str = ""
    notes: tuple[str, ...] = ()
    """What should be known before the numbers are believed."""

    def __getattr__(self, name: str) -> Any:
        columns = self.__dict__.get("columns", {})  # not there yet while being unpickled
        if name in columns:
            return columns[name]
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"no column {name!r}\nexpected {one_of(columns, name)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.columns]

    def asdict(self) -> dict[str, Any]:
        """The columns."""
        return dict(self.columns)

    def __str__(self) -> str:
        lines = [f"{name:<{NAME_WIDTH}} {text}".rstrip() for name, text in self._lines()]
        return "\n".join([self._title(), *(f"  {line}" for line in lines)])

    def _title(self) -> str:
        c = self.columns
        tag = f" #{c['tag']}" if c.get("tag") not in (None, "", "base") else ""
        commit = f"   commit {c['commit']}" if c.get("commit") else ""
        run = f", run {c['commit_run']}" if c.get("commit_run", -1) >= 0 else ""
        return f"{self.name or 'JaxBench'}{tag}{commit}{run}"

    def _lines(self) -> Iterator[tuple[str, str]]:
        c = self.columns
        if c.get("status", "ok") != "ok":
            yield c["status"], c["message"]
        yield from self._compile()
        for kind in ("jit", "eager"):
            if math.isfinite(median_ms := c.get(f"{kind}_median_ms", math.nan)):
                yield kind, f"{units.seconds(median_ms / 1e3)}   {self._spread(kind)}"
        for label, column in SIZES.items():
            if c.get(column, -1) >= 0:
                yield label, units.size(c[column])
        for note in self.notes:
            yield "note", note

    def _compile(self) -> Iterator[tuple[str, str]]:
        total_ms = self.columns.get("compile_ms", math.nan)
        if math.isfinite(total_ms):
            stages = self.jit.stages if self.jit else None
            parts = {"trace": stages.trace_s, "lower": stages.lower_s, "compile": stages.compile_s} if stages else {}
            text = " + ".join(f"{name} {units.seconds(s)}" for name, s in parts.items() if s is not None)
            yield "compile", f"{units.seconds(total_ms / 1e3)}   {text}"

    def _spread(self, kind: str) -> str:
        c = self.columns
        low, high = c[f"{kind}_low_ms"] / 1e3, c[f"{kind}_high_ms"] / 1e3
        interval = f"{units.seconds_range(low, high)} (95 % interval of the median), " if math.isfinite(low) else ""
        m = self.jit if kind == "jit" else self.eager
        samples = m.headline if m else None
        calls = f" of {samples.iterations} calls" if samples and samples.iterations > 1 else ""
        how = f"{calls}, {samples.timer}" if samples else ""
        return f"{interval}{c[f'{kind}_rounds']} rounds{how}"


SIZES = {
    "jit peak": "jit_peak_bytes",
    "temporary": "jit_temporary_bytes",
    "constants": "jit_constants_bytes",
    "eager peak": "eager_peak_bytes",
}
