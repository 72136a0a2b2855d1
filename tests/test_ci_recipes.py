"""The example project and the recipes for CI: what the pages show are the files, and every command in them runs.

In real git repositories, by the shell that CI uses.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from git_repositories import git

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
GITHUB, GITLAB = EXAMPLES / "github-actions.yml", EXAMPLES / "gitlab-ci.yml"
GITHUB_PAGES, GITLAB_PAGES = EXAMPLES / "github-pages.yml", EXAMPLES / "gitlab-pages.yml"
QUICK = {"BENCHAX_MAX_TIME_S": "0.02", "BENCHAX_MIN_TIME_S": "0.01", "BENCHAX_MEMORY": "off", "BENCHAX_VERIFY": "off"}


def shell(script: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """As GitHub runs a step."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | QUICK | settings | {"PATH": path}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=300)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def github_steps() -> list[dict[str, Any]]:
    return yaml.safe_load(GITHUB.read_text(encoding="utf-8"))["jobs"]["compare"]["steps"]


def commands_of_github() -> str:
    return "\n".join(step["run"] for step in github_steps() if "run" in step)


def commands_of_gitlab() -> str:
    job = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))["benchmarks"]
    return "\n".join([*job["script"], *job["after_script"]])


def without_installing(commands: str) -> str:
    """What is under test is installed; the project lies on PYTHONPATH."""
    return "\n".join(line for line in commands.splitlines() if not line.startswith("pip install"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The example project as its README makes it, with two commits, and then without its unchanged benchmark, of which
    a busy machine might take long to be sure."""
    folder = tmp_path / "project"
    setting_up, *_ = blocks(EXAMPLES / "compare_refs" / "README.md", "sh")
    done = shell(setting_up, ROOT, PROJECT=str(folder))
    assert done.returncode == 0, done.stderr
    bench = folder / "benchmarks" / "bench_distances.py"
    bench.write_text(bench.read_text().rpartition("@benchax.benchmark")[0].rstrip() + "\n")
    git(folder, "commit", "--quiet", "--all", "--message", "One benchmark")
    return folder


def make_slower(project: Path) -> None:
    """What the last commit gained is undone."""
    git(project, "checkout", "--quiet", "v1", "--", "src")
    git(project, "commit", "--quiet", "--all", "--message", "Back to differences")


def test_the_page_shows_the_files_as_they_are() -> None:
    shown = blocks(ROOT / "docs" / "how-to" / "ci.md", "yaml")

    files = (GITHUB, GITLAB, GITHUB_PAGES, GITLAB_PAGES)
    assert shown == [file.read_text(encoding="utf-8") for file in files]


def test_github_gets_the_whole_history_and_may_change_nothing() -> None:
    workflow = yaml.safe_load(GITHUB.read_text(encoding="utf-8"))
    checkout = github_steps()[0]

    assert checkout["with"] == {"fetch-depth": 0}
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow[True] == "pull_request"  # YAML 1.1 reads the key `on` as true, and GitHub does not mind


def test_no_text_of_a_pull_request_is_pasted_into_a_script() -> None:
    """A branch may be called `$(rm -rf .)`: it comes as a variable."""
    assert "${{" not in commands_of_github()


def test_both_recipes_of_a_site_run_the_same_commands_and_keep_rows_and_pages() -> None:
    github = yaml.safe_load(GITHUB_PAGES.read_text(encoding="utf-8"))["jobs"]["publish"]
    gitlab = yaml.safe_load(GITLAB_PAGES.read_text(encoding="utf-8"))["pages"]

    cached = next(step["with"] for step in github["steps"] if step.get("uses", "").startswith("actions/cache"))
    assert [step["run"] for step in github["steps"] if "run" in step] == gitlab["script"]
    assert (
        cached["path"].split() == [path.rstrip("/") for path in gitlab["cache"]["paths"]] == [".benchmarks", "public"]
    )
    assert github["steps"][0]["with"] == {"fetch-depth": 0}


@pytest.mark.slow
def test_the_commands_of_a_site_publish_what_was_compared(project: Path) -> None:
    script = yaml.safe_load(GITLAB_PAGES.read_text(encoding="utf-8"))["pages"]["script"]

    done = shell(without_installing("\n".join(script)), project, PYTHONPATH="src", BASELINE="v1", BENCHAX_HOST="ci")

    assert done.returncode == 0, done.stderr
    assert "public/index.html: 1 of 1 page of cases written" in done.stderr
    (page,) = (project / "public" / "cases").glob("squared-distances-*.html")
    assert re.search(r"run time against v1 \([0-9a-f]{8}\) · 1 comparison", page.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.serial
def test_the_example_shows_what_its_last_commit_changed(project: Path) -> None:
    comparing = blocks(EXAMPLES / "compare_refs" / "README.md", "sh")[1]

    done = shell(f"export PYTHONPATH=src\n{comparing}", project)

    assert done.returncode == 0, done.stderr
    assert re.search(r"squared_distances\[n=256\].* faster, confirmed", done.stdout)
    assert git(project, "worktree", "list").count("\n") == 0


@pytest.mark.slow
@pytest.mark.serial
def test_the_steps_of_github_fail_the_job_and_still_write_the_summary(project: Path, tmp_path: Path) -> None:
    git(project, "update-ref", "refs/remotes/origin/main", "HEAD")
    make_slower(project)
    summary = tmp_path / "summary.md"
    *steps, last = without_installing(commands_of_github()).strip().splitlines()

    settings = {"PYTHONPATH": "src", "BASE": "main", "GITHUB_STEP_SUMMARY": str(summary)}
    judged = shell("\n".join(steps), project, **settings)
    summed_up = shell(last, project, **settings)

    assert (judged.returncode, summed_up.returncode) == (1, 0), judged.stderr + summed_up.stderr
    assert "SLOWER squared_distances[n=256]: run +" in judged.stderr
    assert re.search(r"\| `squared_distances\[n=256\]` \| .*slower, confirmed", summary.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_commands_of_gitlab_pass_where_nothing_is_slower(project: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(project), "clone")

    done = shell(
        without_installing(commands_of_gitlab()),
        tmp_path / "clone",
        PYTHONPATH="src",
        CI_MERGE_REQUEST_TARGET_BRANCH_NAME="v1",
    )

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "clone" / "benchmarks.md").read_text(encoding="utf-8")
    assert re.search(r"\| `squared_distances\[n=256\]` \| .*faster, confirmed", page)
