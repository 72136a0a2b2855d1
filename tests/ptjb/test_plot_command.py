"""`ptjb-plot`, as a user meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from csv_rows_by_hand import measured, store

from pytest_jax_bench.plot_command import main


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


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are empty files, since drawing takes half a second each."""

    def save(picture: Any, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    monkeypatch.setattr("pytest_jax_bench.plots.draw_all.save_charts", save)


def run(*arguments: str) -> int:
    return main(arguments)


def pictures(folder: Path) -> list[str]:
    return sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.suffix in (".png", ".svg", ".pdf"))


@pytest.mark.usefixtures("quick")
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

    assert run(names[0], "results", names[1], "commit", names[2], "svg", "--only", "history") == 0

    assert len(pictures(moved)) == 3
    assert all(name.endswith(".svg") for name in pictures(moved))


@pytest.mark.usefixtures("quick")
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
    code = run(*arguments)

    assert code == (0 if expected else 2)
    elsewhere = [f"plots/{Path(name).stem}" for name in pictures(Path("plots"))]
    assert [*sorted(Path(name).stem for name in pictures(folder)), *elsewhere] == expected


@pytest.mark.usefixtures("quick")
def test_a_damaged_file_costs_its_own_picture_only(folder: Path, capsys: Any) -> None:
    damaged = folder / "tests-test_x.py--test_full" / "main.csv"
    damaged.write_text(damaged.read_text().replace("# format: 2", "# format: 99"))

    assert run("--only", "history") == 1

    assert len(pictures(folder)) == 2
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
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["-x", "tag"], ["-s", "gif"], ["--last", "0"], ["--last", "many"], ["--only", "x"]]
)
def test_a_bad_value_is_refused_before_anything_is_drawn(folder: Path, capsys: Any, arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)

    assert arguments[1] in capsys.readouterr().err
    assert pictures(folder) == []


def test_the_help_names_every_option_with_its_default(capsys: Any) -> None:
    with pytest.raises(SystemExit, match="0"):
        run("--help")

    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("usage: ptjb-plot")
    for option in ("--bench-dir", "--xaxis", "--save", "--output", "--filter", "--only", "--last"):
        assert option in text
    assert text.count("(default: ") == 7
