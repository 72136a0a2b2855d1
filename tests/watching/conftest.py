from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """JAX's persistent cache in a folder of its own, keeping everything."""
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    for name, value in zip(SETTINGS, (str(tmp_path), True, 0.0, 0), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # without it the settings have no effect once anything was compiled
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
