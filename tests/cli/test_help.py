"""Help: every command has its place among the others, and examples that can be typed."""

from __future__ import annotations

import shlex

import pytest

from benchax.cli.main import COMMANDS, load


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_of_each_what_its_docstring_says(name: str) -> None:
    """`benchax --help` imports no command."""
    assert COMMANDS[name].summary == load(name).get_short_help_str(1000)


@pytest.mark.parametrize("example", [example for command in COMMANDS.values() for example in command.examples])
def test_an_example_names_options_that_there_are(example: str) -> None:
    program, name, *words = shlex.split(example)
    known = {option for parameter in load(name).params for option in (*parameter.opts, *parameter.secondary_opts)}
    own = words[: words.index("--")] if "--" in words else words

    assert program == "benchax"
    assert [word for word in own if word.startswith("-") and word not in known] == []
