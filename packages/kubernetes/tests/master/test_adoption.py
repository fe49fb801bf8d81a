"""A pod of a former master that ends while the next master takes it over ends for that one, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_api import FakeApi

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import Listing
from edl_kubernetes.master.pod_template import PodTemplate
from edl_kubernetes.master.pods import KubernetesPods
from edl_master.core.events import InstanceExited
from edl_master.core.identifiers import InstanceId, WorkerId

PODS = "/api/v1/namespaces/team/pods"
OWNER = {"kind": "Lease", "name": "edl-job", "uid": "of the lease", "controller": True}
POD = {"spec": {"containers": [{"name": objects.CONTAINER, "env": []}]}}
TEMPLATE = PodTemplate("team", "job", "uid", OWNER, POD)
NAME = InstanceId("edl-job-worker-3-0-ab")
FOLLOWER = "follow-pods"

LATER_S = 0.3
"""How long something waits for another thread that may have to wait for it in turn."""


class SlowLists(FakeApi):
    """An API server with a pod at work, whose answers to lists may be late."""

    def __init__(self) -> None:
        super().__init__()
        pod = TEMPLATE.render(NAME, WorkerId(3), 0, ["x"])
        running = {"containerStatuses": [{"name": objects.CONTAINER, "state": {"running": {}}}]}
        self.put(f"{PODS}/{NAME}", {**pod, "status": running})
        self.is_asked = threading.Event()
        self.may_list = threading.Event()
        self.pod_ends = False
        """Whether the pod ends while a list for another thread than the follower is on its way."""

    def list(self, path: str, selector: str) -> Listing:
        if threading.current_thread().name == FOLLOWER:
            self.is_asked.set()
            self.may_list.wait()
            return super().list(path, selector)
        listing = super().list(path, selector)
        if self.pod_ends:
            self.delete(f"{PODS}/{NAME}")
            time.sleep(LATER_S)
        return listing


@pytest.fixture
def api() -> SlowLists:
    return SlowLists()


@pytest.fixture
def platform(api: SlowLists, tmp_path: Path) -> Iterator[KubernetesPods]:
    made = KubernetesPods(api, TEMPLATE, lambda worker: ["x"], tmp_path)
    yield made
    made.close(0)


def ends(platform: KubernetesPods, within_s: float = 5.0) -> list[InstanceId]:
    seen = platform.observe(within_s)
    return [each.instance for each in seen if isinstance(each, InstanceExited)]


def test_the_first_list_of_the_follower_comes_when_the_pod_is_gone(
    api: SlowLists, platform: KubernetesPods
) -> None:
    api.is_asked.wait()
    with ThreadPoolExecutor(1) as executor:
        adopted = executor.submit(platform.adopt)
        time.sleep(LATER_S)
        api.delete(f"{PODS}/{NAME}")
        api.may_list.set()
        found = [each.instance for each in adopted.result()]
    assert ends(platform, 5.0 if found else 0.1) == found


def test_the_end_of_a_pod_overtakes_the_list_in_which_it_still_runs(
    api: SlowLists, platform: KubernetesPods
) -> None:
    api.may_list.set()
    while ("WATCH", PODS) not in api.calls:
        time.sleep(0.01)  # the test's own limit ends this
    api.pod_ends = True
    assert [each.instance for each in platform.adopt()] == [NAME]
    assert ends(platform) == [NAME]
