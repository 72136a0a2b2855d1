"""What the persistent cache did: real caches, and fresh processes where that is the point."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import warm_python
from jax.experimental.compilation_cache import compilation_cache

from benchax.watching.compiles import watch_cache

PROGRAM = """
import json, jax, jax.numpy as jnp
from benchax.watching.compiles import watch_cache
with watch_cache() as found:
    jax.jit(lambda x: jnp.sin(x) + 1)(jnp.ones(3))
    jax.jit(lambda x: jnp.cos(x) * 2)(jnp.ones(3))
print(json.dumps(found.asdict()))
"""


def fresh(folder: Path, **settings: str) -> dict[str, Any]:
    """What a new process finds."""
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder), **settings}
    done = warm_python.run([sys.executable, "-c", PROGRAM], env=env, check=True)
    return json.loads(done.stdout)


def fates(found: dict[str, Any]) -> list[str]:
    return [program["fate"] for program in found["programs"]]


def test_the_first_process_writes_and_the_second_reads(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    keep_all = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

    cold, warm = fresh(folder, **keep_all), fresh(folder, **keep_all)

    assert set(fates(cold)) == {"written"}
    assert (cold["before"], cold["after"]["entries"]) == (None, len(cold["programs"]))
    assert cold["after"]["size_bytes"] == sum(file.stat().st_size for file in folder.glob("*-cache"))
    assert set(fates(warm)) == {"hit"}
    assert warm["before"] == warm["after"] == cold["after"]
    assert (warm["is_enabled"], warm["is_writable"], warm["keeping_setting"]) == (True, True, None)


def test_what_is_too_quick_to_keep_is_told_with_the_setting_that_keeps_it(tmp_path: Path) -> None:
    """JAX's own default, a second, keeps no small program."""
    found = fresh(tmp_path / "cache")

    assert set(fates(found)) == {"too quick"}
    assert found["min_compile_time_s"] == 1.0
    assert found["after"] is None or found["after"]["entries"] == 0
    assert found["keeping_setting"] == "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"
    name, _, value = found["keeping_setting"].partition("=")
    assert set(fates(fresh(tmp_path / "cache", **{name: value}))) == {"written"}


def configure(**settings: object) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def compiled(name: str) -> None:
    def fn(x: jax.Array) -> jax.Array:
        return x * 3 + len(name)

    fn.__name__ = name
    jax.jit(fn)(jnp.float32(2))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("folder", "is_enabled", "why_off"),
    [
        (None, True, "no folder is set"),
        ("/tmp/nowhere", False, "jax_enable_compilation_cache is False"),  # nothing is written
        ("gs://bucket/cache", True, None),
    ],
)
def test_a_cache_that_is_off_says_why_and_one_of_another_machine_is_not_judged(
    folder: str | None, is_enabled: bool, why_off: str | None
) -> None:
    configure(jax_compilation_cache_dir=folder, jax_enable_compilation_cache=is_enabled)

    with watch_cache() as found:
        if why_off:
            compiled("off")

    assert (found.is_enabled, found.why_off, found.is_writable, found.after) == (not why_off, why_off, None, None)
    assert {program.fate for program in found.programs} == ({"not kept"} if why_off else set())
    assert found.keeping_setting is None


@pytest.mark.usefixtures("cache")
def test_a_folder_that_cannot_be_made_is_said_to_be_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0o777)  # one that could be entered, were it a folder
    configure(
        jax_compilation_cache_dir=str(tmp_path / "file" / "cache"),
        jax_persistent_cache_min_compile_time_secs=0.0,
    )

    with watch_cache() as found, pytest.warns(UserWarning, match="persistent compilation cache"):
        compiled("unwritable")

    assert found.is_writable is False
    assert found.after is None
    assert "hit" not in {program.fate for program in found.programs}


@pytest.mark.usefixtures("cache")
def test_programs_have_the_names_that_jax_gives_them() -> None:
    configure(jax_compilation_cache_dir=None)

    with watch_cache() as found:
        compiled("a_name_of_its_own")
        compiled("a_name_of_its_own")
    compiled("afterwards")

    assert [p.name for p in found.programs if "a_name_of_its_own" in (p.name or "")] == ["jit(a_name_of_its_own)"] * 2
    assert not any("afterwards" in (p.name or "") for p in found.programs)
    assert all(p.elapsed_s > 0 for p in found.programs)
    assert found.is_reliable
