"""The documents of stored rows of every kind, and the CSV rows of the pytest plugin."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path


def sections() -> dict[str, Callable[[], str]]:
    from comparisons_by_hand import compared, counted
    from measurement_strategies import BARE, FAILED, FULL, RICH
    from results_by_hand import every_result

    from benchax import codec

    rows = {"every field": RICH, "times": FULL, "one reading": BARE, "a failure": FAILED}
    comparisons = {"of times": compared(1, 1.1), "of memory": counted(1, 2.0**21), "without a ratio": compared(2, None)}
    found: dict[str, Callable[[], str]] = {}
    for name, row in rows.items():
        found[f"measurement: {name}"] = lambda row=row: indent(codec.encode(row))
    for name, comparison in comparisons.items():
        found[f"comparison: {name}"] = lambda c=comparison: indent(codec.encode(c))
    results = every_result("f")
    found["inspection"] = lambda: indent(codec.encode(results["Inspection"]))
    for kind, result in results.items():
        if kind != "Measurement" and hasattr(result, "asdict"):
            found[f"{kind}.asdict()"] = lambda result=result: indent(json.dumps(result.asdict(), default=repr))
    return found | {"CSV of the pytest plugin": csv_rows, "a row of a failed test": lambda: csv_rows(status="failed")}


def indent(document: str) -> str:
    return json.dumps(json.loads(document), indent=1, ensure_ascii=True)


def csv_rows(**changed: str) -> str:
    from csv_rows_by_hand import a_file, a_row

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "test.csv")
        a_file(file, a_row(), a_row(jit=2.0, tag="fast", parameters="{'n': 3}", **changed))
        return re.sub("(created: ).*", r"\1NOW", file.read_text(encoding="utf-8"))
