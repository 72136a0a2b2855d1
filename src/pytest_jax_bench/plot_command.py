"""`ptjb-plot`: the pictures of `pytest --ptjb-plot`, from the CSV files and without running a test.

    0  everything is drawn
    1  a picture could not be drawn; all others are
    2  an error: no such folder, no benchmark in it, a wrong argument, matplotlib is missing

The files that were written go to stdout, one per line, everything else to stderr.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from benchax.cli.console import line, note
from benchax.errors import BenchaxError, UsageError
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import facts_of
from pytest_jax_bench.options import count_from_1, for_argparse, is_match
from pytest_jax_bench.plots.draw_all import KINDS, PlotRequest, draw_all
from pytest_jax_bench.plots.pictures import MOST_RUNS, natural

EPILOG = """\
pictures, next to the CSV file of each test:
  main.png          history: run times, compile time and memory of all runs
  main_xtag.png     tags of the newest run, from top to bottom
  n-128.png         history of a test with parameters, one file for each
  n.png             parameters: the newest runs over the parameter n
  summary.png       summary: the newest run of every test

examples:
  ptjb-plot
  ptjb-plot -x commit -s svg -k "*test_fft*"
  ptjb-plot --only summary -o plots

Drawings of markers, as in @pytest.mark.ptjb(plot=f), need the tests: pytest --ptjb-plot.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may have characters that the terminal lacks
    given = _parser().parse_args(arguments)
    try:
        drawn = draw_all(
            requests_in(given.folder, given.filter),
            folder=given.folder,
            x_axis=given.x_axis,
            file_format=given.format,
            into=given.output,
            kinds=given.only or KINDS,
            most_runs=given.last,
        )
    except BenchaxError as error:
        note(f"ptjb-plot: {error}")
        return 2
    for file in drawn.files:
        line(str(file))
    for problem in drawn.problems:
        note(f"ptjb-plot: {problem}")
    return 1 if drawn.problems else 0


def requests_in(folder: Path, pattern: str = "") -> list[PlotRequest]:
    """The tests that have a CSV file somewhere in `folder`, in natural order.

    Args:
        pattern: only tests whose id contains it, or matches it where it has * or ?.

    Raises:
        UsageError: there is no such folder, or no such test in it.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r}", "the output folder of a benchmark", "name it with -d")
    found = [PlotRequest(_nodeid(csv, folder), csv) for csv in csv_files.files_in(folder)]
    if not found:
        raise UsageError(f"no CSV file of a benchmark is in {str(folder)!r}", hint="run pytest with benchmarks first")
    wanted = [request for request in found if is_match(request.nodeid, pattern)]
    if not wanted:
        raise UsageError(f"no test in {str(folder)!r} matches {pattern!r}", f"part of a name such as {found[0].nodeid}")
    return sorted(wanted, key=lambda request: natural(request.nodeid))


def _nodeid(csv: Path, folder: Path) -> str:
    """The test that a file belongs to; a file that lost its header is named by its path."""
    return facts_of(csv_files.comments_of(csv)).get("test_nodeid") or str(csv.relative_to(folder).with_suffix(""))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ptjb-plot",
        description="Draw the benchmarks that pytest has measured and kept as CSV files.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "-d",
        "--bench-dir",
        "--ptjb-output-dir",
        dest="folder",
        type=Path,
        default=Path(".benchmarks"),
        metavar="DIR",
        help="folder of the CSV files (default: .benchmarks)",
    )
    add(
        "-x",
        "--xaxis",
        "--ptjb-plot-xaxis",
        dest="x_axis",
        choices=("run", "commit"),
        default="run",
        help="what a history is drawn along (default: run)",
    )
    add(
        "-s",
        "--save",
        "--format",
        "--ptjb-plot-format",
        dest="format",
        choices=("png", "pdf", "svg"),
        default="png",
        help="format of the files (default: png)",
    )
    add("-o", "--output", type=Path, metavar="DIR", help="folder to draw into (default: next to the CSV files)")
    add(
        "-k",
        "--filter",
        default="",
        metavar="NAME",
        help="only tests whose name contains this, or matches it, with * and ? (default: all)",
    )
    add(
        "--only",
        action="append",
        choices=[kind for kind in KINDS if kind != "custom"],
        help="only this kind of picture; may be given several times (default: all)",
    )
    add(
        "--last",
        type=for_argparse(count_from_1),
        default=MOST_RUNS,
        metavar="N",
        help=f"most runs in a history; the newest are drawn (default: {MOST_RUNS})",
    )
    return parser
