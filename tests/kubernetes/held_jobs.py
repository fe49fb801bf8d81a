"""Jobs of a submitter whose counting takes its time until it is released."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.cluster import Cluster
from cluster.jobs_namespace import NAMESPACE, STATE, Submitter

from edl_kubernetes.cluster import objects
from edl_runtime.local import job_directory

EDL = str(Path(sys.executable).parent / "edl")
ROOT = Path(__file__).parents[2]


def edl(submitter: Submitter, *arguments: str) -> str:
    done = subprocess.run(
        [EDL, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1", **submitter.environ},
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class HeldZoo:
    """The counting model, which takes its time until ``release``.

    Pods see it in the place of the zoo of their image.
    """

    def __init__(self, cluster: Cluster, files: Path) -> None:
        self.folder, self._held = files / "zoo", files / "held"
        self.folder.mkdir()
        shutil.copy(ROOT / "model_zoo" / "counting.py", self.folder)
        source = (ROOT / "tests" / "zoo" / "held.py").read_text()
        waits = source.replace('os.environ["EDL_TEST_HELD"]', repr(str(self._held)))
        assert waits != source
        (self.folder / "held.py").write_text(waits)
        of_zoo = ("configmap", "held-zoo", f"--from-file={self.folder}")
        cluster.kubectl("create", *of_zoo, f"--namespace={NAMESPACE}")
        self.arguments = (
            *("--model-zoo", str(self.folder), "--model-def", "counting"),
            *("--dataset-fn", "held.dataset_fn"),
        )
        self.volume = "configmap/held-zoo:/model_zoo"

    def hold(self) -> None:
        self._held.touch()

    def release(self) -> None:
        self._held.unlink(missing_ok=True)


def pods(cluster: Cluster, role: str, job: str = "counting") -> list[dict[str, Any]]:
    """The pods of a role that run and are not leaving."""
    labels = f"{objects.LABEL_JOB}={job},{objects.LABEL_ROLE}={role}"
    return [
        item
        for item in cluster.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods", labels).items
        if item["status"].get("phase") == "Running" and "deletionTimestamp" not in item["metadata"]
    ]


def count_trained(files: Path, job: str) -> int:
    """Return how many records a job has trained, as its master has written last."""
    try:
        status = json.loads((files / STATE / job / job_directory.STATUS).read_text())
    except (FileNotFoundError, ValueError):
        return 0
    return int(status.get("records_trained", 0))


def eventually(met: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 900
    while not met():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)
