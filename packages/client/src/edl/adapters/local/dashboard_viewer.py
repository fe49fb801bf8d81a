"""Serves the page of a finished job with a process of the master's package; opens pages."""

from __future__ import annotations

import contextlib
import html
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from edl.adapters.local.job_store import START_DEADLINE_S
from edl.adapters.local.launcher import master_command
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.local import job_directory

_LEAVE_S = 5.0
_DETAIL_LINES = 20

_LINK_FILE = "open-page.html"
_LINK_PAGE = """<!doctype html>
<meta charset="utf-8"><title>edl</title><meta http-equiv="refresh" content="0; url={0}">
<a href="{0}">The page of the job</a>
"""


@contextlib.contextmanager
def viewer(job_dir: Path, port: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a process that serves the page of a job's directory; yield its URL and the process.

    Args:
        port: of this machine; 0 for any.

    Raises:
        EdlError: PORT_IN_USE, or MASTER_LOST if it does not come up.
    """
    command = [*master_command(), "--end-with-parent"]
    command += ["--view", str(job_dir), "--port", str(port)]
    with tempfile.TemporaryFile() as log:  # a pipe without a reader would fill up, and block it
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # never written to: its end tells that this process is gone
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        with _ending(process):
            assert process.stdout is not None
            # A page is one line when it is served; it may take as long as imports do.
            ready, _, _ = select.select([process.stdout], [], [], START_DEADLINE_S)
            line = process.stdout.readline() if ready else ""
            yield _url(command, line, process, log), process


@contextlib.contextmanager
def _ending(process: subprocess.Popen[str]) -> Iterator[None]:
    """End a process when the context ends."""
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE_S)
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_LEAVE_S)


def open_in_browser(link: str) -> None:
    """Open a page by its link. The browser reads it from a file: arguments are for all to see."""
    import webbrowser

    folder = job_directory.home()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _LINK_FILE
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(file, "w", encoding="utf-8") as content:
        content.write(_LINK_PAGE.format(html.escape(link)))
    webbrowser.open(path.absolute().as_uri())


def _url(command: list[str], line: str, process: subprocess.Popen[str], log: BinaryIO) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        facts = json.loads(line)
        if "code" in facts:
            code = ErrorCode.Value(facts["code"])
            raise EdlError(code, facts["what"], where=command[-3], remedy=facts["remedy"])
        return str(facts["dashboard_url"])
    try:
        process.wait(_LEAVE_S)
        log.seek(0)
        output = log.read().decode(errors="replace")
    except subprocess.TimeoutExpired:
        output = f"the page was not served within {START_DEADLINE_S:.0f} s"
    raise EdlError(
        ErrorCode.MASTER_LOST,
        "the page cannot be served",
        where=" ".join(command[:4]),
        remedy="See the end of its output below; edl doctor checks this machine.",
        detail="\n".join(output.splitlines()[-_DETAIL_LINES:]),
    )
