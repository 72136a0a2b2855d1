"""The feed of regressions (Atom, RFC 4287), the newest first. Links are relative: the feed does not know its address.

An entry keeps its id for as long as the change begins at the same commit.
"""

from __future__ import annotations

import hashlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from benchax.printable import show_line, spell_for_xml
from benchax.reporting.site.lists import Found, describe_certainty, list_changes
from benchax.reporting.site.state import CaseSummary

MOST_ENTRIES = 50
ATOM = "http://www.w3.org/2005/Atom"
# What XML 1.0 cannot hold, even escaped (2.2).


def render_feed(cases: Sequence[CaseSummary], store: str) -> str:
    """Args:
    store: digest of the place of the rows, which tells the feed from others.
    """
    found = [each for each in list_changes(cases) if each[1].is_worse and not each[1].is_sign]
    recent = [each for each in list_changes(cases) if each[1].is_recent and not each[1].is_sign]
    feed = ET.Element("feed", xmlns=ATOM)
    _add(feed, "id", f"urn:benchax:site:{store[:32]}")
    _add(feed, "title", "What got slower, or takes more")
    _add(feed, "subtitle", " ".join(describe_certainty(cases, recent)))
    _add(feed, "updated", _date(max((change.at for _, change in found), default=max(c.newest_at for c in cases))))
    _add(ET.SubElement(feed, "author"), "name", "benchax")
    ET.SubElement(feed, "link", rel="self", href="feed.xml")
    ET.SubElement(feed, "link", rel="alternate", href="index.html")
    for each in found[:MOST_ENTRIES]:
        _add_entry(feed, each, store)
    ET.indent(feed)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(feed, encoding="unicode")}\n'


def _add_entry(feed: ET.Element, found: Found, store: str) -> None:
    case, change = found
    entry = ET.SubElement(feed, "entry")
    name = "\n".join((store, case.page, change.metric, change.baseline, change.commit, change.at))
    _add(entry, "id", f"urn:benchax:change:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}")
    _add(entry, "title", f"{case.label}: {change.size} from {change.commit} on")
    _add(entry, "updated", _date(change.at))
    ET.SubElement(entry, "link", rel="alternate", href=f"cases/{case.page}")
    seen = "; ".join(
        text
        for text in (
            f"at that commit {change.there}" * bool(change.there),
            f"newest {change.newest}" * bool(change.newest),
        )
        if text
    )
    text = (
        f"{change.metric} against {change.baseline}: {change.size} ({change.sure}); the last before it is {change.last}"
    )
    _add(entry, "summary", f"{text}; {seen}" if seen else text)


def _add(parent: ET.Element, tag: str, text: str) -> None:
    ET.SubElement(parent, tag).text = spell_for_xml(show_line(text))


def _date(text: str) -> str:
    """RFC 3339, which ISO 8601 is where it has a time and a zone."""
    return (
        text
        if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text)
        else "1970-01-01T00:00:00Z"
    )
