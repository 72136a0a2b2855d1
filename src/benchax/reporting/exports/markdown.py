"""A table in GitHub's Markdown: for a pull request, a job summary, a page of results."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from benchax.reporting.comparisons import interval, verdict
from benchax.reporting.exports.entries import ExportedCase, common_environment
from benchax.units import seconds, seconds_range, size

_Cell = Callable[[ExportedCase], str]
# A colon inside a word makes emoji and links of web addresses; a dash in front makes a list.
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&$@]|:(?=\S)|^[-+])")


def text(found: Sequence[ExportedCase]) -> str:
    columns = _columns(found)
    lines = [list(columns), ["---"] + ["---:"] * (len(columns) - 1)]
    lines += [[cell(entry) for cell in columns.values()] for entry in found]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = [f"{code(entry.label)}: {escape(entry.why)}" for entry in found if entry.why]
    about = _about(found)
    return "\n\n".join([table, *([about] if about else []), *notes]) + "\n"


def code(content: str) -> str:
    """As code where that is possible: it reads well in the source, too."""
    is_plain = content and content.isprintable() and content.strip() == content and not set("`|") & set(content)
    return f"`{content}`" if is_plain else escape(content)


def escape(content: str) -> str:
    """As text of one line: nothing in it formats, links, mentions anyone or ends the cell."""
    one_line = " ".join(content.split())
    visible = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in one_line)
    return _SPECIAL.sub(_entity, visible)


def _entity(match: re.Match[str]) -> str:
    """Not a backslash: GitHub takes \\| inside a table apart before it reads what is in the cell, and @name with it."""
    return f"&#{ord(match[1])};"


def _columns(found: Sequence[ExportedCase]) -> dict[str, _Cell]:
    """Those in which anything stands."""
    every: dict[str, _Cell] = {
        "case": lambda e: code(e.label),
        "median": lambda e: seconds(e.summary.median_s) if e.summary else _status(e),
        "95 % interval": _interval,
        "compile": lambda e: seconds(e.compile_s) if e.compile_s is not None else "",
        "peak memory": lambda e: size(e.counted["observed_peak_bytes"]) if "observed_peak_bytes" in e.counted else "",
        "planned peak": lambda e: (
            size(e.counted["predicted_peak_bytes"]) if "predicted_peak_bytes" in e.counted else ""
        ),
        "change": lambda e: interval(e.run) if e.run else "",
        "verdict": lambda e: escape(verdict(e.run)) if e.run else "",
    }
    return {name: cell for name, cell in every.items() if name in ("case", "median") or any(map(cell, found))}


def _status(entry: ExportedCase) -> str:
    return entry.m.failure.kind.replace("_", " ") if entry.m.failure else "not measured"


def _interval(entry: ExportedCase) -> str:
    s = entry.summary
    return seconds_range(s.low_s, s.high_s) if s and s.low_s is not None and s.high_s is not None else ""


def _about(found: Sequence[ExportedCase]) -> str:
    """Where all this was measured, and against what."""
    env = common_environment([entry.m for entry in found])
    device = env.get("processor") if env.get("backend") == "cpu" else env.get("device_kind")
    jax = f"jax {env['jax']}" if "jax" in env else None
    commit = f"commit {env['commit'][:8]}{'+' * bool(env.get('is_dirty'))}" if "commit" in env else None
    timers = {entry.samples.timer for entry in found if entry.samples}
    timer = f"times by {', '.join(sorted(timers))}" if timers else None
    baselines = {entry.run.baseline.label for entry in found if entry.run}
    against = f"change against {', '.join(sorted(baselines))}" if baselines else None
    facts = (env.get("backend"), device, jax, commit, timer, against)
    return " · ".join(escape(fact) for fact in facts if fact)
