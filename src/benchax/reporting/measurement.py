"""Measurements as documents: one with all its sections, or many side by side with their failures and remarks."""

from __future__ import annotations

from collections.abc import Sequence

from benchax.model import Failure, Measurement
from benchax.reporting.document import Block, Document, Facts, Heading, Paragraph, Remarks, list_remarks
from benchax.reporting.tables import heading, overview, sections


def document(m: Measurement, is_full: bool = False) -> Document:
    """One measurement. `is_full`: see `tables.sections`."""
    title, where = heading(m)
    below = (where, m.signature) if m.signature else (where,)
    facts = tuple(sections(m, is_full))
    return Document((Heading(title, 1, below), *([Facts(facts)] if facts else []), *list_remarks(m.remarks)))


def list_measurements(listed: Sequence[Measurement]) -> Document:
    """An overview, then what each row's remarks and failures say."""
    blocks: list[Block] = [overview(listed)]
    for m in listed:
        grave = tuple(remark for remark in m.remarks if remark.severity != "info")
        if m.failure:
            blocks += [Heading(m.case.label), Paragraph(_describe_failure(m.failure), "bad")]
        elif grave:
            blocks += [Heading(m.case.label), Remarks(grave)]
    return Document(tuple(blocks))


def _describe_failure(failure: Failure) -> str:
    advice = f"\n{failure.advice}" if failure.advice else ""
    return f"{failure.kind.replace('_', ' ')} in {failure.stage}: {failure.message}{advice}"
