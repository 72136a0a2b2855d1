"""The report of the persistent cache, from results made by hand."""

from __future__ import annotations

import json

import pytest

from benchax.reporting import (
    cache,
    display,  # noqa: F401  # what print needs
)
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


def test_what_was_read_and_what_was_too_quick_is_counted_with_its_seconds() -> None:
    shown = str(on(HIT, QUICK, QUICK))

    assert "state          on  /cache\n" in shown
    assert "in the folder   3  2.00 KiB; 1 when it began" in shown
    assert "hit             1  read from the cache; took 10.0 ms" in shown
    assert "too quick       2  compiled in less than the threshold of 1.00 s, and not kept; took 500 ms" in shown
    assert "not kept    " not in shown


def test_a_program_that_was_not_kept_is_shown_with_the_reasons_that_there_can_be() -> None:
    shown = " ".join(str(on(CachedProgram("jit(h)", "not kept", 0.1))).split())

    assert "not kept 1 compiled, and not kept: a callback, a small size, or compiled before the folder was set" in shown


def test_the_setting_that_keeps_more_is_told_exactly() -> None:
    (remark,) = cache.remarks(on(QUICK))

    assert remark.message == (
        "1 program cost 250 ms here and will again in the next process: each compiled in less than 1.00 s. "
        "To keep them: JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"
    )


def test_a_cache_that_is_off_says_why_and_what_that_cost() -> None:
    found = CacheUse([CachedProgram(None, "not kept", 2.0)], is_enabled=False, why_off="no folder is set")

    assert "off  no folder is set" in str(found)
    assert "1 program took 2.00 s to compile" in cache.remarks(found)[0].message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"is_writable": False}, "/cache cannot be written to: nothing is kept"),
        ({"is_reliable": False}, "programs are missing"),
    ],
)
def test_what_spoils_the_cache_or_the_report_is_a_warning(changed: dict, said: str) -> None:
    (remark,) = cache.remarks(on(HIT, **changed))

    assert said in remark.message
    assert remark.severity == "warning"


def test_a_cache_on_another_machine_is_not_judged() -> None:
    shown = str(on(HIT, directory="gs://bucket", is_writable=None, before=None, after=None))

    assert "not known whether it can be written" in shown
    assert "in the folder" not in shown


def test_a_block_that_has_not_ended_says_so() -> None:
    assert "the block has not ended" in str(CacheUse())


def test_results_show_themselves_in_text_and_in_notebooks() -> None:
    found = on(directory="/<b>[red]café")

    assert "/<b>[red]café" in str(found)
    html = found._repr_html_()
    assert html is not None
    assert "/&lt;b&gt;[red]café" in html
    assert json.loads(json.dumps(found.asdict()))["after"] == {"entries": 3, "size_bytes": 2048}
