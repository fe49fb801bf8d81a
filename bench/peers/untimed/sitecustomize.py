"""For the master of a job that keeps no timeline."""

import sys


def _nothing(*_, **__):
    """As if nobody had called."""


if "edl_master" in sys.orig_argv:
    from edl_master.reporting.timeline_recorder import TimelineRecorder

    for name in ("leased", "ended", "gone", "heard", "flush", "close"):
        setattr(TimelineRecorder, name, _nothing)
