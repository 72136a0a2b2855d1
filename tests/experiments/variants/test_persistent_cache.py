"""Starts with an empty and with a filled cache. Two starts are real; verdicts are about starts by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.lab import WorkerLab
from benchax.experiments.variants.persistent_cache import PersistentCache, start
from benchax.model import Failure
from benchax.options import DEFAULTS

CASE = make_case(lambda x: jnp.tanh(x @ x).sum(), ("f32[32,32]",))


class Starts:
    """`seconds` of the cold and the warm start, pair by pair, over and over."""

    def __init__(self, *seconds: tuple[float, float], hits: int = 1) -> None:
        self.seconds, self.hits, self.folders = seconds, hits, list[str]()

    def __call__(self, argument: Any) -> dict[str, Any]:
        _, _, folder = argument
        is_warm = folder in self.folders
        self.folders.append(folder)
        pair = self.seconds[(len(set(self.folders)) - 1) % len(self.seconds)]
        hits = self.hits if is_warm else 0
        return {
            "build_s": pair[is_warm],
            "compile_s": pair[is_warm] / 2,
            "hits": hits,
            "misses": 1 - hits,
            "entries": 1,
            "entry_bytes": 2048,
        }


def row(starts: Any, pairs: str = "4") -> Any:
    (row,) = PersistentCache().plan(CASE, pairs)(ScriptedLab(answers={start: starts}))
    return row


@pytest.mark.slow
def test_the_second_start_reads_what_the_first_one_wrote(tmp_path: Path) -> None:
    lab = WorkerLab(DEFAULTS)
    cold, warm = (lab.call_alone(start, (CASE, 0, str(tmp_path)), name="the start") for _ in range(2))

    assert isinstance(cold, dict)
    assert isinstance(warm, dict)
    assert (cold["hits"], cold["misses"]) == (0, 1)
    assert (warm["hits"], warm["misses"]) == (1, 0)
    assert warm["entries"] == 1
    assert warm["entry_bytes"] > 0
    assert 0 < warm["compile_s"] <= warm["build_s"]


def test_a_gain_is_confirmed_by_as_many_new_pairs() -> None:
    starts = Starts((1.0, 0.10), (1.1, 0.12), (1.05, 0.105), (1.2, 0.11))

    found = row(starts)

    assert len(set(starts.folders)) == 8
    assert found.sentence.startswith("a start with a filled cache saves ")
    assert dict(found.facts)["the verdict"] == "faster, confirmed"
    assert dict(found.facts)["filled cache"] == "1 hits, 0 misses"
    assert "would not keep what takes 538 ms" in dict(found.facts)["threshold"]
    assert found.comparison is None
    assert not Path(starts.folders[0]).exists()


def test_starts_that_scatter_are_unclear_and_not_measured_again() -> None:
    starts = Starts((1.0, 0.5), (1.0, 2.0), (1.0, 1.0), (1.0, 1.5))

    found = row(starts)

    assert len(set(starts.folders)) == 4
    assert "unclear" in found.sentence


def test_what_jax_does_not_keep_is_said() -> None:
    assert "nothing was read from the cache" in row(Starts((1.0, 1.0), (1.0, 1.1), hits=0)).sentence


def test_a_start_that_fails_is_a_row() -> None:
    found = row(lambda argument: Failure("crashed", "build", "it is gone"))

    assert (found.status, found.reason) == ("failed", "crashed in build: it is gone")


@pytest.mark.parametrize("text", ["3", "x", "", "-4", "²", "1001"])
def test_too_few_pairs_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cache=") as error:
        PersistentCache().plan(CASE, text)

    assert "from 4 to 1000" in error.value.expected


def test_what_is_not_compiled_as_a_whole_is_not_available() -> None:
    with pytest.raises(NotAvailable, match="only a jitted function"):
        PersistentCache().plan(CASE.eager())
    compiled = jax.jit(jnp.sin).lower(1.0).compile()
    with pytest.raises(NotAvailable, match="only a jitted function"):
        PersistentCache().plan(make_case(compiled, (1.0,)))
