"""Which measurements are taken: --ptjb-disable, --ptjb-only and --ptjb-skip.

A pattern is looked for in NODEID#TAG, such as tests/test_fft.py::test_fft[128]#base; with * or ? it must match all of
it. Brackets mean themselves, since node ids have them.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from pytest_jax_bench.context import BenchContext


def is_wanted(context: BenchContext, tag: str) -> bool:
    settings, label = context.settings, f"{context.nodeid}#{tag}"
    if settings.disable or (settings.skip is not None and matches(label, settings.skip)):
        return False
    return settings.only is None or matches(label, settings.only)


def matches(label: str, pattern: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern in label
    return fnmatchcase(label, pattern.replace("[", "[[]"))
