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
import sys
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

from benchax.errors import BenchaxError, UsageError, one_of, reason_of, require
from benchax.reporting.document import Chart
from benchax.reporting.figures import draw_together
from pytest_jax_bench.context import by_value
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import COLUMNS, decode_parameters
from pytest_jax_bench.data import last_entries_with, load_bench_data
from pytest_jax_bench.plots import pictures
from pytest_jax_bench.plots.pictures import Rows

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
    """The work of one call of `draw_all`, and what came of it."""

    folder: Path
    into: Path
    x_axis: XAxis = "run"
    file_format: Format = "png"
    most_runs: int = pictures.MOST_RUNS
    files: list[Path] = field(default_factory=list[Path])
    problems: list[str] = field(default_factory=list[str])
    """One line each, with the name of the test: what was not drawn, and why."""
    read: dict[Path, Rows | None] = field(default_factory=dict[Path, "Rows | None"])

    def target(self, beside: Path, name: str) -> Path:
        """Returns the path of the picture `name`, next to a file or in a folder of the output folder."""
        with contextlib.suppress(ValueError):  # a file somewhere else keeps its pictures
            beside = self.into / beside.relative_to(self.folder)
        return beside / f"{name}.{self.file_format}"

    @contextlib.contextmanager
    def attempt(self, nodeid: str, what: str) -> Iterator[None]:
        """Whatever goes wrong inside costs this picture only."""
        try:
            yield
        except Exception as error:
            self.problems.append(f"{nodeid}: {what} was not drawn, because {reason_of(error)[:400]}")

    def rows(self, csv: Path, nodeid: str) -> Rows | None:
        """Returns the rows of a test, read once. It returns None for a test without rows, and reports that the first
        time."""
        if csv not in self.read:
            self.read[csv] = None
            with self.attempt(nodeid, "anything"), warnings.catch_warnings():
                warnings.simplefilter("default")  # a damaged row costs no picture where warnings are errors
                found = csv_files.read(csv)
                self.read[csv] = found if len(found) else None
        return self.read[csv]

    def save(self, nodeid: str, what: str, path: Path, picture: Callable[[], pictures.Picture]) -> None:
        with self.attempt(nodeid, what):
            save_charts(picture(), path)
            self.files.append(path)

    def save_custom(self, request: PlotRequest, keyword: str, function: Plot, source: Path, path: Path) -> None:
        with self.attempt(request.nodeid, keyword):
            data = load_bench_data(source, merge_param=True)
            if request.only_last:
                data = in_order(last_entries_with(data, keys=("tag", "parameters")))
            else:
                data = data[np.argsort(data["run_id"], kind="stable")]
            file = draw_custom(function, data, path)
            if file:
                self.files.append(file)


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
    work = Drawing(folder, into or folder, x_axis, file_format, most_runs)
    unique = list({request.csv: request for request in requests}.values())
    groups: dict[Path, list[PlotRequest]] = {}
    for request in unique:
        _draw_test(work, request, kinds)
        # The output folder itself is not one of a test: in the README's time, it held all tests.
        if request.csv.parent.resolve() != folder.resolve():
            groups.setdefault(request.csv.parent, []).append(request)
    for folder_of_test, group in groups.items():
        _draw_group(work, folder_of_test, group, kinds)
    tests = [
        (request.nodeid, rows) for request in unique if (rows := work.rows(request.csv, request.nodeid)) is not None
    ]
    # A summary of one row says nothing new.
    if "summary" in kinds and (len(tests) > 1 or any(pictures.has_tags(rows) for _, rows in tests)):
        work.save("summary", "the summary", work.target(folder, "summary"), lambda: pictures.summary(tests))
    return work


def _draw_test(work: Drawing, request: PlotRequest, kinds: Collection[Kind]) -> None:
    here, title, stem = request.csv.parent, request.nodeid, request.csv.name.removesuffix(".csv")
    rows = work.rows(request.csv, title)
    if rows is None:
        return
    if "history" in kinds:
        path = work.target(here, stem)
        work.save(title, "the history", path, lambda: pictures.history(rows, title, work.x_axis, work.most_runs))
    if "tags" in kinds and pictures.has_tags(rows):
        work.save(title, "the tags", work.target(here, f"{stem}_xtag"), lambda: pictures.by_tag(rows, title))
    if "custom" in kinds and request.plot:
        work.save_custom(request, "plot", request.plot, request.csv, work.target(here, f"{stem}_custom"))


def _draw_group(work: Drawing, here: Path, group: Sequence[PlotRequest], kinds: Collection[Kind]) -> None:
    """Draws the pictures about all parameters of one test, including parameters that did not run this time."""
    title = group[0].nodeid.partition("[")[0]
    if "parameters" in kinds:
        _draw_parameters(work, here, title)
    functions = {request.plot_summary: request for request in reversed(group) if request.plot_summary}
    for number, (function, request) in enumerate(reversed(functions.items()), 1):
        if function and "custom" in kinds:
            path = work.target(here, "custom" if number == 1 else f"custom-{number}")
            work.save_custom(request, "plot_summary", function, here, path)


def _draw_parameters(work: Drawing, here: Path, title: str) -> None:
    parts = [work.rows(file, title) for file in sorted(here.rglob("*.csv")) if csv_files.is_ours(file)]
    found = [part for part in parts if part is not None]
    if not found:
        return
    rows = np.concatenate(found)
    params = [decode_parameters(str(text)) for text in rows["parameters"]]
    names = list(dict.fromkeys(name for one in params for name in one))
    for name, stem in zip(names, _stems(names), strict=True):
        have = [i for i, one in enumerate(params) if name in one]
        values = {other: [params[i].get(other) for i in have] for other in names}
        draw_it = partial(pictures.by_parameter, rows[have], values, name, title)
        work.save(title, f"the plot over {name}", work.target(here, stem), draw_it)


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


def draw_custom(function: Plot, data: Rows, path: Path) -> Path | None:
    """Calls `function` with `data`, and saves the figure that it returns.

    Returns:
        The file; None if the function returned None.

    Raises:
        CustomPlotFailed: with the reason in one line.
    """
    with _plots_of_users():
        try:
            returned = function(data)
            if returned is None:
                return None
            path.parent.mkdir(parents=True, exist_ok=True)
            _figure(returned).savefig(path)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # pytest.fail and sys.exit raise what is no Exception
            raise CustomPlotFailed(f"{name_of(function)} {_describe(error)}") from error
    return path


def name_of(function: Plot) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def in_order(data: Rows) -> Rows:
    """Rows as a plot function expects them to follow one another: by tag, then by parameter, numbers as numbers.

    `last_entries_with` sorts parameters as texts, so that a line over n = 8, 16, 128 would go back and forth.
    """
    parameters = [name for name in data.dtype.names or () if name not in COLUMNS]
    numbers = [data[name] for name in parameters if data.dtype[name].kind in "iuf"]
    return data[np.lexsort([*reversed(numbers), data["tag"].astype(str)])] if numbers else data


def _figure(returned: Any) -> Any:
    """A figure, or what has one: Axes are returned as easily by mistake, and seaborn returns grids."""
    for candidate in (returned, getattr(returned, "figure", None)):
        if callable(getattr(candidate, "savefig", None)):
            return candidate
    raise TypeError(f"returned a {type(returned).__name__}, expected a matplotlib figure or None")


def _describe(error: BaseException) -> str:
    if isinstance(error, TypeError) and str(error).startswith("returned a "):
        return str(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    where = f" ({Path(frames[0].filename).name}:{frames[0].lineno})" if frames else ""
    text = " ".join(str(error).split())[:300]
    return f"raised {type(error).__name__}{where}" + f": {text}" * bool(text)


@contextlib.contextmanager
def _plots_of_users() -> Iterator[None]:
    """Settings are as before afterwards, figures that were opened are closed, and no window has appeared."""
    matplotlib = require("matplotlib", doing="drawing")
    if "MPLBACKEND" not in os.environ:
        matplotlib.use("agg")
    before = _open_figures()
    try:
        with matplotlib.rc_context():
            yield
    finally:
        for number in _open_figures() - before:
            sys.modules["matplotlib.pyplot"].close(number)


def _open_figures() -> set[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set(pyplot.get_fignums()) if pyplot else set()


# ---- for another process ---------------------------------------------------------------------------------------


KEYWORDS = ("plot", "plot_summary")


def pack(marker: Mapping[str, Any], module: ModuleType | None) -> dict[str, str]:
    """The plot functions of a marker as texts; one that cannot travel is an empty text."""
    found: dict[str, str] = {}
    with by_value(module):
        for name in KEYWORDS:
            if marker.get(name) is not None:
                found[name] = ""
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
    files = [file for file in sorted(folder.rglob("*.csv")) if csv_files.is_ours(file)]
    drawn = draw_all(
        [PlotRequest(folder.name, file) for file in files],
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
    pyplot = require("matplotlib.pyplot", doing="drawing plots")
    if ax is None:
        ax = pyplot.gca()
    columns = data.dtype.names or ()
    if xaxis == "run":
        return _along_runs(data, ax), ax, data
    if xaxis == "commit":
        return _along_commits(data, ax), ax, data
    if xaxis == "tag":
        data = data[
            sorted({tag: i for i, tag in enumerate(data["tag"].tolist())}.values(), key=lambda i: data["tag"][i])
        ]
        ax.set_xticks(range(len(data)), data["tag"].tolist())
        return np.arange(len(data)), ax, data
    if xaxis not in columns:
        raise UsageError(f"unknown xaxis {xaxis!r}", one_of(["run", "commit", "tag", *columns], xaxis))
    ax.set_xlabel(xaxis)
    return data[xaxis], ax, data


def _along_runs(data: np.ndarray, ax: Any) -> np.ndarray:
    ax.set_xlabel("Run")
    first = dict(zip(data["commit"].tolist()[::-1], data["run_id"].tolist()[::-1], strict=True))
    ax.secondary_xaxis("top").set_xticks([*first.values()], [*first], rotation=90, fontsize=8)
    return data["run_id"]


def _along_commits(data: np.ndarray, ax: Any) -> np.ndarray:
    """A commit is one long; its runs share that."""
    names = data["commit"].tolist()
    unique = list(dict.fromkeys(names))
    at = np.array([unique.index(name) for name in names])
    runs = data["commit_run"]
    ax.set_xlabel("Commit")
    ax.set_xticks(range(len(unique)), unique, rotation=90 if len(unique) > 10 else 0)
    return at + runs / [1 + runs[at == place].max() for place in at]
