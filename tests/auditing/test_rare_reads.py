"""Results of a call in a loop that the text of the program reads in few iterations."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from benchax.auditing.rules.waste import RareReads, rare_reads

RARE = {
    "every k-th": """
        for i in range(n):
            w, m = step(w, x)
            if i % 50 == 0:
                print(i, float(m["loss"]))
        """,
    "of a tuple in a tuple": """
        while True:
            (w, s), (m, aux) = step(w, s)
            if (i + 1) % every == 0 or last:
                print(m, aux)
        """,
    "behind the loop": """
        for i in range(n):
            w, m = step(w, x)
        print(m)
        """,
    "nowhere": """
        for i in range(n):
            w, _ = step(w, x)
        """,
    "of an object": """
        for i in range(n):
            self.w, m = self.step(self.w, x)
            if not i % 10:
                print(m)
        """,
}
OFTEN = {
    "each time": RARE["every k-th"].replace("if i % 50 == 0", "if verbose"),
    "kept": "for i in range(n):\n    w, m = step(w, x)\n    kept.append(m)\n",
    "kept by an attribute": "for i in range(n):\n    w, self.m = step(w, x)\n",
    "kept by an element": "for i in range(n):\n    w, m[i] = step(w, x)\n",
    "all given back": "for i in range(n):\n    w, s = step(w, s)\n",
    "no loop": "w, m = step(w, x)\n",
    "not bound": "for i in range(n):\n    step(w, x)\n",
    "in the other branch": RARE["every k-th"].replace("print", "pass\n            else:\n                print"),
}


def asked(tmp_path: Path, text: str) -> RareReads | None:
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(text))
    line = next(i for i, one in enumerate(file.read_text().splitlines(), 1) if "step(" in one)
    return rare_reads((str(file), line))


@pytest.mark.parametrize("text", RARE.values(), ids=RARE)
def test_results_that_are_read_rarely_are_found(tmp_path: Path, text: str) -> None:
    found = asked(tmp_path, text)

    assert found is not None
    assert set(found.names) <= {"m", "aux", "_"}


def test_how_they_are_read_is_told(tmp_path: Path) -> None:
    hows = [found.how for text in RARE.values() if (found := asked(tmp_path, text)) is not None]

    assert hows == [
        "read where i % 50 == 0, at line 4",
        "read where (i + 1) % every == 0 or last, at line 4",
        "read behind the loop",
        "read nowhere",
        "read where not i % 10, at line 4",
    ]


@pytest.mark.parametrize("text", OFTEN.values(), ids=OFTEN)
def test_what_may_be_read_in_each_iteration_is_not(tmp_path: Path, text: str) -> None:
    assert asked(tmp_path, text) is None


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    assert rare_reads(None) is rare_reads((str(tmp_path / "absent.py"), 3)) is None
