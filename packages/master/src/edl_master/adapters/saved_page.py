"""The page of a job as one self-contained file, with all that it shows at one moment.

Files, styles and modules of the page are embedded; its scripts are as they are served.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path

from edl_master.adapters import object_stores
from edl_master.adapters.job_directory import to_json
from edl_master.adapters.timeline_json import timeline_json
from edl_master.core.timeline_summary import JobTimes
from edl_proto.errors import EdlError
from edl_proto.v1 import job_pb2
from edl_runtime.files import replace_file
from recordio.storage.stores import is_uri

log = logging.getLogger(__name__)

_DATA = '<script type="application/json" id="saved-job">'
"""What ``page/saved.js`` reads."""

_MAX_EVENTS = 5000
_EVENTS_AT_ONCE = 1000

_STYLE = re.compile(r'<link rel="stylesheet" href="([^"]+)">')
_SCRIPT = re.compile(r'<script defer src="([^"]+)"></script>')
_MODULE = re.compile(r'<script type="module" src="(\w+)\.js"></script>')
_POLICY = re.compile(r'(?<=http-equiv="Content-Security-Policy" content=")[^"]*')
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


ReadEvents = Callable[[int, int], Sequence[job_pb2.Event]]
"""Returns events with numbers above the first argument, oldest first; the second is a limit."""


def saved_page(
    status: job_pb2.JobStatus,
    read_events: ReadEvents,
    times: JobTimes,
    page: Traversable | None = None,
) -> bytes:
    """Return the page with this status of a job, its latest events and its workers' time.

    Args:
        status: of the job.
        read_events: gives its events.
        times: of its workers.
        page: the page's files; those of the package by default.
    """
    files = page or importlib.resources.files("edl_master") / "page"
    events = ",".join(to_json(event) for event in _latest_events(read_events))
    # No text of the job can end the element that it is in.
    fields = f'"status":{to_json(status)},"events":[{events}],"timeline":{timeline_json(times)}'
    data = f"{{{fields}}}".replace("<", "\\u003c")
    trusted: dict[str, list[str]] = {"script": [], "style": []}

    def inside(tag: str, content: str, attributes: str = "") -> str:
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        trusted[tag].append(f"'sha256-{digest}'")
        return f"<{tag}{attributes}>{content}</{tag}>"

    text = _read(files, "index.html")
    text = _STYLE.sub(lambda found: inside("style", _read(files, found[1])), text)
    text = _SCRIPT.sub(lambda found: inside("script", _read(files, found[1])), text)
    found = _MODULE.search(text)
    assert found is not None, "the page has a main module"
    module = inside("script", _bundle(files, found[1]), ' type="module"')
    text = text.replace(found[0], f"{_DATA}{data}</script>{module}")
    icon = base64.b64encode((files / "favicon.svg").read_bytes()).decode()
    text = text.replace('"favicon.svg"', f'"data:image/svg+xml;base64,{icon}"')
    policy = (
        f"default-src 'none'; img-src data:; script-src {' '.join(trusted['script'])}; "
        f"style-src {' '.join(trusted['style'])}; base-uri 'none'; form-action 'none'"
    )
    return _POLICY.sub(html.escape(policy, quote=False), text).encode()


def save_page(output: str, page: bytes) -> None:
    """Write a page next to the output of its job: ``model.html`` next to ``model``.

    A file that is no page is left alone. Nothing is raised: the output is what counts.

    Args:
        output: a path, or the URI of a place in a store.
    """
    place = f"{output.removeprefix('file://').rstrip('/')}.html"
    try:
        if is_uri(output):
            before = object_stores.read(place)
        else:
            before = Path(place).read_bytes() if Path(place).exists() else b""
        if before and _DATA.encode() not in before:
            log.warning("the page of the job is not saved: %s is another file", place)
        elif is_uri(output):
            object_stores.write(place, page)
        else:
            replace_file(Path(place), page)
    except (OSError, EdlError) as error:
        log.warning("the page of the job cannot be saved as %s: %s", place, error)


def _latest_events(read_events: ReadEvents) -> Sequence[job_pb2.Event]:
    latest: deque[job_pb2.Event] = deque(maxlen=_MAX_EVENTS)
    after = 0
    while batch := read_events(after, _EVENTS_AT_ONCE):
        latest.extend(batch)
        after = batch[-1].number
    return latest


def _bundle(files: Traversable, main: str) -> str:
    """Bundle a module with its imports: in a saved file, modules have no addresses."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        text = _read(files, f"{name}.js")
        for _, other in _IMPORT.findall(text):
            if other not in done:
                add(other)
        names = ", ".join(_EXPORT.findall(text))
        text = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = modules.{found[2]};", text)
        text = _EXPORT.sub("", text)
        done[name] = f"modules.{name} = (() => {{\n{text}\nreturn {{ {names} }};\n}})();"

    add(main)
    return "\n".join(["const modules = {};", *done.values()])


def _read(files: Traversable, path: str) -> str:
    return files.joinpath(path).read_text("utf-8")
