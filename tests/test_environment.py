"""Where it ran: what is read, what is left out, and what is None where the system does not tell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from git_repositories import git

from benchax import environment
from benchax.environment import GitState, capture, flags, git_state, memory_on_demand
from benchax.options import resolve
from benchax.workers.pool import Pool

X86 = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: fpu sse2 hypervisor avx2\n\nmodel name\t: another"
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit on the branch "main", nothing else."""
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "bench_fft.py").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The files of the system, by path: empty, until a test puts some there."""
    files: dict[str, str] = {}
    monkeypatch.setattr(environment, "read_text", files.get)
    environment.host.cache_clear()
    yield files
    environment.host.cache_clear()


class TestGit:
    def test_a_clean_checkout_has_a_commit_and_a_branch_whatever_the_working_folder(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit = git(repository, "rev-parse", "HEAD")
        git(repository, "tag", "-a", "v1", "-m", "one")
        git(repository, "tag", "-a", "main", "-m", "named like the branch")
        monkeypatch.chdir("/")

        assert git_state(repository) == git_state(repository / "bench_fft.py") == GitState(commit, "main", False)
        assert len(commit) == 40
        git(repository, "checkout", "-q", "--detach")
        assert git_state(repository) == GitState(commit, None, False)

    def test_a_changed_or_untracked_file_is_dirty_and_an_ignored_one_is_not(self, repository: Path) -> None:
        (repository / ".git" / "info" / "exclude").write_text("*.log\n")
        (repository / "run.log").write_text("")
        ignored = git_state(repository).is_dirty
        git(repository, "config", "status.showUntrackedFiles", "no")  # the user hides them
        (repository / "new.py").write_text("")
        untracked = git_state(repository).is_dirty
        (repository / "new.py").unlink()
        (repository / "bench_fft.py").write_text("changed")

        assert (ignored, untracked, git_state(repository).is_dirty) == (False, True, True)

    def test_inside_a_hook_of_another_repository(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = git_state(repository)
        monkeypatch.setenv("GIT_DIR", "/nowhere")
        monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")

        assert git_state(repository) == expected

    def test_without_a_commit_a_repository_a_folder_or_git_nothing_is_known(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = [git_state(tmp_path), git_state(tmp_path / "no" / "such")]
        git(tmp_path, "init", "-q")
        found.append(git_state(tmp_path))
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
        monkeypatch.setenv("PATH", "")

        assert [*found, git_state(tmp_path)] == [GitState(None, None, None)] * 4

    @pytest.mark.parametrize("name", [".benchmarks", "odd [1] *ö"])
    def test_where_results_go_makes_nothing_dirty(self, repository: Path, name: str) -> None:
        results = repository / name
        results.mkdir()
        (results / "rows.csv").touch()

        without = [git_state(repository, each).is_dirty for each in (None, results, repository, repository.parent)]

        assert without == [True, False, True, True]
        (repository / f"{name}.py").touch()
        assert git_state(repository, results).is_dirty is True

    def test_a_status_that_takes_too_long_keeps_the_commit(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = subprocess.run

        def slow(command: list[str], **settings: object) -> object:
            if "status" in command:
                raise subprocess.TimeoutExpired(command, 5)
            return run(command, **settings)  # type: ignore[call-overload]

        monkeypatch.setattr(subprocess, "run", slow)

        state = git_state(repository)

        assert state.commit is not None
        assert state.is_dirty is None


class TestFlags:
    @pytest.mark.parametrize(
        ("variables", "kept"),
        [
            ({"XLA_FLAGS": "--a=1", "OMP_NUM_THREADS": "1", "NPROC": "4"}, None),
            ({"HOME": "/root", "PATH": "/bin", "JAX_SERVICE_TOKEN": "hunter2"}, {}),
            ({"JAX_COMPILATION_CACHE_DIR": "https://me:hunter2@h/c"}, {"JAX_COMPILATION_CACHE_DIR": "https://h/c"}),
            # what differs between the processes of a cluster
            ({"JAX_PROCESS_ID": "3", "JAX_COORDINATOR_ADDRESS": "a:1", "JAX_LOCAL_DEVICE_IDS": "0"}, {}),
            # else the row could not be written as UTF-8
            ({"XLA_FLAGS": os.fsdecode(b"--dump=\xff")}, {"XLA_FLAGS": "--dump=\\udcff"}),
        ],
    )
    def test_what_changes_programs_is_kept_without_secrets(
        self, variables: dict[str, str], kept: dict[str, str] | None
    ) -> None:
        assert flags(variables) == (variables if kept is None else kept)


class TestFingerprint:
    def test_a_flag_enters_and_the_commit_does_not(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = capture(repository, with_jax=False)
        git(repository, "commit", "-q", "--allow-empty", "-m", "second")
        (repository / "new.py").write_text("")
        after = capture(repository, with_jax=False)

        assert after.commit != before.commit
        assert after.fingerprint == before.fingerprint
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        assert capture(with_jax=False).fingerprint != before.fingerprint

    def test_machines_that_are_alike_can_have_one_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runners of hosted CI have a new name for each job."""
        monkeypatch.setenv("BENCHAX_HOST", "ci µ, 4 cores")
        found = []
        for name in ("runner-1", "runner-2"):
            monkeypatch.setattr("platform.node", lambda name=name: name)
            environment.host.cache_clear()
            found.append(capture(with_jax=False))
        environment.host.cache_clear()

        assert [each.host for each in found] == ["ci µ, 4 cores"] * 2
        assert found[0].fingerprint == found[1].fingerprint
        resolve()  # it is no option that is unknown

    def test_importing_jax_does_not_change_it(self) -> None:
        """`import jax` sets TF_CPP_MIN_LOG_LEVEL: the first row of a process would be unlike the rest."""
        script = "from benchax.environment import capture; assert capture().fingerprint == capture().fingerprint"

        done = run_python(script)

        assert done.returncode == 0, done.stderr


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"}
    variables.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=False)


class TestJax:
    def test_devices_and_settings(self) -> None:
        import jax

        found = capture()

        assert (found.backend, found.device_count) == (jax.default_backend(), jax.device_count())
        assert (found.jax, found.process_count) == (jax.__version__, 1)
        assert found.config["jax_enable_x64"] == jax.config.values["jax_enable_x64"]
        assert isinstance(found.config["jax_cpu_enable_async_dispatch"], bool)

    def test_a_changed_setting_is_seen(self) -> None:
        import jax

        with jax.disable_jit():
            assert capture().config["jax_disable_jit"] is True
        assert capture().config["jax_disable_jit"] is False

    def test_with_jax_false_leaves_jax_alone(self) -> None:
        script = (
            "import sys; from benchax.environment import capture; e = capture(with_jax=False);"
            "assert 'jax' not in sys.modules and 'numpy' not in sys.modules;"
            "assert e.jax and e.backend is None and e.config == {}"
        )

        done = run_python(script)

        assert done.returncode == 0, done.stderr

    def test_without_jax_or_a_working_backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import jax

        def broken() -> None:
            raise RuntimeError("Unable to initialize backend 'cuda'")

        with monkeypatch.context() as patch:
            patch.setattr(jax, "local_devices", broken)
            assert capture().backend is None
        monkeypatch.setitem(sys.modules, "jax", None)
        found = capture()
        assert (found.backend, found.device_kind, found.config) == (None, None, {})

    def test_settings_that_this_jax_has_are_plain_values(self) -> None:
        class OldConfig:
            jax_enable_x64 = True
            jax_default_matmul_precision = Path("highest")

        assert environment.jax_config(OldConfig()) == {
            "jax_enable_x64": True,
            "jax_default_matmul_precision": "highest",
        }


class TestHost:
    def test_a_processor_of_x86_and_one_of_arm(self, system: dict[str, str]) -> None:
        """ARM has no name, and tells of no hypervisor."""
        system["/proc/cpuinfo"] = X86
        system["/sys/kernel/mm/transparent_hugepage/enabled"] = "always [madvise] never"
        x86 = capture(with_jax=False)
        environment.host.cache_clear()
        system["/proc/cpuinfo"] = ARM
        arm = capture(with_jax=False)

        assert (x86.processor, x86.virtual_machine, x86.huge_pages) == ("Intel(R) Xeon(R)", True, "madvise")
        assert (arm.processor, arm.virtual_machine) == ("ARM implementer 0x41 part 0xd40", None)

    def test_without_proc_and_sys(self, system: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
        monkeypatch.setattr(psutil, "PROCFS_PATH", "/nowhere")

        found = capture(with_jax=False)

        assert system == {}
        unknown = (found.governor, found.huge_pages, found.virtual_machine, found.affinity, found.memory_bytes)
        assert unknown == (None,) * 5
        assert environment.machine() == environment.Machine()

    def test_only_what_can_change_is_read_each_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = capture(with_jax=False)
        monkeypatch.setattr(environment, "cpuinfo", lambda: {"model name": "another"})
        monkeypatch.setattr(environment, "affinity", lambda: (7,))

        assert capture(with_jax=False) == replace(first, affinity=(7,))
        assert environment.installed("no-such-package") is None


class TestMachine:
    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            ({"intel_pstate/no_turbo": "0"}, True),
            ({"intel_pstate/no_turbo": "1"}, False),
            ({"cpufreq/boost": "1"}, True),
            ({"cpufreq/boost": "0"}, False),
            ({"cpufreq/boost": "garbage"}, None),
            ({}, None),
        ],
    )
    def test_turbo(self, system: dict[str, str], files: dict[str, str], expected: bool | None) -> None:
        system.update({f"/sys/devices/system/cpu/{name}": text for name, text in files.items()})

        assert environment.machine().is_turbo_on is expected

    @pytest.mark.parametrize(
        ("files", "quota"),
        [
            # the smallest on the way up
            (
                {"/proc/self/cgroup": "0::/team/job", "/sys/fs/cgroup/team/cpu.max": "150000 100000",
                 "/sys/fs/cgroup/team/job/cpu.max": "400000 100000"},
                1.5,
            ),
            # version 1; the path is the host's, which a container does not see: the root holds its limit
            (
                {"/proc/self/cgroup": "5:memory:/docker/1a2b\n4:cpu,cpuacct:/docker/1a2b\n0::/",
                 "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
                 "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"},
                0.5,
            ),
            ({}, None),
            ({"/proc/self/cgroup": "0::/", "/sys/fs/cgroup/cpu.max": "max 100000"}, None),
            (
                {"/proc/self/cgroup": "1:cpu:/", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                 "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
                None,
            ),
        ],
    )  # fmt: skip
    def test_a_quota_is_cores_worth_of_time(
        self, system: dict[str, str], files: dict[str, str], quota: float | None
    ) -> None:
        system.update(files)

        assert environment.cpu_quota() == quota


# ---- processes that share an accelerator ---------------------------------------------------------------------------


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_jax_plugins", lambda: True)


def test_where_there_may_be_an_accelerator_nothing_is_taken_beforehand(plugins: None) -> None:
    assert memory_on_demand({}) == {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@pytest.mark.parametrize(
    "chosen", ["XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR"]
)
def test_what_the_user_has_chosen_stays(plugins: None, chosen: str) -> None:
    assert memory_on_demand({chosen: "any"}) == {}


def test_without_a_backend_for_accelerators_there_is_nothing_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_jax_plugins", lambda: False)

    assert memory_on_demand({}) == {}


def test_workers_have_it_unless_their_pool_says_otherwise(plugins: None) -> None:
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"

    assert Pool().environ == {name: "false"}
    assert Pool(environ={name: "true"}).environ == {name: "true"}


def test_rows_with_and_without_it_may_be_put_side_by_side() -> None:
    assert flags({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}) == {}
