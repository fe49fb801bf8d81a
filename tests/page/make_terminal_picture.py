"""Takes the picture of a terminal for the docs: ``make_terminal_picture.py OUT.png < CAPTURE``.

CAPTURE is what a terminal shows, with its colours, as ``tmux capture-pane -e -p`` prints it.
"""

from __future__ import annotations

import argparse
import base64
import io
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parents[1]))

from page.browser import screenshot

SCALE = 2.0
_PAGE = """<!doctype html><meta charset="utf-8">
<style>body {{ margin: 0; padding: 14px 18px; background: {background}; color: {foreground} }}
pre {{ margin: 0; font: 13px/1.45 "DejaVu Sans Mono", monospace }}</style>
<pre>{code}</pre>"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="PNG file to write")
    parser.add_argument("--width", type=int, default=860, help="of the picture, in CSS pixels")
    parser.add_argument("--scale", type=float, default=SCALE, help="pixels per CSS pixel")
    options = parser.parse_args()
    shown = Text.from_ansi(sys.stdin.read().rstrip())
    console = Console(record=True, width=500, file=io.StringIO(), force_terminal=True)
    console.print(shown, soft_wrap=True)
    page = console.export_html(theme=MONOKAI, code_format=_PAGE, inline_styles=True)
    url = f"data:text/html;base64,{base64.b64encode(page.encode()).decode()}"
    screenshot(
        url,
        options.out,
        options.width,
        20,
        scale=options.scale,
        full_page=True,
        ready="document.fonts.status === 'loaded'",
    )
    print(options.out)


if __name__ == "__main__":
    main()
