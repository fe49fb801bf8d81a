"""One cluster for all tests of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import requirements
from cluster.cluster import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test may wait until Kubernetes is built."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two real nodes; skipped, or failed in CI, where none can run."""
    if missing := requirements.missing():
        reason = f"a test cluster needs: {', '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    started = Cluster.start(tmp_path_factory.mktemp("kubernetes") / "cluster", nodes=2)
    yield started
    started.end()


@pytest.fixture(scope="session")
def job_image(cluster: Cluster) -> str:
    """The name of an image with client, master, worker and the model zoo, on all real nodes."""
    return cluster.import_job_image()
