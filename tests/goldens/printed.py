"""What commands print about fixed rows: results and help, with exit codes; 80 columns, no colors."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html import unescape
from pathlib import Path

FORMATS = ("bencher", "csv", "github-action", "google-benchmark", "json", "junit", "markdown", "pytest-benchmark")
STORED = """
benchax runs
benchax runs --limit 2 --json
benchax list
benchax list --filter fft
benchax list --run run-1
benchax list --store full --json
benchax show
benchax show last~3
benchax show 1 --store full
benchax show 1 --store full --verbose
benchax show 1 --store full --statistics
benchax show 1 --store full --samples
benchax show 1 --store full --json
benchax show 2 --store full
benchax show 3 --store full
benchax history
benchax history matmul
benchax history fft
benchax history fft --metric peak
benchax history fft --json
benchax baseline list
benchax baseline set v1 run-1
benchax baseline remove v1
benchax migrate
benchax report
benchax report --store full -o full.html
benchax site
benchax audit --list
benchax experiment --list
benchax --version
"""
LIVE = """
benchax inspect f.py:double f32[8,8]
benchax inspect f.py:double f32[8,8] --show jaxpr
benchax inspect f.py:double f.py:triple f32[8,8]
benchax audit f.py:noise key --rules key-reuse
benchax audit f.py:noise key --rules key-reuse --fail-on info
benchax audit f.py:noise key --rules key-reuse --sarif audit.sarif
ptjb-plot
ptjb-plot missing.csv
"""


def sections() -> dict[str, Callable[[], str]]:
    from results_by_hand import every_result

    exports = [f"benchax export --format {format} --store full" for format in FORMATS]
    lines = [*_lines(STORED), *exports, *_lines(LIVE)]
    found: dict[str, Callable[[], str]] = {line: partial(_run, line) for line in lines}
    for words in every_command():
        found[f"{words} --help"] = partial(_run, f"{words} --help")
    for kind, result in every_result("f").items():
        found[f"print({kind})"] = partial(str, result)
        found[f"repr({kind})"] = partial(repr, result)
        found[f"page of {kind}"] = partial(_page, result)
    pages = {"report": "report.html", "report --store full": "report.html", "site": "site/index.html"}
    return found | {f"page of benchax {words}": partial(_page_of, words, file) for words, file in pages.items()}


def every_command() -> list[str]:
    """The words of each command and subcommand, hidden ones too."""
    from command_line import commands

    found = ["benchax", "ptjb-plot"]
    for name, command in commands().commands.items():
        found += [f"benchax {name}", *(f"benchax {name} {below}" for below in getattr(command, "commands", {}))]
    return found


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()


def _run(words: str) -> str:
    from goldens import commands

    return str(commands.run(words))


def _page(result: object) -> str:
    """The texts of the part of a page that a notebook shows."""
    return _texts(getattr(result, "_repr_html_", lambda: "")() or "")


def _page_of(words: str, file: str) -> str:
    """The texts of a written page."""
    from goldens import commands

    commands.run(f"benchax {words}")
    return _texts(Path(file).read_text(encoding="utf-8"))


def _texts(html: str) -> str:
    """What a reader sees, without scripts, styles, and their data."""
    from goldens import commands

    html = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    lines = (" ".join(unescape(text).split()) for text in re.split(r"<[^>]*>", html))
    return commands.steady("\n".join(filter(None, lines)))
