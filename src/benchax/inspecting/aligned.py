"""Two texts of programs compared line by line, when an equation more in the middle renames all that follows.

Lines are first aligned by their skeletons, which have no names of values. Lines that stand side by side then tell which
name of the first text is which of the second; the first is rewritten with those, and what `diff` then shows differs
indeed. A value that the second has no counterpart of keeps its name with an apostrophe.

For showing only. Whether two programs are the same is decided by the texts themselves (`differences.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PRIME = "'"


@dataclass(frozen=True)
class Language:
    """How a text writes values."""

    name: re.Pattern[str]
    """A value where it is defined or used. A rare mistake costs a line in a diff."""
    defined: re.Pattern[str]
    """Matches the text behind a name that is defined here."""
    scope: re.Pattern[str]
    """Matches a line from which on names mean something else."""


_WORD = r"(?<![\w.\-=:\"'@%])(?<!= )(?!(?:let|in|inf|nan|lambda)\b)[a-z]{1,4}(?=[ ,)\]};:.]|$)"
JAXPR = Language(re.compile(_WORD), re.compile(r":[a-zA-Z]\w*(?:<[^>]*>)?(?:\[|\{|$|[ .])"), re.compile(r"(?!)"))
"""c:f32[8] = add a b. A primitive stands behind "= ", a parameter's value behind "="."""
SSA = Language(re.compile(r"%\w+|\bc\d+\b"), re.compile(r"(?::\d+)? = |: |:$"), re.compile(r"c\d+:$|  func\.func "))
"""StableHLO, and HLO as `artifacts/normalized.py` writes it: %3 = f32[8] add(%1, %2), calls=c4."""


_NUMBER = re.compile(r"\d+")


def align_and_diff(before: str, after: str, labels: tuple[str, str], language: Language, context: int = 3) -> list[str]:
    """Lines of a unified diff; of the texts as they are where nothing but names would differ."""
    old, new = before.splitlines(), after.splitlines()
    for ours in (_rename(old, new, language), old):
        if lines := list(difflib.unified_diff(ours, new, *labels, n=context, lineterm="")):
            return lines
    return []


def _rename(old: Sequence[str], new: Sequence[str], language: Language) -> list[str]:
    """`old` with the names of `new`."""
    names: dict[str, str] = {}

    def new_name(match: re.Match[str]) -> str:
        return names.get(match[0], match[0])

    written: list[str] = []
    for line, counterpart in _pairs(old, new, language):
        if language.scope.match(line):
            names.clear()
        ours = _defined_names(line, language)
        theirs = _defined_names(counterpart, language) if counterpart is not None else []
        _take(names, ours, theirs if len(ours) == len(theirs) else ours, is_known=counterpart is not None)
        written.append(language.name.sub(new_name, line))
    return written


def _take(names: dict[str, str], ours: Sequence[str], theirs: Sequence[str], *, is_known: bool) -> None:
    """Two values of one scope never get the same name, whatever the alignment took for what."""
    for name, wanted in zip(ours, theirs, strict=True):
        names.pop(name, None)
        names[name] = wanted if is_known and wanted not in names.values() else name + PRIME


def _defined_names(line: str, language: Language) -> list[str]:
    return [m[0] for m in language.name.finditer(line) if language.defined.match(line, m.end())]


def _pairs(old: Sequence[str], new: Sequence[str], language: Language) -> Iterator[tuple[str, str | None]]:
    """Each line of `old`, and the one of `new` beside it: of the same skeleton, or replaced by as many others."""
    matcher = difflib.SequenceMatcher(None, _skeletons(old, language), _skeletons(new, language))
    for _, start, end, their_start, their_end in matcher.get_opcodes():
        if end - start == their_end - their_start:
            yield from zip(old[start:end], new[their_start:their_end], strict=True)
        else:
            yield from ((line, None) for line in old[start:end])


def _skeletons(lines: Sequence[str], language: Language) -> list[str]:
    """Without names, and without sizes, so that two signatures of one function align."""
    return [_NUMBER.sub("#", language.name.sub("_", line)) for line in lines]
