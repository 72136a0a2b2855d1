"""`python -m pytest_jax_bench.to_0_5_0 .benchmarks --into OLD`: the CSV files in the form of pytest-jax-bench 0.5.0.

    0  all are written
    1  there is no CSV file of the plugin in that folder
    2  an error: a file cannot be read, or not be written

Use it if you go back to 0.5.0. That version cannot read a file that benchax has continued, and it reports that only
after measuring. The files have 18 columns, and times with two decimals of a millisecond. Rows of failures are omitted,
since 0.5.0 cannot express them. Data without a column are lost. The original files stay unchanged.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchax.cli.console import line, note
from benchax.errors import BenchaxError
from benchax.units import plural
from benchax.whole_files import write_text
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import COLUMNS, KINDS, MAGIC, Kind, word

OLD = COLUMNS[:18]
WIDTH = 11


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_jax_bench.to_0_5_0", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path, help="output folder of the plugin, such as .benchmarks")
    parser.add_argument("--into", type=Path, required=True, help="folder that is written to; not the same")
    given = parser.parse_args(arguments)
    found = csv_files.files_in(given.folder)
    if not found or given.into.resolve() == given.folder.resolve():
        note(f"no CSV files of the plugin in {str(given.folder)!r}" if not found else "--into names the same folder")
        return 1
    for file in found:
        target = given.into / file.relative_to(given.folder)
        try:
            text, without = convert(file)
            write_text(target, text)
        except BenchaxError as error:
            note(f"error: {error}")
            return 2
        line(str(target))
        if without:
            note(f"{file}: without {plural(without, 'row')} of failures")
    return 0


def convert(file: Path) -> tuple[str, int]:
    """The text of a file that 0.5.0 reads, and how many rows have no place in it."""
    rows = csv_files.read(file)
    named = [dict(zip(rows.dtype.names or (), row, strict=True)) for row in rows.tolist()]
    good = [row for row in named if row["status"] in ("ok", "")]
    listed = [f"# {f'({i})':>4} {name}" for i, name in enumerate(OLD, 1)]
    return "\n".join([MAGIC, *listed, *map(_line, good)]) + "\n", len(named) - len(good)


def _line(row: Mapping[str, Any]) -> str:
    return "".join(f" {_WRITE[KINDS[name]](row[name]):>{WIDTH}}" for name in OLD)


_WRITE: dict[Kind, Callable[[Any], str]] = {
    # Without a blank, a comma or the sign of a comment, at which its lines break.
    "text": lambda text: word(text).replace("#", "%23") if text else "-",
    "float": lambda number: "nan" if math.isnan(number) else f"{number:.2f}",
    "int": str,
}


if __name__ == "__main__":
    sys.exit(main())
