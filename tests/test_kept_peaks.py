"""Rates that were measured before: found by the fingerprint, and nothing where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax import kept_peaks as module
from benchax.kept_peaks import file_of, keep_peaks, kept_peaks
from benchax.model import Absent
from benchax.results.inspection import Peaks

PEAKS = Peaks(2e10, 2**26, None, 2**18, {"f32": 1e11}, "2026", absent=(Absent("cache_bytes_per_s", "none here"),))


def test_rates_are_found_by_the_fingerprint_of_their_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.platformdirs, "user_cache_dir", lambda _: str(tmp_path))

    assert keep_peaks(file_of("abc"), PEAKS)

    found = kept_peaks("abc")
    assert found is not None
    assert found.path == str(file_of("abc"))
    assert (found.memory_bytes_per_s, found.absent) == (PEAKS.memory_bytes_per_s, PEAKS.absent)
    assert kept_peaks("another") is None
