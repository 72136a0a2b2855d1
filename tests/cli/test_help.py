"""Help: every command has its place among the others, and examples that can be typed."""

from __future__ import annotations

import shlex

import pytest
import typer
from command_line import Benchax

from benchax.cli.help import EXAMPLES, GROUPS
from benchax.cli.main import app

GROUP = typer.main.get_command(app)
COMMANDS = {name: command for name, command in GROUP.commands.items() if not command.hidden}  # type: ignore[attr-defined]


def test_every_command_is_in_one_group_and_has_two_examples() -> None:
    listed = [name for names in GROUPS.values() for name in names]

    assert sorted(listed) == sorted(COMMANDS)
    assert sorted(EXAMPLES) == sorted(COMMANDS)


@pytest.mark.parametrize("example", [example for both in EXAMPLES.values() for example in both])
def test_an_example_names_options_that_there_are(example: str) -> None:
    program, name, *words = shlex.split(example)
    known = {option for parameter in COMMANDS[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
    own = words[: words.index("--")] if "--" in words else words

    assert program == "benchax"
    assert [word for word in own if word.startswith("-") and word not in known] == []


def test_help_shows_groups_and_examples(benchax: Benchax) -> None:
    of_all, of_one = benchax("--help").out, benchax("list", "--help").out

    assert [of_all.index(f"\n{title}:\n") for title in GROUPS] == sorted(of_all.index(f"\n{t}:\n") for t in GROUPS)
    assert of_one.endswith("  Examples:\n    benchax list --filter matmul\n    benchax list --run last~1\n")
