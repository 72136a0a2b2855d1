"""The feed of regressions, as a reader of feeds sees it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from comparisons_by_hand import commit_of, compared, series, stepping
from site_stores import FFT, HOSTILE, make_store

from benchax.reporting.site.publishing import publish
from benchax.store import comparisons

ATOM = "{http://www.w3.org/2005/Atom}"


def entries(site: Path) -> list[ET.Element]:
    return ET.parse(site / "feed.xml").getroot().findall(f"{ATOM}entry")


def words(entry: ET.Element, tag: str) -> str:
    return entry.findtext(f"{ATOM}{tag}") or ""


def test_what_got_worse_is_an_entry_the_newest_first(tmp_path: Path) -> None:
    publish(make_store(tmp_path / "store"), tmp_path / "site")

    titles = [words(entry, "title") for entry in entries(tmp_path / "site")]

    assert titles == [
        f"matmul[n=256]: 12 % slower from {commit_of(12)[:8]} on",
        f"fft: 2.00 MiB in place of 1.00 MiB from {commit_of(2)[:8]} on",
    ]


def test_an_entry_keeps_its_id_and_leads_to_its_page(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    publish(store, tmp_path / "site")
    before = {words(entry, "id") for entry in entries(tmp_path / "site")}
    comparisons.append(store, [compared(24, 1.12), compared(16, 0.8, case=FFT)])

    publish(store, tmp_path / "site")

    assert {words(entry, "id") for entry in entries(tmp_path / "site")} == before
    assert len(before) == 2
    for entry in entries(tmp_path / "site"):
        link = entry.find(f"{ATOM}link")
        assert link is not None
        assert (tmp_path / "site" / link.attrib["href"]).is_file()
        assert words(entry, "updated").startswith("2026-01-")


def test_names_that_xml_cannot_hold_leave_a_feed_that_can_be_read(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    comparisons.append(store, series(stepping([(9, 1.0), (9, 1.3)], sd=0.005), case=HOSTILE))

    publish(store, tmp_path / "site")

    (title,) = [text for entry in entries(tmp_path / "site") if "alert" in (text := words(entry, "title"))]
    assert title.startswith("</script><script>alert(1)</script>'\"&\\x00")
