"""Text that tries to become a part of the page, in every place where a job has text."""

from __future__ import annotations

import copy
from typing import TypeVar

from edl_proto.v1.job_pb2 import Event, JobStatus

M = TypeVar("M", JobStatus, Event)

HOSTILE = (
    "</title></pre><img src=x onerror='window.caught=1'><script>window.caught=2</script>"
    '"><svg onload="window.caught=3"> &lt;b&gt; {{7*7}} \u202e\u0000 '
)
LONG = "W" * 600


def spoil(message: M) -> M:
    """Return a copy of a message with hostile text in every string, at every depth."""
    spoiled = copy.deepcopy(message)
    stack: list[object] = [spoiled]
    while stack:
        here = stack.pop()
        for field, value in here.ListFields():
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            if is_map:
                for key in list(value):
                    kind = field.message_type.fields_by_name["value"]
                    if kind.message_type is not None:
                        value[HOSTILE + key].CopyFrom(value[key])
                    else:
                        value[HOSTILE + key] = (
                            HOSTILE + value[key] if isinstance(value[key], str) else value[key]
                        )
                    del value[key]
            elif field.message_type is not None:
                stack.extend(value if isinstance(value, list) or field.is_repeated else [value])
            elif field.type == field.TYPE_STRING:
                if field.name in ("at", "started_at", "finished_at"):
                    setattr(here, field.name, HOSTILE)
                else:
                    setattr(here, field.name, HOSTILE + value + LONG)
    return spoiled
