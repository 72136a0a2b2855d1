"""`machine/noise.py`: the readings that are kept, what they scatter by, and files that cannot be read or written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchax.environment import capture
from benchax.machine import noise
from benchax.machine.noise import KEPT, LEAST_MOMENTS, note_pace, read_pace_s, scatter


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock says, which tests set."""
    times = [1e9]
    monkeypatch.setattr(noise, "_now_s", lambda: times[-1])
    return times


def note(folder: Path, now: list[float], times: int, apart_s: float = 2.0) -> float | None:
    found = None
    for _ in range(times):
        now.append(now[-1] + apart_s)
        found = note_pace(capture(), folder)
    return found


def lines(folder: Path) -> list[str]:
    (file,) = folder.iterdir()
    return file.read_text().splitlines()


def test_the_scatter_is_the_standard_deviation_of_normal_readings() -> None:
    """Pauses that make one reading in ten far longer do not count."""
    dice = np.random.default_rng(0)
    paces = np.exp(dice.normal(-8, 0.03, 400)).tolist()
    dice = np.random.default_rng(0)
    steady = np.exp(dice.normal(-9, 0.004, 125))
    paused = np.concatenate([steady, steady[:14] * dice.uniform(1.1, 1.45, 14)])

    assert scatter(paces) == pytest.approx(0.03, rel=0.15)
    assert scatter([*paces, 1.0]) == pytest.approx(0.03, rel=0.15)
    assert scatter(paces[: LEAST_MOMENTS - 1]) is None
    assert np.std(np.log(paused)) > 0.07
    assert scatter(paused.tolist()) == pytest.approx(0.004, rel=0.25)


def test_readings_are_kept_until_there_are_enough_to_say_something(tmp_path: Path, now: list[float]) -> None:
    assert note(tmp_path, now, LEAST_MOMENTS - 1) is None
    assert len(lines(tmp_path)) == LEAST_MOMENTS - 1

    found = note(tmp_path, now, 1)

    assert found is not None
    assert 0 <= found < 1


def test_readings_within_a_second_are_of_one_moment_and_a_clock_that_was_set_back_stops_nothing(
    tmp_path: Path, now: list[float]
) -> None:
    note(tmp_path, now, 5, apart_s=0.1)
    assert len(lines(tmp_path)) == 1

    now.append(now[-1] - 1e6)
    note(tmp_path, now, 3)

    assert len(lines(tmp_path)) == 4
    # A folder that cannot be made costs nothing.
    (tmp_path / "file").write_text("")
    assert note_pace(capture(), tmp_path / "file" / "pace") is None


def test_old_readings_say_nothing_of_today_and_a_long_file_is_cut(tmp_path: Path, now: list[float]) -> None:
    note(tmp_path, now, LEAST_MOMENTS)
    now.append(now[-1] + noise.AGE_S)
    assert note(tmp_path, now, 1) is None

    (file,) = tmp_path.iterdir()
    file.write_text("".join(f"{now[-1] - 3000 + i:.3f} 0.000125\n" for i in range(2 * KEPT)))
    assert note(tmp_path, now, 1) == pytest.approx(0, abs=0.02)
    assert len(lines(tmp_path)) == KEPT


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"one two\n3\n", b"1e9 nan\n1e9 -1\ninf 0.1\n", b"1000000000.0 0.00"])
def test_lines_that_are_damaged_are_no_readings(damage: bytes, tmp_path: Path, now: list[float]) -> None:
    note(tmp_path, now, 1)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)

    assert note(tmp_path, now, 1) is None


def test_machines_and_pythons_that_share_a_home_have_files_of_their_own(tmp_path: Path) -> None:
    here = capture()
    for other in (here, replace(here, host="another"), replace(here, python="3.99.0")):
        note_pace(other, tmp_path)

    assert len([*tmp_path.iterdir()]) == 3


def test_the_work_takes_a_time_that_its_repeats_agree_on() -> None:
    readings = sorted(read_pace_s() for _ in range(20))

    assert 0 < readings[0] < 0.1
    assert readings[10] < 1.5 * readings[0]
