"""`make pictures`: the pictures that README.md and the pages show, each of a real run on this machine.

One more is one line in PICTURES: `terminal` draws what a command prints, as SVG; `page` photographs a page that a
command writes, as PNG, by Chromium without a window. A picture changes only when this is run.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
COLUMNS = 100
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUIETLY = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def terminal(command: str) -> Callable[[Path], None]:
    """What `command` prints, in colour."""

    def draw(file: Path) -> None:
        printed = _run(command, FORCE_COLOR="1").stdout
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        console.print(Text.from_ansi(printed.strip("\n")))
        # A fixed id: else each picture would be new throughout.
        svg = console.export_svg(title=f"$ {command}", theme=DIMMED_MONOKAI, unique_id=file.stem)
        # The font would be fetched from elsewhere.
        plain = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
        plain = plain.replace("Fira Code", "Menlo, Consolas")
        file.write_text("\n".join(line.rstrip() for line in plain.splitlines()) + "\n", encoding="utf-8")

    return draw


def page(command: str, height: int) -> Callable[[Path], None]:
    """The page that `command` writes into the file that stands for {page} in it: its first `height` pixels."""

    def draw(file: Path) -> None:
        browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
        if browser is None:
            raise SystemExit(f"{file.name} is not drawn, because there is no browser: {', '.join(CHROMIUM)}")
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "page.html"
            _run(command.replace("{page}", str(written)))
            size = f"--window-size=1000,{height}"
            shot = [browser, *QUIETLY, size, f"--screenshot={file}", written.as_uri()]
            subprocess.run(shot, check=True, capture_output=True)

    return draw


PICTURES: dict[str, Callable[[Path], None]] = {
    "terminal.svg": terminal("benchax run benchax.workloads:mlp"),
    "report.png": page("benchax compare jax.numpy:sum jax.numpy:nansum f32[1000000] --html {page}", 760),
}


def _run(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of benchax in an empty folder.

    Raises:
        SystemExit: it failed; what it said is shown.
    """
    words = shlex.split(command)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]],
            cwd=folder,
            env=os.environ | {"COLUMNS": str(COLUMNS), "JAX_PLATFORMS": "cpu"} | environment,
            capture_output=True,
            encoding="utf-8",
        )
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return done


def main() -> None:
    """Draws all pictures, or those that are named."""
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name](HERE / name)
        print(f"docs/pictures/{name}")


if __name__ == "__main__":
    main()
