"""Records the README: ``.venv/bin/python tools/first_hour.py`` writes docs/first-hour.md.

Clones the last commit into an empty folder, runs the commands of the README's blocks there, in
their order, and writes down what they print. It replaces only what differs for each reader: the
path of the folder, and the keys in the addresses of pages. It leaves out most lines of
progress. If a command fails, the recording ends, and the page stays unchanged.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_RUN = "./dev test"
"""The README's last command on the repository, which takes the better part of an hour."""

_TIDY = 'for job in $(edl list -o name); do edl delete "$job" --stop --yes; done'
_END = "\x1e the command has ended: "
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
_COMMENT = re.compile(r"\s+# .*$", re.M)
_PROGRESS = re.compile(r"\S+: .*\d%|\d\d:\d\d:\d\d EvaluationEnded: ")
_SHOWN = 2
"""Lines of progress that are kept at each end of a long row."""
_KEY = re.compile(r"(http://127\.0\.0\.1:\d+/)\S+")


@dataclass
class Step:
    """A command, what it printed, and how long it took."""

    command: str
    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0


def commands(readme: str) -> list[list[str]]:
    """The commands of each block, some of several lines; the very first clones the repository."""
    return [
        re.split(r"(?<!\\)\n", _COMMENT.sub("", block).strip())
        for language, block in _BLOCK.findall(readme)
        if not language
    ]


def record(steps: list[Step], folder: Path, environ: dict[str, str]) -> None:
    """Run the steps in one shell, and fill in what they print.

    Raises:
        SystemExit: a command failed.
    """
    with subprocess.Popen(
        ["bash", "-s"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environ,
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        for step in steps:
            begun = time.monotonic()
            shell.stdin.write(f"{step.command}\necho '{_END}'$?\n")
            shell.stdin.flush()
            for line in shell.stdout:
                print(line, end="", flush=True)
                if line.startswith(_END):
                    break
                step.lines.append(line.rstrip())
            step.seconds = time.monotonic() - begun
            if line != f"{_END}0\n":
                sys.exit(f"{step.command} ended with exit code {line.removeprefix(_END)}")
        # The demo's master would keep its page for ten minutes.
        shell.stdin.write(f"{_TIDY} >/dev/null\n")
        shell.stdin.close()


def shorten(lines: list[str]) -> Iterator[str]:
    """Yield the lines, without the middle of each long row of progress."""
    for is_progress, found in itertools.groupby(lines, lambda line: bool(_PROGRESS.match(line))):
        row = list(found)
        if is_progress and len(row) > 2 * _SHOWN + 1:
            row[_SHOWN:-_SHOWN] = [f"[{len(row) - 2 * _SHOWN} lines of progress]"]
        yield from row


def page(blocks: list[list[Step]], folder: Path) -> Iterator[str]:
    """The lines of the document."""
    cores, python = os.cpu_count(), platform.python_version()
    yield "# The first hour, recorded"
    yield "This page shows what the commands of the [README](../README.md) print, in their"
    yield f"order, in a fresh clone. The machine had {cores} cores, other work to do, and all"
    yield f"packages in its cache. `tools/first_hour.py` ran the commands with Python {python}"
    yield f"and wrote this page. It left out `{NOT_RUN}`, and lines of progress where the page"
    yield "says so."
    for block in blocks:
        yield ""
        yield "```"
        for step in block:
            yield f"$ {step.command}"
            for line in shorten(step.lines):
                yield _KEY.sub(r"\1…", line).replace(str(folder), "~")
            if step.seconds >= 1:
                yield f"[{step.seconds:.0f} s]"
        yield "```"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "first-hour.md")
    chosen = parser.parse_args()
    cache = os.environ.get("EDL_DEV_CACHE") or str(Path.home() / ".cache" / "edl-dev")
    with tempfile.TemporaryDirectory(prefix="first-hour-") as place:
        folder = Path(place)
        environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": place,
            "EDL_DEV_CACHE": cache,
            "NO_COLOR": "1",
        }
        (clone, *first), *others = commands((ROOT / "README.md").read_text())
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "edl")], check=True)
        written = [[each for each in first if each != NOT_RUN], *others]
        blocks = [[Step(each) for each in block] for block in written]
        record([step for block in blocks for step in block], folder / "edl", environ)
        blocks[0].insert(0, Step(clone))
        chosen.output.write_text("\n".join(page(blocks, folder)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
