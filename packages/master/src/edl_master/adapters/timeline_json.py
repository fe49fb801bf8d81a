"""The use of the workers' time, as JSON for the page."""

from __future__ import annotations

import json

from edl_master.core.timeline_summary import PHASES, JobTimes


def timeline_json(times: JobTimes) -> str:
    """Return the timeline as a JSON object.

    It has ``at`` (seconds since the epoch), ``width_s``, ``buckets``, ``phases`` (their names),
    ``left_out`` and ``workers``: ``worker``, ``seconds`` by phase, ``tasks`` by outcome, ``first``
    (bucket), and ``percent``: for each bucket from there on whole percents by phase.
    """
    workers = [
        {
            "worker": each.worker,
            "seconds": [round(each.seconds.get(phase, 0.0), 3) for phase in PHASES],
            "tasks": {str(outcome): count for outcome, count in sorted(each.tasks.items())},
            "first": each.first,
            "percent": [[round(100 * share) for share in shares] for shares in each.shares],
        }
        for each in times.workers
    ]
    return json.dumps(
        {
            "at": times.at,
            "width_s": times.width_s,
            "buckets": times.buckets,
            "phases": PHASES,
            "workers": workers,
            "left_out": times.left_out,
        },
        separators=(",", ":"),
        allow_nan=False,
    )
