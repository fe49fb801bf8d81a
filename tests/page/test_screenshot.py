"""Pictures of the page: written, of the asked size, and showing what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from page import jobs
from page.browser import screenshot
from page.conftest import Serve, Visit

ACCENT = (29, 95, 168)  # --accent of the light palette in page.css
GOOD = (21, 112, 63)
TRACK = (230, 233, 237)


def pixels(path: Path) -> NDArray[np.int16]:
    """Picture as [height, width, 3], 0..255."""
    return np.asarray(Image.open(path).convert("RGB"), dtype=np.int16)


def share_like(
    picture: NDArray[np.int16], colour: tuple[int, int, int], tolerance: int = 12
) -> float:
    """Share of the pixels that have this colour, nearly."""
    near = (np.abs(picture - np.array(colour)) <= tolerance).all(axis=-1)
    return float(near.mean())


def test_the_picture_shows_the_job(serve: Serve, visit: Visit, tmp_path: Path) -> None:
    status, events = jobs.training(74.0)
    tab = visit(serve(status, events))
    tab.wait_for("document.querySelectorAll('.chart canvas').length === 3")
    picture = pixels(tab.screenshot(tmp_path / "page.png"))
    assert picture.shape == (900, 1280, 3)

    def cut(selector: str) -> NDArray[np.int16]:
        x, y, width, height = tab.evaluate(
            f"(r => [r.x, r.y, r.width, r.height].map(Math.round))"
            f"(document.querySelector('{selector}').getBoundingClientRect())"
        )
        return picture[y : y + height, x : x + width]

    bar = cut("#bar")
    middle = bar[bar.shape[0] // 2 - 2 : bar.shape[0] // 2 + 2]
    share = status.progress.records_done / status.progress.records_total
    edge = int(middle.shape[1] * share)
    assert share_like(middle[:, 8 : edge - 4], ACCENT) > 0.97
    assert share_like(middle[:, edge + 4 : -8], TRACK) > 0.97

    curve = cut(".chart:first-child .chart-canvas")
    drawn = (np.abs(curve - np.array(ACCENT)) <= 12).all(axis=-1)
    heights = [np.flatnonzero(column).mean() for column in drawn.T if column.any()]
    assert len(heights) > 0.7 * curve.shape[1], "a line through the whole chart"
    assert heights[0] < heights[len(heights) // 2] < heights[-2], "the loss goes down"
    for selector in ("#percent", "#job-name", "#stats", "#workers"):
        assert cut(selector).std() > 15, f"{selector} has ink"


def test_light_and_dark(serve: Serve, tmp_path: Path) -> None:
    server = serve(*jobs.training(999.0))
    light = pixels(screenshot(server.link(), tmp_path / "light.png", 800, 600))
    dark = pixels(screenshot(server.link(), tmp_path / "dark.png", 800, 600, dark=True))
    assert light.shape == dark.shape == (600, 800, 3)
    assert np.median(light) > 230
    assert np.median(dark) < 40
    assert share_like(light, GOOD) > 0.005, "the full bar of a job that succeeded"
    assert min(light.std(), dark.std()) > 15, "neither is blank"


def test_the_readme_picture_can_be_retaken(serve: Serve, tmp_path: Path) -> None:
    server = serve(*jobs.training(74.0))
    out = tmp_path / "job-page.png"
    script = Path(__file__).parent / "make_screenshot.py"
    done = subprocess.run(
        [sys.executable, str(script), server.link(), str(out)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    picture = pixels(out)
    assert picture.shape == (1720, 2560, 3), "a desktop window, two pixels for one"
    assert picture.std() > 15


def test_a_page_that_does_not_exist_is_an_error(serve: Serve, tmp_path: Path) -> None:
    server = serve(*jobs.training(1.0))
    server.close()
    with pytest.raises(RuntimeError, match="CONNECTION_REFUSED"):
        screenshot(server.link(), tmp_path / "none.png", 800, 600)
    assert not (tmp_path / "none.png").exists()
