"""Whole jobs, by the rights of the roles in ``deploy/kubernetes`` alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cluster import jobs_namespace
from cluster.cluster import Cluster
from cluster.jobs_namespace import NAMESPACE, Submitter
from safetensors.numpy import load_file

import recordio
import recordio.example

EDL = str(Path(sys.executable).parent / "edl")
RECORDS = 4_003


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    """What pods see under its own path: not below /tmp, which is a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="edl-jobs-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def submitter(cluster: Cluster, files: Path) -> Submitter:
    return jobs_namespace.prepare(cluster, files)


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


def test_a_job_of_a_submitter_counts_each_record_once(
    cluster: Cluster, submitter: Submitter, files: Path
) -> None:
    with recordio.Writer(str(files / "numbers.recordio")) as writer:
        for number in range(RECORDS):
            writer.write(recordio.example.encode({"number": np.array([number])}))
    output = files / "models" / "counting"
    result = json.loads(
        edl(
            submitter,
            *("train", "--name", "counting", *submitter.arguments, "--num-workers", "2"),
            *("--model-zoo", "model_zoo", "--model-def", "counting", "--minibatch-size", "16"),
            *("--params", f"size={RECORDS}", "--data", str(files / "numbers.recordio")),
            *("--num-epochs", "2", "--output", str(output), "-o", "json"),
        )
    )
    assert result["records_trained"] == 2 * RECORDS
    (weights,) = load_file(output / "parameters.safetensors").values()
    assert np.all(weights == 2)

    # The master's pod may be gone: what follows is answered by the record.
    listed = edl(submitter, "list", "-o", "name").split()
    assert listed == ["counting"]
    assert json.loads(edl(submitter, "status", "counting", "-o", "json"))["state"] == "SUCCEEDED"
    assert "records/s" in edl(submitter, "logs", "counting", "--tail", "500")
    edl(submitter, "delete", "counting", "--yes")
    cluster.kubectl(
        *("wait", "--for=delete", "job/edl-counting", f"--namespace={NAMESPACE}", "--timeout=300s")
    )
    owned = "jobs,pods,secrets,services,configmaps,leases"
    cluster.kubectl(
        *("wait", "--for=delete", owned, "--selector=app.kubernetes.io/instance=counting"),
        *(f"--namespace={NAMESPACE}", "--timeout=300s"),
    )
