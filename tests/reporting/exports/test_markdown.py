"""A table for GitHub."""

from __future__ import annotations

from typing import Any

import pytest
from exported_rows import BARE, FAILED, FULL, ODD, ROWS, SLOWER, named, text

SHOWN = {
    "several cases": (ROWS, (SLOWER,)),
    "one number": ((BARE,), ()),
    "one case": ((FULL,), ()),
    "a failure": ((FAILED,), ()),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_line_per_case_without_empty_columns_and_what_is_missing_below(name: str, snapshot: Any) -> None:
    assert text("markdown", *SHOWN[name]) == snapshot


def test_no_text_breaks_the_table_or_calls_anyone() -> None:
    table = text("markdown", (named(ODD), named("@octocat [x](http://y) <script>|")))

    lines = table.splitlines()[2:4]
    assert [line.count("|") for line in lines] == [4, 4]
    assert not set("@[]<`") & set(table.split("times by")[0].replace("---", ""))
