"""What a browser makes of HTML, as far as tests ask: its texts, and the names of its tags and attributes."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = ("br", "hr", "meta")
"""Elements that have no end."""


class Reader(HTMLParser):
    """Complains of what is left open, and of what is closed in another order."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(fragment)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
