"""A suite of benchmarks, for comparing two versions of it. `compare_ref`, `compare_jax` and `compare_stored` share this
code, from their arguments to the store that keeps the comparisons."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchax.checkouts.boot import Selection
from benchax.comparing.ranking import Comparisons
from benchax.comparing.sequential import Effort
from benchax.discovery import collect, matches
from benchax.environment import capture
from benchax.errors import StoreError, UsageError
from benchax.model import CaseId, Comparison, Environment, Measurement
from benchax.options import check, resolve
from benchax.paired_runs import session
from benchax.paired_runs.stored import Pairing, pair_with_cases
from benchax.progress import Listener, Progress, ProgressEvent, show_progress
from benchax.store import comparisons
from benchax.store.baselines import by_case, rows_of
from benchax.store.database import DatabaseStore, open_store

Store = str | os.PathLike[str] | bool | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
OFF = "off"
UNSTORED = "the comparisons were not stored"


@dataclass(frozen=True)
class BenchmarkSuite:
    """The benchmarks to compare, their options, and the listener for progress."""

    selection: Selection
    store: str
    report: Listener

    def tell(self, text: str, *, is_lasting: bool = False) -> None:
        self.report(ProgressEvent(text, is_lasting=is_lasting))

    def opened(self) -> DatabaseStore:
        """Raises `UsageError` if nothing is stored."""
        if self.store == OFF:
            problem = "there are no rows: storing is switched off here"
            raise UsageError(problem, "a folder", "name it with --store, or store=")
        return open_store(self.store)

    def stored_rows(self, reference: str) -> dict[CaseId, Measurement]:
        rows = by_case(rows_of(self.opened(), reference))
        return {id: row for id, row in rows.items() if matches(id, self.selection.pattern)}

    def pair_with_now(self, store: DatabaseStore, label: str, rows: Mapping[CaseId, Measurement]) -> Pairing:
        """Rows of the baseline, whose programs `store` has, with the functions of now."""
        chosen = self.selection
        cases, broken = collect(chosen.what, chosen.pattern, chosen.params)
        for each in broken:
            self.tell(f"error: {each.failure.message}\n{each.failure.traceback}", is_lasting=True)
        found = pair_with_cases(store, label, rows, cases, self.environment(), chosen.options)
        found.broken = [each.failure for each in broken]
        return found

    def environment(self) -> Environment:
        """The environment. The store is usually in the repository, and does not count as a change of the tree."""
        is_elsewhere = self.store == OFF or "://" in self.store
        return capture(Path.cwd(), besides=None if is_elsewhere else Path(self.store))

    def run(self, pairing: Pairing, effort: Effort) -> Comparisons:
        tests = session.run_tests(pairing.paired_runs, effort, self.report)
        found: list[Comparison] = [*(c for test in tests for c in test.comparisons()), *pairing.without]
        new, missing, broken = tuple(pairing.new), tuple(pairing.missing), tuple(pairing.broken)
        return Comparisons(tuple(found), new=new, missing=missing, broken=broken)

    def keep(self, found: Comparisons) -> Comparisons:
        """Keeps the comparisons for `benchax history`. If that fails, they are still returned: they took minutes to
        measure.
        """
        if self.store == OFF or not found:
            return found
        try:
            comparisons.append(open_store(self.store), found)
        except StoreError as error:
            warnings.warn(f"{UNSTORED}: {error}", stacklevel=4)  # 4: whoever called `compare_ref`, past its guard
            return replace(found, unstored=str(error))
        return found


@contextmanager
def open_suite(
    paths: Paths,
    pattern: str,
    params: Sequence[str],
    options: Mapping[str, Any],
    store: Store,
    progress: Progress,
) -> Generator[BenchmarkSuite]:
    """A suite, for as long as its progress is shown. Invalid requests are refused here, before any build."""
    words = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not words:
        raise UsageError(f"paths={paths!r} names nothing", "folders, files, or a function and its inputs")
    given = check({**options, "store": store}, "the call")
    known = {name: value for name, value in given.items() if value is not None}
    where = resolve(command_line=known).store or OFF
    texts = (params,) if isinstance(params, str) else tuple(params)
    selection = Selection(tuple(os.fspath(word) for word in words), pattern, texts, known)
    with show_progress(progress) as report:
        yield BenchmarkSuite(selection, where, report)
