"""Pairs of processes that are born under different conditions. Real processes; nothing is timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from benchax.case import make_case
from benchax.experiments.processes import Condition, pairs
from benchax.paired_runs.partners import start_partners

SETTING = "jax_cpu_enable_async_dispatch"


@pytest.mark.slow
def test_both_find_the_case_each_under_its_own_condition(tmp_path: Path, monkeypatch) -> None:
    """A function that no other process can import, arguments by name, a path relative to where the user is."""
    monkeypatch.chdir(tmp_path)
    Path("factor").write_text("3")
    seen: list[Any] = []

    def scaled(x, power, *, shift):
        return (x * float(Path("factor").read_text())) ** power + shift

    def look(sides, chosen, max_time_s, progress):
        with start_partners(sides, chosen, None) as partners:
            seen.extend(partner.listing() for partner in partners)
            for partner, listing in zip(partners, seen, strict=True):
                ((number, _),) = listing.cases.values()
                partner.ask({"do": "prepare", "case": number})
                outputs.append(jnp.asarray(partner.ask({"do": "outputs"}).sections[0]).tobytes())
        return []

    outputs: list[bytes] = []
    case = make_case(scaled, ("f32[4]", 2), {"shift": "f32[4]"}, static=("power",), name="é scaled")
    flag = "--xla_cpu_enable_fast_math=true"
    conditions = Condition("one", {SETTING: False}), Condition("other", {SETTING: True}, {"XLA_FLAGS": flag})

    pairs(case, conditions, 7, None, lambda text: None, look)

    one, other = (listing.environment for listing in seen)
    assert [list(listing.cases) for listing in seen] == [[case.id], [case.id]]
    assert (one.config[SETTING], other.config[SETTING]) == (False, True)
    assert other.flags["XLA_FLAGS"] == flag
    assert flag not in one.flags.get("XLA_FLAGS", "")
    assert len(outputs[0]) == 16
    assert outputs[0] == outputs[1]
