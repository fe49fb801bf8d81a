"""Foreign texts on a terminal or in a log: control characters are shown, not obeyed.

A terminal obeys what a text tells it: to forget what was printed, to rename its window, to answer
as if the user had typed. Foreign texts are stop reasons, image names, the output of git, of builds
and of workers, and the answers of a builder.
"""

from __future__ import annotations

import re

# All of C0 and C1 but line feed and tab; characters that change the direction or the lines of
# what stands next to them; and the halves of characters that no encoding has.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return the text with control characters as escapes: ``\x1b``, and ``\u202e`` beyond ASCII.

    Line feeds and tabs stay. Carriage returns before a line feed vanish.
    """
    return _OBEYED.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    r"""Return the ``visible`` text in one line: a line feed becomes ``\n``."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def clip(text: str, limit: int) -> str:
    """Cut out the middle of a text that has more characters than ``limit``."""
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-(limit // 2) :]}"


def indent(text: str) -> str:
    """Indent all lines but the first, so that none of them passes for a line of the program."""
    return text.replace("\n", "\n    ")


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x20 else f"\\u{number:04x}"
