"""Settings of JAX that travel to a worker."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from benchax.measuring.jax_settings import apply_settings, jax_settings


@pytest.fixture
def rank_promotion() -> Iterator[str]:
    before = jax.config.jax_numpy_rank_promotion
    yield "jax_numpy_rank_promotion"
    jax.config.update("jax_numpy_rank_promotion", before)


def test_a_part_of_jax_that_only_the_program_has_loaded_stops_no_worker(rank_promotion: str) -> None:
    """In jax 0.6.2, `import jax.experimental.pallas` adds the setting jax_mosaic_allow_hlo."""
    apply_settings({"jax_setting_of_a_part_that_is_not_loaded": True, rank_promotion: "raise"})

    assert jax_settings()[rank_promotion] == "raise"
