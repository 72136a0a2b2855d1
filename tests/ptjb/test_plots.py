"""Which pictures are made of CSV files, under which names, and what becomes of those that cannot be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from ptjb_rows import in_runs, measured, rows, store

from benchax.errors import MissingPackage
from pytest_jax_bench.plots.draw_all import Drawing, PlotRequest, draw_all
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
from ptjb_rows import measured, store
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


def test_pictures_can_go_elsewhere_in_the_same_folders(project: Path) -> None:
    drawn = draw(stored("test_full"), stored("test_b"), into=Path("plots"))

    assert [file.as_posix() for file in drawn.files] == [
        "plots/tests-test_x.py--test_full/main.png", "plots/tests-test_x.py--test_b/main.png", "plots/summary.png",
    ]  # fmt: skip
    assert not list(FOLDER.rglob("*.png"))


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


def test_a_summary_of_one_row_is_none_and_does_not_replace_one_of_all_tests(project: Path) -> None:
    first, second = stored("test_a"), stored("test_b")

    assert "summary.png" in names(draw(first, second))
    assert "summary.png" not in names(draw(first))


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
