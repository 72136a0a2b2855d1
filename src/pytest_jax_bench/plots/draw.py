"""Writes a picture, which is charts one below the other, to a file.

`benchax.reporting.figures` draws each chart without pyplot: no window opens, and nothing has to be closed. The drawing
is independent of the settings of the user's own plots.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchax.errors import require
from benchax.reporting.chart import Chart
from benchax.reporting.figures import draw

# The font of matplotlib has no Chinese, Japanese and Korean characters. Ids of an SVG are random without a salt.
FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Microsoft YaHei", "Hiragino Sans", "Arial Unicode MS")
STYLE = {"svg.hashsalt": "benchax", "legend.fontsize": 8}


def need(module: str) -> Any:
    require("matplotlib", doing="drawing")
    return require(f"matplotlib.{module}", doing="drawing")


def save(charts: Sequence[Chart], path: Path) -> None:
    """Draws `charts` into a file, whose suffix is png, svg or pdf (a page for each); a file that is there is replaced.

    Raises:
        MissingPackage: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    installed = {font.name for font in need("font_manager").fontManager.ttflist}
    style = STYLE | {"font.family": [font for font in FONTS if font in installed]}
    # "default" first: a user's matplotlibrc may ask for TeX, or for a dark page.
    with need("style").context(["default", style]), warnings.catch_warnings():
        # A character without a glyph, or a picture too full to be laid out well: no reason to have none, and none for
        # pytest -W error to fail.
        warnings.simplefilter("ignore")
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = [draw(chart) for chart in charts]
        width = max(figure.get_figwidth() for figure in figures)
        for figure in figures:
            figure.set_figwidth(width)
        {".png": _save_png, ".svg": _save_svg, ".pdf": _save_pdf}[path.suffix](figures, path)


def _save_png(figures: Sequence[Any], path: Path) -> None:
    images: list[np.ndarray] = []
    for figure in figures:
        canvas = need("backends.backend_agg").FigureCanvasAgg(figure)
        canvas.draw()
        images.append(np.asarray(canvas.buffer_rgba()))
    need("image").imsave(path, np.vstack(images))


def _save_svg(figures: Sequence[Any], path: Path) -> None:
    elements: list[str] = []
    width = height = 0.0
    for figure in figures:
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
        element = written.getvalue().partition("<svg ")[2]
        elements.append(f'<svg y="{height}pt" {element}')
        width, high = (float(number) for number in re.findall(r'(?:width|height)="([\d.]+)pt"', element)[:2])
        height += high
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" style="background:white">'
    path.write_text("\n".join([head, *elements, "</svg>\n"]), encoding="utf-8")


def _save_pdf(figures: Sequence[Any], path: Path) -> None:
    # Without a date, the same rows give the same file.
    with need("backends.backend_pdf").PdfPages(path, metadata={"CreationDate": None}) as pages:
        for figure in figures:
            pages.savefig(figure)
