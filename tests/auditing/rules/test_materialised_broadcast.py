"""The same numbers many times over."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

ID = "materialised-broadcast"


def test_an_input_with_equal_rows_is_told_with_what_one_row_would_save(ask_about: Any) -> None:
    given = np.tile(np.arange(512, dtype="f4"), (1024, 1))

    finding = ask_about(ID, lambda a, b: a @ b, given, "f32[512,2]").one

    assert finding.title == "args[0] holds one array 1024 times"
    assert finding.gain_bytes == given.nbytes - 512 * 4


def test_a_broadcast_that_is_an_output_is_told_with_its_line(ask_about: Any) -> None:
    def spread(a: Any) -> Any:
        return jnp.broadcast_to(a, (1024, 512))

    finding = ask_about(ID, spread, "f32[512]").one

    assert finding.title == "the compiler keeps a broadcast of 2.00 MiB in memory"
    assert finding.where == (__file__, spread.__code__.co_firstlineno + 1)


def test_a_broadcast_that_is_fused_away_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda a, b: a + b, "f32[512]", "f32[1024,512]").outcome == "fine"


def test_zeros_are_no_copies(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: jnp.zeros((1024, 512)) + a.sum(), "f32[512]").outcome == "fine"
    assert ask_about(ID, lambda a: a * 2, np.zeros((1024, 512), "f4")).outcome == "fine"
