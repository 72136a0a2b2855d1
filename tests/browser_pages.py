"""A real browser for the tests of pages, which keeps what it would have to complain of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SIZE = {"width": 1200, "height": 900}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True},
}
"""How a page is opened; narrow as on a telephone."""


@contextmanager
def start_browser() -> Iterator[Any]:
    """Skips the test where no browser is installed, or nothing that drives one."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs a driver for browsers: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Opened:
    """A page of a file, and what the browser said and asked for."""

    def __init__(self, browser: Any, file: Path, **looks: Any) -> None:
        self.context = browser.new_context(**({"viewport": SIZE} | looks))
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.go(file)

    def go(self, file: Path) -> None:
        """To another file, in the same window."""
        self.page.goto(file.absolute().as_uri())

    def draw_all(self) -> list[str]:
        """Opens all parts and goes down the page. Returns the captions of charts that did not draw."""
        self.page.evaluate("document.querySelectorAll('details.part').forEach((part) => { part.open = true; })")
        return self.page.evaluate(DRAW_ALL)

    def find_barriers(self, options: str = "{ resultTypes: ['violations'] }") -> list[Any]:
        """What a reader with a screen reader, a keyboard or weak eyes stumbles over, by axe-core; and a page that is
        wider than its window."""
        axe = pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")
        self.page.evaluate((files(axe) / "axe.min.js").read_text(encoding="utf-8"))
        found = self.page.evaluate(f"axe.run({options}).then((run) => run.violations)")
        is_wide = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        told: list[Any] = [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in found]
        return told + ["too wide"] * is_wide

    def close(self) -> None:
        self.context.close()


DRAW_ALL = """async () => {
  const figures = [...document.querySelectorAll('figure')];
  for (const figure of figures) {
    figure.scrollIntoView();
    for (let n = 0; n < 100 && !figure.dataset.drawn; n += 1) await new Promise((go) => setTimeout(go, 10));
  }
  const isBlank = (canvas) => {
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return pixels.every((pixel) => pixel === pixels[0]);
  };
  const isDrawn = (figure) => figure.dataset.drawn && [...figure.querySelectorAll('canvas')].some((c) => !isBlank(c));
  return figures.filter((figure) => !isDrawn(figure)).map((figure) => figure.querySelector('figcaption').textContent);
}"""
