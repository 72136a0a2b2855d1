from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.compiled import captured_constants
from benchax.case import make_case

LARGE = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
SMALL = LARGE[:8, :8]


def check(fn, *args):
    return list(captured_constants.check(Evidence(make_case(fn, args))))


def test_a_large_array_in_a_global_is_found_with_its_size_and_line() -> None:
    def f(x):
        return x @ LARGE

    (finding,) = check(f, "f32[4,512]")

    assert finding.title == "closes over 1 array of 2.00 MiB"
    assert finding.seen[0].startswith("f32[512,1024], 2.00 MiB, first used at dot_general at ")
    assert "the compiled program holds 2.00 MiB of constants" in finding.seen
    assert finding.where == (__file__, f.__code__.co_firstlineno)


def test_one_that_an_inner_jit_closes_over_is_found() -> None:
    inner = jax.jit(lambda x: x @ LARGE)

    assert len(check(lambda x: inner(x) + 1, "f32[4,512]")) == 1


def test_what_xla_folds_is_told_apart_from_what_is_closed_over() -> None:
    (finding,) = check(lambda x: x + jnp.asarray(LARGE).sum(0), "f32[1024]")

    assert "the compiled program holds 4.00 KiB of constants" in finding.seen


def test_arguments_and_small_tables_are_fine() -> None:
    assert check(lambda x, w: x @ w, "f32[4,512]", LARGE) == []
    assert check(lambda x: x @ SMALL, "f32[4,8]") == []


def test_what_takes_next_to_no_time_to_compile_is_an_info(monkeypatch) -> None:
    severities = []
    for dear in (1 << 23, 1 << 21):
        monkeypatch.setattr("benchax.auditing.rules.compiled.DEAR_BYTES", dear)
        severities += [finding.severity for finding in check(lambda x: x @ LARGE, "f32[4,512]")]

    assert severities == ["info", "warning"]
