"""`benchax run --devices 1,2,4,8`: measures strong and weak scaling of each case over these numbers of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchax.cli.console import line, note, printing_to_stderr, show, show_broken
from benchax.cli.output_files import write_documents

if TYPE_CHECKING:
    from benchax.case import Case
    from benchax.discovery import Broken

OPTIONS = ("max_time_s", "seed")
"""Only these options of a run have a meaning here."""


def scale(
    cases: Sequence[Case],
    devices: str,
    given: Mapping[str, Any],
    broken: Sequence[Broken],
    *,
    as_json: bool,
    html: Path | None = None,
) -> int:
    """Measures and shows each case. Returns the exit code: 2 if a file or a count could not be measured."""
    import json

    from benchax.errors import UsageError
    from benchax.measuring.scaling import measure_scaling, read_counts
    from benchax.options import resolve
    from benchax.reporting.document import Document, list_parts
    from benchax.reporting.experiment import document_of_scaling as document

    for name, value in given.items():
        if value is not None and name not in (*OPTIONS, "store"):
            raise UsageError(f"--devices is given with {name}={value!r}", f"some of: {', '.join(OPTIONS)}")
    counts, is_whole, documents = read_counts(devices), True, list[Document]()
    for case in cases:
        options = resolve(case.options, command_line=given)
        found = printing_to_stderr(
            lambda case=case, options=options: measure_scaling(
                case,
                counts,
                max_time_s=options.max_time_s,
                seed=options.seed,
                report=lambda text, case=case: note(f"{case.id.label} {text}"),
            )
        )
        is_whole = is_whole and not any(point.why for curve in found.curves for point in curve.points)
        documents.append(document(found))
        if as_json:
            line(json.dumps(found.asdict(), allow_nan=False, default=str))
        else:
            show(documents[-1])
    write_documents(html, list_parts(f"Scaling over {devices} devices", documents))
    show_broken(broken)
    return 0 if is_whole and not broken else 2
