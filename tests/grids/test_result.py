"""What a grid can be had as: arrays with masks, outputs, frames, text, HTML, a figure; and who is the fastest in it."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from grid_fakes import HerePool, grid_here
from measurement_strategies import RICH
from rendered_documents import check_rendered

import benchax
from benchax import GridResult
from benchax.errors import UsageError
from benchax.grids import rendering
from benchax.grids.rendering import rank, ranking_text
from benchax.grids.result import Cell
from benchax.model import Absent, Failure, Measurement, Numerics, Samples

SIZES = [4, 8]
TIMEOUT = Failure("timeout", "run", "run took longer than 30.0 s")


def f1(x: jax.Array) -> jax.Array:
    return x**2 - 1


def f2(x: jax.Array) -> jax.Array:
    return x / 2


def f3(x: jax.Array) -> jax.Array:
    return jnp.sqrt(x)  # NaN below zero


def normal(key: Any, n: int) -> jax.Array:
    return jax.random.normal(key, (n,))


@cache  # no test changes a result, and most are about one of two
def seeds_grid(ending: Failure | None = None, **given: Any) -> GridResult:
    """That of the request, in small; f2 ends as `ending` says."""
    pool = HerePool({"f2": ending} if ending else None)
    settings = {"make": normal, "trials": 3, "timeout_s": 30, "axis": "n_x"} | given
    return grid_here([f1, f2, f3], SIZES, pool, **settings)


def test_arrays_are_functions_by_data_by_trials_and_outputs_have_the_trials_first() -> None:
    g = seeds_grid()

    assert (g.timings.shape, g.status.shape, g.agreement.shape) == ((3, 2, 3), (3, 2), (3, 2, 3))
    assert (g.timings > 0).all()
    assert (g.functions, g.data, g.trials) == (("f1", "f2", "f3"), (4, 8), 3)
    x = np.sqrt(g.outputs["f1"][4] + 1)
    assert g.outputs["f1"][8].shape == (3, 8)
    np.testing.assert_allclose(np.abs(g.outputs["f2"][4]), x / 2, rtol=1e-4)
    assert "f2 returns a different result from f1 in 6 of 6 trials" in str(g)


def test_a_cell_without_outputs_holds_the_reason_and_no_number() -> None:
    g = seeds_grid(TIMEOUT)

    assert isinstance(g.outputs["f2"][4], Absent)
    assert "timeout" in g.outputs["f2"][4].why
    assert g.timings[1].mask.all()
    assert np.ma.getmaskarray(g.stacked(4)).all(axis=0).tolist() == [False, True, False, False]


def test_fill_puts_the_numbers_of_the_callers_choice_in_their_place() -> None:
    g = seeds_grid(TIMEOUT, fill=0)
    afterwards = seeds_grid(TIMEOUT).filled(-1, elapsed_s=99)

    assert g.outputs["f2"][4] == 0
    assert not g.timings.mask.any()
    assert (g.timings[1] == 30).all()
    assert (g.stacked(4)[:, 1] == 0).all()
    assert (g.to_pandas()["f2 elapsed"] == 30).all()
    assert g.status[1, 0] == "timeout"  # which stays true
    assert (afterwards.outputs["f2"][4], afterwards.timings[1, 0, 0]) == (-1, 99)
    with pytest.raises(UsageError, match="without timeout_s"):
        seeds_grid(TIMEOUT, timeout_s=None).filled()


def test_outputs_are_clipped_and_freed_of_nan_on_request_and_kept_as_they_were_in_the_cells() -> None:
    g = seeds_grid(clip=(-0.1, 0.1), nan_to_num=True)
    weights = seeds_grid().stacked(8, trial=1, clip=(-1, 1), nan_to_num=True)

    assert np.abs(g.outputs["f3"][8]).max() <= np.float32(0.1)
    assert not np.isnan(g.outputs["f3"][8]).any()
    outputs = g.cell("f3", 8).outputs
    assert isinstance(outputs, tuple)
    assert np.isnan(outputs).any()
    # Side by side they have a last column of ones.
    assert weights.shape == (8, 4)
    assert (weights[:, 3] == 1).all()
    assert -1 <= weights.min() <= weights.max() <= 1
    assert not np.ma.getmaskarray(weights).any()
    assert seeds_grid().stacked(8, ones=False).shape == (8, 3)


CLIPS = [(1, -1), 3, ("a", "b"), (1, 2, 3), (float("nan"), 1)]


@pytest.mark.parametrize(
    "given",
    [
        {"fill": "0"},
        {"fill": True},
        {"compare": "g"},
        {"check": 3},
        {"timer": "sundial"},
        *({"clip": c} for c in CLIPS),
    ],
)
def test_what_cannot_work_is_refused_by_value(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        seeds_grid.__wrapped__(**given)
    with pytest.raises(UsageError, match="f1, f2, f3"):
        seeds_grid().cell("f4", 4)
    with pytest.raises(UsageError, match="4, 8"):
        seeds_grid().cell("f1", 5)
    with pytest.raises(UsageError, match=r"an array of shape \(\)"):
        scalars().stacked("f32[4]")

    assert repr(next(iter(given.values()))) in error.value.problem


@cache
def scalars() -> GridResult:
    return grid_here([lambda x: x.sum()], ["f32[4]"])


# ---- frames -----------------------------------------------------------------------------------------------------


def test_the_frame_is_that_of_the_request_and_the_dataset_is_labelled() -> None:
    g = seeds_grid(TIMEOUT)
    frame, dataset = g.to_pandas(), g.to_xarray()

    assert list(frame.columns) == ["f1 elapsed", "f2 elapsed", "f3 elapsed"]
    assert frame.index.names == ["n_x", "i"]
    assert list(frame.index) == [(n, i) for n in SIZES for i in range(3)]
    assert frame.loc[(8, 2), "f1 elapsed"] == g.timings[0, 1, 2]
    assert frame["f2 elapsed"].isna().all()
    records = g.to_numpy()
    assert len(records) == 18
    found = records[(records["function"] == "f3") & (records["data"] == 8) & (records["i"] == 1)]
    assert found["elapsed_s"].tolist() == [g.timings[2, 1, 1]]
    assert np.isnan(records["elapsed_s"][records["status"] == "timeout"]).all()
    assert dataset["elapsed_s"].dims == ("function", "n_x", "i")
    assert dataset["status"].sel(function="f2", n_x=4).item() == "timeout"
    assert dataset["elapsed_s"].sel(function="f1", n_x=8).notnull().all()


def test_the_csv_has_the_columns_of_the_frame_and_a_status_each(tmp_path: Path) -> None:
    g = seeds_grid(TIMEOUT)

    g.to_csv(tmp_path / "g.csv")

    with (tmp_path / "g.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["n_x", "i", *(f"{f} {w}" for f in ("f1", "f2", "f3") for w in ("elapsed", "status"))]
    assert [(row["n_x"], row["i"]) for row in rows] == [(str(n), str(i)) for n in SIZES for i in range(3)]
    assert float(rows[0]["f1 elapsed"]) == g.timings[0, 0, 0]
    assert (rows[0]["f2 elapsed"], rows[0]["f2 status"]) == ("", "timeout")


def test_a_csv_holds_a_name_that_utf_8_cannot(tmp_path: Path) -> None:
    replace(seeds_grid(TIMEOUT), axis="n\ud800").to_csv(tmp_path / "g.csv")

    assert (tmp_path / "g.csv").read_text("utf-8").startswith("n\\ud800,i,f1 elapsed,")


# ---- text, HTML, figure -----------------------------------------------------------------------------------------


def test_the_table_has_a_line_per_data_point_and_says_what_happened() -> None:
    lines = str(seeds_grid(TIMEOUT)).splitlines()

    assert lines[0].startswith("no ranking: ")
    table = [line for line in lines if line.strip()][1:]
    assert table[0].split() == ["n_x", "inputs", "f1", "f2", "f3"]
    assert table[1].split()[0] == "4"
    assert "timeout" in table[1]
    assert "f2[all n_x]  timeout in run: run took longer than 30.0 s" in lines
    assert lines[-1].startswith("6 cells took ")
    assert lines[-1].endswith("seconds: 4 ok, 2 timeout")
    assert any(line.startswith("median time of a call by wall · 3 trials · cpu") for line in lines)


def test_while_it_runs_the_table_has_what_has_ended() -> None:
    g = seeds_grid()
    cells = {key: cell for key, cell in g.by_key.items() if key[1] == g.data[0]}
    cells.popitem()

    table = rendering.table(replace(g, by_key=cells))

    (line,) = table.lines
    assert line[:2] == (str(g.data[0]), "f32[4]")
    assert [bool(text) for text in line[2:]] == [(f, g.data[0]) in cells for f in g.functions]


@pytest.mark.slow
def test_a_big_table_is_cut_and_says_so() -> None:
    pool = HerePool({f"f{i}": TIMEOUT for i in range(22)})

    g = grid_here({f"f{i}": f1 for i in range(22)}, list(range(61)), pool)

    text = str(g)
    assert len(g.cells) == 22 * 61
    assert "Shown: 60 of 61 data points and 12 of 22 functions" in text
    assert "and 2 more lines; .cells has their messages" in text
    assert len(text.splitlines()) < 100
    assert len(g.to_pandas()) == 61


def test_html_is_escaped_and_has_each_message_and_the_heat_map_below_the_table() -> None:
    html = grid_here({"<b>": f1, "bad": lambda x: x[1:]}, ["f32[4]"], name="<i>")._repr_html_()
    page = seeds_grid(TIMEOUT)._repr_html_()

    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "title='wrong shape: [3] where &lt;b&gt; gave [4]'" in html
    assert page.index("</table>") < page.index("<svg ") < page.index(">timeout</text>")
    check_rendered(rendering.document(seeds_grid(TIMEOUT)))


def test_the_figure_has_a_square_per_cell() -> None:
    figure = seeds_grid(TIMEOUT).plot()

    axes = figure.axes[0]
    words = [text.get_text() for text in axes.texts]
    assert words.count("timeout") == 2
    assert len(words) == 6
    assert [text.get_text() for text in axes.get_yticklabels()] == ["f1", "f2", "f3"]
    assert axes.get_xlabel() == "n_x"


# ---- who is the fastest --------------------------------------------------------------------------------------------


NOT_COMPARED = Absent("agreement", "comparing outputs is switched off (compare=False)")
AGREES = Numerics("baseline", agrees=True)


def cell(function: str, label: str, us: float | None, agreement: Any = NOT_COMPARED, width: float = 0.01) -> Cell:
    """Of 40 readings around so many µs; None: it timed out."""
    samples, failure = (), None
    if us is None:
        failure = Failure("timeout", "run", "run took longer than 1 s")
    else:
        samples = (Samples("wall", 1, tuple(us * 1e-6 * (1 + width * (i % 5 - 2)) for i in range(40)), trials=(40,)),)
    row: Measurement = replace(RICH, failure=failure, samples=samples)
    return Cell(function, label, row, Absent("outputs", "none"), agreement)


def grid(*cells: Cell) -> GridResult:
    functions, data = dict.fromkeys(c.function for c in cells), dict.fromkeys(c.data for c in cells)
    by_key = {(c.function, c.data): c for c in cells}
    return GridResult("g", "n", tuple(functions), tuple(data), 1, by_key, 1.0, 1.0, "run")


def test_each_data_point_has_places_and_the_geometric_mean_decides_over_all() -> None:
    ranking = rank(grid(
        cell("a", "4", 10), cell("b", "4", 20), cell("a", "8", 40), cell("b", "8", 10),
    ))  # fmt: skip

    assert [(p.place, p.label, p.ratio) for p in ranking.by_data["4"]] == [(1, "a", 1.0), (2, "b", pytest.approx(2))]
    assert [p.label for p in ranking.by_data["8"]] == ["b", "a"]
    assert [(p.place, p.label, p.ratio) for p in ranking.overall] == [
        (1, "b", pytest.approx(2**0.5)),
        (2, "a", pytest.approx(2.0)),
    ]
    assert ranking_text(ranking, "n") == (
        "fastest: a (n=4); b (n=8)\nas a multiple of the fastest (geometric mean of 2 data points): "
        "1. b 1.41 (1.40 – 1.43), 2. a 2.00 (1.98 – 2.02)"
    )


def test_those_that_are_not_told_apart_share_a_place_in_whatever_order() -> None:
    three = rank(grid(cell("a", "4", 10.0), cell("b", "4", 10.02), cell("c", "4", 20.0)))
    two = rank(grid(
        cell("a", "4", 10.0), cell("b", "4", 10.02), cell("a", "8", 10.02), cell("b", "8", 10.0),
    ))  # fmt: skip
    none = rank(grid(cell("a", "4", None), cell("b", "4", None)))

    places = [(1, "a"), (1, "b"), (3, "c")]
    assert [(p.place, p.label) for p in three.by_data["4"]] == [(p.place, p.label) for p in three.overall] == places
    assert ranking_text(three, "n") == "fastest: a or b, not told apart (n=4)"
    assert ranking_text(two, "n") == (
        "fastest: a or b, not told apart (n=4, 8)\n"
        "as a multiple of the fastest (geometric mean of 2 data points): "
        "1=. a 1.00 (0.991 – 1.01), 1=. b 1.00 (0.991 – 1.01)"
    )
    assert (dict(none.by_data), none.overall, none.without) == ({"4": ()}, (), ("a", "b"))


def test_what_fails_or_gives_another_result_has_no_place() -> None:
    wrong = replace(AGREES, agrees=False)
    ranking = rank(grid(
        cell("a", "4", 10), cell("b", "4", 1, (wrong,)), cell("c", "4", None), cell("d", "4", 30, (AGREES,)),
        cell("a", "8", 10), cell("b", "8", 1, (AGREES,)), cell("c", "8", 5, (AGREES,)), cell("d", "8", 30, (AGREES,)),
    ))  # fmt: skip

    assert [p.label for p in ranking.by_data["4"]] == ["a", "d"]
    assert [p.label for p in ranking.overall] == ["a", "d"]
    assert ranking.without == ("b", "c")
    assert ranking_text(ranking, "n").endswith("1. a 3.16 (3.13 – 3.19), 2. d 9.49 (9.39 – 9.58); not ranked: b, c")


def test_over_all_a_place_is_shared_where_the_intervals_of_the_means_overlap() -> None:
    """One point of nine on which they are told apart, as by chance, does not decide."""
    labels = [str(n) for n in range(9)]
    ranking = rank(grid(*(
        cell(f, label, us, width=0.02)
        for label in labels
        for f, us in (("a", 10.0), ("b", 11.0 if label == "3" else 10.05))
    )))  # fmt: skip

    assert [p.place for p in ranking.by_data["3"]] == [1, 2]
    assert [(p.place, p.label) for p in ranking.overall] == [(1, "a"), (1, "b")]


def test_a_function_with_too_few_readings_for_an_interval_is_told_apart_from_none() -> None:
    few = cell("few", "4", 30.0)
    one = replace(few.measurement.samples[0], elapsed_s=(30e-6,) * 3, trials=(3,))
    few = replace(few, measurement=replace(few.measurement, samples=(one,)))
    ranking = rank(grid(cell("a", "4", 10.0), few, cell("a", "8", 10.0), replace(few, data="8")))

    assert [p.place for p in ranking.overall] == [1, 1]
    assert "1=. few 3.00 (no interval)" in ranking_text(ranking, "n")


def test_all_cells_are_compared_by_one_timer_the_one_that_most_have() -> None:
    by_both = cell("a", "4", 10)
    by_graph = replace(by_both.measurement.samples[0], timer="in_graph")
    both = replace(by_both, measurement=replace(by_both.measurement, samples=(by_graph, *by_both.measurement.samples)))
    g = grid(both, cell("b", "4", 5))

    assert g.timer == "wall"
    assert [p.label for p in g.ranking.by_data["4"]] == ["b", "a"]
    assert grid(both).timer == "in_graph"


def test_other_timers_that_were_asked_for_are_said_with_the_cells_that_lack_them() -> None:
    g = benchax.grid(
        {"one": lambda x: x + 1, "relu6": jax.nn.relu6}, ["f32[4]", "f32[65536]"], timer="in_graph,wall",
        compare=False, store=False, progress=False,
    )  # fmt: skip
    refused = benchax.grid({"one": lambda x: x + 1}, ["f32[4]"], timer="in_graph", store=False, progress=False)

    text = " ".join(str(g).split())
    assert (g.timer, refused.timer) == ("wall", "")
    assert "also measured: in_graph in " in text
    assert "(.timings_by('in_graph'))" in text
    assert "one[data=f32[4]] not by in_graph: it takes less than reading the clock does" in text
    assert "not measured" in str(refused)
    assert "one[data=f32[4]]  in_graph: it takes less than reading the clock does" in str(refused)


def adam(x: Any) -> Any:
    optimizer = optax.adam(1e-3)
    return optimizer.update(x, optimizer.init(x))[0]


def slow_adam(x: Any) -> Any:
    return adam(jax.lax.fori_loop(0, 1000, lambda _, y: jnp.sin(y) + x, x))


def test_a_real_grid_ranks_and_says_by_which_timer_and_where(optimized: None) -> None:
    g = benchax.grid(
        [slow_adam, adam], ["f32[4096]"], timer="in_graph,wall", compare=False, store=False, progress=False
    )

    assert [p.label for p in g.ranking.overall] == ["adam", "slow_adam"]
    assert {s.timer for c in g.cells for s in c.measurement.samples} == {"in_graph", "wall"}
    text = str(g)
    assert text.startswith("fastest: adam (data=f32[4096])")
    assert "\nmedian time of a call by in_graph · 1 trial · cpu" in text
    # A microsecond beside what calling costs; of a long one, busy neighbours would decide.
    assert g.timings[1, 0, 0] < g.timings_by("wall")[1, 0, 0]
