"""Public names of benchax as Markdown: signature, docstring, fields and methods, as they stand in the code; and a list
of all of them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from docstrings import escape, to_markdown

import benchax
from benchax.options import DEFAULTS

PAGES = Path(__file__).parents[1] / "reference"
METHODS = (property, cached_property, classmethod, staticmethod)


def render_name(name: str) -> str:
    """A section for one public name."""
    thing = getattr(benchax, name)
    match thing:
        case ModuleType():
            body = _module(name, thing)
        case type():
            body = _class(name, thing)
        case _:
            body = _function(name, thing)
    return f"## `{name}`\n\n{body}"


def render_index() -> str:
    """A table of all public names, each with the first sentence of its docstring."""
    found = [(name, page.name) for page in PAGES.glob("*.md") for name in _list_names(page)]
    ordered = sorted(found, key=lambda each: (each[0].lower(), each[0]))
    lines = [f"| {_link(name, page)} | {_first_sentence(name)} |" for name, page in ordered]
    return "\n".join(["| name | |", "|---|---|", *lines])


def _list_names(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [name for words in re.findall(r"```\{names\} (.*)", text) for name in words.split()]


def _link(name: str, page: str) -> str:
    """By Sphinx's Python domain, which tells `experiment` from `Experiment`; it has no entry of a module."""
    is_module = isinstance(getattr(benchax, name), ModuleType)
    return f"[`{name}`]({page}#{name})" if is_module else f"{{py:obj}}`{name}`"


def _first_sentence(name: str) -> str:
    text = " ".join((inspect.getdoc(getattr(benchax, name)) or "").split("\n\n")[0].split())
    return escape(re.split(r"(?<=[.?])\s", text)[0])


def _function(name: str, function: Any) -> str:
    return _described("function", f"{name}{_signature(function)}", _doc(function))


def _module(name: str, module: ModuleType) -> str:
    own = [m for m, found in vars(module).items() if getattr(found, "__module__", None) == module.__name__]
    members = [m for m in getattr(module, "__all__", own) if not m.startswith("_")]
    functions = [_function(f"{name}.{m}", getattr(module, m)) for m in members if callable(getattr(module, m))]
    return "\n\n".join([_doc(module), *functions])


def _class(name: str, thing: type) -> str:
    signature = _signature(thing) if issubclass(thing, Exception) else ""
    parts = [_doc(thing)]
    if fields := dict(_fields(thing)):
        # Options have no defaults of their own: what holds is put together from several places.
        given = {f: f" = {value!r}" for f, value in asdict(DEFAULTS).items()} if thing is benchax.Options else {}
        rows = [f"| `{f}` | `{kind}{given.get(f, '')}` | {escape(doc)} |" for f, (kind, doc) in fields.items()]
        parts.append("\n".join(["| field | type | |", "|---|---|---|", *rows]))
    parts += [_method(method, found) for method, found in _methods(thing)]
    return _described("class", f"{name}{signature}", "\n\n".join(parts))


def _method(name: str, found: Any) -> str:
    if isinstance(found, property | cached_property):
        return _described("property", name, _doc(found))
    function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    signature = inspect.signature(function)
    parameters = [p for i, p in enumerate(signature.parameters.values()) if i or isinstance(found, staticmethod)]
    return _described("method", f"{name}{_text(signature.replace(parameters=parameters))}", _doc(function))


def _described(kind: str, signature: str, body: str) -> str:
    """A directive of Sphinx's Python domain: what it names is in the index and in the search."""
    # Longer fences than those of what is inside: methods stand inside their class.
    fence = ":" * (7 if kind == "class" else 5)
    return f"{fence}{{py:{kind}}} {signature}\n\n{body}\n{fence}"


def _signature(thing: Any) -> str:
    return _text(inspect.signature(thing))


class _Shown:
    """A value that is shown as the given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _text(signature: inspect.Signature) -> str:
    """As it is written. Annotations are texts (`from __future__ import annotations`), which `str` would quote."""
    parameters = [
        p.replace(annotation=_unquoted(p.annotation), default=_short(p.default)) for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=_unquoted(signature.return_annotation)))


def _unquoted(annotation: Any) -> Any:
    return _Shown(annotation) if isinstance(annotation, str) else annotation


def _short(default: Any) -> Any:
    """A default that has no short form, such as an object that marks an absent argument, is shown as `…`."""
    return _Shown("…") if repr(default).startswith("<") and default is not inspect.Parameter.empty else default


def _doc(thing: Any) -> str:
    return to_markdown(inspect.getdoc(thing) or "")


def _fields(thing: type) -> Iterator[tuple[str, tuple[str, str]]]:
    """(name, (type, the string that stands below it)) of each public field, those of bases first."""
    for base in reversed(thing.__mro__):
        if not base.__module__.startswith("benchax"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for node, below in zip(body, [*body[1:], None], strict=True):
            match node:
                case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                    yield name, (ast.unparse(node.annotation), _string(below))


def _string(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


def _methods(thing: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties with a docstring, in the order in which they are written."""
    seen: set[str] = set()
    for base in thing.__mro__:
        if not base.__module__.startswith("benchax"):
            continue
        for name, found in vars(base).items():
            is_method = inspect.isfunction(found) or isinstance(found, METHODS)
            if is_method and not name.startswith("_") and name not in seen and inspect.getdoc(found):
                seen.add(name)
                yield name, found
