"""What client and master agree on about a job's containers: labels and environment variables."""

from __future__ import annotations

LABEL_JOB = "io.edl.job"
"""Name of the job."""

LABEL_JOB_DIR = "io.edl.job-dir"
"""Directory of the job: two users may have jobs of the same name on one engine."""

LABEL_ROLE = "io.edl.role"
"""``master`` or ``worker``."""

LABEL_WORKER = "io.edl.worker"
"""Number of the worker."""

LABEL_ATTEMPT = "io.edl.attempt"
"""Number of the worker's start."""

LABEL_LOG_START = "io.edl.log-start"
"""Offset in bytes at which the container's part of the worker's log begins."""

PASSED_VARIABLE_PREFIXES = (
    "TF_",
    "OMP_",
    "KERAS_",
    "XLA_",
    "CUDA_",
    "EDL_LOG_FORMAT",
    "EDL_LOG_LEVEL",
    "EDL_MASTER_WAIT_S",
)
"""Prefixes of the environment variables that containers of masters and workers get; none of these
variables holds a secret."""
