"""``python -m edl_master.parameter_server``: hold a part of a job's parameters.

Only a job's master starts it, and it ends with that master.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edl_master.parameter_server.app import App
from edl_proto.file_limit import raise_limit
from edl_runtime.local.parent_process import end_with_parent
from edl_runtime.monitoring import logs


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, set up logging, run; 0 when the master has ended the command log."""
    parser = argparse.ArgumentParser(
        prog="edl_master.parameter_server", description="A parameter server of one edl job."
    )
    parser.add_argument("--master", required=True, metavar="HOST:PORT", help="the job's master")
    parser.add_argument(
        "--server", type=int, required=True, help="number of this server, counted from 0"
    )
    parser.add_argument("--incarnation", required=True, help="incarnation of the master")
    parser.add_argument("--host", required=True, help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="gRPC port; 0: any free one")
    parser.add_argument(
        "--stream-port", type=int, default=0, help="port of direct connections; 0: any free one"
    )
    parser.add_argument(
        "--remote", action="store_true", help="this process cannot read the master's files"
    )
    parser.add_argument(
        "--identity",
        type=Path,
        metavar="FILE",
        help="file that proves to others who this server is",
    )
    parser.add_argument(
        "--end-with-parent",
        action="store_true",
        help="end when the master closes standard input",
    )
    options = parser.parse_args(arguments)
    logs.set_up()
    logs.identify("server", options.server)
    raise_limit()
    ports = (options.port, options.stream_port)
    with contextlib.ExitStack() as opened:
        scratch = None
        if options.remote:
            scratch = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="edl-")))
        app = App(
            options.master,
            options.server,
            options.incarnation,
            options.host,
            ports,
            scratch,
            options.identity,
        )
        if options.end_with_parent:
            end_with_parent()
        return app.run()


if __name__ == "__main__":
    sys.exit(main())
