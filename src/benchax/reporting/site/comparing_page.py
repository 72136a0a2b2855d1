"""The page that compares two versions side by side, and the list of versions that it can compare.

Python computes each number that the page shows. The page itself only divides two medians, and notes that it does not
judge this ratio. It shows verdicts only for comparisons that were made. It refuses versions that are not comparable,
and lists their differences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from benchax.reporting.document import Document, Heading, Paragraph
from benchax.reporting.markup import Markup, element
from benchax.reporting.site.environments import name_environment, split_common
from benchax.reporting.site.state import CaseSummary, SiteState
from benchax.reporting.site.versions import VERDICTS, file_of, shorten_version

INDEX = "index.js"
NOTE = (
    "Times are those of their own sessions, which differ by 30 % and more for reasons that are not in the code. So the "
    "ratio of two medians is not judged here: benchax compare measures both side by side. Ratios to a baseline were "
    "taken that way, and their verdicts are those of the comparisons."
)


def document() -> Document:
    return Document((Heading("Compare two versions, machines or JAX versions", 1), Paragraph(NOTE, "faint")))


def placeholder() -> Markup:
    return element(
        "section", element("p", "Choosing what to compare needs JavaScript.", css_class="faint"), id="versions"
    )


def render_index(state: SiteState) -> str:
    """The script that says which versions, environments and cases there are."""
    ordered = sorted(state.versions.items(), key=lambda item: item[1], reverse=True)
    document = {
        "versions": [[shorten_version(name), date[:10], file_of(name)] for name, date in ordered],
        "environments": _list_environments(state.environments),
        "cases": _list_cases(list(state.cases.values())),
        "baselines": state.baselines,
        "timers": state.timers,
        "verdicts": VERDICTS,
    }
    return f"benchaxIndex({json.dumps(document, separators=(',', ':'))});\n"


def _list_environments(environments: Mapping[str, Mapping[str, str]]) -> dict[str, object]:
    """Lists their names, what all have in common, and how each differs."""
    common, own = split_common(list(environments.values()))
    names = [name_environment(fingerprint, f) for fingerprint, f in environments.items()]
    return {"names": names, "common": common, "own": own}


def _list_cases(cases: Sequence[CaseSummary]) -> dict[str, list[str]]:
    """By the number that files of versions name a case by."""
    return {str(case.id): [case.label, case.page] for case in sorted(cases, key=lambda case: case.label)}
