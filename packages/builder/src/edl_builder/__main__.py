"""``python -m edl_builder --state-dir DIR``: serve image builds until a signal ends it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from edl_builder.adapters.build_store import StateInUseError
from edl_builder.app import App
from edl_builder.codec import error_to
from edl_builder.config import builder_config
from edl_builder.core.failure import BuilderError
from edl_proto.errors import ErrorCode
from edl_proto.file_limit import raise_limit
from edl_runtime.monitoring import logs

_FAILED, _USAGE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, set up logging, serve.

    Prints one line of JSON: once it listens, with the address; if it cannot, with the error.
    """
    logs.set_up()
    logs.identify("builder")
    raise_limit()
    try:
        settings = builder_config.read(arguments)
        with App(settings) as app:
            app.take_signals()
            where = {"address": app.address, "metrics_port": app.metrics_port, "pid": os.getpid()}
            print(json.dumps(where), flush=True)
            app.run()
    except BuilderError as error:
        problem = error_to(error.failure)
        print(problem, file=sys.stderr)
        in_use = isinstance(error, StateInUseError)
        print(json.dumps({"error": problem.what, "is_state_in_use": in_use}), flush=True)
        return _USAGE if problem.code == ErrorCode.USAGE else _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
