"""``python -m edl_worker --master HOST:PORT --worker-id N``, or ``check --spec FILE``.

Exit codes of a worker: 0 it left as requested (job over, scaled down, SIGTERM), or those of
``core.exit_codes``; 128 + N after a second signal N, or a signal that it could not report to the
master. ``check`` ends with 0 if the model file has no errors, and with 1 otherwise.
"""

from __future__ import annotations

import time

_STARTED = time.monotonic()

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence

from edl_proto.errors import EdlError
from edl_runtime.local.parent_process import end_with_parent
from edl_runtime.monitoring import logs
from edl_worker import config
from edl_worker.core import exit_codes


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker, or check a model file; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["check"]:
        return _check(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m edl_worker", description=__doc__)
    parser.add_argument("--master", required=True, metavar="HOST:PORT", help="the job's master")
    parser.add_argument("--worker-id", required=True, type=int, metavar="N")
    parser.add_argument(
        "--identity",
        default="",
        metavar="FILE",
        help="file that proves to the master who this worker is",
    )
    options = parser.parse_args(arguments)
    try:
        settings = config.from_environment(
            options.master, options.worker_id, os.environ, options.identity
        )
    except EdlError as error:
        print(error, file=sys.stderr)
        return exit_codes.USAGE
    _set_up_logs()
    logs.identify("worker", options.worker_id)
    from edl_worker.app import build_worker

    try:
        worker = build_worker(settings, _STARTED)
    except EdlError as error:
        logging.error("%s", error)
        return exit_codes.FAILED
    worker.take_signals()
    return worker.run()


def _check(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m edl_worker check")
    parser.add_argument("--spec", required=True, metavar="FILE", help="JobSpec as JSON")
    parser.add_argument(
        "--end-with-parent",
        action="store_true",
        help="end when the parent process closes standard input",
    )
    options = parser.parse_args(arguments)
    if options.end_with_parent:
        end_with_parent()
    with contextlib.redirect_stdout(sys.stderr):  # what a model file prints is no answer
        from edl_worker.engines.tensorflow.framework import TensorFlow
        from edl_worker.tasks.job_check import run_check

        framework = TensorFlow()
        framework.prepare()
        answer = run_check(options.spec, framework)
    print(json.dumps(answer))
    return exit_codes.FAILED if answer["errors"] else 0


def _set_up_logs() -> None:
    logs.set_up()
    for noisy in ("tensorflow", "absl", "h5py"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


if __name__ == "__main__":
    code = exit_codes.INTERNAL_ERROR
    try:
        code = main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else exit_codes.USAGE
    except BaseException:
        logging.exception("the worker cannot run")
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads of TensorFlow, gRPC or user code must not keep a finished worker alive.
        os._exit(code)
