"""Checks of what a job on this machine needs, before anything is started."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from edl.adapters import (
    data_columns,
    data_files,
    model_definitions,
    model_zoo,
    storage,
    table_rows,
    trained_models,
)
from edl.adapters.local import launcher
from edl.core.locations import scheme
from edl.core.options import Verb
from edl.core.platforms import PROCESSES
from edl.core.submission import HOST, Submission
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.local import job_directory, output_reservation

_MIN_FREE_BYTES = 1 << 20  # a job that cannot even log is not started
_WORKERS, _WORKERS_PER_CORE = 64, 16
"""The most workers of a job on this machine, whichever is more: each one imports TensorFlow."""


def check(job: Submission) -> None:
    """Check everything about a submission that needs no TensorFlow.

    Raises:
        EdlError: the first thing that is wrong, in the order in which a person would correct it.
    """
    if job.verb is Verb.TRAIN:
        if job.git_source is None:  # what a builder fetches, the worker looks at
            model_zoo.check(job)
            model_definitions.check(job)
    else:
        trained_models.check(job)
    if job.init_from:  # only its parameters are used
        trained_models.check_initial_values(job.init_from)
    check_workers(job.num_workers.max)
    check_data(job)
    check_writable(job_directory.jobs(), "set EDL_HOME to")
    if job.verb is Verb.PREDICT:
        check_predictions(job)
    if job.output:
        check_output(job.output)
    for folder in (job.checkpoint_dir, job.tensorboard_dir, job.data_cache):
        if folder and not scheme(folder):  # a store is tried by the job's master
            check_writable(Path(folder))
    if job.dashboard_port:
        check_port(HOST, job.dashboard_port)


def check_workers(count: int) -> None:
    """Check that a machine with so many cores may run so many workers.

    Raises:
        EdlError: USAGE.
    """
    cores = os.cpu_count() or 1
    if count > max(_WORKERS, _WORKERS_PER_CORE * cores):
        raise EdlError(
            ErrorCode.USAGE,
            f"--num-workers {count}: this machine has {cores} cores, and each worker is a process "
            "with a TensorFlow of its own",
            where="--num-workers",
            remedy=f"Give as many workers as cores, --num-workers {cores}, or fewer.",
        )


def check_data(job: Submission) -> None:
    """Check that the data can be read, and that rows and columns fit.

    Raises:
        EdlError: DATA_NOT_FOUND, DATA_UNREADABLE, DATA_DAMAGED, DATA_EMPTY or SHAPE_MISMATCH.
    """
    data_files.check(job.data, job.data_format, "--data")
    if job.validation_data:
        data_files.check(job.validation_data, job.data_format, "--validation-data")
        table_rows.check(job.validation_data, job.data_format, "--validation-data")
    predicts = job.verb is Verb.PREDICT
    table_rows.check(job.data, job.data_format, "--data", may_be_empty=predicts)
    data_columns.check(job)


def check_output(place: str, option: str = "--output") -> None:
    """Check that a result can be written here, and that nothing exists here yet.

    Args:
        place: a path or a URI; whether a store may be written to, the job's master tries.

    Raises:
        EdlError: OUTPUT_EXISTS, OUTPUT_UNWRITABLE or DISK_FULL.
    """
    try:
        exists = storage.exists(place)
    except storage.StoreError as error:
        raise EdlError(
            ErrorCode.OUTPUT_UNWRITABLE,
            f"the store cannot be accessed: {error}",
            where=place,
            remedy=error.remedy,
        ) from None
    if exists:
        raise EdlError(
            ErrorCode.OUTPUT_EXISTS,
            "edl does not overwrite existing files or folders",
            where=place,
            remedy=f"Name another {option}, or move the existing one.",
        )
    if not scheme(place):
        check_writable(Path(place))


def check_predictions(job: Submission) -> None:
    """Check what a job writes next to its predictions, and whether its master can write Parquet.

    Raises:
        EdlError: USAGE.
    """
    data_files.check_features(job.data, job.data_format, job.keep)
    same_python = job.platform == PROCESSES.name and launcher.python() == sys.executable
    if job.format == "parquet" and same_python and importlib.util.find_spec("pyarrow") is None:
        raise EdlError(
            ErrorCode.USAGE,
            "the output format parquet needs the package pyarrow, which is not installed",
            where="import pyarrow",
            remedy="pip install pyarrow, or choose --format csv or --format jsonl.",
        )


def check_writable(path: Path, choose: str = "name") -> None:
    """Check that something can be created in this folder, or in the one it will be created in.

    Args:
        choose: how a person chooses another folder, as the remedy says it.

    Raises:
        EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
    """
    nearest = path
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    try:
        # Only an attempt shows all reasons: rights, a read-only file system, a quota.
        os.rmdir(tempfile.mkdtemp(prefix=".edl-", dir=nearest))
        disk = shutil.disk_usage(nearest)
        # A remote file system may not know its size, and calls it zero.
        full = disk.total > 0 and disk.free < _MIN_FREE_BYTES
        new = path.parts[len(nearest.parts) :]
        long = any(len(os.fsencode(name)) > output_reservation.MAX_NAME_BYTES for name in new)
        problem = "a part of the path is too long" if long else ""
    except NotADirectoryError:
        full, problem = False, "part of the path is a file"
    except FileNotFoundError:
        full = False
        problem = "no files can be created there"  # as /proc
        if nearest.is_symlink():
            problem = "part of the path is a dangling link"
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = (error.strerror or str(error)).lower()
    if full:
        raise EdlError(
            ErrorCode.DISK_FULL,
            "no space left on the disk",
            where=str(path),
            remedy=f"Free some space, or {choose} a folder on another disk.",
        )
    if problem:
        raise EdlError(
            ErrorCode.OUTPUT_UNWRITABLE,
            f"the folder cannot be written: {problem}",
            where=f"{path} ({nearest})" if nearest != path else str(path),
            remedy=f"{choose[0].upper()}{choose[1:]} a folder that you may write to.",
        )


def check_port(host: str, port: int) -> None:
    """Check that the job's page can listen here. Raises: EdlError: PORT_IN_USE."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # As servers do: a port whose last connections are still winding down is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise EdlError(
                ErrorCode.PORT_IN_USE,
                f"port {port} is not available: {error.strerror}",
                where=f"{host}:{port}",
                remedy="Choose another --dashboard-port, or omit the option for any free port.",
            ) from None
