"""--ptjb-json: all results of a session in one JSON document.

    {"format": "ptjb-json", "version": 1, "session": …, "created": …,
     "results": [{"nodeid", "csv", "row", "reference", "verdicts", "gate", "notes", "measurements"}, …]}

`row` and `reference` have the columns of the CSV file, null for NaN; `verdicts` says for each metric [verdict, why];
`gate` is what --ptjb-fail-slower came to, {"against", "verdict", "text", "alarms", "notes"}, null without it;
`measurements` are the documents of benchax with every reading, as `benchax run --json` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

VERSION = 1
FIELDS = ("nodeid", "csv", "row", "reference", "verdicts", "gate", "notes", "measurements")


def write_json(path: Path, records: Sequence[Mapping[str, Any]], *, session: str) -> None:
    document = {
        "format": "ptjb-json",
        "version": VERSION,
        "session": session,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "results": without_nan([{name: record[name] for name in FIELDS} for record in records]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def without_nan(value: Any) -> Any:
    """JSON has no word for NaN and infinities: null."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else value
