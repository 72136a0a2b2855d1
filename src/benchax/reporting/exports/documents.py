"""JSON: one object with everything, {"measurements": [...], "comparisons": [...]}.

Each is a document as `codec.py` writes it, with every reading; a measurement also has a `summary` of the requested
times. If there are no such times, the summary is null and `why` gives the reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from benchax.codec import encode_comparison, to_document
from benchax.reporting.exports.entries import ExportedCase, strict_json


def text(found: Sequence[ExportedCase]) -> str:
    comparisons = [json.loads(encode_comparison(c)) for entry in found for c in entry.comparisons]
    measurements = [_document(entry) for entry in found]
    return strict_json({"measurements": measurements, "comparisons": comparisons}, indent=None)


def _document(entry: ExportedCase) -> dict[str, Any]:
    summary = dataclasses.asdict(entry.summary) if entry.summary else None
    timer = {"timer": entry.samples.timer} if entry.samples else {"why": entry.why}
    return to_document(entry.m) | {"label": entry.label, "summary": summary, **timer}
