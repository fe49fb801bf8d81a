"""Takes the picture of a job's page for the README: ``make_screenshot.py URL OUT.png``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from page.browser import screenshot

WIDTH = 1280  # CSS pixels, a desktop window
HEIGHT = 860
SCALE = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="a link to the page, as edl dashboard prints it")
    parser.add_argument("out", type=Path, help="PNG file to write")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the window, in CSS pixels")
    parser.add_argument("--height", type=int, default=HEIGHT, help="of the window, in CSS pixels")
    parser.add_argument("--scale", type=float, default=SCALE, help="pixels per CSS pixel")
    parser.add_argument("--dark", action="store_true", help="take it in dark colours")
    parser.add_argument("--full-page", action="store_true", help="take the page to its end")
    options = parser.parse_args()
    screenshot(
        options.url,
        options.out,
        options.width,
        options.height,
        options.dark,
        scale=options.scale,
        full_page=options.full_page,
    )
    print(options.out)


if __name__ == "__main__":
    main()
