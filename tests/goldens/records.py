"""Recorded sections: one text file for each part, with a title above the text of each section."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded"
TITLE = re.compile(r"^#### (.+)\n", re.MULTILINE)
FAILED = "could not be made:"
SOMETIMES = "~ "
"""Begins a line that only some runs have: it depends on the time that something took."""

Sections = Mapping[str, Callable[[], str]]
"""Title of a section → the function that makes its text."""


def file_of(part: str) -> Path:
    return FOLDER / f"{part}.txt"


def read(part: str) -> dict[str, str]:
    """Texts by title; empty if the part was never recorded."""
    file = file_of(part)
    pieces = TITLE.split(file.read_text(encoding="utf-8")) if file.exists() else [""]
    return dict(zip(pieces[1::2], (text.rstrip("\n") for text in pieces[2::2]), strict=True))


def write(part: str, texts: Mapping[str, str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    file_of(part).write_text("".join(f"#### {title}\n{texts[title]}\n\n" for title in texts), encoding="utf-8")


def make(sections: Sections, workers: int, told: Callable[[str], None]) -> dict[str, str]:
    """The texts of all sections. A section that raises has its exception as text, and the others go on."""

    def text(title: str) -> str:
        try:
            made = sections[title]()
        except Exception as error:
            made = f"{FAILED} {type(error).__name__}: {error}"
        told(title)
        made = made.replace("\r", "\\r").encode(errors="backslashreplace").decode()
        return "\n".join(line.rstrip() for line in made.split("\n")).rstrip()

    if workers == 1:
        return {title: text(title) for title in sections}
    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(sections, pool.map(text, sections), strict=True))


def join(runs: list[str]) -> str:
    """One text for several runs: a line that some of them don't have is marked with `~`."""
    lines = sorted({line for run in runs for line in _plain(run)})
    required = set.intersection(*map(_list_required, runs))
    return "\n".join(line if line in required else SOMETIMES + line for line in lines)


def is_same(recorded: str, now: str) -> bool:
    """Marked lines can be missing."""
    if recorded == now or SOMETIMES not in recorded + now:
        return recorded == now
    return _list_required(recorded) <= {*_plain(now)} and _list_required(now) <= {*_plain(recorded)}


def _list_required(text: str) -> set[str]:
    return {line for line in text.split("\n") if not line.startswith(SOMETIMES)}


def difference(title: str, recorded: str, now: str) -> str:
    """A unified diff of one section."""
    lines = difflib.unified_diff(recorded.split("\n"), now.split("\n"), "recorded", "now", lineterm="", n=2)
    return "\n".join([f"#### {title}", *list(lines)[2:]])


def _plain(text: str) -> list[str]:
    return [line.removeprefix(SOMETIMES) for line in text.split("\n")]
