"""Real recordings of real programs."""

from __future__ import annotations

import gzip
import json
import resource
import signal
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_versions import tells_runs

import benchax
from benchax.errors import NotMeasured, UsageError
from benchax.profiling import profile
from benchax.profiling.events import read
from benchax.profiling.profile import Recording, about_folder, about_nvidia, about_profilers, kernels_apart, session
from benchax.profiling.profile_change import compare_profiles
from benchax.results.profile import Op, PartChange, Profile, Run, StepPart, StepSplit


@jax.jit
def scoped(a: jax.Array, b: jax.Array) -> jax.Array:
    with jax.named_scope("first"):
        c = a @ b
    with jax.named_scope("turns"):
        return jax.lax.fori_loop(0, 3, lambda i, z: jnp.sin(z @ b), c)


@pytest.fixture(scope="module")
def x() -> jax.Array:
    return jnp.full((128, 128), 0.01)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, x: jax.Array) -> Profile:
    return benchax.profile(scoped, x, x, dir=tmp_path_factory.mktemp("kept"), runs=4)


@tells_runs
def test_operations_know_where_they_come_from(kept: Profile) -> None:
    scopes = {op.scope: op for op in kept.ops if op.scope}

    sine = next(op for scope, op in scopes.items() if scope.endswith("sin"))
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "jnp.sin(z @ b)" in text)
    assert "jit(scoped)/turns/while/body" in str(sine.scope)
    assert sine.source == f"{__file__}:{line}"
    assert sine.calls == 4 * 3
    assert "f32[128,128]" in str(sine.hlo)
    assert any("/first/" in scope for scope in scopes)


@tells_runs
def test_self_times_and_runs_add_up(kept: Profile) -> None:
    assert len(kept.runs) == len(kept.steps) == 4
    assert {run.module for run in kept.runs} == {"jit_scoped"}
    assert sum(op.share for op in kept.ops) == pytest.approx(1)
    assert kept.devices[0].busy_s <= kept.devices[0].span_s
    assert kept.compile_s is None, "compiled before the recording"


@jax.jit
def of_small_operations(x: jax.Array) -> jax.Array:
    # XLA:CPU makes one machine function of a loop that sorts nothing, in which nothing is recorded.
    return jax.lax.fori_loop(0, 300, lambda i, y: jnp.sort(y) + 1, x)


@tells_runs
def test_where_the_number_of_calls_is_given_none_is_made_without_the_recording() -> None:
    """A function that takes its inputs away can be called so often only."""
    inputs = iter([jnp.ones(2)] * 4)

    found = benchax.profile(lambda: of_small_operations(next(inputs)), runs=3)

    assert found.recording_cost is not None
    assert found.recording_cost.unrecorded_s is None
    assert "of a call was not measured, because all calls were recorded" in " ".join(str(found).split())


@pytest.mark.slow
def test_of_few_events_nothing_is_said_about_their_cost() -> None:
    product = jax.jit(lambda x: x @ x)

    found = benchax.profile(product, jnp.full((2048, 2048), 0.01), runs=3)

    assert found.recording_cost is None


@pytest.mark.filterwarnings("ignore:builtin type event_stats")  # as an error, it ends Python (jaxlib 0.12.0.1)
@tells_runs
def test_the_trace_is_read_as_jax_reads_it(kept: Profile) -> None:
    data = Path(kept.files["xplane"]).read_bytes()
    ours, theirs = read(data), jax.profiler.ProfileData.from_serialized_xspace(data)

    names, codes, (runs, has_run) = ours.name, ours.text("hlo_op"), ours.number("run_id")
    lines = [(plane.name, line) for plane in theirs.planes for line in plane.lines]
    assert [plane.name for plane in ours.planes] == [plane.name for plane in theirs.planes]
    assert [line.plane for line in ours.lines] == [name for name, _ in lines]
    for number, events in enumerate(list(line.events) for _, line in lines):
        mine = np.flatnonzero(ours.line == number)
        stats = [dict(event.stats) for event in events]
        assert [ours.texts[i] for i in names[mine]] == [event.name for event in events]
        assert (ours.duration_ps[mine] / 1000).tolist() == pytest.approx([event.duration_ns for event in events])
        assert [ours.texts[i] or None for i in codes[mine]] == [s.get("hlo_op") for s in stats]
        assert [runs[i] if has_run[i] else None for i in mine] == [s.get("run_id") for s in stats]
        gaps = [event.start_ns - events[0].start_ns for event in events]
        assert ((ours.start_ps[mine] - ours.start_ps[mine[:1]]) / 1000).tolist() == pytest.approx(gaps, abs=1)


def test_files_are_where_tensorboard_looks_and_perfetto_can_read_them(kept: Profile) -> None:
    files = {kind: Path(file) for kind, file in kept.files.items()}

    assert set(files) == {"xplane", "trace_json", "perfetto", "memory"}
    assert files["xplane"].match("plugins/profile/*/*.xplane.pb")
    assert files["trace_json"].match("plugins/profile/*/*.trace.json.gz")
    assert gzip.decompress(files["memory"].read_bytes())
    trace = json.loads(gzip.decompress(files["perfetto"].read_bytes()))
    assert "metadata" not in trace
    assert any(event["ph"] == "X" and event["name"].startswith("while") for event in trace["traceEvents"])


@pytest.mark.slow
def test_two_recordings_of_one_second_do_not_overwrite_each_other(tmp_path: Path, x: jax.Array) -> None:
    folders = {Path(benchax.profile(scoped, x, x, dir=tmp_path, runs=1).files["xplane"]).parent for _ in range(3)}

    assert len(folders) == 3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["plugins"], "nothing else stays behind"


@tells_runs
def test_a_block_is_a_profile_when_it_has_ended(x: jax.Array) -> None:
    with benchax.profile() as p:
        assert isinstance(p, Recording)
        with pytest.raises(NotMeasured, match="before the block had ended"):
            p.ops  # noqa: B018
        kept = jax.jit(lambda a: jnp.tanh(a) @ a)(x)

    assert {op.module for op in p.ops} == {"jit__lambda"}
    assert p.compile_s > 0
    assert p.passes[0].self_s > 0
    assert p.files == {}
    assert str(p) == p.table()
    assert [(one.shape, one.count) for one in p.left_over or ()] == [(kept.shape, 1)]


def test_arrays_that_stay_alive_are_listed_and_progress_is_told_around_the_recording(x: jax.Array) -> None:
    held, told = [], list[benchax.ProgressEvent]()

    p = benchax.profile(lambda a: held.append(a + 1), x[:3, :5], runs=2, progress=told.append)

    assert [event.doing for event in told] == ["first call", "recording 2 runs", "reading the trace"]

    assert [(one.shape, one.dtype, one.count, one.size_bytes) for one in p.left_over or ()] == [
        ((3, 5), "float32", 2, 120)
    ]
    assert (p.live_bytes_after or 0) - (p.live_bytes_before or 0) == 120


def test_a_recording_without_operations_is_no_empty_table(x: jax.Array) -> None:
    with benchax.profile() as nothing:
        pass
    unseen = benchax.profile(scoped, x, x, runs=1, options={"host_tracer_level": 0})

    assert nothing.ops == ()
    # A thread of an earlier test may still say something: then it is not "nothing at all".
    assert "no operation of a compiled program is in this trace" in " ".join(str(nothing).split())
    assert "host_tracer_level=0 records no operation" in str(unseen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host_tracer_levl": 2}, "unknown option of the profiler 'host_tracer_levl'\nexpected 'host_tracer_level'?"),
        ({"host_tracer_level": "high"}, "host_tracer_level='high'"),
    ],
)
def test_options_that_jax_would_take_in_silence_are_refused(options, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        benchax.profile(options=options)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: benchax.profile(abs, 1, runs=0),
        lambda: benchax.profile("folder", dir="other"),
        lambda: benchax.profile(runs=3),  # type: ignore[call-overload]
        lambda: benchax.profile(3),  # type: ignore[call-overload]
        lambda: benchax.profile(lambda runs: runs, runs=3),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(call) -> None:
    with pytest.raises(UsageError):
        call()


def test_a_second_recording_is_refused_and_one_after_a_block_that_raises_works(x: jax.Array) -> None:
    with session() as first, pytest.raises(UsageError, match="another profiler is running"), session():
        pytest.fail("began inside of another one")
    with pytest.raises(ZeroDivisionError), session():
        1 / 0  # noqa: B018

    with session() as later:
        jax.block_until_ready(scoped(x, x))

    assert first.xspace
    assert b"while" in later.xspace


def test_a_folder_that_is_a_file_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = []

    with pytest.raises(UsageError, match="cannot write a profile into"), benchax.profile(tmp_path / "file"):
        ran.append(1)

    assert ran == []


def test_a_disk_that_is_full_is_said_and_does_not_block_the_next_recording(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(UsageError, match="could not be written") as caught, session(folder=tmp_path):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    with session(folder=tmp_path) as later:
        pass

    assert "the program has run to its end" in str(caught.value)
    assert later.files["xplane"].exists()


# ---- before profiling: what would make a trace empty or unwritable is said ------------------------------------------

APART_FLAGS = profile.NO_COMMAND_BUFFERS
APART = ("no-command-buffers", "info")
ADMIN_ONLY = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n"


def codes_of(found: Iterable[profile.Remark]) -> list[tuple[str, str]]:
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

    assert codes_of(found) == [("profiler-running", "error")]
    with pytest.raises(UsageError, match=r"cannot profile: jax\.profiler is tracing this process already"):
        profile.stop_at_errors(found)
    assert profile.preflight() == []


def test_nsight_around_us_takes_the_kernels_on_a_gpu_only() -> None:
    nsys = profile.running({"NSYS_PROFILING_SESSION_ID": "7"})

    assert nsys == "Nsight Systems"
    assert codes_of(about_profilers(nsys, "gpu")) == [("profiler-running", "error")]
    assert codes_of(about_profilers(nsys, "cpu")) == []


def test_kernels_that_only_root_may_see_are_an_error_with_the_way_out() -> None:
    remark, _ = about_nvidia(ADMIN_ONLY, APART_FLAGS, may_administrate=False)

    assert (remark.code, remark.severity) == ("no-gpu-permission", "error")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in remark.message
    assert codes_of(about_nvidia(ADMIN_ONLY, APART_FLAGS, may_administrate=True)) == [APART]
    assert codes_of(about_nvidia(ADMIN_ONLY.replace(": 1", ": 0"), APART_FLAGS, may_administrate=False)) == [APART]


def test_command_buffers_are_a_warning_with_the_flag_that_turns_them_off() -> None:
    (remark,) = about_nvidia("", "--xla_dump_to=/tmp/d", may_administrate=False)

    assert (remark.code, remark.severity) == ("command-buffers", "warning")
    assert "XLA_FLAGS='--xla_gpu_enable_command_buffer='" in remark.message
    assert codes_of(about_nvidia("", "--xla_gpu_enable_command_buffer=FUSION", may_administrate=False)) == [
        ("command-buffers", "warning")
    ]


@pytest.mark.parametrize(("version", "expected"), [("cuda 12090", [("command-buffers", "warning")]), ("rocm 6.3", [])])
def test_only_of_nvidia_it_is_said_what_hides_kernels(version: str, expected: Any, monkeypatch: Any) -> None:
    device = SimpleNamespace(client=SimpleNamespace(platform_version=version))
    monkeypatch.setattr(profile.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(profile.jax, "devices", lambda: [device])
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(profile, "NVIDIA_PARAMS", Path("no such file"))

    assert codes_of(profile.preflight()) == expected


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

    assert [codes_of(each) for each in found] == [[("no-folder", "error")]] * 3
    assert all("täken" in remark.message for (remark,) in found[:2])
    assert "cannot write into '/proc'" in found[2][0].message
    assert codes_of(full) == [("disk-full", "error")]
    assert "free, and a trace needs at least 1048576 TiB" in full[0].message


# ---- two profiles compared ------------------------------------------------------------------------------------------


def op(name: str, self_s: float, calls: int, scope: str | None, category: str = "fusion", shape: str = "f32[8]") -> Op:
    return Op(name, "jit_f", category, calls, self_s, self_s, 0.1, scope, shape=shape)


def profile_of_ops(*ops: Op, runs: int = 2) -> Profile:
    return Profile("p", "cpu", ops, runs=tuple(Run("jit_f", "cpu:0", i, 0.0, 1.0) for i in range(runs)))


def test_operations_are_matched_by_origin_and_not_by_name() -> None:
    before = profile_of_ops(op("fusion.3", 4.0, 4, "jit(f)/mm/dot"), op("copy.1", 0.5, 2, None, "copy"))
    after = profile_of_ops(op("fusion.9", 6.0, 4, "jit(g)/mm/dot"), op("copy.7", 0.5, 2, None, "copy"))

    changes = compare_profiles(before, after).ops

    assert [(c.name, c.before_s, c.after_s, c.more_s) for c in changes] == [
        ("fusion.9", 2.0, 3.0, 1.0),
        ("copy.7", 0.25, 0.25, 0.0),
    ]


A = op("a", 2.0, 2, "jit(f)/x")
OTHER_SHAPE = op("a", 2.0, 2, "jit(f)/x", shape="f32[9]")


@pytest.mark.parametrize(
    ("before", "after", "per", "times"),
    [
        (profile_of_ops(A), profile_of_ops(op("a", 6.0, 6, "jit(f)/x")), "run", [(1.0, 3.0, 2, 6)]),
        (
            profile_of_ops(A),
            profile_of_ops(OTHER_SHAPE),
            "run",
            [(None, 1.0, 0, 2), (1.0, None, 2, 0)],
        ),  # new, and gone
        (
            profile_of_ops(op("a", 2.0, 4, None), runs=0),
            profile_of_ops(op("a", 3.0, 4, None)),
            "call",
            [(0.5, 0.75, 4, 4)],
        ),
    ],
)
def test_times_are_per_run_or_per_call_where_runs_are_not_known(
    before: Profile, after: Profile, per: str, times: list[tuple[float | None, float | None, int, int]]
) -> None:
    change = compare_profiles(before, after)

    assert change.per == per
    assert [(c.before_s, c.after_s, c.calls_before, c.calls_after) for c in change.ops] == times


def test_it_shows_itself_without_a_verdict() -> None:
    before = profile_of_ops(op("a", 2.0, 2, "jit(f)/x"), op("gone", 1.0, 1, "jit(f)/y"))

    shown = compare_profiles(before, profile_of_ops(op("a", 4.0, 2, "jit(f)/x")))

    for word in ("for a verdict use `benchax", "self time per run", "not there", "+1.00 s"):
        assert word in str(shown)
    assert "verdict" in (shown._repr_html_() or "")


def sourced(source: str, self_s: float, module: str = "jit_f", shape: str = "f32[8]", scope: str = "jit(f)/x") -> Op:
    return Op("a", module, "dot", 2, self_s, self_s, 0.1, scope, source=source, shape=shape)


def test_by_line_operations_that_are_named_and_laid_out_anew_have_one_change() -> None:
    before = profile_of_ops(sourced("m.py:7", 2.0, scope="jit(f)/a"))
    after = profile_of_ops(
        sourced("m.py:7", 4.0, scope="jit(f)/b", shape="f32[4,2]"), sourced("", 1.0, scope="jit(f)/c")
    )

    lines = compare_profiles(before, after).lines

    assert [(line.source, line.before_s, line.after_s) for line in lines] == [("m.py:7", 1.0, 2.0), ("", 0.0, 0.5)]


def test_times_per_run_of_different_programs_are_not_added_up() -> None:
    runs = tuple(Run(f"jit_{name}", "cpu:0", i, 0.0, 1.0) for name, n in (("init", 1), ("step", 100)) for i in range(n))
    once, often = sourced("m.py:7", 3.0, "jit_init"), sourced("m.py:7", 100.0, "jit_step", scope="jit(f)/s")
    more = sourced("m.py:7", 150.0, "jit_step", scope="jit(f)/s")

    change = compare_profiles(Profile("p", "cpu", (once, often), runs=runs), Profile("q", "cpu", (more,), runs=runs))

    assert [(line.module, line.more_s) for line in change.lines] == [("jit_step", 0.5), ("jit_init", -3.0)]
    assert "the line that differs most: +500 ms at m.py:7 in jit_step a run" in str(change)


def test_an_operation_in_another_dtype_is_the_same_one_and_told_in_the_first_lines() -> None:
    before = profile_of_ops(sourced("m.py:7", 0.002, shape="bf16[64,64]"))
    after = profile_of_ops(sourced("m.py:7", 0.038, shape="f32[64,64]"))

    change = compare_profiles(before, after)

    (one,) = change.ops
    assert (one.shape_before, one.shape, one.more_s) == ("bf16[64,64]", "f32[64,64]", pytest.approx(0.018))
    assert "+18.0 ms at m.py:7, dot is f32[64,64] now, was bf16[64,64] a run" in str(change).splitlines()[1]


def test_of_two_loops_the_parts_of_a_step_are_compared() -> None:
    def looped(input_s: float) -> Profile:
        parts = (StepPart("input", input_s, 0.5), StepPart("device", 0.004, 0.5))
        return replace(
            profile_of_ops(sourced("m.py:7", 1.0)), split=StepSplit("program", "jit_f", (input_s + 0.004,) * 3, parts)
        )

    change = compare_profiles(looped(0.004), looped(0.009))

    assert change.steps_s == (0.008, 0.013)
    assert change.parts[0] == PartChange("input", 0.004, 0.009)
    assert "a step takes 13.0 ms, before 8.00 ms (medians): +5.00 ms" in str(change).splitlines()[1]
