"""The result of a job: the port for files of tasks, and checks of the output's path."""

from __future__ import annotations

import os
import secrets
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from google.protobuf.message import DecodeError

from edl_master.adapters import object_stores
from edl_master.adapters.storage_errors import storage_error
from edl_master.core.identifiers import HeldLease
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import model_pb2
from edl_runtime.model.trained_model import TRAINED_MODEL, read_description
from recordio.storage.stores import is_uri


class JobOutput(Protocol):
    """The files that workers write for their tasks, and the output that is made from them."""

    def part_of(self, lease: HeldLease) -> str:
        """Return where the holder of a lease writes. No other holder ever writes there."""

    def completing(self, lease: HeldLease, records: int) -> AbstractContextManager[None]:
        """Open the context in which the job decides about a holder that reports a complete part.

        Unless the block raises, the part is the task's when the context ends; ``finish`` waits
        for that.
        """

    def flush(self) -> None:
        """Return when the parts of all tasks that the job counts as done are in place."""

    def finish(self, dead: int = 0) -> None:
        """Make the output; ``dead`` is the number of dead-lettered tasks."""

    def clear(self, succeeded: bool) -> None:
        """Remove what is not needed after the end of the job."""


def check_output(output: str, *, resumed_job: str = "", remedy: str = "") -> None:
    """Make sure that a result can be put in its place later; create the parent directory.

    Args:
        output: a path, or the URI of a place in a store.
        resumed_job: a job whose earlier master may have failed after it wrote its model there; the
            model is then replaced by the one that is written again.
        remedy: what to do if the output exists; by default another output.

    Raises:
        EdlError: OUTPUT_EXISTS, OUTPUT_UNWRITABLE, or USAGE for a name that stores misread.
    """
    remedy = remedy or _remedy(resumed_job)
    if is_uri(output):
        object_stores.check_literal(output, "--output")
        if object_stores.exists(output) and not (resumed_job and is_of(resumed_job, output)):
            raise output_exists(output, remedy=remedy)
        object_stores.check_writable(output)
        return
    path = Path(output)
    if os.path.lexists(path) and not (resumed_job and model_of(path) == resumed_job):
        raise output_exists(output, where=str(path.absolute()), remedy=remedy)
    probe = path.parent / f".{path.name}.{secrets.token_hex(4)}.probe"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise storage_error(error, path) from error


def _remedy(resumed_job: str) -> str:
    if not resumed_job:
        return "Choose another --output, or remove what is there."
    return f"Move it away; edl export {resumed_job} --output DIR writes the model elsewhere."


def model_of(path: Path) -> str:
    """Return the job that wrote the trained model in a directory; empty if there is none."""
    try:
        return model_pb2.TrainedModel.FromString(read_description(path)).job
    except (OSError, ValueError, DecodeError):
        return ""


def is_of(job: str, uri: str) -> bool:
    """Return whether a place in a store holds a trained model of this job, or a part of one."""
    if object_stores.writer_of(uri) == job:
        return True
    try:
        content = object_stores.read(f"{uri.rstrip('/')}/{TRAINED_MODEL}")
        return model_pb2.TrainedModel.FromString(content).job == job
    except DecodeError:
        return False


def output_exists(
    output: str,
    *,
    what: str = "",
    where: str = "",
    remedy: str,
) -> EdlError:
    """Return the error of a result whose place is taken."""
    return EdlError(
        ErrorCode.OUTPUT_EXISTS,
        what or f"the output {output} exists",
        where=where or output,
        remedy=remedy,
    )
