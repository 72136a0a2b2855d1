"""Writes a page from sections that are functions: for each its docstring, its code, and what that code printed."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchax import workloads

TIME_S = 40.0
"""Of each experiment: no further process is begun after this long."""


@dataclass(frozen=True)
class Section:
    title: str
    run: Callable[[], None]
    shows: tuple[Callable[..., Any], ...]
    """Functions whose code stands above that of the section."""


SECTIONS: list[Section] = []


def section(title: str, *shows: Callable[..., Any]) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Adds a section of this title, behind those of its chapter, whose number it begins with."""

    def add(run: Callable[[], None]) -> Callable[[], None]:
        SECTIONS.append(Section(title, run, shows))
        SECTIONS.sort(key=lambda one: int(one.title.partition(".")[0]))
        return run

    return add


def inputs_of(workload: Callable[..., Any]) -> tuple[Any, ...]:
    """Those that a function of `benchax.workloads` brings along."""
    found = workloads.benchmark_of(workload)
    assert found is not None
    return next(iter(found.cases())).inputs()[0]


def code_of(one: Section) -> str:
    """What a reader would type: the functions, then the body of the section."""
    body = inspect.getsource(one.run)
    body = body[body.index('"""', body.index('"""') + 3) + 3 :]
    parts = [*(textwrap.dedent(inspect.getsource(fn)).strip() for fn in one.shows), textwrap.dedent(body).strip()]
    return "\n\n".join(parts)


def printed(one: Section) -> str:
    """What the section prints, files relative to the working folder. A section that fails is not written."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        one.run()
    text = out.getvalue().replace(f"{Path.cwd()}{os.sep}", "")
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def before_output(one: Section) -> str:
    """All of a section but what it prints; the same each time."""
    return f"## {one.title}\n\n{inspect.getdoc(one.run)}\n\n```python\n{code_of(one)}\n```\n"


def written(one: Section) -> str:
    return f"{before_output(one)}\n```text\n{printed(one)}\n```\n"


def of_page(page: Path) -> dict[str, str]:
    """The sections that are there already, by title."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


def main(introduction: str, page: Path, about: str) -> None:
    """The command line of a page."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="sections whose title begins so; the others stay")
    parser.add_argument("--list", action="store_true", help="list the sections and end")
    parser.add_argument("--output", type=Path, default=page)
    settings = parser.parse_args()
    chosen = [one for one in SECTIONS if re.match(settings.only, one.title)]
    if settings.list:
        print("\n".join(one.title for one in chosen))
        return
    parts = of_page(settings.output)
    for one in chosen:
        print(one.title, flush=True)
        parts[one.title] = written(one)
        there = [parts[each.title] for each in SECTIONS if each.title in parts]
        settings.output.write_text("\n".join([introduction, *there]), encoding="utf-8")
