"""Before profiling: what would make a trace empty or unwritable is said."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from benchax.errors import UsageError
from benchax.profiling import profile
from benchax.profiling.profile import about_folder, about_nvidia, about_profilers, kernels_apart

APART_FLAGS = profile.NO_COMMAND_BUFFERS
APART = ("no-command-buffers", "info")
ADMIN_ONLY = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n"


def codes(found: Iterable[profile.Remark]) -> list[tuple[str, str]]:
    return [(remark.code, remark.severity) for remark in found]


def test_nothing_is_said_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert profile.preflight(tmp_path / "new" / "folder") == []
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_runs_already_stops_us(tmp_path: Path) -> None:
    jax.profiler.start_trace(str(tmp_path))
    try:
        found = profile.preflight()
    finally:
        jax.profiler.stop_trace()

    assert codes(found) == [("profiler-running", "error")]
    with pytest.raises(UsageError, match=r"cannot profile: jax\.profiler is tracing this process already"):
        profile.stop_at_errors(found)
    assert profile.preflight() == []


def test_nsight_around_us_takes_the_kernels_on_a_gpu_only() -> None:
    nsys = profile.running({"NSYS_PROFILING_SESSION_ID": "7"})

    assert nsys == "Nsight Systems"
    assert codes(about_profilers(nsys, "gpu")) == [("profiler-running", "error")]
    assert codes(about_profilers(nsys, "cpu")) == []


def test_kernels_that_only_root_may_see_are_an_error_with_the_way_out() -> None:
    remark, _ = about_nvidia(ADMIN_ONLY, APART_FLAGS, may_administrate=False)

    assert (remark.code, remark.severity) == ("no-gpu-permission", "error")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in remark.message
    assert codes(about_nvidia(ADMIN_ONLY, APART_FLAGS, may_administrate=True)) == [APART]
    assert codes(about_nvidia(ADMIN_ONLY.replace(": 1", ": 0"), APART_FLAGS, may_administrate=False)) == [APART]


def test_command_buffers_are_a_warning_with_the_flag_that_turns_them_off() -> None:
    (remark,) = about_nvidia("", "--xla_dump_to=/tmp/d", may_administrate=False)

    assert (remark.code, remark.severity) == ("command-buffers", "warning")
    assert "XLA_FLAGS='--xla_gpu_enable_command_buffer='" in remark.message
    assert codes(about_nvidia("", "--xla_gpu_enable_command_buffer=FUSION", may_administrate=False)) == [
        ("command-buffers", "warning")
    ]


@pytest.mark.parametrize(("version", "expected"), [("cuda 12090", [("command-buffers", "warning")]), ("rocm 6.3", [])])
def test_only_of_nvidia_it_is_said_what_hides_kernels(version: str, expected: Any, monkeypatch: Any) -> None:
    device = SimpleNamespace(client=SimpleNamespace(platform_version=version))
    monkeypatch.setattr(profile.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(profile.jax, "devices", lambda: [device])
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(profile, "NVIDIA_PARAMS", Path("no such file"))

    assert codes(profile.preflight()) == expected


def test_the_kernels_of_a_function_are_recorded_one_by_one_unless_the_user_decided(monkeypatch: Any) -> None:
    monkeypatch.setattr(profile, "has_jax_plugins", lambda: True)

    assert kernels_apart({"XLA_FLAGS": "--a=1"}) == {"XLA_FLAGS": "--a=1 --xla_gpu_enable_command_buffer="}
    assert kernels_apart({"XLA_FLAGS": "--xla_gpu_enable_command_buffer=FUSION"}) == {}
    monkeypatch.setattr(profile, "has_jax_plugins", lambda: False)
    assert kernels_apart({}) == {}


def test_an_old_jax_is_a_warning(monkeypatch: Any) -> None:
    monkeypatch.setattr(profile.jax, "__version__", "0.6.0")
    monkeypatch.delattr(profile.jax.profiler, "ProfileOptions", raising=False)

    (remark,) = profile.about_options()

    assert (remark.code, remark.severity) == ("no-profile-options", "warning")
    assert "0.6.0" in remark.message


def test_a_folder_that_cannot_hold_a_trace_is_an_error(tmp_path: Path) -> None:
    """/proc refuses root, too."""
    (tmp_path / "täken").write_text("")
    found = [
        about_folder(folder) for folder in (tmp_path / "täken", tmp_path / "täken" / "below", Path("/proc/benchax"))
    ]
    full = about_folder(tmp_path, least_free_bytes=2**60)

    assert [codes(each) for each in found] == [[("no-folder", "error")]] * 3
    assert all("täken" in remark.message for (remark,) in found[:2])
    assert "cannot write into '/proc'" in found[2][0].message
    assert codes(full) == [("disk-full", "error")]
    assert "free, and a trace needs at least 1048576 TiB" in full[0].message
