"""One cluster for all tests of a run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import requirements
from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE
from submitter import Submitter

from edl_testing.requirements import require


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test may wait until Kubernetes is built."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two real nodes; where none can run, tests are skipped or fail."""
    require(", ".join(requirements.missing()))
    for left in tmp_path_factory.getbasetemp().parent.glob("*/kubernetes*/cluster"):
        Cluster.remove_left(left)
    started = Cluster.start(tmp_path_factory.mktemp("kubernetes") / "cluster", nodes=2)
    yield started
    started.end()


@pytest.fixture(scope="session")
def job_image(cluster: Cluster) -> str:
    """The name of an image with client, master, worker and the model zoo; ``node1`` has it."""
    return cluster.import_job_image("node1")


@pytest.fixture(scope="session")
def shell_image(cluster: Cluster) -> str:
    """The name, by its digest, of an image with a shell."""
    return cluster.pin_image(BUSYBOX_IMAGE)


@pytest.fixture
def submitter(
    cluster: Cluster,
    shell_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Submitter]:
    for name in [name for name in os.environ if name.startswith("EDL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(cluster.layout.kubeconfig))
    monkeypatch.chdir(tmp_path)
    namespace = f"client-{secrets.token_hex(4)}"
    made = Submitter(cluster, shell_image, namespace, tmp_path, capsys)
    yield made
    cluster.kubectl("delete", "namespace", made.namespace, "--wait=false")
