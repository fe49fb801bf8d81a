"""``python -m edl_kubernetes.master``: work on the job that the Secret of this pod describes."""

from __future__ import annotations

import sys
from pathlib import Path

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import KubernetesApi
from edl_kubernetes.master import pod
from edl_proto.file_limit import raise_limit
from edl_runtime.monitoring import logs


def main() -> int:
    """Set up logging, and run the job; the exit code tells the Job what to do."""
    logs.set_up()
    logs.identify("master")
    raise_limit()
    spec_file = Path(objects.SPEC_DIRECTORY, objects.SPEC_KEY)
    return pod.run(spec_file, Path(objects.STATE_DIRECTORY), KubernetesApi.in_cluster)


if __name__ == "__main__":
    sys.exit(main())
