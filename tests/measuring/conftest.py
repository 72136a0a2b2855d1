"""What the engine's tests share: short options, one subject out of a function, hand-made evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchax.case import make_case
from benchax.measuring.engine import measure
from benchax.measuring.prepare import prepare
from benchax.measuring.timers.base import Subject
from benchax.model import Measurement, Options
from benchax.options import DEFAULTS

SHORT = replace(DEFAULTS, max_time_s=0.03, min_time_s=0.01, max_warmup_s=0.1, store="off")


@pytest.fixture
def short() -> Options:
    return SHORT


@pytest.fixture
def bench() -> Callable[..., Measurement]:
    """`bench(fn, *args, options={...}, kwargs={...}, **of_the_case)`: one real, short measurement."""

    def run(fn: Any, *args: Any, options: Any = None, kwargs: Any = None, **of_the_case: Any) -> Measurement:
        case = make_case(fn, args, kwargs, **of_the_case)
        return measure(case, replace(SHORT, **(options or {})), run_id="test")

    return run


@pytest.fixture
def bench_case() -> Callable[..., Measurement]:
    """`bench_case(fn, *args, **fields)`: the same with fields of the Case."""

    def run(fn: Any, *args: Any, **fields: Any) -> Measurement:
        return measure(replace(make_case(fn, args), **fields), replace(SHORT, memory=False), run_id="test")

    return run


@pytest.fixture
def subject() -> Callable[..., Subject]:
    """A built and once-run subject, as timers are given it."""

    def make(fn: Any, *args: Any, **of_the_case: Any) -> Subject:
        case = make_case(fn, args, **of_the_case)
        prepared = prepare(case)
        made = replace(prepared.subject, hlo=prepared.hlo)
        return replace(made, outputs=made.outcome())

    return make
