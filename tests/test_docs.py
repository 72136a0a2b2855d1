"""The pages of docs/: each is in the table of contents, links lead somewhere, and the reference leaves nothing out."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python
from git_repositories import git

import benchax
from benchax.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
LINKING = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
TAUGHT = [*(DOCS / "tutorials").glob("*.md"), DOCS / "quick-start.md", DOCS / "which-number.md"]


@pytest.fixture(autouse=True)
def _extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"^(`{3,}|:{3,}).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub and MyST make them of headings, and those of the sections that are made when pages are built."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    headings += [name for words in re.findall(r"```\{names\} (.*)", text) for name in words.split()]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """(file, heading) of each link to a file of this project."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, heading = target.partition("#")
            yield (page.parent / path if path else page), heading


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    rules = {f"reference/rules/{page.stem}" for page in (DOCS / "reference" / "rules").glob("*.md")}

    there = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES}

    assert sorted(listed) == sorted(set(listed))
    assert there - {"index"} - (rules - {"reference/rules/index"}) == set(listed)


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    found = list(links(page))

    assert [str(file) for file, _ in found if not file.exists()] == []
    dead = [f"{f.name}#{h}" for f, h in found if h and h not in anchors(f) and h.replace("-", "_") not in anchors(f)]
    assert dead == []


def test_every_public_name_is_in_the_reference_once() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")]
    named = [name for page in pages for words in re.findall(r"```\{names\} (.*)", page) for name in words.split()]

    assert sorted(named) == sorted(benchax.__all__)


def test_every_command_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"```\{commands\} (.*)", page)

    assert sorted(named.split()) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_described_by_its_own_help(name: str) -> None:
    from reference_commands import render_command

    text = render_command(name)

    assert text.startswith(f"## `benchax {name}`")
    assert f"$ benchax {name}" in text
    assert "--help" not in text


@pytest.mark.parametrize("name", benchax.__all__)
def test_a_name_is_described_by_its_docstring(name: str) -> None:
    from reference_names import render_name

    text = render_name(name)

    assert text.startswith(f"## `{name}`")
    assert "```python\n>>> " in text


def test_a_function_has_its_signature_and_a_class_its_fields_and_methods() -> None:
    from reference_names import render_name

    of_function, of_class = render_name("bench"), render_name("Measurement")

    for text in ("tag: str = ''", "-> Measurement", "- `static`, `donate`: arguments of a plain function"):
        assert text in of_function
    assert "| `signature` | `str` | The inputs as specs: " in of_class
    assert "{py:method} summary(" in of_class


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        ("Does `x`.\n\n    code(1)\n\n    more", "Does `x`.\n\n```python\ncode(1)\n\nmore\n```"),
        (
            "Args:\n    a, b: numbers\n        in *seconds*.\n    c: <none>",
            "**Args**\n\n- `a`, `b`: numbers in \\*seconds\\*.\n- `c`: \\<none>",
        ),
        ("Returns:\n    one\n    row.", "**Returns**: one row."),
        ("Example:\n    >>> 1\n    1\n\n    >>> 2", "```python\n>>> 1\n1\n\n>>> 2\n```"),
    ],
)
def test_a_docstring_becomes_markdown(docstring: str, markdown: str) -> None:
    from docstrings import to_markdown

    assert to_markdown(docstring) == markdown


@pytest.mark.parametrize("page", TAUGHT, ids=lambda page: page.stem)
def test_a_page_to_learn_from_says_what_its_reader_will_be_able_to_do(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert re.search(r"^# .+\n\nAfter this (page|tutorial)\b.* you can", text, re.MULTILINE)
    assert "\n## Exercises\n" in text
    assert "\n## What next\n" in text
    # What a cell takes is another number on each machine; limits and advice are in code.
    assert re.findall(r"\b\d[\d.,]* ?(?:µs|ns)\b", prose(page)) == []


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run_program(folder: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    (folder / "page.py").write_text("\n".join(parts), encoding="utf-8")
    return subprocess.run([sys.executable, "page.py"], cwd=folder, capture_output=True, encoding="utf-8", check=False)


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 140
    assert len(text.encode()) <= 6000


@pytest.mark.slow
def test_the_examples_of_the_readme_run(project: Path) -> None:
    """In their order, as a reader types them."""
    examples = python_blocks(ROOT / "README.md")

    done = run_program(project, *examples, "assert m.failure is None", "assert test_sort")

    assert len(examples) == 3
    assert done.returncode == 0, done.stderr
    assert "sort" in done.stdout


FUNCTIONS = """
import benchax, jax, jax.numpy as jnp

f1, f2, f3 = lambda x: x**2 - 1, lambda x: x / 2, lambda x: x**3 * jnp.sin(x)
solve, x = jax.jit(f1), jnp.ones(64)
"""
"""The names that the page takes for granted."""


@pytest.mark.slow
def test_grids_inside_a_compiled_program_run_as_the_page_shows_them(project: Path) -> None:
    examples = [block for block in python_blocks(DOCS / "how-to" / "grids.md") if "import" not in block]

    done = run_program(project, FUNCTIONS, *examples, "assert r.outputs.shape == (3, 64)", "solve(x)")

    assert len(examples) == 2
    assert done.returncode == 0, done.stderr


GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("where", sorted(set(re.findall(r"`(benchax\.[\w.]+)`", GLOSSARY))))
def test_what_the_glossary_points_at_exists(where: str) -> None:
    parts = where.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            # A field without a default is no attribute of its class.
            found = getattr(found, part, None) or getattr(found, "__annotations__", {}).get(part)
            assert found is not None, f"{where}: there is no {part}"
        return
    pytest.fail(where)


# ---- requirements ------------------------------------------------------------------------------------------------


REQUIREMENTS = (DOCS / "about" / "requirements.md").read_text(encoding="utf-8")


def test_every_test_that_the_requirements_name_exists() -> None:
    texts = [file.read_text(encoding="utf-8") for file in Path(__file__).parent.rglob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)}

    assert set(re.findall(r"`(test_\w+)`", REQUIREMENTS)) - there == set()


def test_every_file_that_decisions_and_instructions_name_exists() -> None:
    texts = [file.read_text(encoding="utf-8") for file in (DOCS / "about" / "decisions.md", ROOT / "CONTRIBUTING.md")]
    named = {name for text in texts for name in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w/.]+\.\w+)`", text)}

    assert sorted(name for name in named if not (ROOT / name).exists()) == []
    assert re.findall(r"`(test_\w+\.py)`", "".join(texts)) == []  # without its folder


def test_each_requirement_points_at_a_page_and_a_test() -> None:
    found = {int(line.split()[1][1:]): line for line in REQUIREMENTS.splitlines() if re.match(r"\| R\d+ ", line)}

    assert {n for n, line in found.items() if "`test_" not in line or "](" not in line} == set()
    assert [*found] == list(range(1, 79))


# ---- Every public name has an example in its docstring, which does what it says -------------------------------------

SLOW = {
    "GridResult", "checklist", "compare", "compare_jax",
    "compare_ref", "compare_stored", "experiment", "grid", "profile", "Profile", "CompiledGridResult",
}  # fmt: skip
"""Their examples compare in new processes, or record."""
BENCHMARKS = """
import benchax


@benchax.benchmark(args=("f32[8]",))
def double(x):
    return 2 * x
"""


def _marked(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name


@pytest.fixture
def repository(project: Path) -> Path:
    """What `compare_ref` and its like find in the working folder: benchmarks, a commit and a run."""
    (project / "benchmarks").mkdir()
    (project / "benchmarks" / "bench_double.py").write_text(BENCHMARKS, encoding="utf-8")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        git(project, *words)
    return project


@pytest.mark.parametrize("name", [_marked(name) for name in benchax.__all__])
def test_the_example_of_a_public_name_does_what_it_says(name: str, repository: Path) -> None:
    if name == "compare_stored":
        run = [sys.executable, "-m", "benchax.cli.main", "run", "benchmarks", "--quick"]
        subprocess.run(run, cwd=repository, check=True, capture_output=True)
    given = {"benchax": benchax, "jax": jax, "jnp": jnp, "np": np, "pathlib": pathlib}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(getattr(benchax, name)) or "", given, name, None, None)
    said: list[str] = []

    failed, _ = doctest.DocTestRunner(verbose=False).run(example, out=said.append)

    assert failed == 0, "".join(said)


# ---- docs/how-to/performance-guide.md is what examples/performance_guide.py writes ----------------------------------

GUIDE = ROOT / "docs" / "how-to" / "performance-guide.md"
QUICK_SECTION = "1. Compilation: what compiles again"
"""A section that takes a second."""


@pytest.fixture
def guide_page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """With the sections of the guide."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import guide_page
    import performance_guide

    assert performance_guide.PAGE == GUIDE
    return guide_page


def test_the_page_has_every_section_with_its_present_code(guide_page: ModuleType) -> None:
    page = GUIDE.read_text(encoding="utf-8")

    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [one.title for one in guide_page.SECTIONS]
    for one in guide_page.SECTIONS:
        assert guide_page.before_output(one) in page, f"write it anew: --only {one.title!r}"


def test_a_section_written_anew_has_the_structure_of_the_committed_one_and_the_others_stay(
    tmp_path: Path, guide_page: ModuleType
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n## 6. Profiling\n\nas it was\n", encoding="utf-8")

    command = [sys.executable, "examples/performance_guide.py", "--only", QUICK_SECTION, "--output", str(page)]
    warm_python.run(command, cwd=ROOT, check=True)

    assert without_numbers(guide_page.of_page(page)[QUICK_SECTION]) == without_numbers(
        guide_page.of_page(GUIDE)[QUICK_SECTION]
    )
    assert list(guide_page.of_page(page)) == [QUICK_SECTION, "6. Profiling"]
    assert guide_page.of_page(page)["6. Profiling"] == "## 6. Profiling\n\nas it was\n"


def without_numbers(text: str) -> list[list[str]]:
    """The words of each line; order of the table's lines apart, which is by time."""
    words = [re.sub(r"[\d.,]+ ?(ns|µs|ms|s|%)?", "0", line).split() for line in text.splitlines()]
    return sorted(words)


# ---- What `make docs` has built -------------------------------------------------------------------------------------

BUILT = DOCS / "_build" / "html"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIETLY = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=15000",
)  # fmt: skip

built = pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="make docs has not built the pages here")


@pytest.fixture(scope="module")
def pages() -> dict[Path, str]:
    return {page: page.read_text(encoding="utf-8") for page in BUILT.rglob("*.html")}


@built
def test_no_page_fetches_anything_from_elsewhere(pages: dict[Path, str]) -> None:
    tags = r"<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\""

    assert {url for text in pages.values() for url in re.findall(tags, text)} == set()
    styles = [file.read_text(encoding="utf-8") for file in BUILT.rglob("*.css")]
    assert [url for text in styles for url in re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^\"')]+)", text)] == []


@built
def test_every_public_name_can_be_searched_for() -> None:
    index = (BUILT / "searchindex.js").read_text(encoding="utf-8")

    assert [name for name in benchax.__all__ if f'"{name}"' not in index and f'"{name.lower()}"' not in index] == []


@built
@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
def test_the_search_works_from_disk() -> None:
    address = f"{(BUILT / 'search.html').as_uri()}?q=watch_cache"

    shown = subprocess.run(
        [str(BROWSER), *QUIETLY, "--dump-dom", address], capture_output=True, encoding="utf-8"
    ).stdout

    assert 'href="reference/seeing-inside.html#watch_cache"' in shown
