"""Rates of the machine: they are reached, kept, measured anew where the file is damaged, and absent with a reason; and
a program beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from measurement_strategies import measured

from benchax import kept_peaks as kept
from benchax.errors import NotMeasured
from benchax.kept_peaks import file_of, keep_peaks, kept_peaks
from benchax.machine import peaks as module
from benchax.machine.peaks import NO_PEAKS, matmul_type, peaks, roofline
from benchax.model import Absent, Memory
from benchax.results.inspection import Counts, Inspection, Peaks, Place


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays and short calls: what is tested is none of the rates."""
    monkeypatch.setattr(module, "CALL_S", 1e-4)
    monkeypatch.setattr(module, "BUDGET_S", 1e-3)
    monkeypatch.setattr(module, "MATMUL_SIZES", (32, 64))
    monkeypatch.setattr(module, "_memory_array_bytes", lambda: 2**20)


def the_file(folder: Path) -> Path:
    (file,) = folder.glob("*.json")
    return file


@pytest.mark.usefixtures("quick")
def test_peaks_are_measured_once_and_then_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert peaks(measure=False, folder=tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    first = peaks(folder=tmp_path)
    monkeypatch.setattr(module, "_measured", None)  # nothing may be measured again

    assert first is not None
    assert first.memory_bytes_per_s is not None
    assert first.memory_bytes_per_s > 0
    assert list(first.matmul_flops_per_s) == ["f32"]
    assert first.path == str(the_file(tmp_path))
    assert peaks(folder=tmp_path) == first == peaks(measure=False, folder=tmp_path)


@pytest.mark.usefixtures("quick")
def test_another_dtype_is_added_to_what_is_kept(tmp_path: Path) -> None:
    first = peaks(folder=tmp_path)

    both = peaks(folder=tmp_path, dtypes=("f32", "bf16"))

    assert first is not None
    assert both is not None
    assert list(both.matmul_flops_per_s) == ["f32", "bf16"]
    assert both.matmul_flops_per_s["f32"] == first.matmul_flops_per_s["f32"]
    assert both.memory_bytes_per_s == first.memory_bytes_per_s


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: "\x00\xff",
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: json.dumps(json.loads(text) | {"memory_bytes_per_s": -1.0}),
        lambda text: json.dumps(json.loads(text) | {"cache_bytes_per_s": "fast"}),
        lambda text: json.dumps(json.loads(text) | {"matmul_flops_per_s": None}),
    ],
)
def test_a_damaged_file_is_measured_anew(damage, tmp_path: Path) -> None:
    peaks(folder=tmp_path)
    file = the_file(tmp_path)
    file.write_text(damage(file.read_text()), encoding="utf-8")
    assert peaks(measure=False, folder=tmp_path) is None

    again = peaks(folder=tmp_path)

    assert again is not None
    assert again == peaks(measure=False, folder=tmp_path)


@pytest.mark.usefixtures("quick")
def test_rates_that_cannot_be_kept_are_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    found = peaks(folder=tmp_path / "file" / "peaks")

    assert found is not None
    assert found.cache_bytes_per_s
    assert found.path == ""


@pytest.mark.usefixtures("quick")
def test_a_rate_that_cannot_be_had_is_absent_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> float:
        raise NotMeasured("no caches today")

    monkeypatch.setattr(module, "_cache_bytes_per_s", refused)

    found = peaks(folder=tmp_path, dtypes=("f64",))

    assert found is not None
    assert (found.cache_bytes_per_s, found.why_absent("cache_bytes_per_s")) == (None, "no caches today")
    assert "f64" not in found.matmul_flops_per_s
    assert "jax_enable_x64 is off" in (found.why_absent("matmul_flops_per_s.f64") or "")


def test_the_fastest_of_some_calls_that_are_long_enough_counts() -> None:
    now_ns, turns_of = [0], list[int]()

    def call(turns: int) -> None:
        turns_of.append(turns)
        now_ns[0] += turns * 10_000 + (5_000_000 if len(turns_of) % 3 else 0)

    assert module._iteration_s(call, lambda: now_ns[0]) == pytest.approx(1e-5)
    assert turns_of[-1] * 1e-5 + 5e-3 >= module.CALL_S
    assert len([turns for turns in turns_of if turns == turns_of[-1]]) <= module.REPEATS + 1


@pytest.mark.parametrize(
    ("working_set", "expected"), [(100, (9.0, 100)), (101, (9.0, 100)), (1000, (5.0, 1000)), (None, (5.0, 1000))]
)
def test_what_fits_into_caches_is_held_against_their_rate(working_set: int | None, expected: tuple[float, int]) -> None:
    """Between the two arrays the faster one, so that a share is rather too small than too large."""
    assert Peaks(5.0, 1000, 9.0, 100).bytes_per_s(working_set) == expected


KEPT = Peaks(2e10, 2**26, None, 2**18, {"f32": 1e11}, "2026", absent=(Absent("cache_bytes_per_s", "none here"),))


def test_rates_are_found_by_the_fingerprint_of_their_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept.platformdirs, "user_cache_dir", lambda _: str(tmp_path))

    assert keep_peaks(file_of("abc"), KEPT)

    found = kept_peaks("abc")
    assert found is not None
    assert found.path == str(file_of("abc"))
    assert (found.memory_bytes_per_s, found.absent) == (KEPT.memory_bytes_per_s, KEPT.absent)
    assert kept_peaks("another") is None


# ---- a program beside the rates of the machine ---------------------------------------------------------------------


PEAKS = Peaks(1e9, 2**26, 4e9, 2**18, {"f32": 1e12})
COUNTS = Counts(flops=2e9, transcendentals=None, bytes_accessed=4e6, is_exact=True)
NO_MATMUL = replace(PEAKS, matmul_flops_per_s={}, absent=(Absent("matmul_flops_per_s.f32", "OOM"),))
FOUND = Inspection("f", "", Place(), counts=COUNTS, memory=Memory(predicted_peak_bytes=2**27))
TIMED = measured(elapsed_s=(8e-3,))


def test_bytes_and_operations_take_what_the_rates_say() -> None:
    found = roofline(FOUND, PEAKS, TIMED)
    small = roofline(replace(FOUND, memory=Memory(predicted_peak_bytes=2**16)), PEAKS)
    partly = roofline(replace(FOUND, counts=replace(COUNTS, is_exact=False)), PEAKS, TIMED)

    assert (found.bytes_s, found.flops_s) == (4e-3, 2e-3)
    assert (found.roof_s, found.is_memory_bound, found.share) == (4e-3, True, 0.5)
    assert found.absent == ()
    # What fits into caches is held against the faster rate.
    assert (small.bytes_s, small.is_memory_bound) == (1e-3, False)
    # There is no share of work that was not counted in full.
    assert (partly.bytes_s is None, partly.share) == (False, None)


@pytest.mark.parametrize(
    ("found", "peaks", "what", "why"),
    [
        (FOUND, None, "bytes_s", NO_PEAKS),
        (replace(FOUND, counts=None, absent=(Absent("counts", "no text"),)), PEAKS, "flops_s", "no text"),
        (
            replace(FOUND, counts=replace(COUNTS, flops=None), absent=(Absent("counts.flops", "a callback"),)),
            PEAKS,
            "flops_s",
            "a callback",
        ),
        (FOUND, NO_MATMUL, "flops_s", "OOM"),
        (FOUND, replace(PEAKS, memory_bytes_per_s=None, absent=(Absent("memory_bytes_per_s", "x"),)), "bytes_s", "x"),
    ],
)
def test_what_is_missing_has_a_reason(found: Inspection, peaks: Peaks | None, what: str, why: str) -> None:
    roof = roofline(found, peaks, TIMED)

    assert getattr(roof, what) is None
    assert roof.why_absent(what) == why
    assert (roof.roof_s, roof.is_memory_bound, roof.share) == (None, None, None)


@pytest.mark.parametrize(
    ("hlo", "dtype"),
    [
        ("%d = bf16[8,8]{1,0} dot(%a, %b)", "bf16"),
        ("%d = f64[8,8] dot(%a, %b)", "f64"),
        ("%d = s32[8,8] dot(%a, %b)", "f32"),
        ("", "f32"),
    ],
)
def test_the_matmul_of_the_program_chooses_the_rate(hlo: str, dtype: str) -> None:
    assert matmul_type(replace(FOUND, hlo=hlo)) == dtype
