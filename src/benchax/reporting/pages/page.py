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
from importlib import resources
from pathlib import Path

from benchax.errors import UsageError
from benchax.reporting.document import Document, Heading
from benchax.reporting.html import BlockWriter, Markup, begin, element
from benchax.reporting.tables import one_line
from benchax.whole_files import write_whole

FRAME, STYLE = "page.html", "page.css"
LIBRARY = "echarts.js"
SCRIPTS = ("texts.js", "options.js", "trees.js", "charts.js", "outlines.js", "page.js")
"""Joined to one, in this order."""
ASSETS = ("page.css", "echarts.js", "page.js")
"""The files that a site writes next to its pages, each with `asset_text`."""
EMPTY = Markup("")
LONGEST_TITLE = 100
MOST_OPEN = 6
"""A page with more parts than this shows them closed at first."""


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
    blocks = documents[0].blocks if documents else ()
    has_title = any(isinstance(block, Heading) and block.level == 1 for block in blocks)
    body = ("" if has_title else element("h1", title)) + _render_parts(documents)
    names = [LIBRARY, "page.js"] if "<figure" in body else ["page.js"]
    if shared is None:  # scripts and styles by their hashes, and nothing else from anywhere
        script_src = " ".join(_hash(asset_text(name)) for name in names)
        style_src = _hash(asset_text(STYLE))
        styles = [element("style", Markup(asset_text(STYLE)))]
        scripts = [element("script", Markup(asset_text(name))) for name in names]
    else:
        script_src = style_src = "'self' file:"
        styles = [begin("link", rel="stylesheet", href=file) for file in (f"{shared.folder}/{STYLE}", *shared.styles)]
        files = (*(f"{shared.folder}/{name}" for name in names), *shared.scripts)
        scripts = [element("script", src=file) for file in files]
    return _read(FRAME).format(
        script_src=script_src,
        style_src=style_src,
        title=element("title", title),
        styles="".join(styles),
        above=shared.above if shared else "",
        body=body,
        below=shared.below if shared else "",
        scripts="".join(scripts),
    )


def _render_parts(documents: Sequence[Document]) -> Markup:
    """Renders the first document, then each other one as a part that opens. The controls that filter the parts come
    before the parts."""
    targets = {title: f"part-{n}" for n, part in enumerate(documents) if n and (title := part.title)}
    first = [BlockWriter(targets=targets).render(document.blocks) for document in documents[:1]]
    parts = [_render_part(part, f"part-{n}", len(documents) <= MOST_OPEN + 1) for n, part in enumerate(documents) if n]
    return Markup("".join([*first, *parts]))


def _render_part(part: Document, id: str, is_open: bool) -> Markup:
    """Its title is what opens it."""
    head = next((block for block in part.blocks if isinstance(block, Heading)), Heading("…"))
    rest = [block for block in part.blocks if block is not head]
    writer = BlockWriter(level=2)
    title = element("summary", element("h2", head.text, css_class=head.style))
    # An attribute without a value: there is no other way to say that it is open.
    opened = Markup(begin("details", css_class="part", id=id).removesuffix(">") + (" open>" if is_open else ">"))
    return Markup(opened + title + "".join(writer.render_answers(head)) + writer.render(rest) + "</details>")


def asset_text(name: str) -> str:
    """The text of one of `ASSETS`, or of the licence of the chart library."""
    return "\n".join(map(_read, SCRIPTS)) if name == "page.js" else _read(name)


@cache
def _read(name: str) -> str:
    return (resources.files("benchax.reporting.pages") / "assets" / name).read_text(encoding="utf-8")


@cache
def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


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
