"""A function beside the stages that it is made of, in a real worker process."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from labs_by_hand import ScriptedLab

from benchax.case import Case, make_case
from benchax.discovery import target_cases
from benchax.errors import NotMeasured, UsageError
from benchax.experiments.variants.pipeline import MICRO_BATCHES, Pipeline
from benchax.results.experiment import Curve

FILE = """
import jax.numpy as jnp

def embed(x):
    return jnp.sin(x)

def head(x):
    return jnp.cos(x)

def net(x):
    return head(embed(x))

STAGES = [embed, head]
NUMBER = 3
"""


def net(x: Any) -> Any:
    return jnp.cos(jnp.sin(x))


def told(raw: Any, case: Case) -> tuple[list[str], tuple[int, ...]]:
    """Names of the stages, and numbers of micro-batches."""
    stages, numbers = Pipeline()._parse(case, raw)
    return [stage.__name__ for stage in stages], numbers


def measured(case: Case, raw: Any) -> Any:
    (found,) = Pipeline().plan(case, raw)(ScriptedLab())
    return found


@pytest.fixture
def case(project: Path) -> Case:
    (project / "code.py").write_text(FILE)
    return target_cases("code.py:net", ["f32[8,4]"])[0]


@pytest.mark.slow
def test_stages_by_name_give_what_the_function_gives(case: Case) -> None:
    found = measured(case, "code.py:STAGES=1,3")

    assert isinstance(found, Curve)
    facts = [dict(point.facts) for point in found.points]
    assert facts[0]["handed on:"] == "128 B in 1 transfer"
    assert "wrong result:" not in facts[0]
    assert facts[1] == {"not available:": "the 8 rows of x do not divide into 3 micro-batches"}
    assert found.sentence.startswith("results are compared with those of net on one device; ")


@pytest.mark.slow
def test_stages_that_do_not_make_up_the_function_give_a_wrong_result() -> None:
    found = measured(make_case(net, ("f32[8]",)), ([jnp.cos, jnp.sin], (1,)))

    assert "wrong result:" in dict(found.points[0].facts)
    assert found.points[0].seconds is None


@pytest.mark.slow
def test_a_function_that_takes_its_input_away_leaves_one_for_the_stages() -> None:
    donating = jax.jit(net, donate_argnums=0)

    found = measured(make_case(donating, ("f32[8]",)), ([jnp.sin, jnp.cos], (1,)))

    assert [label for label, _ in found.points[0].facts][-1] == "handed on:"


@pytest.mark.slow
def test_a_stage_that_fails_is_a_row() -> None:
    row = measured(make_case(net, ("f32[8]",)), [jnp.sin, lambda x: x.no_such_thing])

    assert row.status == "failed"
    assert row.reason.startswith("error in stages:")
    assert "no_such_thing" in row.reason


@pytest.mark.parametrize(
    ("raw", "numbers"),
    [
        ("code.py:STAGES", MICRO_BATCHES),
        ("code.py:STAGES=4", (4,)),
        ("code.py:embed+code.py:head=2, 1", (2, 1)),
        (" code.py:embed + code.py:head ", MICRO_BATCHES),
    ],
)
def test_stages_are_named_one_by_one_or_as_a_list(raw: str, numbers: tuple[int, ...], case: Case) -> None:
    assert told(raw, case) == (["embed", "head"], numbers)


@pytest.mark.parametrize("folder", ["a=b", "a+b", "a,b", "a=1", "a+b=c,d 1"])
@pytest.mark.parametrize(
    ("names", "numbers"),
    [("{0}:STAGES", MICRO_BATCHES), ("{0}:STAGES=1,2", (1, 2)), ("{0}:embed+{0}:head=1,2", (1, 2))],
)
def test_paths_may_hold_the_characters_that_part_names(folder: str, names: str, numbers: Any, project: Path) -> None:
    (project / folder).mkdir()
    (project / folder / "code.py").write_text(FILE)

    assert told(names.format(f"{folder}/code.py"), make_case(net, ("f32[8]",))) == (["embed", "head"], numbers)


def test_functions_and_numbers_are_taken_as_they_are() -> None:
    case = make_case(net, ("f32[8]",))
    sin, cos = [functools.wraps(fn)(lambda x, fn=fn: fn(x)) for fn in (jnp.sin, jnp.cos)]

    assert told([sin, cos], case) == (["sin", "cos"], MICRO_BATCHES)
    assert told((sin, cos), case) == (["sin", "cos"], MICRO_BATCHES)
    assert told(([sin, cos], (1, 2)), case) == (["sin", "cos"], (1, 2))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("code.py:embed", "pipeline='code.py:embed' names 1 function"),
        ("code.py:embed+code.py:NUMBER", "names an object of the type int"),
        ("code.py:embed+head", "pipeline is given the name 'head'"),
        ("code.py:STAGES=", "pipeline='code.py:STAGES='"),
        ("code.py:STAGES=x", "pipeline='code.py:STAGES=x'"),
        ("code.py:STAGES=0,1", "pipeline='code.py:STAGES=0,1'"),
        ("code.py:STAGE", "'code.py' has nothing called 'STAGE'"),
        ("missing.py:STAGES", "missing.py cannot be imported"),
        ("STAGES", "pipeline is given the name 'STAGES'"),
        ("+", "pipeline is given the name '+'"),
        ([jnp.sin], "pipeline=["),
        (([jnp.sin, jnp.cos], (0,)), "pipeline=(["),
        (3, "pipeline=3"),
    ],
)
def test_a_slip_is_quoted(raw: Any, said: str, case: Case) -> None:
    with pytest.raises(UsageError) as caught:
        Pipeline().plan(case, raw)

    assert said in caught.value.problem
    if "cannot be imported" not in said:
        assert caught.value.expected


@pytest.mark.parametrize(
    ("args", "said"), [(("f32[8]", "f32[8]"), "2 of its arguments have arrays"), ((1.0,), "none of its arguments has")]
)
def test_exactly_one_argument_can_flow_through_stages(args: tuple[Any, ...], said: str) -> None:
    case = make_case(lambda *args: args, args, name="mine")

    with pytest.raises(UsageError, match=said) as caught:
        Pipeline().plan(case, [jnp.sin, jnp.cos])

    assert "mine(" in caught.value.problem


def test_untold_it_says_what_it_has_to_be_told() -> None:
    with pytest.raises(NotMeasured, match=r"told the stages, which are not to be seen .*: pipeline=model\.py:STAGES"):
        Pipeline().plan(make_case(abs, ("f32[4]",)))
