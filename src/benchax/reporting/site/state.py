"""The state of a site after its last build: the rows of each page, and what the pages of all cases show for each.

The file is in the folder of the pages, so that the next build writes only the pages whose rows changed. A state that is
unreadable, or that comes from another benchax or another store, is ignored. Then the build writes everything again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchax.errors import FormatError
from benchax.json_values import decode_value
from benchax.model import Comparison
from benchax.stats.verdicts import Verdict
from benchax.store.timelines import TimelineRow

FILE = "site.json"
FORMAT = 1


@dataclass(frozen=True)
class FoundChange:
    """A change, or a first sign of one, as lists of all cases and the feed tell it."""

    at: str
    """When it was compared first; UTC, ISO 8601."""
    commit: str
    last: str
    """The commit of the comparison before it; empty of a first sign."""
    size: str
    """12 % slower"""
    sure: str
    there: str
    """The ratio of the first comparison after it, with its interval."""
    newest: str
    """The value of the newest row."""
    metric: str
    baseline: str
    is_worse: bool
    is_recent: bool
    is_sign: bool = False


@dataclass(frozen=True)
class CaseSummary:
    """The content of the lists of all cases for one case."""

    id: int
    seen: list[int]
    page: str
    label: str
    """Shortened."""
    newest_at: str = ""
    version: str = ""
    """That of its newest row."""
    time: str = ""
    where: int | None = None
    """Place of the environment."""
    status: str = ""
    bars: str = ""
    verdict: str = ""
    ratio: str = ""
    looks: int = 0
    """Comparisons among the newest ones of each of its series in which a change could have been found by mistake."""
    changes: list[FoundChange] = field(default_factory=list[FoundChange])


@dataclass
class SiteState:
    store: str
    """Digest of its place."""
    benchax: str
    """Digest of the code that wrote the pages."""
    format: int = FORMAT
    environments: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """By fingerprint, in the order in which they came: facts as texts."""
    baselines: list[str] = field(default_factory=list[str])
    timers: list[str] = field(default_factory=list[str])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a version → when it was measured first."""
    cases: dict[str, CaseSummary] = field(default_factory=dict[str, CaseSummary])
    """By key."""


def new_state(where: str) -> SiteState:
    """Args:
    where: of the store; only its digest is kept, for the site is for others to see.
    """
    return SiteState(hashlib.sha256(where.encode("utf-8", "surrogatepass")).hexdigest(), _identify_code())


@cache
def _identify_code() -> str:
    """Returns a digest of the code that makes pages: two checkouts of one version can make different pages."""
    folder = Path(__file__).parents[1]
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.suffix in (".py", ".js", ".css"):
            found.update(file.read_bytes())
    return found.hexdigest()


def read_state(folder: Path) -> SiteState | None:
    """Returns None if there is no readable state."""
    try:
        document = json.loads((folder / FILE).read_text(encoding="ascii"))
        return decode_value(document, SiteState)
    except (OSError, ValueError, RecursionError, FormatError):
        return None


def render_state(state: SiteState) -> str:
    document: dict[str, Any] = asdict(state)
    return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"


TIMES, RATIOS = 6, 7
"""The length of one entry: case, environment, timer, median, low, high; case, environment, baseline, verdict, ratio,
low, high. A value that is not a number is a position in a list (`state.py`)."""
VERDICTS: tuple[Verdict, ...] = ("faster", "slower", "same", "unclear")
CALL = "benchaxVersion("
DIGITS = 6


Entries = NDArray[np.float64]
"""One in each line: a store may have a million of them, and tuples would take five times as much."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of one version."""

    times: Entries
    ratios: Entries

    def with_newer(self, new: Numbers) -> Numbers:
        return Numbers(np.concatenate((self.times, new.times)), np.concatenate((self.ratios, new.ratios)))


def name_version(commit: str | None, is_dirty: bool | None, run: str) -> str:
    """Returns a version's name: the whole commit, with + for uncommitted changes, or the run if there is no commit."""
    return commit + "+" * bool(is_dirty) if commit else f"run {run}"


def shorten_version(name: str) -> str:
    """a1b2c3d4+; run 0f9e8d7c6b5a"""
    if name.startswith("run "):
        return name[:16]
    return name[:8] + "+" * name.endswith("+")


def version_of_row(row: TimelineRow) -> str:
    return name_version(row.commit, row.is_dirty, row.run_id)


def version_of_comparison(c: Comparison) -> str | None:
    """Returns None if nothing distinguishes the version from others."""
    return name_version(c.candidate.commit, c.candidate.is_dirty, "") if c.candidate.commit else None


def file_of(version: str) -> str:
    """A name of a version's file that no text of a stranger can lead astray."""
    return f"{hashlib.sha256(version.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}.js"


def number_or_nan(value: float | None) -> float:
    return math.nan if value is None else value


# ---- entries of many versions: before each stands the place of its version ---------------------------------------


def list_entries(listed: Sequence[Sequence[float]], width: int) -> Entries:
    """Makes entries from lists: each is a version, followed by as many numbers as `TIMES` or `RATIOS` states
    (`width`)."""
    return np.array(listed, dtype=float).reshape(-1, 1 + width)


def renumber(entries: Entries, columns: Mapping[int, Sequence[int]]) -> Entries:
    """The entries with other numbers in some columns: of each, what stands for 0, 1, 2 …"""
    found = entries.copy()
    for column, places in columns.items():
        found[:, column] = np.array(places, dtype=float)[entries[:, column].astype(int)]
    return found


def split_by_version(parts: Sequence[Entries], width: int, versions: int) -> list[Entries]:
    """The entries of each version, in their order."""
    entries = np.concatenate((list_entries((), width), *parts))
    ordered = entries[entries[:, 0].argsort(kind="stable")]
    ends = ordered[:, 0].searchsorted(range(versions + 1))
    return [ordered[a:b, 1:] for a, b in pairwise(ends)]


# ---- files ------------------------------------------------------------------------------------------------------


def render_numbers(version: str, found: Numbers) -> str:
    """The script: of each case in each environment the newest entry, in the order of cases."""
    times = {tuple(entry[:2]): entry for entry in found.times.tolist()}
    ratios = {tuple(entry[:3]): entry for entry in found.ratios.tolist()}
    document = f'{{"times":{_columns(times, TIMES)},"ratios":{_columns(ratios, RATIOS)}}}'
    # The name, like all texts, is ASCII without what could end the script or a comment in it.
    return f"{CALL}{json.dumps(file_of(version))},{document});\n"


def read_numbers(file: Path) -> Numbers:
    """Reads a file of an earlier build.

    Raises:
        ValueError, KeyError, TypeError, OSError: the file is missing, or differs from what benchax wrote.
    """
    text = file.read_text(encoding="ascii")
    if not text.startswith(CALL):
        raise ValueError("not a file of a version")
    document: dict[str, Any] = json.loads(text[text.index(",") + 1 : text.rindex(")")])
    return Numbers(_read_columns(document["times"], TIMES), _read_columns(document["ratios"], RATIOS))


def _read_columns(columns: list[list[float | None]], width: int) -> Entries:
    if len(columns) != width:
        raise ValueError("another number of columns")
    return np.array(columns, dtype=float).T  # null becomes nan


def _columns(entries: Mapping[Any, Sequence[float]], width: int) -> str:
    listed = [entries[key] for key in sorted(entries)]
    columns = zip(*listed, strict=True) if listed else ((),) * width
    whole = width - 3
    texts = (_write_places(column) if i < whole else _write_numbers(column) for i, column in enumerate(columns))
    return "[" + ",".join(f"[{','.join(column)}]" for column in texts) + "]"


def _write_places(column: Iterable[float]) -> list[str]:
    return [str(int(value)) for value in column]


def _write_numbers(column: Iterable[float]) -> list[str]:
    return [f"{value:.{DIGITS}g}" if math.isfinite(value) else "null" for value in column]
