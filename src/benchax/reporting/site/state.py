"""The state of a site after its last build: the rows of each page, and what the pages of all cases show for each.

The file is in the folder of the pages, so that the next build writes only the pages whose rows changed. A state that is
unreadable, or that comes from another benchax or another store, is ignored. Then the build writes everything again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchax.errors import FormatError
from benchax.json_values import decode_value

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
