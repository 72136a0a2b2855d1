"""`make quick`: ruff, layers, prose, and the tests of the folders that belong to what changed, without the slow ones.

Changed is what `git diff` shows against the commit where the branch left main, and every new file that git does not
ignore. Which tests belong to a file is told by its path (`find_tests`), not by what imports it: a change of `model`
can break every folder, and only `make test` sees that. Where nothing is named after a file, the tests that name it run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = ["tests/test_imports.py", "tests/test_style.py"]  # what any change of a module can break
NAMED_OTHERWISE = {
    "pytest_jax_bench": "ptjb",
    "benchax/__init__": "exports",
    "benchax/__main__": "exports",
    "benchax/source_trees": "auditing",
    "benchax/static_leaves": "measuring",
}  # under src: what their tests are called
LEFT_OUT = "not slow and not serial"  # serial tests wait for a quiet machine, not for a person


def changed_files(root: Path, base: str) -> list[str]:
    """Paths below `root` that are new, changed or gone since the branch left `base`; sorted.

    Raises:
        SystemExit: there is no commit `base`, nor `origin/base`.
    """
    left = next(filter(None, (_git(root, "merge-base", "HEAD", name) for name in (base, f"origin/{base}"))), None)
    if left is None:
        raise SystemExit(
            f"neither '{base}' nor 'origin/{base}' is a commit that this branch began from\n"
            "expected the branch that the change will be merged into\n\nhint: make quick BASE=<branch>"
        )
    different = _git(root, "diff", "--name-only", left[0])
    return sorted({*different, *_git(root, "ls-files", "--others", "--exclude-standard")})


def _git(root: Path, *arguments: str) -> list[str]:
    """The lines that git writes; none where it fails."""
    command = ["git", "-c", "core.quotePath=false", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8").stdout.splitlines()


def find_tests(changed: str, root: Path = ROOT) -> list[str]:
    """The folders and files of tests that belong to one changed path; empty if nothing is named after it or names it.

    `src/benchax/store/schema.py` and `tests/store/test_load.py` belong to `tests/store`, `src/benchax/codec.py` to
    `tests/test_codec*.py`. A helper, a page or a recipe belongs to the test files that name it.
    """
    path = Path(changed)
    if path.name == "conftest.py" and len(path.parts) == 2:
        return []  # it is for all of them
    name = _name(path)
    folder = [root / "tests" / name] if name and any((root / "tests" / name).rglob("test_*.py")) else []
    found = folder or (sorted((root / "tests").glob(f"test_{name}*.py")) if name else [])
    return [str(each.relative_to(root)) for each in found or _naming(path, root)]


def _name(path: Path) -> str | None:
    """What tests of `path` are named after: a part of the package, a folder of tests; None for what is neither."""
    match path.with_suffix("").parts:
        case ("src", package, part, *_):
            return NAMED_OTHERWISE.get(package) or NAMED_OTHERWISE.get(f"{package}/{part}", part)
        case ("tests", name, *_):
            return name.removeprefix("test_")
    return None


def _naming(path: Path, root: Path) -> list[Path]:
    """Test files in which `path` occurs: a helper or a part of the package as an import, any other by its file name."""
    match path.with_suffix("").parts:
        case ("src", package, part, *_):
            named = rf"(from|import) {package}\.{part}\b|from {package} import .*\b{part}\b"
        case ("tests", helper) if path.suffix == ".py":
            named = rf"(from|import) {helper}\b"
        case _:
            named = rf"(?<![\w-]){re.escape(path.name)}\b"
    tests = sorted((root / "tests").rglob("test_*.py"))
    return [test for test in tests if re.search(named, test.read_text(encoding="utf-8"))]


def choose(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """What pytest is given: the tests of all `changed` and those that always run, nothing twice; sorted."""
    found = {test for path in changed for test in find_tests(path, root)} | set(ALWAYS)
    return sorted(test for test in found if not {str(above) for above in Path(test).parents} & found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="main", help="the branch that the change will be merged into")
    parser.add_argument("--workers", default="2", help="processes of pytest")
    chosen = parser.parse_args()

    changed = changed_files(ROOT, chosen.base)
    without = [path for path in changed if not find_tests(path)]
    print(f"{len(changed)} files changed since {chosen.base}")
    if without:
        print(f"no tests are named after these, nor name them: {', '.join(without)}")
    print(f"left out: all other folders, tests marked slow or serial (`make test`, `make test-slow`)\n{'-' * 80}")
    pytest = ["-m", "pytest", "-x", "-q", "-n", chosen.workers, "--dist", "worksteal", "-m", LEFT_OUT, *choose(changed)]
    ruff = [["-m", "ruff", "format", "--check", "."], ["-m", "ruff", "check", "."]]
    layers = [str(Path(sys.executable).with_name("lint-imports"))]
    for command in (*ruff, layers, [".ci/prose.py"], pytest):
        print("$ python", *command, flush=True)
        if code := subprocess.run([sys.executable, *command], cwd=ROOT).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
