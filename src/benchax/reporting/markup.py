"""Elements of HTML, as all that makes pages writes them: nothing else escapes a text, and nothing else makes a tag."""

from __future__ import annotations

from html import escape


class Markup(str):
    """HTML already: not escaped again."""

    __slots__ = ()


def element(tag: str, *content: str, css_class: str = "", **attributes: str) -> Markup:
    """Content that is no Markup is text."""
    inner = "".join(part if isinstance(part, Markup) else escape(part, quote=False) for part in content)
    return Markup(f"{begin(tag, css_class=css_class, **attributes)}{inner}</{tag}>")


def begin(tag: str, css_class: str = "", **attributes: str) -> Markup:
    """The beginning of an element, or one that has no end. `aria_level` is written aria-level; empty ones are not."""
    named = {"class": css_class} | {name.replace("_", "-"): value for name, value in attributes.items()}
    listed = "".join(f" {name}='{escape(value)}'" for name, value in named.items() if value)
    return Markup(f"<{tag}{listed}>")
