"""Which pictures are made of CSV files, under which names, and what becomes of those that cannot be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from csv_rows_by_hand import in_runs, measured, rows, store
from matplotlib.figure import Figure

from benchax.errors import MissingPackage
from pytest_jax_bench.plot_command import main
from pytest_jax_bench.plots.draw_all import CustomPlotFailed, Drawing, PlotRequest, draw_all, draw_custom, in_order
from pytest_jax_bench.plots.pictures import Picture

FOLDER = Path(".benchmarks")


@pytest.fixture(autouse=True)
def pictures(monkeypatch: pytest.MonkeyPatch) -> list[Picture]:
    """Those that were saved, as empty files: drawing takes half a second each, and is tested elsewhere."""
    saved: list[Picture] = []

    def save(picture: Picture, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        saved.append(picture)

    monkeypatch.setattr("pytest_jax_bench.plots.draw_all.save_charts", save)
    return saved


def stored(name: str, data: Any = None, params: dict[str, Any] | None = None, **marker: Any) -> PlotRequest:
    """A test with two runs, in the folder that the plugin would choose."""
    shown = f"[{'-'.join(map(str, params.values()))}]" if params else ""
    nodeid = f"tests/test_x.py::{name}{shown}"
    file = ",".join(f"{k}-{v}" for k, v in params.items()) if params else "main"
    csv = FOLDER / f"tests-test_x.py--{name}" / f"{file}.csv"
    return PlotRequest(nodeid, store(csv, measured(2) if data is None else data, nodeid, params), **marker)


def draw(*requests: PlotRequest, **options: Any) -> Drawing:
    return draw_all(requests, folder=FOLDER, **options)


def names(drawn: Drawing) -> list[str]:
    return [file.relative_to(FOLDER).as_posix() for file in drawn.files]


class Seen:
    """A plot function that keeps the data it is given."""

    def __init__(self) -> None:
        self.data: list[Any] = []

    def __call__(self, data: Any) -> Figure:
        self.data.append(data)
        return Figure()


def broken(data: Any) -> Any:
    raise ValueError("no such luck")


def test_matplotlib_is_loaded_late_and_its_pyplot_never(project: Path) -> None:
    """pyplot opens windows, and keeps figures until they are closed."""
    code = """
import sys
from pathlib import Path
from csv_rows_by_hand import measured, store
from pytest_jax_bench.plots.draw_all import PlotRequest, draw_all
print({"matplotlib", "jax"} & set(sys.modules))
csv = store(Path(".benchmarks/t/main.csv"), measured(2), "t.py::t")
drawn = draw_all([PlotRequest("t.py::t", csv)], folder=Path(".benchmarks"))
print(len(drawn.files), {"matplotlib", "matplotlib.pyplot", "jax"} & set(sys.modules))
"""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])

    environment = {**os.environ, "PYTHONPATH": path}

    done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, stdout=subprocess.PIPE, text=True)

    assert done.stdout.splitlines() == ["set()", "1 {'matplotlib'}"]


# ---- names ------------------------------------------------------------------------------------------------------


def test_pictures_lie_beside_the_files_under_the_names_that_users_know(project: Path) -> None:
    tagged = in_runs(measured(2, tag="fft"), measured(2, tag="rfft"))
    requests = [stored("test_full"), stored("test_tags", tagged), stored("test_p", params={"n": 128})]

    drawn = draw(*requests, stored("test_p", params={"n": 256}), stored("test_bad", rows(2, status="timeout")))

    assert drawn.problems == []
    assert names(drawn) == [
        "tests-test_x.py--test_full/main.png",
        "tests-test_x.py--test_tags/main.png",
        "tests-test_x.py--test_tags/main_xtag.png",
        "tests-test_x.py--test_p/n-128.png",
        "tests-test_x.py--test_p/n-256.png",
        "tests-test_x.py--test_bad/main.png",
        "tests-test_x.py--test_p/n.png",
        "summary.png",
    ]
    assert all(file.is_file() for file in drawn.files)


def test_names_of_parameters_never_share_a_file(project: Path) -> None:
    """n.png and N.png are one file on macOS and Windows; main.png and custom.png are something else already."""
    both = {"n": 1, "N": 2, "main": 3, "custom": 4}

    drawn = draw(stored("test_p", params=both), kinds=["parameters"])

    assert [Path(name).name for name in names(drawn)] == [
        "n.png", "N_parameter.png", "main_parameter.png", "custom_parameter.png",
    ]  # fmt: skip


def test_tests_outside_of_a_folder_of_their_own_are_not_taken_for_one_test(project: Path) -> None:
    """As in the README's time: .benchmarks/tests:test_interface::test_full.csv."""
    requests = [
        PlotRequest(f"t.py::{n}", store(FOLDER / f"t.py::{n}.csv", measured(2), n, {"n": n})) for n in ("a", "b")
    ]

    assert names(draw(*requests)) == ["t.py::a.png", "t.py::b.png", "summary.png"]


# ---- markers ----------------------------------------------------------------------------------------------------


def test_each_test_has_its_own_marker(project: Path) -> None:
    first, second = Seen(), Seen()

    drawn = draw(
        stored("test_plain"),
        stored("test_a", measured(3), plot=first),
        stored("test_b", measured(4), plot=second, only_last=True),
        stored("test_saves_its_own", plot=lambda data: None),
        kinds=["custom"],
    )

    assert names(drawn) == ["tests-test_x.py--test_a/main_custom.png", "tests-test_x.py--test_b/main_custom.png"]
    assert [data["run_id"].tolist() for data in first.data] == [[0, 1, 2]]
    assert [data["run_id"].tolist() for data in second.data] == [[3]]


def test_a_summary_of_parameters_is_drawn_once_from_all_of_them(project: Path) -> None:
    seen = Seen()
    requests = [stored("test_p", params={"n": n}, plot_summary=seen, only_last=True) for n in (128, 8)]

    drawn = draw(*requests, stored("test_p", params={"n": 16}, plot_summary=Seen()), kinds=["custom"])

    assert names(drawn) == ["tests-test_x.py--test_p/custom.png", "tests-test_x.py--test_p/custom-2.png"]
    (data,) = seen.data
    assert [(int(row["n"]), int(row["run_id"])) for row in data] == [(8, 1), (16, 1), (128, 1)]


def test_a_function_that_fails_is_named_and_costs_its_own_picture_only(project: Path) -> None:
    drawn = draw(stored("test_a", plot=broken), stored("test_b", plot=Seen()))

    assert len(drawn.problems) == 1
    assert drawn.problems[0].startswith(
        "tests/test_x.py::test_a: plot was not drawn, because broken raised ValueError (test_plots.py:"
    )
    assert drawn.problems[0].endswith("): no such luck")
    assert names(drawn) == [
        "tests-test_x.py--test_a/main.png",
        "tests-test_x.py--test_b/main.png",
        "tests-test_x.py--test_b/main_custom.png",
        "summary.png",
    ]


# ---- parameters and summary -------------------------------------------------------------------------------------


def test_the_picture_of_a_parameter_has_values_that_did_not_run_this_time(
    project: Path, pictures: list[Picture]
) -> None:
    stored("test_p", params={"n": 128})

    draw(stored("test_p", params={"n": 256}), kinds=["parameters"])

    (picture,) = pictures
    assert [tick.text for tick in picture[0].x.ticks] == ["128", "256"]


def test_the_axis_and_the_length_of_a_history_can_be_chosen(project: Path, pictures: list[Picture]) -> None:
    draw(stored("test_a", measured(5)), x_axis="commit", most_runs=3, kinds=["history"])

    (picture,) = pictures
    assert picture[0].x.title == "commit"
    assert "The last 3 of 5 runs" in picture[0].title


# ---- what cannot be drawn ---------------------------------------------------------------------------------------


def test_a_test_without_a_file_or_with_a_damaged_one_is_told_and_the_others_are_drawn(project: Path) -> None:
    missing = PlotRequest("t.py::test_gone", FOLDER / "gone" / "main.csv")
    newer = stored("test_newer")
    newer.csv.write_text(newer.csv.read_text().replace("# format: 2", "# format: 99"))

    drawn = draw(missing, newer, stored("test_fine"), kinds=["history"])

    assert names(drawn) == ["tests-test_x.py--test_fine/main.png"]
    assert [problem.split(":", 1)[0] for problem in drawn.problems] == ["t.py", "tests/test_x.py"]
    assert "99" in drawn.problems[1]


def test_without_matplotlib_the_extra_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(MissingPackage, match=r"pip install matplotlib"):
        draw(stored("test_a"))


# ---- plot functions of users may do anything; what they leave behind is cleared away, and what goes wrong is told ----


def leaves_figures_open(data: Any) -> Any:
    plt.rcParams["font.size"] = 3
    plt.figure()
    fig = plt.figure()
    plt.plot(data["run_id"], data["compile_ms"])
    return fig


def saves_it_itself(data: Any) -> None:
    plt.figure()


def raises(data: Any) -> Any:
    return data["no such column"]


def fails(data: Any) -> Any:
    pytest.fail("looks wrong")


def exits(data: Any) -> Any:
    sys.exit(3)


def is_interrupted(data: Any) -> Any:
    raise KeyboardInterrupt


def returns_a_list(data: Any) -> Any:
    return [1, 2]


def cannot_be_drawn(data: Any) -> Any:
    fig = Figure()
    fig.suptitle(r"$\frac{$")
    return fig


def returns_axes(data: Any) -> Any:
    return Figure().add_subplot()


@pytest.mark.parametrize("function", [leaves_figures_open, returns_axes])
def test_a_returned_figure_is_saved(function: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "main_custom.png"

    assert draw_custom(saves_it_itself, measured(3), path) is None
    assert list(tmp_path.iterdir()) == []
    assert draw_custom(function, measured(3), path) == path
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("function", [leaves_figures_open, saves_it_itself])
def test_figures_and_settings_of_a_plot_do_not_reach_the_next_one(function: Any, tmp_path: Path) -> None:
    mine = plt.figure()
    try:
        with mpl.rc_context({"font.size": 11}):
            draw_custom(function, measured(3), tmp_path / "x.png")

            assert plt.get_fignums() == [mine.number]
            assert mpl.rcParams["font.size"] == 11
    finally:
        plt.close(mine)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (raises, r"raises raised ValueError \(test_plots\.py:\d+\): no field of name no such column"),
        (fails, r"fails raised Failed \(test_plots\.py:\d+\): looks wrong"),
        (exits, r"exits raised SystemExit \(test_plots\.py:\d+\): 3"),
        (returns_a_list, "returns_a_list returned a list, expected a matplotlib figure or None"),
        (cannot_be_drawn, "cannot_be_drawn raised ValueError"),
    ],
)
def test_a_failure_is_told_with_name_and_line(function: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(CustomPlotFailed, match=expected):
        draw_custom(function, measured(3), tmp_path / "x.png")

    assert plt.get_fignums() == []
    with pytest.raises(KeyboardInterrupt):  # this is none
        draw_custom(is_interrupted, measured(1), tmp_path / "x.png")


def test_numeric_parameters_ascend_within_a_tag() -> None:
    """0.5.0 sorted them as texts: a line over n went 128, 16, 8."""
    data = measured(6, tag=["b", "b", "b", "a", "a", "a"])
    merged = np.zeros(6, dtype=[*data.dtype.descr, ("n", int), ("kind", object)])
    for name in data.dtype.names:
        merged[name] = data[name]
    merged["n"] = [128, 16, 8, 8, 128, 16]

    ordered = in_order(merged)

    assert [(row["tag"], row["n"]) for row in ordered] == [
        ("a", 8), ("a", 16), ("a", 128), ("b", 8), ("b", 16), ("b", 128),
    ]  # fmt: skip


# ---- `ptjb-plot`, as a user meets it --------------------------------------------------------------------------------


@pytest.fixture
def folder(project: Path) -> Path:
    """Results of three tests, one with parameters; and what pytest-benchmark keeps in the same place."""
    folder = project / ".benchmarks"
    for n in (128, 256):
        csv = folder / "tests-test_x.py--test_p" / f"n-{n}.csv"
        store(csv, measured(2), f"tests/test_x.py::test_p[{n}]", {"n": n})
    store(folder / "tests-test_x.py--test_full" / "main.csv", measured(2), "tests/test_x.py::test_full")
    (folder / "Linux-CPython-3.11-64bit").mkdir()
    (folder / "Linux-CPython-3.11-64bit" / "0001.csv").write_text("name,mean\na,1\n")
    return folder


def files_below(folder: Path) -> list[str]:
    return sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.suffix in (".png", ".svg", ".pdf"))


@pytest.mark.parametrize(
    "names",
    [
        ("-d", "-x", "-s"),
        ("--bench-dir", "--xaxis", "--save"),
        ("--ptjb-output-dir", "--ptjb-plot-xaxis", "--ptjb-plot-format"),
    ],
)
def test_options_have_their_old_names_and_those_of_the_plugin(folder: Path, names: tuple[str, str, str]) -> None:
    moved = folder.rename(folder.with_name("results"))

    assert main([names[0], "results", names[1], "commit", names[2], "svg", "--only", "history"]) == 0

    assert len(files_below(moved)) == 3
    assert all(name.endswith(".svg") for name in files_below(moved))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-k", "test_full", "--only", "history"], ["main"]),
        (["-k", "test_p[256]", "--only", "history"], ["n-256"]),
        (["-k", "*test_p[[]*"], []),
        (["-k", "*::test_p[*]", "--only", "history"], ["n-128", "n-256"]),
        (["-k", "*_p[12?]", "--only", "history"], ["n-128"]),
        (["--only", "history"], ["main", "n-128", "n-256"]),
        (["--only", "parameters", "--only", "tags"], ["n"]),
        (["-o", "plots", "--only", "summary"], ["plots/summary"]),
    ],
)
def test_tests_kinds_and_a_folder_are_chosen(folder: Path, arguments: list[str], expected: list[str]) -> None:
    code = main(arguments)

    assert code == (0 if expected else 2)
    elsewhere = [f"plots/{Path(name).stem}" for name in files_below(Path("plots"))]
    assert [*sorted(Path(name).stem for name in files_below(folder)), *elsewhere] == expected


def test_a_damaged_file_costs_its_own_picture_only(folder: Path, capsys: Any) -> None:
    damaged = folder / "tests-test_x.py--test_full" / "main.csv"
    damaged.write_text(damaged.read_text().replace("# format: 2", "# format: 99"))

    assert main(["--only", "history"]) == 1

    assert len(files_below(folder)) == 2
    assert "ptjb-plot: tests/test_x.py::test_full: anything was not drawn, because" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "nowhere"], "there is no folder 'nowhere'"),
        (["-k", "test_absent"], "no test in '.benchmarks' matches 'test_absent'"),
        (["-d", ".benchmarks/Linux-CPython-3.11-64bit"], "no CSV file of a benchmark is in"),
    ],
)
def test_what_cannot_work_is_an_error_in_words(folder: Path, capsys: Any, arguments: list[str], message: str) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["-x", "tag"], ["-s", "gif"], ["--last", "0"], ["--last", "many"], ["--only", "x"]]
)
def test_a_bad_value_is_refused_before_anything_is_drawn(folder: Path, capsys: Any, arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)

    assert arguments[1] in capsys.readouterr().err
    assert files_below(folder) == []


def test_the_help_names_every_option_with_its_default(capsys: Any) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("usage: ptjb-plot")
    for option in ("--bench-dir", "--xaxis", "--save", "--output", "--filter", "--only", "--last"):
        assert option in text
    assert text.count("(default: ") == 7
