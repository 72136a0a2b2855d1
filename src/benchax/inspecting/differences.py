"""The differences between two inspections: numbers, primitives, operations, and the texts of the program.

    jaxpr        equal if their texts are, which name values in the order of their definition
    StableHLO    the same, without locations and the names of the module, of results and of inner functions, which
                 differ between versions of JAX
    HLO          equal if their normalised texts are (`hlo.normalize`)

A number that one side does not know is not compared. The reason is in the inspection.

To show differences, texts are compared line by line, although one more equation in the middle renames all that follows.
First, lines are aligned by their skeletons, which have no names of values. Aligned lines then show which name of the
first text is which of the second. The first text is rewritten with the second's names, so that `diff` shows only real
differences. A value without a counterpart in the second keeps its name with an apostrophe. The texts themselves decide
whether two programs are the same.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchax.case import Case
from benchax.checkouts.launch import Launch, Selection, launch_jax
from benchax.checkouts.partners import CaseSource, Partner, kept_case
from benchax.checkouts.worktrees import launch_checkout
from benchax.discovery import target_cases
from benchax.errors import BenchaxError, UsageError
from benchax.inspecting.inspect import inspect_case
from benchax.model import Absent
from benchax.printable import drop_addresses
from benchax.program.hlo import normalize
from benchax.results.inspection import (
    Difference,
    Inspection,
    LineWork,
    NumberChange,
    Stage,
    TextDifference,
    Unit,
)
from benchax.source_files import NOT_YOURS, without_folders
from benchax.workers.task import Failed, Say

TITLES: dict[Stage, str] = {"jaxpr": "jaxpr", "stablehlo": "StableHLO", "hlo": "optimised HLO"}

_LOCATION = re.compile(r" ?loc\((?:\"(?:[^\"\\]|\\.)*\"|[^()\"]|\([^()]*\))*\)|^#loc.*\n?", re.MULTILINE)
_MODULE = re.compile(r"^module @\S+", re.MULTILINE)
_CALLED = re.compile(r"\bcall (@(\w+?)(?:_\d+)?)\(")
"""In the order of the calls; @relu_0 and @relu_2 are both a relu."""
_FUNCTION = re.compile(r"@\w+")
_RESULT = re.compile(r"jax\.result_info = \"[^\"]*\"")

Number = tuple[str, float | None, Unit]


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
"""c:f32[8] = add a b. A primitive comes after "= ", a parameter's value after "="."""
SSA = Language(re.compile(r"%\w+|\bc\d+\b"), re.compile(r"(?::\d+)? = |: |:$"), re.compile(r"c\d+:$|  func\.func "))
"""StableHLO, and HLO as `hlo.normalize` writes it: %3 = f32[8] add(%1, %2), calls=c4."""
LANGUAGES: dict[Stage, Language] = {"jaxpr": JAXPR, "stablehlo": SSA, "hlo": SSA}


_NUMBER = re.compile(r"\d+")


def align_and_diff(before: str, after: str, labels: tuple[str, str], language: Language, context: int = 3) -> list[str]:
    """Returns lines of a unified diff. It uses the original texts if only names would differ."""
    old, new = before.splitlines(), after.splitlines()
    # First, rename everything consistently. If no difference remains, names are the only difference, so show them.
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
        for name, wanted in zip(ours, theirs if len(ours) == len(theirs) else ours, strict=True):
            names.pop(name, None)
            # Two values of one scope never get the same name, whatever the alignment took for what.
            is_free = counterpart is not None and wanted not in names.values()
            names[name] = wanted if is_free else name + PRIME
        written.append(language.name.sub(new_name, line))
    return written


def _defined_names(line: str, language: Language) -> list[str]:
    return [m[0] for m in language.name.finditer(line) if language.defined.match(line, m.end())]


def _pairs(old: Sequence[str], new: Sequence[str], language: Language) -> Iterator[tuple[str, str | None]]:
    """Pairs each line of `old` with a line of `new`: of the same skeleton, or replaced by as many others."""
    matcher = difflib.SequenceMatcher(None, _skeletons(old, language), _skeletons(new, language))
    for _, start, end, their_start, their_end in matcher.get_opcodes():
        if end - start == their_end - their_start:
            yield from zip(old[start:end], new[their_start:their_end], strict=True)
        else:
            yield from ((line, None) for line in old[start:end])


def _skeletons(lines: Sequence[str], language: Language) -> list[str]:
    """Without names, and without sizes, so that two signatures of one function align."""
    return [_NUMBER.sub("#", language.name.sub("_", line)) for line in lines]


def difference(before: Inspection, after: Inspection, labels: tuple[str, str] | None = None) -> Difference:
    """Compares `after` with `before`.

    Args:
        labels: the names of the two; by default name and signature.
    """
    names = labels or (_label(before), _label(after))
    pairs = [(a, b[1]) for a, b in zip(numbers(before), numbers(after), strict=True) if None not in (a[1], b[1])]
    texts = [_text_difference(stage, before, after, names) for stage in TITLES]
    primitives = [{p.name: p.count for p in each.jaxpr.primitives} for each in (before, after) if each.jaxpr]
    opcodes = [dict(each.counts.instructions) for each in (before, after) if each.counts]
    return Difference(
        *names,
        numbers=tuple(NumberChange(name, old, new, unit) for (name, old, unit), new in pairs if old != new),
        unchanged=tuple(name for (name, old, _), new in pairs if old == new),
        primitives=_changes(primitives[0], primitives[1]) if len(primitives) == 2 else (),
        opcodes=_changes(opcodes[0], opcodes[1]) if len(opcodes) == 2 else (),
        line_flops=_line_changes(before, after, lambda one: one.flops, "flop"),
        line_bytes=_line_changes(before, after, lambda one: one.bytes_accessed, "bytes"),
        texts=tuple(text for text in texts if isinstance(text, TextDifference)),
        absent=tuple(text for text in texts if isinstance(text, Absent)),
    )


def numbers(inspection: Inspection) -> list[Number]:
    """Every number that two programs can be compared by, the same ones in the same order for each."""
    jaxpr, counts, memory = inspection.jaxpr, inspection.counts, inspection.memory
    constants, donation = inspection.constants, inspection.donation
    return [
        ("equations", jaxpr and jaxpr.equations, "count"),
        ("nesting of the jaxpr", jaxpr and jaxpr.depth, "count"),
        ("fusions", counts and counts.fusions, "count"),
        ("instructions", counts and sum(n for _, n in counts.instructions), "count"),
        ("loops", counts and len(counts.loops), "count"),
        ("operations", counts and counts.flops, "flop"),
        ("transcendentals", counts and counts.transcendentals, "count"),
        ("bytes accessed", counts and counts.bytes_accessed, "bytes"),
        ("arguments", memory and memory.argument_bytes, "bytes"),
        ("outputs", memory and memory.output_bytes, "bytes"),
        ("temporaries", memory and memory.temp_bytes, "bytes"),
        ("aliased by donation", donation and donation.aliased_bytes, "bytes"),
        ("predicted peak", memory and memory.predicted_peak_bytes, "bytes"),
        ("captured constants", constants and constants.captured_bytes, "bytes"),
        ("baked-in constants", constants and constants.baked_in_bytes, "bytes"),
        ("collectives", inspection.collectives and len(inspection.collectives.calls), "count"),
    ]


def _label(inspection: Inspection) -> str:
    return f"{inspection.name}({inspection.signature})"


def _line_changes(
    before: Inspection, after: Inspection, amount: Callable[[LineWork], float], unit: Unit
) -> tuple[NumberChange, ...]:
    if before.lines is None or after.lines is None:
        return ()
    sums: list[dict[str, float]] = [{}, {}]
    for found, lines in zip(sums, (before.lines, after.lines), strict=True):
        for line in lines:
            # Another commit is in another folder.
            place = without_folders(line.source) or NOT_YOURS
            found[place] = found.get(place, 0.0) + amount(line)
    return _changes(sums[0], sums[1], unit)


def _changes(before: Mapping[str, float], after: Mapping[str, float], unit: Unit = "count") -> tuple[NumberChange, ...]:
    """Returns the names whose numbers differ; the largest change first."""
    pairs = {name: (before.get(name, 0), after.get(name, 0)) for name in {**before, **after}}
    found = [NumberChange(name, old, new, unit) for name, (old, new) in pairs.items() if old != new]
    return tuple(sorted(found, key=lambda c: -abs((c.after or 0) - (c.before or 0))))


# ---- texts ------------------------------------------------------------------------------------------------------


def _text_difference(
    stage: Stage, before: Inspection, after: Inspection, labels: tuple[str, str]
) -> TextDifference | Absent:
    old, new = program_text(before, stage), program_text(after, stage)
    if old is None or new is None:
        without, label = (before, labels[0]) if old is None else (after, labels[1])
        return Absent(stage, f"{label} has none: {without.why_absent(stage) or 'it was not requested'}")
    if old == new:
        return TextDifference(stage, is_same=True)
    lines = align_and_diff(old, new, labels, LANGUAGES[stage])
    added, removed = (sum(line.startswith(sign) for line in lines[2:]) for sign in "+-")  # after two lines of the head
    return TextDifference(stage, is_same=False, added=added, removed=removed, unified="\n".join(lines))


def program_text(inspection: Inspection, stage: Stage) -> str | None:
    """The text without what changes when nothing has changed."""
    if stage == "jaxpr":
        return None if inspection.jaxpr is None else drop_addresses(inspection.jaxpr.text)
    if stage == "stablehlo":
        return None if inspection.stablehlo is None else _without_names(inspection.stablehlo)
    return None if inspection.hlo is None else normalize(inspection.hlo, stablehlo=inspection.stablehlo or "")


def _without_names(stablehlo: str) -> str:
    text = _RESULT.sub("jax.result_info", _MODULE.sub("module", _LOCATION.sub("", stablehlo)))
    names = {name: f"@{base}.{i}" for i, (name, base) in enumerate(dict.fromkeys(_CALLED.findall(text)))}
    return _FUNCTION.sub(lambda m: names.get(m[0], m[0]), text)


# ---- the other side ---------------------------------------------------------------------------------------------
#
# Another signature, another function, another commit, another JAX. Another commit is inspected in a git worktree,
# another JAX in a separate environment. In both cases a separate process inspects.

PERMITTED = (
    'other inputs such as "f32[2048] axis=0", another function such as module:other, a commit such as ref:main, or '
    "another JAX such as jax:0.9.2"
)
_VERSION = re.compile(r"jax:(\d.*)", re.DOTALL)


def differences(
    cases: Sequence[Case], selection: Selection, other: str, say: Callable[[str], None] = lambda text: None
) -> list[Difference]:
    """Compares each case with its other side. `other` is the second side. For a commit or a JAX it is the first side,
    because it is the older one.

    Args:
        say: receives messages about long steps.

    Raises:
        UsageError: `other` is none of `PERMITTED`, or names something that does not exist.
        BenchaxError: one of the sides cannot be built.
    """
    if other.startswith("ref:"):
        with launch_checkout(other.removeprefix("ref:"), selection.what) as (there, _):
            return _pair(cases, inspect_in(there, selection), there.version.label)
    if version := _VERSION.fullmatch(other):
        return _pair(cases, inspect_in(launch_jax(version[1], say=say), selection), f"jax {version[1]}")
    if len(cases) != 1:
        raise UsageError(
            f"--diff {other!r} compares one function with another, and there are {len(cases)} cases",
            "a single case",
            "choose one with --filter",
        )
    return [difference(inspect_case(cases[0]), inspect_case(_other_case(selection, other)))]


def _other_case(selection: Selection, other: str) -> Case:
    """Another function with the same inputs, or the same function with other inputs."""
    words = shlex.split(other) if other.count('"') % 2 == 0 and other.count("'") % 2 == 0 else other.split()
    if not words:
        raise UsageError(f"--diff {other!r} is empty", PERMITTED)
    if _is_target(words[0]):
        return target_cases(words[0], words[1:] or selection.what[1:])[0]
    if not _is_target(selection.what[0]):
        raise UsageError(f"--diff {other!r} is impossible: benchmarks in files bring their own inputs", PERMITTED)
    return target_cases(selection.what[0], words)[0]


def _is_target(word: str) -> bool:
    return ":" in word and not Path(word).exists()


def inspect_in(launch: Launch, selection: Selection) -> list[Inspection]:
    """Returns the inspections of all cases, made in a process of another version.

    Raises:
        BenchaxError: the process finds no cases, or not all, or cannot inspect one.
    """
    with closing(Partner(launch, selection)) as partner:
        listing = partner.listing()
        try:
            if listing.broken:
                raise Failed(listing.broken[0])
            return [partner.ask(inspect_kept, (partner.source, i)) for i in range(len(listing.listed))]
        except Failed as failed:
            raise BenchaxError(f"not inspected with {partner.label}: {failed}") from failed


def inspect_kept(argument: tuple[CaseSource, int], say: Say) -> Inspection:
    """In that process: the case of this number."""
    case, _ = kept_case(*argument, say)
    say("inspect")
    return inspect_case(case)


def _pair(cases: Sequence[Case], found: Sequence[Inspection], label: str) -> list[Difference]:
    """The other side first, by name."""
    theirs = {each.name: each for each in found}
    pairs = [(case, theirs[case.id.label]) for case in cases if case.id.label in theirs]
    if not pairs:
        names = ", ".join(repr(case.id.label) for case in cases)
        raise UsageError(f"{label} has none of the cases {names}", "a case of one name on both sides")
    inspected = [(other, inspect_case(case)) for case, other in pairs]
    return [difference(other, mine, (f"{label}: {_label(other)}", f"now: {_label(mine)}")) for other, mine in inspected]
