"""What differs between two inspections: numbers, primitives, operations, and the texts of the program.

    jaxpr        equal if their texts are, which name values in the order of their definition
    StableHLO    the same, without locations and the names of the module, of results and of inner functions, which
                 differ between versions of JAX
    HLO          equal if their normalised texts are (`artifacts/normalized.py`)

A number that one side does not know is no difference; it is not compared, and the reason is that of the inspection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchax.artifacts.normalized import normalize
from benchax.inspecting.aligned import JAXPR, SSA, Language, align_and_diff
from benchax.model import Absent
from benchax.results.difference import Difference, NumberChange, Stage, TextDifference, Unit
from benchax.results.inspection import Inspection

LANGUAGES: dict[Stage, Language] = {"jaxpr": JAXPR, "stablehlo": SSA, "hlo": SSA}
TITLES: dict[Stage, str] = {"jaxpr": "jaxpr", "stablehlo": "StableHLO", "hlo": "optimised HLO"}

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LOCATION = re.compile(r" ?loc\((?:\"(?:[^\"\\]|\\.)*\"|[^()\"]|\([^()]*\))*\)|^#loc.*\n?", re.MULTILINE)
_MODULE = re.compile(r"^module @\S+", re.MULTILINE)
_CALLED = re.compile(r"\bcall (@(\w+?)(?:_\d+)?)\(")
"""In the order of the calls; @relu_0 and @relu_2 are both a relu."""
_FUNCTION = re.compile(r"@\w+")
_RESULT = re.compile(r"jax\.result_info = \"[^\"]*\"")

Number = tuple[str, float | None, Unit]


def difference(before: Inspection, after: Inspection, labels: tuple[str, str] | None = None) -> Difference:
    """`after` beside `before`.

    Args:
        labels: what the two are called; by default name and signature.
    """
    names = labels or (_label(before), _label(after))
    pairs = list(zip(numbers(before), numbers(after), strict=True))
    texts = [_text_difference(stage, before, after, names) for stage in TITLES]
    return Difference(
        *names,
        numbers=tuple(NumberChange(a[0], a[1], b[1], a[2]) for a, b in pairs if _are_known(a, b) and a[1] != b[1]),
        unchanged=tuple(a[0] for a, b in pairs if _are_known(a, b) and a[1] == b[1]),
        primitives=_changes(_primitives(before), _primitives(after)) if before.jaxpr and after.jaxpr else (),
        opcodes=_changes(_opcodes(before), _opcodes(after)) if before.counts and after.counts else (),
        texts=tuple(text for text in texts if isinstance(text, TextDifference)),
        absent=tuple(text for text in texts if isinstance(text, Absent)),
    )


def numbers(inspection: Inspection) -> Iterator[Number]:
    """Every number that two programs can be compared by, the same ones in the same order for each."""
    jaxpr, counts, memory = inspection.jaxpr, inspection.counts, inspection.memory
    constants, donation = inspection.constants, inspection.donation
    yield "equations", jaxpr and jaxpr.equations, "count"
    yield "nesting of the jaxpr", jaxpr and jaxpr.depth, "count"
    yield "fusions", counts and counts.fusions, "count"
    yield "instructions", counts and sum(n for _, n in counts.instructions), "count"
    yield "loops", counts and len(counts.loops), "count"
    yield "operations", counts and counts.flops, "flop"
    yield "transcendentals", counts and counts.transcendentals, "count"
    yield "bytes accessed", counts and counts.bytes_accessed, "bytes"
    yield "arguments", memory and memory.argument_bytes, "bytes"
    yield "outputs", memory and memory.output_bytes, "bytes"
    yield "temporaries", memory and memory.temp_bytes, "bytes"
    yield "aliased by donation", donation and donation.aliased_bytes, "bytes"
    yield "predicted peak", memory and memory.predicted_peak_bytes, "bytes"
    yield "captured constants", constants and constants.captured_bytes, "bytes"
    yield "baked-in constants", constants and constants.baked_in_bytes, "bytes"
    yield "collectives", inspection.collectives and len(inspection.collectives.calls), "count"


def _are_known(before: Number, after: Number) -> bool:
    return before[1] is not None and after[1] is not None


def _label(inspection: Inspection) -> str:
    return f"{inspection.name}({inspection.signature})"


def _primitives(inspection: Inspection) -> dict[str, int]:
    return {p.name: p.count for p in inspection.jaxpr.primitives} if inspection.jaxpr else {}


def _opcodes(inspection: Inspection) -> dict[str, int]:
    return dict(inspection.counts.instructions) if inspection.counts else {}


def _changes(before: dict[str, int], after: dict[str, int]) -> tuple[NumberChange, ...]:
    """What is there more or less often; the largest change first."""
    names = [name for name in before | after if before.get(name, 0) != after.get(name, 0)]
    listed = [NumberChange(name, before.get(name, 0), after.get(name, 0)) for name in names]
    return tuple(sorted(listed, key=lambda c: -abs((c.after or 0) - (c.before or 0))))


# ---- texts ------------------------------------------------------------------------------------------------------


def _text_difference(
    stage: Stage, before: Inspection, after: Inspection, labels: tuple[str, str]
) -> TextDifference | Absent:
    texts = [program_text(each, stage) for each in (before, after)]
    if texts[0] is None or texts[1] is None:
        without, label = (before, labels[0]) if texts[0] is None else (after, labels[1])
        return Absent(stage, f"{label} has none: {without.why_absent(stage) or 'it was not asked for'}")
    if texts[0] == texts[1]:
        return TextDifference(stage, is_same=True)
    lines = align_and_diff(texts[0], texts[1], labels, LANGUAGES[stage])
    added, removed = _count(lines, "+"), _count(lines, "-")
    return TextDifference(stage, is_same=False, added=added, removed=removed, unified="\n".join(lines))


def program_text(inspection: Inspection, stage: Stage) -> str | None:
    """The text without what changes when nothing has changed."""
    if stage == "jaxpr":
        return None if inspection.jaxpr is None else _ADDRESS.sub("", inspection.jaxpr.text)
    if stage == "stablehlo":
        return None if inspection.stablehlo is None else _without_names(inspection.stablehlo)
    return None if inspection.hlo is None else normalize(inspection.hlo, stablehlo=inspection.stablehlo or "")


def _without_names(stablehlo: str) -> str:
    text = _RESULT.sub("jax.result_info", _MODULE.sub("module", _LOCATION.sub("", stablehlo)))
    names = {name: f"@{base}.{i}" for i, (name, base) in enumerate(dict.fromkeys(_CALLED.findall(text)))}
    return _FUNCTION.sub(lambda m: names.get(m[0], m[0]), text)


def _count(lines: Sequence[str], sign: str) -> int:
    """Without the two lines of the head."""
    return sum(line.startswith(sign) for line in lines[2:])
