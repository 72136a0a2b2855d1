"""Which run a new row belongs to: `run_id` counts the runs of a test, `commit_run` those of the same commit.

All rows of one session are one run. A commit counts as the same whether it was clean or not ("6bc9501+"). Both are
looked up from the end of the file, where they usually are; only for a commit that never ran, all of it is searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from pytest_jax_bench.csv.blocks import read_block
from pytest_jax_bench.csv.reading import Head, backward
from pytest_jax_bench.csv.text import word

# Bytes at the end, some 6,000 rows, in which a session that still goes on must have left a row.
_RECENT = 2**22
_WANTED = ("run_id", "commit", "commit_run", "session")


def number(file: BinaryIO, head: Head, end: int, values: Mapping[str, Any]) -> tuple[int, int]:
    """(run_id, commit_run) of the row that is to be written behind `end`."""
    found = _RunCounts(bare(values["commit"]), values["session"])
    # The quick way past most of a long file: the word is not in it.
    commit, session = word(found.commit).encode(), word(found.session).encode()
    looked_at = 0
    for block in backward(file, head, end):
        seeks_session = bool(found.session) and found.run_id is None and looked_at < _RECENT
        seeks_commit = found.last_of_commit is None
        if not (seeks_session or seeks_commit):
            break
        if not looked_at or (seeks_session and session in block) or (seeks_commit and commit in block):
            found.look(_rows(block, head))
        looked_at += len(block)
    return found.numbers()


def bare(commit: str) -> str:
    """The commit, without the mark for changes that were not committed."""
    return commit.rstrip("+")


@dataclass
class _RunCounts:
    """What the rows say that were looked at so far, from the end of the file."""

    commit: str
    session: str
    last: int = -1
    """The highest run_id."""
    last_of_commit: int | None = None
    """The highest commit_run of this commit."""
    run_id: int | None = None
    """Of this session."""
    commit_run: int | None = None
    """Of this commit in this session."""

    def look(self, rows: list[tuple[int, str, int, str]]) -> None:
        ours = [(run_id, commit_run) for run_id, commit, commit_run, _ in rows if bare(commit) == self.commit]
        self.last = max([self.last, *(run_id for run_id, *_ in rows)])
        if self.last_of_commit is None and ours:
            self.last_of_commit = max(commit_run for _, commit_run in ours)
        if self.session and self.run_id is None:
            self.run_id = next((run_id for run_id, *_, session in reversed(rows) if session == self.session), None)
            self.commit_run = next((run for run_id, run in reversed(ours) if run_id == self.run_id), None)

    def numbers(self) -> tuple[int, int]:
        run_id = self.last + 1 if self.run_id is None else self.run_id
        next_of_commit = 0 if self.last_of_commit is None else self.last_of_commit + 1
        return run_id, next_of_commit if self.commit_run is None else self.commit_run


def _rows(block: bytes, head: Head) -> list[tuple[int, str, int, str]]:
    piece = read_block(block, head.form, _WANTED)
    return [
        (int(run_id), str(commit), int(commit_run), str(session))
        for run_id, commit, commit_run, session in zip(*(piece.column(name) for name in _WANTED), strict=True)
    ]
