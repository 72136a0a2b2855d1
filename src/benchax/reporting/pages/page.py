"""A whole page from documents: one file, opened from disk without any network.

The first document is open; each of the others is a part that opens. The page loads nothing. It runs only its own two
scripts, which its security policy names by their hashes. Elements have no handlers and no styles. Data are in blocks of
JSON, which no browser runs.

A site shares styles and scripts between its pages: `Shared` holds their folder.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from benchax.errors import UsageError
from benchax.reporting.document import Document, Heading
from benchax.reporting.markup import Markup, begin, element
from benchax.reporting.pages.blocks import render_parts
from benchax.reporting.tables import one_line
from benchax.whole_files import write_whole

STYLE = "page.css"
LIBRARY = "echarts.js"
SCRIPTS = ("texts.js", "options.js", "trees.js", "charts.js", "outlines.js", "page.js")
"""Joined to one, in this order."""
ASSETS = ("page.css", "echarts.js", "page.js")
"""The files that a site writes next to its pages, each with `asset_text`."""
NO_SCRIPT = "Charts need JavaScript. All that a terminal says stands here without it."


EMPTY = Markup("")


@dataclass(frozen=True)
class Shared:
    """The parts that pages of a site have in common, and the parts that a page has in addition to its documents."""

    folder: str
    """The folder of the assets, relative to the page: "../assets"."""
    above: Markup = EMPTY
    """Before the content: links to the other pages."""
    below: Markup = EMPTY
    """At the end of the content."""
    styles: tuple[str, ...] = ()
    """Files, as seen from the page; they come after those of all pages."""
    scripts: tuple[str, ...] = ()


def render_page(title: str, documents: Sequence[Document], shared: Shared | None = None) -> str:
    """Args:
    title: of the window.
    documents: the first one is the page's own; see above.
    shared: None: everything is in the page.
    """
    body = Markup(_head(title, documents) + render_parts(documents))
    has_charts = "<figure" in body
    head = (begin("meta", charset="utf-8"), _policy(has_charts, shared), *_describe_page(title), *_style(shared))
    skip = element("a", "Skip to content", href="#content", css_class="skip")
    above, below = (shared.above, shared.below) if shared else ("", "")
    main = element("main", body, below, id="content", tabindex="-1")
    parts = (skip, above, main, element("noscript", element("p", NO_SCRIPT)))
    content = (element("head", *head), element("body", *parts, *_scripts(has_charts, shared)))
    return f"<!doctype html>\n{element('html', *content, lang='en')}\n"


def _head(title: str, documents: Sequence[Document]) -> str:
    """A page has a heading of level 1, also where its document has none."""
    blocks = documents[0].blocks if documents else ()
    has_one = any(isinstance(block, Heading) and block.level == 1 for block in blocks)
    return "" if has_one else element("h1", title)


def asset_text(name: str) -> str:
    """The text of one of `ASSETS`, or of the licence of the chart library."""
    if name == "page.js":
        return "\n".join(_read(part) for part in SCRIPTS)
    return _read(name)


@cache
def _read(name: str) -> str:
    return (files("benchax.reporting.pages") / "assets" / name).read_text(encoding="utf-8")


def _describe_page(title: str) -> tuple[Markup, ...]:
    view = begin("meta", name="viewport", content="width=device-width, initial-scale=1")
    scheme = begin("meta", name="color-scheme", content="light dark")
    # Without it a page on a server asks for a picture that nobody put there.
    icon = begin("link", rel="icon", href="data:,")
    return view, scheme, icon, element("title", title)


def _policy(has_charts: bool, shared: Shared | None) -> Markup:
    """Scripts and styles of this page by their hashes, or of the site's own files; nothing else from anywhere."""
    names = [LIBRARY, "page.js"] if has_charts else ["page.js"]
    scripts = " ".join(_hash(asset_text(name)) for name in names) if shared is None else "'self' file:"
    styles = _hash(asset_text(STYLE)) if shared is None else "'self' file:"
    closed = "base-uri 'none'; form-action 'none'"
    policy = f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; {closed}"
    return Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">')


@cache
def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _style(shared: Shared | None) -> tuple[Markup, ...]:
    if shared is not None:
        return tuple(
            begin("link", rel="stylesheet", href=file) for file in (f"{shared.folder}/{STYLE}", *shared.styles)
        )
    return (element("style", Markup(asset_text(STYLE))),)


def _scripts(has_charts: bool, shared: Shared | None) -> list[Markup]:
    names = [LIBRARY, "page.js"] if has_charts else ["page.js"]
    if shared is not None:
        return [
            element("script", src=file) for file in (*(f"{shared.folder}/{name}" for name in names), *shared.scripts)
        ]
    return [element("script", Markup(asset_text(name))) for name in names]


LONGEST_TITLE = 100


def save_page(
    file: str | os.PathLike[str], documents: Sequence[Document], title: str = "", shared: Shared | None = None
) -> None:
    """Writes one page.

    Args:
        title: title of the window; if empty, the title of the first document.

    Raises:
        UsageError: the file cannot be written; an existing file is unchanged.
    """
    named = one_line(title or (documents[0].title if documents else "")) or "benchax"
    write_page(Path(file), render_page(named[:LONGEST_TITLE], documents, shared))


def write_page(file: Path, text: str) -> None:
    """Writes a file whole or not at all.

    Raises:
        UsageError: with the reason of the operating system.
    """
    try:
        write_whole(file, text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write to {str(file)!r}: {why}", "a file that can be written") from error
