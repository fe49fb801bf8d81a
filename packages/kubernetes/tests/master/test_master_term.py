"""The term of a master, against an API server that fails and other masters that are faster."""

from __future__ import annotations

import itertools
import threading

import pytest
from fake_api import FakeApi, outage

from edl_kubernetes.cluster.api import ApiError, ApiUnavailable
from edl_kubernetes.master import api_retry
from edl_kubernetes.master.master_term import MasterTerm

LEASE = "/apis/coordination.k8s.io/v1/namespaces/team/leases/edl-job"
OWNER = {"kind": "Job", "name": "edl-job", "uid": "u"}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_retry, "_FIRST_S", 0.0)


class Clock:
    """Goes on by a second with each look at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def term(api: FakeApi, pod: str = "pod") -> MasterTerm:
    return MasterTerm(api, "team", "edl-job", OWNER, pod, Clock())


def reject_token(method: str, path: str) -> None:
    """Answer as the API server does for a token whose pod is gone."""
    raise ApiError(401, "Unauthorized", "Unauthorized")


def test_each_master_has_a_higher_number_than_all_before() -> None:
    api = FakeApi()
    assert [term(api, f"pod-{n}").take() for n in range(3)] == [1, 2, 3]
    lease = api.objects[LEASE]
    assert lease["metadata"]["ownerReferences"] == [OWNER]
    assert lease["spec"]["holderIdentity"] == "pod-2"
    assert lease["spec"]["renewTime"].endswith("Z")
    assert "." in lease["spec"]["renewTime"], "Kubernetes refuses times without a fraction"


def test_the_lease_is_the_controller_of_the_pods_of_each_master() -> None:
    """``kubectl drain`` evicts only pods that have a controller."""
    api = FakeApi()
    for number in range(2):
        master = term(api, f"pod-{number}")
        master.take()
        assert master.controller == {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "name": "edl-job",
            "uid": api.objects[LEASE]["metadata"]["uid"],
            "controller": True,
        }


def test_two_masters_that_take_it_at_the_same_time_get_different_numbers() -> None:
    api = FakeApi()
    term(api).take()
    masters = [term(api, f"pod-{n}") for n in range(8)]
    threads = [threading.Thread(target=each.take) for each in masters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.number for each in masters) == list(range(2, 10))


def test_a_number_is_never_taken_from_a_version_that_has_changed() -> None:
    api = FakeApi()
    term(api).take()
    faster = term(api, "faster")

    def take_before(method: str, path: str) -> None:
        if method == "PUT":
            api.before = lambda method, path: None
            faster.take()

    api.before = take_before
    slower = term(api, "slower")
    assert (slower.take(), faster.number) == (3, 2)


def test_an_increase_that_was_not_answered_leaves_a_number_unused() -> None:
    api = FakeApi()
    term(api).take()

    def lose_the_answer(method: str, path: str) -> None:
        api.after = lambda method, path: None
        raise ApiUnavailable("read timed out")

    api.after = lose_the_answer
    assert term(api).take() == 3


def test_a_master_waits_for_the_api_server_at_its_start_and_before_its_end() -> None:
    api = FakeApi()
    api.before = outage(20)
    master = term(api)
    assert master.take() == 1
    api.before = outage(20)
    assert master.confirm()


NO_RIGHT = 'leases is forbidden: User "a" cannot get resource "leases" in API group "x"'


@pytest.mark.parametrize("denial", [(401, "Unauthorized"), (403, NO_RIGHT)])
@pytest.mark.parametrize("creates", [True, False])
def test_a_denial_for_a_while_delays_the_term(creates: bool, denial: tuple[int, str]) -> None:
    """An API server that starts has read neither users nor roles."""
    api = FakeApi()
    if not creates:
        term(api).take()
    refusals = iter(range(15))

    def refuse_first(method: str, path: str) -> None:
        if next(refusals, None) is not None:
            raise ApiError(denial[0], "", denial[1])

    api.before = refuse_first
    assert term(api).take() == (1 if creates else 2)


def test_a_master_whose_pod_is_gone_takes_no_term() -> None:
    api = FakeApi()
    api.before = reject_token
    with pytest.raises(api_retry.TokenRejected, match="taking the term"):
        term(api).take()


def test_a_newer_master_is_seen_when_it_is_asked_for() -> None:
    api = FakeApi()
    older = term(api)
    older.take()
    assert not older.is_superseded
    term(api).take()
    assert not older.confirm()
    assert older.is_superseded


def test_silence_of_the_api_server_is_no_newer_master(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    older = term(api)
    older.take()
    looks = threading.Semaphore(0)

    def unavailable(method: str, path: str) -> None:
        looks.release()
        raise ApiUnavailable("no route to host")

    api.before = unavailable
    monkeypatch.setattr("edl_kubernetes.master.master_term._CHECK_INTERVAL_S", 0.0)
    older.watch()
    for _ in range(10):
        assert looks.acquire(timeout=200)
    assert not older.is_superseded
    api.before = lambda method, path: None
    term(api).take()
    while not older.is_superseded:
        pass  # the test's own limit ends this


def test_a_master_whose_pod_is_gone_ends_though_it_cannot_read_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = FakeApi()
    older = term(api)
    older.take()
    monkeypatch.setattr("edl_kubernetes.master.master_term._CHECK_INTERVAL_S", 0.0)
    api.before = reject_token
    older.watch()
    while not older.is_superseded:
        pass  # the test's own limit ends this


def test_a_master_whose_pod_is_gone_makes_nothing_final() -> None:
    api = FakeApi()
    older = term(api)
    older.take()
    api.before = reject_token
    assert not older.confirm()


@pytest.mark.parametrize("answers", [True, False])
def test_a_token_that_is_refused_for_a_while_is_no_end(answers: bool) -> None:
    """An API server that starts does so; silence between two refusals proves nothing, either."""
    api = FakeApi()
    master = term(api)
    master.take()
    looks = itertools.count(1)

    def refuse_mostly(method: str, path: str) -> None:
        look = next(looks)
        if look <= 60 and look % 15:
            reject_token(method, path)
        if look <= 60 and not answers:
            raise ApiUnavailable("no route to host")

    api.before = refuse_mostly
    for _ in range(5):
        assert master.confirm()
    assert next(looks) > 60


@pytest.mark.parametrize("said", [NO_RIGHT, "leases is forbidden: exceeded quota"])
def test_a_lease_that_may_never_be_written_is_an_error(said: str) -> None:
    api = FakeApi()

    def forbid(method: str, path: str) -> None:
        if method == "POST":
            raise ApiError(403, "Forbidden", said)

    api.before = forbid
    with pytest.raises(ApiError, match="leases is forbidden"):
        term(api).take()
