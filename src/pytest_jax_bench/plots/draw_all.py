"""The pictures of the plugin, and the names of their files; `draw_all` is the way in.

Next to the CSV file of each test: `main.png` (or `n-128.png`), its history; `main_xtag.png`, its tags side by side;
`main_custom.png`, the picture of the marker's own `plot`. In the folder of a parametrized test: `n.png`, the newest run
over the parameter n; `custom.png`, the picture of `plot_summary`. In the output folder: `summary.png`, all tests. A
picture that cannot be drawn becomes a problem in words, and never ends the session. This needs matplotlib, and no
display.
"""

from __future__ import annotations

import base64
import contextlib
import os
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import cloudpickle
import numpy as np

from benchax.errors import BenchaxError, UsageError, one_of, reason_of, require, text_of
from benchax.grouping import group_by
from benchax.reporting.document import Chart
from benchax.reporting.figures import draw_together
from pytest_jax_bench.context import by_value
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import COLUMNS, decode_parameters
from pytest_jax_bench.data import last_entries_with, load_bench_data
from pytest_jax_bench.plots import pictures

Plot = Callable[[Any], Any]
XAxis = Literal["run", "commit"]
Format = Literal["png", "pdf", "svg"]
Kind = Literal["history", "tags", "parameters", "custom", "summary"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Names of files in the folder of a test that are no parameters, and those that Windows has other uses for.
TAKEN = frozenset({"main", "custom", "con", "prn", "aux", "nul"})


@dataclass(frozen=True)
class PlotRequest:
    """A test that is to be drawn; the three last come from its own marker `ptjb`."""

    nodeid: str
    """As pytest writes it, with the parameters: tests/test_x.py::test_fft[128]."""
    csv: Path
    plot: Plot | None = None
    plot_summary: Plot | None = None
    only_last: bool = False


@dataclass
class Drawing:
    """The result of one call of `draw_all`."""

    files: list[Path] = field(default_factory=list[Path])
    problems: list[str] = field(default_factory=list[str])
    """One line each, with the name of the test: what was not drawn, and why."""
    rows: dict[Path, pictures.Rows] = field(default_factory=dict[Path, pictures.Rows])
    """The rows of each file, read once; none of a file that cannot be read."""

    @contextlib.contextmanager
    def attempt(self, nodeid: str, what: str) -> Iterator[None]:
        """Whatever goes wrong inside costs this picture only."""
        try:
            yield
        except Exception as error:
            self.problems.append(f"{nodeid}: {what} was not drawn, because {reason_of(error)[:400]}")

    def read(self, csv: Path, nodeid: str) -> pictures.Rows:
        if csv not in self.rows:
            self.rows[csv] = np.empty(0)
            with self.attempt(nodeid, "anything"), warnings.catch_warnings():
                warnings.simplefilter("default")  # a damaged row costs no picture where warnings are errors
                self.rows[csv] = csv_files.read(csv)
        return self.rows[csv]


Planned = tuple[Kind, str, str, Path, Callable[[Path], Path | None]]
"""A picture that can be drawn: its kind, its test, what it shows, its file without the suffix, and what draws it into a
file. That returns None for a function of the user's that has saved its own."""


def draw_all(
    requests: Sequence[PlotRequest],
    *,
    folder: Path,
    x_axis: XAxis = "run",
    file_format: Format = "png",
    into: Path | None = None,
    kinds: Collection[Kind] = KINDS,
    most_runs: int = pictures.MOST_RUNS,
) -> Drawing:
    """Draws every picture of these tests. The summary covers these tests only, and a single row has none.

    Args:
        folder: the output folder of the plugin (--ptjb-output-dir).
        into: where the pictures go, in folders as in `folder`; None: into `folder` itself, next to the CSV files.
        kinds: which pictures.
        most_runs: a history shows at most this number of runs, the newest.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    require("matplotlib", doing="drawing plots")
    drawn, unique = Drawing(), list({request.csv: request for request in requests}.values())
    for kind, nodeid, what, path, draw in _list_pictures(drawn, unique, folder, x_axis, most_runs, kinds):
        if kind in kinds:
            with contextlib.suppress(ValueError):  # a file somewhere else keeps its pictures
                path = (into or folder) / path.relative_to(folder)
            with drawn.attempt(nodeid, what):
                if file := draw(path.with_name(f"{path.name}.{file_format}")):
                    drawn.files.append(file)
    return drawn


def _list_pictures(
    drawn: Drawing,
    requests: Sequence[PlotRequest],
    folder: Path,
    x_axis: XAxis,
    most_runs: int,
    kinds: Collection[Kind],
) -> Iterator[Planned]:
    tests: list[tuple[str, pictures.Rows]] = []
    for request in requests:
        nodeid, here, stem = request.nodeid, request.csv.parent, request.csv.name.removesuffix(".csv")
        rows = drawn.read(request.csv, nodeid)
        if not len(rows):
            continue
        tests.append((nodeid, rows))
        draw = partial(_draw, pictures.history, (rows, nodeid, x_axis, most_runs))
        yield "history", nodeid, "the history", here / stem, draw
        if pictures.has_tags(rows):
            draw = partial(_draw, pictures.by_tag, (rows, nodeid))
            yield "tags", nodeid, "the tags", here / f"{stem}_xtag", draw
        if request.plot:
            draw = partial(_draw_own, request.plot, request.csv, request.only_last)
            yield "custom", nodeid, "plot", here / f"{stem}_custom", draw
    for here, group in group_by(requests, lambda request: request.csv.parent).items():
        # The output folder itself is not one of a test: in the README's time, it held all tests.
        if here.resolve() == folder.resolve():
            continue
        if "parameters" in kinds:  # else its other files need not be readable
            yield from _list_pictures_of_parameters(drawn, here, group[0].nodeid.partition("[")[0])
        functions = {request.plot_summary: request for request in reversed(group) if request.plot_summary}
        for number, (function, request) in enumerate(reversed(functions.items()), 1):
            draw = partial(_draw_own, function, here, request.only_last)
            name = "custom" if number == 1 else f"custom-{number}"
            yield "custom", request.nodeid, "plot_summary", here / name, draw
    # A summary of one row says nothing new.
    if len(tests) > 1 or any(pictures.has_tags(rows) for _, rows in tests):
        draw = partial(_draw, pictures.summary, (tests,))
        yield "summary", "summary", "the summary", folder / "summary", draw


def _list_pictures_of_parameters(drawn: Drawing, here: Path, title: str) -> Iterator[Planned]:
    """Over each parameter of one test, including parameters that did not run this time."""
    found = [drawn.read(file, title) for file in csv_files.files_in(here)]
    if not (found := [rows for rows in found if len(rows)]):
        return
    rows = np.concatenate(found)
    params = [decode_parameters(str(text)) for text in rows["parameters"]]
    names = list(dict.fromkeys(name for one in params for name in one))
    for name, stem in zip(names, _stems(names), strict=True):
        have = [i for i, one in enumerate(params) if name in one]
        values = {other: [params[i].get(other) for i in have] for other in names}
        draw = partial(_draw, pictures.by_parameter, (rows[have], values, name, title))
        yield "parameters", title, f"the plot over {name}", here / stem, draw


def _stems(names: Sequence[str]) -> list[str]:
    """File names for parameters: none that means something else, none that differs from another in case only."""
    taken = set(TAKEN)
    stems: list[str] = []
    for name in names:
        stem = "".join(c if c.isalnum() or c in "_-" else "_" for c in name)[:60]
        while stem.casefold() in taken:
            stem += "_parameter"
        taken.add(stem.casefold())
        stems.append(stem)
    return stems


# ---- a picture, which is charts one below the other, in a file -------------------------------------------------------
#
# Drawn without pyplot: no window opens, and nothing has to be closed. The settings of the user's plots change nothing.


# The font of matplotlib has no Chinese, Japanese and Korean characters. Ids of an SVG are random without a salt.
FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Microsoft YaHei", "Hiragino Sans", "Arial Unicode MS")
STYLE = {"svg.hashsalt": "benchax", "legend.fontsize": 8}


# Without a date, the same rows give the same file.
NO_DATE: dict[str, Any] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def _draw(make: Callable[..., pictures.Picture], arguments: tuple[Any, ...], path: Path) -> Path:
    """Draws what a function of `pictures` makes of these arguments."""
    save_charts(make(*arguments), path)
    return path


def save_charts(charts: Sequence[Chart], path: Path) -> None:
    """Draws `charts` into a file, whose suffix is png, svg or pdf; a file that is there is replaced.

    Raises:
        MissingPackage: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    font_manager, style = (require(f"matplotlib.{name}", doing="drawing") for name in ("font_manager", "style"))
    installed = {font.name for font in font_manager.fontManager.ttflist}
    own = STYLE | {"font.family": [font for font in FONTS if font in installed]}
    # "default" first: a user's matplotlibrc may ask for TeX, or for a dark page.
    with style.context(["default", own]), warnings.catch_warnings():
        # A character without a glyph, or a picture too full to be laid out well: no reason to have none, and none for
        # pytest -W error to fail.
        warnings.simplefilter("ignore")
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_together(charts).savefig(path, metadata=NO_DATE[path.suffix])


# ---- plot functions of users: `@pytest.mark.ptjb(plot=f, plot_summary=f)` -------------------------------------------
#
# Such a function gets the data and returns a figure, which is saved. If it returns None, it has saved its own files. It
# can fail in any way; a message then gives its name and line, and everything else continues. The reporting process
# calls it. That process has the function if it collected the tests. With xdist it did not; then each record brings the
# functions of its marker.


class CustomPlotFailed(BenchaxError):
    """A user's plot function raised, or returned something that is not a figure."""


def _draw_own(function: Plot, source: Path, only_last: bool, path: Path) -> Path | None:
    data = load_bench_data(source, merge_param=True)
    if only_last:
        data = in_order(last_entries_with(data, keys=("tag", "parameters")))
    else:
        data = data[np.argsort(data["run_id"], kind="stable")]
    return draw_custom(function, data, path)


def draw_custom(function: Plot, data: pictures.Rows, path: Path) -> Path | None:
    """Calls `function` with `data`, and saves the figure that it returns.

    Returns:
        The file; None if the function returned None.

    Raises:
        CustomPlotFailed: with the reason in one line.
    """
    name = getattr(function, "__qualname__", None) or repr(function)
    with _plots_of_users():
        try:
            returned = function(data)
            # Axes are returned as easily by mistake, and seaborn returns grids: both have a figure.
            candidates = (returned, getattr(returned, "figure", None))
            figure = next((each for each in candidates if callable(getattr(each, "savefig", None))), None)
            if figure is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # pytest.fail and sys.exit raise what is no Exception
            frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
            where = f" ({Path(frames[0].filename).name}:{frames[0].lineno})" if frames else ""
            text = " ".join(text_of(error).split())[:300]
            raise CustomPlotFailed(f"{name} raised {type(error).__name__}{where}" + f": {text}" * bool(text)) from error
    if figure is None and returned is not None:
        raise CustomPlotFailed(f"{name} returned a {type(returned).__name__}, expected a matplotlib figure or None")
    return path if figure is not None else None


def in_order(data: pictures.Rows) -> pictures.Rows:
    """Rows as a plot function expects them to follow one another: by tag, then by parameter, numbers as numbers.

    `last_entries_with` sorts parameters as texts, so that a line over n = 8, 16, 128 would go back and forth.
    """
    parameters = [name for name in data.dtype.names or () if name not in COLUMNS]
    numbers = [data[name] for name in parameters if data.dtype[name].kind in "iuf"]
    return data[np.lexsort([*reversed(numbers), data["tag"].astype(str)])] if numbers else data


@contextlib.contextmanager
def _plots_of_users() -> Iterator[None]:
    """Settings are as before afterwards, figures that were opened are closed, and no window has appeared."""
    matplotlib = require("matplotlib", doing="drawing")
    if "MPLBACKEND" not in os.environ:
        matplotlib.use("agg")
    pyplot = require("matplotlib.pyplot", doing="drawing")
    before = set(pyplot.get_fignums())
    try:
        with matplotlib.rc_context():
            yield
    finally:
        for number in set(pyplot.get_fignums()) - before:
            pyplot.close(number)


# ---- for another process ---------------------------------------------------------------------------------------


KEYWORDS = ("plot", "plot_summary")


def pack(marker: Mapping[str, Any], module: ModuleType | None) -> dict[str, str]:
    """The plot functions of a marker as texts; one that cannot travel is an empty text."""
    found = {name: "" for name in KEYWORDS if marker.get(name) is not None}
    with by_value(module):
        for name in found:
            with contextlib.suppress(Exception):
                found[name] = base64.b64encode(cloudpickle.dumps(marker[name])).decode()
    return found


def unpack(text: str) -> Plot:
    """Raises whatever importing what the function needs raises, and `ValueError` for an empty text."""
    if not text:
        raise ValueError("it cannot be sent from the process that ran the test")
    return cloudpickle.loads(base64.b64decode(text))


# ---- names of 0.5.0 --------------------------------------------------------------------------------------------------
#
# Two functions that code outside calls by the names of pytest-jax-bench 0.5.0; they draw what `draw_all` does.
#
# New features are elsewhere. 0.5.0 drew the commits along "run" at the wrong places; here they are at their runs.


def plot_parametrized_benchmark(
    path: str | os.PathLike[str], xaxis: str = "commit", save: str = "png", trep: Any = None
) -> None:
    """Draws the newest runs of one test over each of its parameters, as `PATH/n.png`.

    Args:
        path: the folder of the test, such as .benchmarks/tests-test_x.py--test_fft.
        xaxis: ignored; 0.5.0 has it.
        save: png, pdf or svg.
        trep: "print", or an object with `write_line`; receives the names of the drawn files.
    """
    folder = Path(path)
    drawn = draw_all(
        [PlotRequest(folder.name, file) for file in csv_files.files_in(folder)],
        folder=folder.parent,
        file_format=save,  # pyright: ignore[reportArgumentType]  # matplotlib refuses what it does not know
        kinds=("parameters",),
    )
    for line in [*(f"Generated plot {file}" for file in drawn.files), *drawn.problems]:
        if trep == "print":
            print(line)  # noqa: T201  # what 0.5.0 does when it is told so
        elif trep is not None:
            trep.write_line(line)


def prepare_xaxis(data: np.ndarray, xaxis: str = "commit", ax: Any = None) -> tuple[Any, Any, np.ndarray]:
    """Where the rows stand on an axis, which gets its ticks and its name.

    Args:
        data: as `load_bench_data` gives it.
        xaxis: "run", "commit", "tag" (of each the newest row), or a column of numbers.
        ax: axes of matplotlib; None: the current ones.

    Returns:
        (x, ax, data): `data` with the rows that x stands for.

    Raises:
        UsageError: no such axis.
    """
    ax = ax or require("matplotlib.pyplot", doing="drawing plots").gca()
    commits, columns = data["commit"].tolist(), data.dtype.names or ()
    match xaxis:
        case "run":
            ax.set_xlabel("Run")
            first = dict(zip(commits[::-1], data["run_id"].tolist()[::-1], strict=True))
            ax.secondary_xaxis("top").set_xticks([*first.values()], [*first], rotation=90, fontsize=8)
            x = data["run_id"]
        case "commit":
            # A commit is one long; its runs share that.
            ax.set_xlabel("Commit")
            names = list(dict.fromkeys(commits))
            ax.set_xticks(range(len(names)), names, rotation=90 if len(names) > 10 else 0)
            at, runs = np.array([names.index(commit) for commit in commits]), data["commit_run"]
            x = at + runs / [1 + runs[at == place].max() for place in at]
        case "tag":
            data = last_entries_with(data)
            ax.set_xticks(range(len(data)), data["tag"].tolist())
            x = np.arange(len(data))
        case _ if xaxis in columns:
            ax.set_xlabel(xaxis)
            x = data[xaxis]
        case _:
            raise UsageError(f"unknown xaxis {xaxis!r}", one_of(["run", "commit", "tag", *columns], xaxis))
    return x, ax, data
