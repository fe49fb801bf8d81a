"""The number of epochs of a job that was resumed with more of them.

The specification is in a Secret, which the user who resumes the job may not change, and the pod's
template is fixed. The number is an annotation of the Job, which the next master
reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl_kubernetes.cluster import objects
from edl_proto.v1 import job_pb2


def replace_epochs(spec: job_pb2.JobSpec, job: Mapping[str, Any]) -> None:
    """Give a specification the number of epochs that its Job was resumed with, if it was."""
    annotations = job["metadata"].get("annotations") or {}
    if epochs := annotations.get(objects.ANNOTATION_EPOCHS):
        spec.training.num_epochs = int(epochs)
