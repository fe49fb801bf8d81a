"""The exit code of a failed command, and the title of its message."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.exit_numbers import DECLINED, INTERRUPTED, UNREAD, UNWRITABLE

MEANINGS: dict[int, str] = {
    0: "the command succeeded",
    1: "the job failed in another way, or edl doctor found something missing",
    2: "wrong option, argument or setting",
    3: "data: missing, empty, unreadable or damaged",
    4: "model file: missing, broken, unsuitable for the data, or its loss is not finite",
    5: "output, job or port exists or is in use",
    6: "no such job, worker or build; or the job is over",
    UNWRITABLE: "the machine: disk full, output cannot be written, no memory",
    DECLINED: "stopped, declined, or timed out",
    9: "the image cannot be built",
    10: "not allowed, or over a limit of the builder or the cluster",
    11: "builder, container engine, registry, cluster or tracker is not available",
    70: "internal error of edl",
    INTERRUPTED: "interrupted by Ctrl-C; the job continues, or was not started",
    UNREAD: "no process reads the output any more, as in edl list | head -n 1",
}
"""What each exit code of ``edl`` means, for help and documentation."""


@dataclass(frozen=True, slots=True)
class ErrorPresentation:
    """The way in which the command shows an error code.

    Attributes:
        exit_code: a key of ``MEANINGS``.
        title: words before the sentence that says what happened, where they say more than it.
    """

    exit_code: int
    title: str = ""


# By the names of edl.v1.ErrorCode, so that help texts need no protobuf; a test compares them.
PRESENTATIONS: dict[str, ErrorPresentation] = {
    "USAGE": ErrorPresentation(2, "usage error"),
    "DATA_NOT_FOUND": ErrorPresentation(3),
    "DATA_EMPTY": ErrorPresentation(3),
    "DATA_UNREADABLE": ErrorPresentation(3, "unreadable data"),
    "DATA_DAMAGED": ErrorPresentation(3, "damaged data"),
    "MODEL_NOT_FOUND": ErrorPresentation(4, "no such model"),
    "MODEL_IMPORT": ErrorPresentation(4, "model file cannot be imported"),
    "MODEL_CONTRACT": ErrorPresentation(4, "model file breaks the contract"),
    "SHAPE_MISMATCH": ErrorPresentation(4, "data and model disagree"),
    "UNKNOWN_PARAMETER": ErrorPresentation(2),
    "OPTIMIZER_UNSUPPORTED": ErrorPresentation(4),
    "NAN_LOSS": ErrorPresentation(4),
    "USER_CODE": ErrorPresentation(4, "the model file raised an error"),
    "OUTPUT_EXISTS": ErrorPresentation(5, "output exists"),
    "OUTPUT_UNWRITABLE": ErrorPresentation(7),
    "PORT_IN_USE": ErrorPresentation(5),
    "DISK_FULL": ErrorPresentation(7),
    "WORKER_CRASH_LOOP": ErrorPresentation(1),
    "TASK_DEAD_LETTERED": ErrorPresentation(1, "a task failed for good"),
    "JOB_NOT_FOUND": ErrorPresentation(6),
    "JOB_OVER": ErrorPresentation(6),
    "WORKER_NOT_FOUND": ErrorPresentation(6),
    "JOB_EXISTS": ErrorPresentation(5),
    "STOPPED": ErrorPresentation(8),
    "MASTER_LOST": ErrorPresentation(1),
    "TIMED_OUT": ErrorPresentation(8),
    "CHECKPOINT_DAMAGED": ErrorPresentation(3),
    "STALE_LEASE": ErrorPresentation(70),
    "STALE_INCARNATION": ErrorPresentation(70),
    "NOT_READY": ErrorPresentation(70),
    "VERSION_NOT_FOUND": ErrorPresentation(70),
    "INTERNAL": ErrorPresentation(70, "internal error"),
    "IMAGE_BUILD_FAILED": ErrorPresentation(9, "the image cannot be built"),
    "BUILD_NOT_FOUND": ErrorPresentation(6),
    "FORBIDDEN": ErrorPresentation(10, "not allowed"),
    "LIMIT_EXCEEDED": ErrorPresentation(10, "over a limit"),
    "SOURCE_UNREACHABLE": ErrorPresentation(4),
    "ENGINE_UNAVAILABLE": ErrorPresentation(11),
    "REGISTRY_UNAVAILABLE": ErrorPresentation(11),
    "BUILDER_RESTARTED": ErrorPresentation(11),
    "BUILDER_UNAVAILABLE": ErrorPresentation(11),
    "PARAMETER_SERVER_LOST": ErrorPresentation(1),
    "SYSTEM": ErrorPresentation(7),
    "CLUSTER_UNAVAILABLE": ErrorPresentation(11),
    "TRACKER_UNAVAILABLE": ErrorPresentation(11),
}


def present(code: str) -> ErrorPresentation:
    """Return the presentation of the named error code; that of ``INTERNAL`` if it is unknown."""
    return PRESENTATIONS.get(code, PRESENTATIONS["INTERNAL"])
