"""`grids/rendering.py`: who is the fastest, by real cells with given times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from measurement_strategies import RICH

import benchax
from benchax.grids.rendering import rank, ranking_text
from benchax.grids.result import Cell, GridResult
from benchax.model import Absent, Failure, Measurement, Numerics, Samples

NOT_COMPARED = Absent("agreement", "the grid was asked not to compare outputs")
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
    assert ranking_text(ranking, "n").endswith(
        "1. a 3.16 (3.13 – 3.19), 2. d 9.49 (9.39 – 9.58); without a place: b, c"
    )


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
