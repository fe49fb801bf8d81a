"""``python -m edl_master --job-dir DIR``: work on the job that DIR/spec.json describes.

``--view DIR`` serves the page of a job that is over. A master in a pod of Kubernetes has a command
of its own, in the package ``edl-kubernetes``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from edl_master.app.startup import run
from edl_master.config.job_config import LOOPBACK
from edl_master.reporting.finished_job import view
from edl_proto.file_limit import raise_limit
from edl_runtime.local.parent_process import end_with_parent
from edl_runtime.monitoring import logs


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, set up logging, run; 0 if the job succeeded, 1 if it did not."""
    parser = argparse.ArgumentParser(prog="edl_master", description="The master of one edl job.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--job-dir", type=Path, metavar="DIR", help="directory with spec.json")
    what.add_argument(
        "--view", type=Path, metavar="DIR", help="serve the page of this finished job"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port of the page of --view; 0: any free one"
    )
    parser.add_argument(
        "--end-with-parent",
        action="store_true",
        help="end when the parent process closes standard input",
    )
    options = parser.parse_args(arguments)
    logs.set_up()
    logs.identify("master", job=options.job_dir.absolute().name if options.job_dir else "")
    raise_limit()
    if options.end_with_parent:
        end_with_parent()
    if options.view is not None:
        return view(options.view.absolute(), LOOPBACK, options.port)
    return run(options.job_dir.absolute())


if __name__ == "__main__":
    sys.exit(main())
