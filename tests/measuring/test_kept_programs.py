"""Programs of ours are kept from run to run, and the measured function is compiled each time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import benchax
from benchax.measuring import jax_settings as settings
from benchax.measuring.jax_settings import apply_settings, jax_settings, kept_programs
from benchax.model import Measurement
from benchax.watching.compiles import watch_compiles


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for what is kept."""
    monkeypatch.setattr(settings.platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    kept_programs.cache_clear()
    yield tmp_path / "benchax"
    kept_programs.cache_clear()


def measured() -> tuple[Measurement, int]:
    """A row, and how many programs were compiled for it in a process that knows none."""
    jax.clear_caches()
    with watch_compiles() as log:
        m = benchax.bench(
            lambda x: jnp.tanh(x @ x) * 2 + 1, "f32[65,65]", timer="in_graph", max_time_s=0.01, min_time_s=0.001,
            memory=False, stages="samples", store="off",
        )  # fmt: skip
    return m, log.compiles


def test_the_second_run_compiles_the_function_alone() -> None:
    first, of_first = measured()
    second, of_second = measured()

    assert of_first > 4
    assert of_second <= 2  # the function, and the program that is compiled before it in a process
    for m in (first, second):
        assert m.stages.cache == "off"
        assert (m.stages.compile_s or 0) > 0
        assert m.numerics is not None
        assert m.numerics.agrees
        assert m.summary("in_graph") is not None


def test_a_checkout_with_the_cache_in_it_stays_clean(cache: Path) -> None:
    subprocess.run(["git", "init", "-q", cache.parent], check=True)

    assert kept_programs()

    status = subprocess.run(["git", "-C", cache.parent, "status", "-s"], check=True, capture_output=True, text=True)
    assert status.stdout == ""


def test_a_folder_that_cannot_be_made_changes_nothing_else(cache: Path) -> None:
    cache.write_text("a file")

    m, _ = measured()

    assert kept_programs() == ""
    assert m.summary("in_graph") is not None


@pytest.mark.parametrize(("hours", "left"), [(0.5, 11), (2.0, 5)])
def test_the_oldest_of_many_go_an_hour_after_the_last_check(
    hours: float, left: int, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "MOST_KEPT_BYTES", 1000)
    folder = Path(kept_programs())
    checked = folder.with_suffix(".checked")
    os.utime(checked, (then := checked.stat().st_mtime - hours * 3600, then))
    for age in range(11):
        file = folder / f"{age}-cache"
        file.write_bytes(bytes(100))
        os.utime(file, (1e9 - age, 1e9 - age))
    kept_programs.cache_clear()

    assert kept_programs() == str(folder)
    assert sorted(int(file.name.partition("-")[0]) for file in folder.iterdir()) == list(range(left))


# ---- settings that travel to a worker ----------------------------------------------------------------------------


@pytest.fixture
def rank_promotion() -> Iterator[str]:
    before = jax.config.jax_numpy_rank_promotion
    yield "jax_numpy_rank_promotion"
    jax.config.update("jax_numpy_rank_promotion", before)


def test_a_part_of_jax_that_only_the_program_has_loaded_stops_no_worker(rank_promotion: str) -> None:
    """In jax 0.6.2, `import jax.experimental.pallas` adds the setting jax_mosaic_allow_hlo."""
    apply_settings({"jax_setting_of_a_part_that_is_not_loaded": True, rank_promotion: "raise"})

    assert jax_settings()[rank_promotion] == "raise"
