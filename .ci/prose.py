"""Counts stilted wording in what users and contributors read, file by file. A count can only fall.

    python .ci/prose.py                  compares with .ci/prose.txt; names each place that is new
    python .ci/prose.py --lower          writes the counts that fell into .ci/prose.txt
    python .ci/prose.py --add PATTERN    writes the counts of a pattern that .ci/prose.txt doesn't have yet (or: all)
    python .ci/prose.py --show PATTERN   lists every place of one pattern; --show all lists all

.ci/prose.toml has the patterns. They are counted in strings and docstrings of src, in docs, README.md, CONTRIBUTING.md,
CHANGELOG.md and other pages of the top folder, but not in comments and code. A file that is gone leaves its counts to
the others, so you can move text.

    0  no count differs
    1  a count differs
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = ".ci/prose.txt"
MOST_WORDS = 25
"""Words in a sentence."""

PATTERNS: dict[str, dict[str, str]] = tomllib.loads((ROOT / ".ci" / "prose.toml").read_text(encoding="utf-8"))
LENGTH, YOU = "length", "you"

_COMPILED = {
    name: re.compile(pattern["find"], re.MULTILINE | re.IGNORECASE)
    for name, pattern in PATTERNS.items()
    if "find" in pattern
}
_STRING = re.compile(
    r'#[^\n]*|(?:\b[rbfuRBFU]{1,2})?(?:"""(?P<a>(?:[^\\]|\\.)*?)"""|"(?P<b>(?:[^"\\\n]|\\.)*)"'
    r"|'''(?P<c>(?:[^\\]|\\.)*?)'''|'(?P<d>(?:[^'\\\n]|\\.)*)')",
    re.DOTALL,
)
_FENCED = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)`*$", re.MULTILINE | re.DOTALL)
# A sentence ends at a full stop, a blank line, the next item of a list or of arguments, and the next cell of a table.
_ENDS = re.compile(
    r"(?<=[.!?])[)\"'”*]*\s+(?=[A-Z0-9_*(\[\"“])"
    r"|\n\s*\n|\n\s*(?=[-*#>] |\d+\. |:|[\w, *]+: |\w+:\n)|(?<=:)\n|(?<=\S) {2,}(?=\S)|\|"
)


Table = dict[str, Counter[str]]
"""File to pattern to count."""


class Place(NamedTuple):
    line: int
    text: str


def read_texts(path: Path) -> list[Place]:
    """The texts of a file that people read, each with the line where it begins."""
    source = path.read_text(encoding="utf-8")
    return list(_texts_of_code(source) if path.suffix == ".py" else _texts_of_page(source))


def _texts_of_code(source: str) -> Iterator[Place]:
    """The strings with words in them; adjacent ones are one text."""
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    begin, end, parts = 0, 0, list[str]()
    for found in _STRING.finditer(source):
        if found.lastgroup is None:
            continue
        if parts and source[end : found.start()].strip():
            yield from _joined(parts, bisect_right(starts, begin))
            parts = []
        begin, end = (found.start() if not parts else begin), found.end()
        parts.append(found[found.lastgroup])
    yield from _joined(parts, bisect_right(starts, begin))


def _joined(parts: list[str], line: int) -> Iterator[Place]:
    text = re.sub(r"\{[^{}]*\}|`+[^`]+`+", "_", "".join(parts)).replace("\\n", "\n")
    if len(text) > 12 and " " in text:
        yield Place(line, text)


def _texts_of_page(source: str) -> Iterator[Place]:
    prose = _FENCED.sub(lambda found: "\n" * found[0].count("\n"), source)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", prose):
        if paragraph.strip():
            yield Place(line, re.sub(r"`+[^`]+`+", "_", paragraph))
        line += paragraph.count("\n")


def read_sentences(path: Path) -> Iterator[Place]:
    """The sentences of a file, each on one line, without marks of lists and headings."""
    for line, text in read_texts(path):
        at = 0
        for end in (*_ENDS.finditer(text), None):
            sentence = text[at : end.start() if end else None]
            words = " ".join(sentence.split()).lstrip("-*#> ")
            if words:
                before = at + len(sentence) - len(sentence.lstrip())
                yield Place(line + text.count("\n", 0, before), words)
            at = end.end() if end else 0


def find_places(path: Path, *, is_page: bool) -> dict[str, list[Place]]:
    """Pattern to the places where a file has it."""
    sentences = list(read_sentences(path))
    starts = [0, *accumulate(len(sentence.text) + 1 for sentence in sentences)]
    text = "\n".join(sentence.text for sentence in sentences)
    found = {
        name: [sentences[bisect_right(starts, hit.start()) - 1] for hit in pattern.finditer(text)]
        for name, pattern in _COMPILED.items()
    }
    found[LENGTH] = [sentence for sentence in sentences if count_words(sentence.text) > MOST_WORDS]
    found[YOU] = [Place(1, "")] if is_page and not re.search(r"\byou(?:r|rs|rself)?\b", text, re.IGNORECASE) else []
    return {name: places for name, places in found.items() if places}


def count_words(sentence: str) -> int:
    return sum(any(map(str.isalpha, word)) for word in sentence.split())


def list_files(root: Path) -> list[Path]:
    pages = [page for page in (root / "docs").rglob("*.md") if "_build" not in page.parts]
    return sorted([*(root / "src").rglob("*.py"), *pages, *root.glob("*.md")])


def read_table(path: Path) -> Table:
    table: Table = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if not line.startswith("#"):
            file, *counts = line.split()
            pairs = (count.split("=") for count in counts)
            table[file] = Counter({name: int(number) for name, number in pairs})
    return table


def write_table(path: Path, table: Table) -> None:
    head = "# Places that .ci/prose.py counts, by file. They only fall: `make prose` writes lower counts.\n"
    rows = (
        f"{file} {' '.join(f'{name}={number}' for name, number in sorted(counts.items()))}\n"
        for file, counts in sorted(table.items())
        if counts.total()
    )
    path.write_text(head + "".join(rows), encoding="utf-8")


def find_risen(before: Table, now: Table) -> Table:
    """What each file has more of. A file that is gone leaves what it had to the others."""
    left = sum((counts for file, counts in before.items() if file not in now), Counter[str]())
    risen: Table = {}
    for file, counts in now.items():
        more = counts - before.get(file, Counter())
        moved = more & left
        left -= moved
        if more - moved:
            risen[file] = more - moved
    return risen


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci/prose.py", description="Counts stilted wording; a count can only fall.")
    parser.add_argument("--lower", action="store_true", help="write the counts that fell")
    parser.add_argument("--add", metavar="PATTERN", choices=["all", *PATTERNS], help="write the counts of a new one")
    parser.add_argument("--show", metavar="PATTERN", choices=["all", *PATTERNS], help="list the places of one, or all")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args()

    root = options.root
    pages = root / "docs"
    found = {
        path.relative_to(root).as_posix(): find_places(path, is_page=path.is_relative_to(pages))
        for path in list_files(root)
    }
    if options.show:
        for file, places in found.items():
            for name in places if options.show == "all" else {options.show} & places.keys():
                print(*(f"{file}:{line}: {name}: {text}" for line, text in places[name]), sep="\n")
        return 0

    now: Table = {file: Counter({name: len(hits) for name, hits in places.items()}) for file, places in found.items()}
    before = read_table(root / TABLE)
    for name in PATTERNS if options.add == "all" else [options.add] if options.add else []:
        if any(name in counts for counts in before.values()):
            parser.error(f"{TABLE} has counts of '{name}', and they only fall")
        for file in now:
            before.setdefault(file, Counter())[name] = now[file][name]
    risen = find_risen(before, now)
    for file, more in risen.items():
        for name, number in more.items():
            allowed = before.get(file, Counter())[name]
            print(f"{file}: {number} more of '{name}' than {allowed}; write {PATTERNS[name]['write']}")
            print(*(f"  {file}:{line}: {text}" for line, text in found[file][name]), sep="\n")
    if risen:
        return 1
    kept = {file: counts for file, counts in now.items() if counts}
    if options.lower or options.add:
        write_table(root / TABLE, kept)
        print(f"{TABLE}: {sum(counts.total() for counts in kept.values())} places")
    elif kept != before:
        print(f"{TABLE} allows more than there is. Lower its counts: make prose")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
