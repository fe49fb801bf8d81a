"""What the pods of workers are made from: priorities and identities."""

from __future__ import annotations

import pytest

from edl_kubernetes.cluster import objects
from edl_kubernetes.master.pod_template import PodTemplate, PriorityMix
from edl_master.core.identifiers import InstanceId, WorkerId

OWNER = {"kind": "Lease", "name": "edl-job", "uid": "of the lease", "controller": True}
POD = {"spec": {"containers": [{"name": objects.CONTAINER, "env": []}]}}


def test_the_first_workers_of_a_mix_have_the_higher_priority() -> None:
    mix = PriorityMix((("high", 2), ("middle", 1), ("low", 0)))
    assert [mix.of(worker) for worker in range(5)] == ["high", "high", "middle", "low", "low"]
    assert PriorityMix((("high", 2),)).of(2) == ""
    template = PodTemplate("team", "job", "uid", OWNER, POD, mix)
    made = template.render(InstanceId("a"), WorkerId(4), 0, ["x"])
    assert made["spec"]["priorityClassName"] == "low"
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert "priorityClassName" not in POD["spec"], "the template is as it was"


@pytest.mark.parametrize(
    ("role", "number", "secret"),
    [
        (objects.WORKER, 63, "edl-job.workers-0"),
        (objects.WORKER, 64, "edl-job.workers-1"),
        (objects.SERVER, 1, "edl-job.parameter-servers-0"),
    ],
)
def test_a_pod_gets_the_identity_of_its_number_and_no_other(
    role: str, number: int, secret: str
) -> None:
    first = objects.identity_source("job", role, 0)
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "edl-identity", "secret": first}]
    pod = {"spec": {**POD["spec"], "volumes": volumes}}
    template = PodTemplate("team", "job", "uid", OWNER, pod, role=role)
    made = template.render(InstanceId("a"), WorkerId(number), 0, ["x"])
    data, identity = made["spec"]["volumes"]
    assert data == volumes[0]
    assert identity["secret"]["secretName"] == secret
    assert identity["secret"]["items"] == [{"key": f"{number}.pem", "path": "identity.pem"}]
