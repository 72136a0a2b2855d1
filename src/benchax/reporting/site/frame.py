"""The frame around the content of all pages of a site: links between them, and the site's styles and scripts."""

from __future__ import annotations

from benchax.reporting.markup import Markup, element
from benchax.reporting.pages.page import EMPTY, Shared

PAGES = (("index.html", "Changes"), ("cases.html", "All cases"), ("compare.html", "Compare"), ("feed.xml", "Feed"))


def frame(up: str = "", here: str = "", below: Markup = EMPTY, scripts: tuple[str, ...] = ()) -> Shared:
    """Args:
    up: the way from the page to the site's folder: "../".
    here: the page's own name, where it is one of those that all pages lead to.
    """
    styles, own = (f"{up}assets/site.css",), f"{up}assets/site.js"
    return Shared(f"{up}assets", _navigation(up, here), below, styles, (own, *scripts))


def _navigation(up: str, here: str) -> Markup:
    links = (element("a", text, href=up + file, aria_current="page" if file == here else "") for file, text in PAGES)
    return element("nav", *links, aria_label="Site", css_class="site")
