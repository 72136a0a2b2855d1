"""The report of the persistent cache, from results made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.results.cache import CachedProgram, CacheUse, Folder

HIT = CachedProgram("jit(f)", "hit", 0.01)
QUICK = CachedProgram("jit(g)", "too quick", 0.25)


def on(*programs: CachedProgram, **changed: object) -> CacheUse:
    given: dict = {
        "directory": "/cache",
        "is_enabled": True,
        "is_writable": True,
        "before": Folder(1, 512),
        "after": Folder(3, 2048),
        "min_compile_time_s": 1.0,
    }
    return CacheUse(list(programs), **given | changed)


SHOWN = {
    "what was read and what was too quick is counted with its seconds": on(HIT, QUICK, QUICK),
    "a program that was not kept comes with possible reasons": on(CachedProgram("jit(h)", "not kept", 0.1)),
    "a cache that is off says why and what that cost": CacheUse(
        [CachedProgram(None, "not kept", 2.0)], is_enabled=False, why_off="no folder is set"
    ),
    "nothing can be written": on(HIT, is_writable=False),
    "programs are missing": on(HIT, is_reliable=False),
    "a cache on another machine is not judged": on(
        HIT, directory="gs://bucket", is_writable=None, before=None, after=None
    ),
    "a block that has not ended": CacheUse(),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_use_of_a_cache_is_shown(name: str, snapshot: Any) -> None:
    assert str(SHOWN[name]) == snapshot


def test_results_show_themselves_in_text_and_in_notebooks() -> None:
    found = on(directory="/<b>[red]café")

    assert "/<b>[red]café" in str(found)
    html = found._repr_html_()
    assert html is not None
    assert "/&lt;b&gt;[red]café" in html
    assert json.loads(json.dumps(found.asdict()))["after"] == {"entries": 3, "size_bytes": 2048}
