"""``python -m edl_master --job-dir DIR``: work on the job that DIR/spec.json describes."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edl_master.starting import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, set up logging, run; 0 if the job succeeded, 1 if it did not."""
    parser = argparse.ArgumentParser(prog="edl_master", description="The master of one edl job.")
    parser.add_argument(
        "--job-dir", type=Path, required=True, metavar="DIR", help="directory with spec.json"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=os.environ.get("EDL_LOG_LEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    return run(options.job_dir.absolute())


if __name__ == "__main__":
    sys.exit(main())
