"""A real browser for the tests of pages, which keeps what it would have to complain of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
