"""A trace says on which machine it was recorded, and a profile of it stands beside the rates of that machine."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax_versions import tells_runs
from xspace_by_hand import Event, op, plane, space

import benchax
from benchax import kept_peaks
from benchax.environment import fingerprint
from benchax.profiling import session
from benchax.profiling.trace import profile_of
from benchax.results.roofline import Peaks

PEAKS = Peaks(2e10, 2**26, 8e10, 2**18, {"f32": 1e11})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if the rates of the machine 'here' had been measured."""
    monkeypatch.setattr(kept_peaks.platformdirs, "user_cache_dir", lambda _: str(tmp_path))
    kept_peaks.keep_peaks(kept_peaks.file_of("here"), PEAKS)


def trace(*names: str) -> bytes:
    return space(plane("/host:CPU", {"python": [op("dot", 0, 10), *(Event(name, 20, 1) for name in names)]}))


@pytest.mark.usefixtures("measured")
def test_the_rates_are_those_of_the_machine_that_recorded() -> None:
    here, elsewhere = profile_of(trace("benchax machine: here")), profile_of(trace("benchax machine: there"))
    unknown = profile_of(trace())

    assert here.peaks is not None
    assert (here.fingerprint, here.peaks.memory_bytes_per_s) == ("here", 2e10)
    assert (elsewhere.fingerprint, elsewhere.peaks) == ("there", None)
    assert (unknown.fingerprint, unknown.peaks) == (None, None)


@pytest.mark.slow
@tells_runs
def test_a_recording_knows_its_machine() -> None:
    with benchax.profile() as block:
        jnp.sin(jnp.ones(8)).block_until_ready()

    assert benchax.profile(jax.jit(jnp.sin), jnp.ones(8), runs=3).fingerprint == fingerprint()
    assert block.fingerprint == fingerprint()


@tells_runs
def test_a_machine_that_cannot_be_told_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise OSError("no /proc")

    monkeypatch.setattr(session, "fingerprint", fail)

    assert benchax.profile(jax.jit(jnp.sin), jnp.ones(8), runs=3).fingerprint is None
