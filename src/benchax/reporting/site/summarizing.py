"""The content of the lists of all cases, and of the feed, for one case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchax.comparing.gate import amount
from benchax.comparing.history import Change, History
from benchax.model import CaseId, Comparison
from benchax.printable import cap, show_line
from benchax.reporting.comparisons import interval, verdict
from benchax.reporting.history import NAMES, commit, size_of, sparkline
from benchax.reporting.site.case_page import CaseTimeline
from benchax.reporting.site.state import CaseSummary, FoundChange
from benchax.reporting.site.versions import shorten_version, version_of_row
from benchax.reporting.tables import join_time, one_line
from benchax.stats.changepoints import LEAST, P
from benchax.store.timelines import CaseActivity
from benchax.units import percent

RECENT = 30
"""This many of the newest comparisons of each series count as "lately"."""
LONGEST_LABEL = 100
BARS = 16


def shorten_label(case: CaseId) -> str:
    return cap(show_line(one_line(case.label)), LONGEST_LABEL)


def summarize(activity: CaseActivity, found: CaseTimeline, page: str, places: dict[str, int]) -> CaseSummary:
    """Args:
    places: of environments, by fingerprint.
    """
    newest = found.rows[-1] if found.rows else None
    judged = _newest_run_history(found.histories)
    dates = [row.started_at for row in found.rows[-1:]] + [h.points[-1].compared_at for h in found.histories]
    return CaseSummary(
        activity.id,
        activity.seen,
        page,
        shorten_label(found.case),
        newest_at=max(dates),
        version=shorten_version(version_of_row(newest)) if newest else "",
        time=_describe_time(found),
        where=places.get(newest.fingerprint) if newest else None,
        status="" if newest is None else newest.status,
        bars=sparkline(judged, BARS) if judged else "",
        verdict=verdict(judged.points[-1], has_reason=False) if judged else "",
        ratio=interval(judged.points[-1]) if judged else "",
        looks=sum(count_looks(h) for h in found.histories),
        changes=sorted((c for h in found.histories for c in _list_changes(h)), key=lambda c: c.at),
    )


def _newest_run_history(histories: Sequence[History]) -> History | None:
    """The histories come in the order of their newest comparisons."""
    by_run = [h for h in histories if h.metric == "run"] or list(histories)
    return by_run[-1] if by_run else None


def _describe_time(found: CaseTimeline) -> str:
    if not found.rows:
        return ""
    row = found.rows[-1]
    return "not measured" if row.median_s is None else join_time(row.median_s, row.low_s, row.high_s)


def count_looks(h: History) -> int:
    """Counts the newest comparisons in which a change can be found by mistake. They have a value and noise. The first
    ones of a history do not count, because a change has `LEAST` comparisons on either side."""
    known = [place for place, value in enumerate(h.values) if value is not None]
    return 0 if h.is_counted else sum(place >= len(h.values) - RECENT for place in known[2 * LEAST - 1 :])


# ---- changes ----------------------------------------------------------------------------------------------------


def _list_changes(h: History) -> Iterator[FoundChange]:
    for change in h.changes:
        first, last = h.points[change.at], h.points[change.last]
        sure = "counted, without noise" if change.p is None else f"p < {P}"
        yield FoundChange(
            first.compared_at,
            commit(first),
            commit(last),
            size_of(change, h),
            sure,
            _value(first, h),
            _value(h.points[-1], h),
            NAMES[h.metric],
            cap(show_line(one_line(h.baseline)), LONGEST_LABEL),
            is_worse=_is_worse(change),
            is_recent=change.at >= len(h.points) - RECENT,
        )
    if h.jump is not None:
        newest = h.points[-1]
        yield FoundChange(
            newest.compared_at,
            commit(newest),
            "",
            f"{percent(h.jump)} above the median before it",
            "a first sign: the next comparisons will show",
            _value(newest, h),
            _value(newest, h),
            NAMES[h.metric],
            cap(show_line(one_line(h.baseline)), LONGEST_LABEL),
            is_worse=True,
            is_recent=True,
            is_sign=True,
        )


def _is_worse(change: Change) -> bool:
    return change.after > change.before


def _value(c: Comparison, h: History) -> str:
    if h.is_counted:
        return "" if c.candidate_value is None else amount(c.candidate_value, h.metric)
    return interval(c)
