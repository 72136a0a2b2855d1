"""Which CSV file belongs to which test: readable, safe on every system, and never the same for two of them.

    tests/test_x.py::test_full        tests-test_x.py--test_full/main.csv
    tests/test_x.py::test_n[128]      tests-test_x.py--test_n/n-128.csv

So did pytest-jax-bench 0.5.0 name them. Where such a name would not do, it ends in ~ and a digest: if it could also be
that of another test (a dash in a path, ids that were chosen by hand), if it differs from another one in upper and
lower case only (the same file on macOS and Windows), if a system reserves it, or if it is long. A file that 0.5.0 has
begun for a test under its own name is continued nevertheless; its header says whose it is. So is one of the versions
before, which the README shows, where there is none under a later name:

    tests/test_x.py::test_full        tests:test_x::test_full.csv
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_jax_bench.csv.lines import MAGIC, facts_of, is_of_0_5
from pytest_jax_bench.csv.text import encode_parameters

_NODEID = re.compile(r"(?P<test>.*?)(?P<id>\[.*\])?", re.DOTALL)
# Names of functions have no brackets, but those of folders may.
_NODEID_OF_FUNCTION = re.compile(r"(?P<test>.*\.py(?:::\w+)+)(?P<id>\[.*\])?", re.DOTALL)
# Lower case, since not every system tells a from A; no dash, so that "-" can only have been "/", and "--" "::".
_PLAIN_TEST = re.compile(r"(?:[a-z0-9_][a-z0-9_.]*(?:/|::|$))+")
_PLAIN_PARAMS = re.compile(r"(?:[a-z0-9_.,+-]|-(?:True|False|None)(?=,|$))+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|(?:com|lpt)[0-9¹²³])(?:\..*)?", re.IGNORECASE)  # on Windows
_LONGEST = 100  # beside it must fit: .csv, the endings of plots and graphs, and folders (260 on Windows)
_LONGEST_BEFORE_DIGEST = 60


def file_for(folder: Path, nodeid: str, params: Mapping[str, Any]) -> Path:
    """The CSV file of a test with these parameters. Makes nothing.

    Two tests, or two sets of parameters that `text.encode_parameters` tells apart, never share a file.
    """
    named = _NODEID_OF_FUNCTION.fullmatch(nodeid) or _NODEID.fullmatch(nodeid)
    test, id = (named["test"], named["id"]) if named else (nodeid, None)
    ours = folder / _folder_name(test) / f"{_file_name(id, params)}.csv"
    theirs = _name_of_0_5(folder, nodeid, params)
    if theirs != ours and theirs and _belongs_to(theirs, nodeid):
        return theirs
    first = _name_in_readme(folder, nodeid)
    return first if first and not ours.exists() and _belongs_to(first, nodeid) else ours


def _folder_name(test: str) -> str:
    name = _as_0_5(test)
    is_plain = _PLAIN_TEST.fullmatch(test) and test[-1] not in "/:." and _is_safe(name)
    return name if is_plain else _with_digest(name, test)


def _file_name(id: str | None, params: Mapping[str, Any]) -> str:
    name = encode_parameters(params)
    if not params and id is None:
        return "main"
    is_plain = params and id in (None, _usual_id(params)) and _PLAIN_PARAMS.fullmatch(name) and _is_safe(name)
    return name if is_plain else _with_digest(name if params else "main", f"{id}\n{name}")


def _usual_id(params: Mapping[str, Any]) -> str:
    """What pytest makes of these parameters, unless ids= says otherwise or it would appear twice."""
    return f"[{'-'.join(map(str, params.values()))}]"


def _is_safe(name: str) -> bool:
    return len(name) <= _LONGEST and not name.endswith((".", " ")) and not _RESERVED.fullmatch(name)


def _with_digest(name: str, identity: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_.,+=-]+", "_", name)[:_LONGEST_BEFORE_DIGEST].lstrip(".")
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    # Windows reserves nul.py and nul.py~1 as well.
    return f"{'_' if _RESERVED.fullmatch(readable) else ''}{readable}~{digest}"


# ---- pytest-jax-bench 0.5.0 -------------------------------------------------------------------------------------


def _as_0_5(nodeid: str) -> str:
    return nodeid.replace("/", "-").replace("::", "--")


def _name_of_0_5(folder: Path, nodeid: str, params: Mapping[str, Any]) -> Path | None:
    """Where 0.5.0 kept this test; None where it is outside of `folder`, or can be no file."""
    test = re.sub(r"\[.*\]$", "", _as_0_5(nodeid))
    name = ",".join(f"{k}-{v}" for k, v in params.items()) if params else "main"
    parts = [test, *f"{name}.csv".split("/")]
    is_inside = not any(part in ("", ".", "..") or "\0" in part for part in parts)
    return folder.joinpath(*parts) if is_inside else None


def _name_in_readme(folder: Path, nodeid: str) -> Path | None:
    """Where the versions before 0.5.0 kept this test; None where that can be no file."""
    name = f"{nodeid.replace('/', ':').replace('.py::', '::')}.csv"
    return None if "\0" in name or len(name.encode("utf-8", "surrogatepass")) > 255 else folder / name


def _belongs_to(path: Path, nodeid: str) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            comments = [text.rstrip("\r\n") for text, _ in zip(file, range(10), strict=False)]
    except (OSError, ValueError):
        return False
    facts = facts_of(comments)
    return comments[:1] == [MAGIC] and facts.get("test_nodeid") == nodeid and is_of_0_5(comments)
