"""The three tiers of the clock: how each is found, what it must pass, and what is said where it is missing."""

import ctypes
import os
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python

from benchax.clock import handlers
from benchax.clock.handlers import LOADERS, SPIN_NS, Tier, judge_length, judge_order
from benchax.errors import NotAvailable


@pytest.fixture(params=LOADERS)
def loaded(request):
    try:
        return handlers.load(request.param)
    except NotAvailable as error:
        pytest.skip(error.problem)


def test_each_tier_passes_the_self_test_stops_at_a_deadline_and_lengthens_its_strips(loaded):
    @jax.jit
    def f(seconds, x):
        until = handlers.deadline(loaded, seconds, x)

        def trip(carry):
            i, state, _ = carry
            return (i + 1, *handlers.tick(loaded, until, state, i))

        start = (jnp.int32(0), handlers.FIRST_STRIP, False)
        return jax.lax.while_loop(lambda carry: ~carry[2], trip, jax.tree.map(jnp.asarray, start))

    handlers.check(loaded)
    looks, state, is_expired = f(0.02, jnp.ones(3))

    assert is_expired
    assert looks > 10
    assert state[2] > 1000  # looks that cost next to nothing may be far apart
    state, is_expired = handlers.tick(loaded, handlers.NEVER, np.array([0, 0, 77], np.uint32), jnp.ones(3))
    assert (state[2], is_expired) == (77, False), "without expiry the first strip stays"


def test_each_tier_can_end_the_program(loaded):
    @jax.jit
    def f(x):
        until = handlers.deadline(loaded, 0.0, x)
        return handlers.tick(loaded, until, handlers.FIRST_STRIP, x, must_raise=True)

    with pytest.raises(jax.errors.JaxRuntimeError, match="DEADLINE_EXCEEDED: benchax: the time limit was reached"):
        jax.block_until_ready(f(jnp.ones(3)))


def test_strips_grow_while_they_are_short_and_shrink_when_they_are_late():
    strips = {1_000: 800, 100_000: 200, 500_000: 100, 2_000_000: 25, 10**12: 1}

    assert {elapsed_ns: handlers.next_strip(100, elapsed_ns) for elapsed_ns in strips} == strips
    assert handlers.next_strip(2**28, 1) == 2**28, "the greatest length"


# ---- which one is used ------------------------------------------------------------------------------------------


def run(code, **environ):
    """`code` in a Python of its own: handlers are registered for good."""
    return warm_python.run([sys.executable, "-c", code], env=os.environ | environ, check=True).stdout.strip()


WITHOUT_PREBUILT = """
from benchax.clock import handlers, tier
from benchax.errors import NotAvailable

def gone():
    raise NotAvailable("benchax was installed without a C compiler")

handlers.prebuilt = gone
print(tier().name, *tier().reasons, sep="|")
"""


def test_without_the_prebuilt_library_one_is_built_and_kept_and_without_a_compiler_the_clock_is_python_s(tmp_path):
    environ, why = {"XDG_CACHE_HOME": str(tmp_path)}, "prebuilt: benchax was installed without a C compiler"

    found = run(WITHOUT_PREBUILT, XDG_CACHE_HOME=str(tmp_path), CC="no-such-compiler")

    assert found == f"python|{why}|built: there is no C compiler 'no-such-compiler'"
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    assert run(WITHOUT_PREBUILT, **environ) == f"built|{why}"
    (library,) = tmp_path.rglob("handlers-*.so")
    made = library.stat().st_mtime_ns
    assert run(WITHOUT_PREBUILT, **environ).startswith("built|")
    assert library.stat().st_mtime_ns == made


def test_a_compiler_that_fails_is_quoted_and_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAvailable, match="the clock cannot be built in"):
        handlers.build_library(tmp_path / "file" / "below")
    monkeypatch.setenv("CC", "false")

    with pytest.raises(NotAvailable, match=r"'false' cannot compile handlers\.c"):
        handlers.build_library(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_library_of_another_version_or_none_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "native.so").write_text("not a library")
    with pytest.raises(NotAvailable, match=r"native\.so cannot be loaded"):
        handlers._library(tmp_path / "native.so", 3)
    try:
        library = handlers.build_library(tmp_path)
    except NotAvailable as error:
        pytest.skip(error.problem)
    monkeypatch.setattr(handlers, "VERSION", 2)

    with pytest.raises(NotAvailable, match="is of version 1, not 2: install benchax again"):
        handlers._library(library, 3)


@pytest.fixture
def ffi(tmp_path, monkeypatch):
    """Makes XLA's FFI of a version of one's choice."""
    header = tmp_path / "xla/ffi/api/c_api.h"
    header.parent.mkdir(parents=True)
    monkeypatch.setattr(jax.ffi, "include_dir", lambda: str(tmp_path))
    return lambda major, minor: header.write_text(
        f"#define XLA_FFI_API_MAJOR {major}\n#define XLA_FFI_API_MINOR {minor}\n"
    )


def test_an_ffi_of_another_layout_is_refused_before_anything_is_registered(ffi):
    with pytest.raises(NotAvailable, match="the version of XLA's FFI is unknown"):
        handlers._api_minor()
    for major, minor in ((1, 0), (1, 3), (0, 0)):
        ffi(major, minor)
        with pytest.raises(NotAvailable, match=rf"XLA's FFI has version {major}\.{minor}; known are 0\.1 to 0\.5"):
            handlers._api_minor()


def test_handlers_name_the_version_of_xla_or_the_newest_that_is_known_or_an_older_one(ffi):
    """Which is what the clock will rely on with the next JAX: XLA takes them, and they pass the self-test."""
    older = "from benchax.clock import handlers, tier; handlers._api_minor = lambda: 1; print(tier().name)"
    named = {}
    for minor in (1, 5, 99):
        ffi(0, minor)
        named[minor] = handlers._api_minor()

    assert named == {1: 1, 5: 5, 99: 5}
    assert run(older) == handlers.tier().name


# ---- what the self-test must catch ------------------------------------------------------------------------------


def test_times_that_are_not_in_the_order_of_the_program_are_caught():
    judge_order(np.array([[0, 9], [10, 20]]))

    with pytest.raises(NotAvailable, match="not in the order of the program"):
        judge_order(np.array([[0, 10], [9, 20]]))


def test_durations_that_are_known_must_come_out():
    found = [
        judge_length(np.array(least), Tier("prebuilt"))
        for least in ([SPIN_NS - 1] * 16, [SPIN_NS + 5_000] * 16, [SPIN_NS + 150] * 15 + [SPIN_NS + 9_000])
    ]

    assert found == [
        "a function of 20000 ns was read as 19999 ns", "functions of 20000 ns were read as 25000 ns at best", None,
    ]  # fmt: skip


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="a 32-bit machine")
def test_the_structs_of_both_implementations_have_one_layout():
    """`handlers.c` names the same fields; its offsets are those of a 64-bit machine."""
    frame = handlers.CallFrame

    assert [field.offset for field in (frame.operands, frame.results, frame.attributes)] == [40, 80, 120]
    assert handlers.Api.error_create.offset == 48
