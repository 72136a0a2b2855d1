"""What is said while a program runs: seldom, and what is known only."""

from __future__ import annotations

from pathlib import Path

from benchax.cli.console import Waiting, at_terminal


def said_by(folder: Path | None = None) -> tuple[Waiting, list[str]]:
    said: list[str] = []
    return Waiting("profile", folder, said.append), said


def test_it_speaks_after_ten_seconds_and_then_ever_more_seldom() -> None:
    waiting, said = said_by()

    for elapsed_s in range(300):
        waiting(elapsed_s)

    assert [text.split("after ")[1].split(":")[0] for text in said] == ["10 s", "30 s", "90 s", "4 min"]
    assert said[0] == "\nbenchax profile: after 10 s: the report comes when the program ends"


def test_what_the_program_tells_is_said_at_once_and_once(tmp_path: Path) -> None:
    waiting, said = said_by(tmp_path)
    file = tmp_path / "7.txt"

    for elapsed_s, text in enumerate(["", "3 of 20 steps", "3 of 20 steps", "enough is recorded"], start=1):
        file.write_text(text)
        waiting(elapsed_s)

    assert said == [
        "\nbenchax profile: after 2 s: 3 of 20 steps",
        "\nbenchax profile: after 4 s: enough is recorded",
    ]


def test_a_log_is_not_filled(monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)

    assert at_terminal("watch") is None
