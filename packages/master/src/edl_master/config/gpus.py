"""The GPUs that a job's workers get, by its specification and its machine."""

from __future__ import annotations

from collections.abc import Mapping

from edl_master.core.gpus import NO_GPUS, GpuAssignment
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import gpus


def assign_gpus(spec: job_pb2.JobSpec, environ: Mapping[str, str]) -> GpuAssignment:
    """Return which worker gets which GPU of this machine.

    Args:
        environ: the environment of the workers.
    """
    if spec.gpus not in ("each", "shared"):  # none, or the job is of an earlier version of edl
        return NO_GPUS
    return GpuAssignment(gpus.find_gpus(environ), shared=spec.gpus == "shared")


def check_gpus(assignment: GpuAssignment, workers: int, where: str) -> None:
    """Check that so many workers can have a GPU each, if they are to.

    Args:
        where: the option that asks for so many.

    Raises:
        EdlError: USAGE.
    """
    if fault := assignment.find_fault(workers):
        raise EdlError(
            ErrorCode.USAGE,
            fault,
            where=where,
            remedy="Ask for fewer workers; or submit the job with --gpus shared, so that several"
            " workers use one GPU, or with --gpus none.",
        )


def no_gpu_in_container(spec: job_pb2.JobSpec) -> EdlError:
    """Return the error of a container that was to have GPUs and sees none."""
    return EdlError(
        ErrorCode.USAGE,
        "the job's container has no GPU",
        where=f"--gpus {spec.gpus}",
        remedy="Check that docker run --gpus all IMAGE nvidia-smi lists GPUs: the engine needs"
        " NVIDIA's container toolkit. Or train without: --gpus none.",
    )
