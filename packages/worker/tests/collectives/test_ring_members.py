"""Who gets into a ring, and what is said about members that cannot be reached."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.transport.endpoints import connect_tcp
from edl_runtime.identity.folder import IdentityFolder
from edl_worker.collectives.ring_members import Ring
from edl_worker.core.collectives import CollectiveGroup, GenerationEnded, PeerUnreachable
from edl_worker.core.replicas import Generation, Part

PARTS = [Part("float32", 4)]


class Job:
    """A secured job whose workers all run on this machine."""

    def __init__(self, place: Path, name: str = "j") -> None:
        self._identities = IdentityFolder(place / name, name)
        self._identities.create(
            [(Role.WORKER, number) for number in range(3)] + [(Role.CLIENT, None)]
        )

    def credentials(self, role: Role, number: int | None = None) -> Credentials:
        return Credentials(self._identities.file(role, number))

    def ring(self, worker: int) -> Ring:
        return Ring(
            worker, "127.0.0.1", credentials=self.credentials(Role.WORKER, worker), reach_s=0.5
        )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def rings(job: Job) -> Iterator[list[Ring]]:
    rings = [job.ring(worker) for worker in range(2)]
    yield rings
    for ring in rings:
        ring.close()


def make_generation(*addresses: str, number: int = 1) -> Generation:
    return Generation(
        number, tuple(range(len(addresses))), 0, addresses=addresses, incarnation="one"
    )


def meet(rings: list[Ring], generation: Generation) -> list[CollectiveGroup]:
    """Return what each member gets; they meet at the same time."""
    groups: dict[int, CollectiveGroup] = {}

    def join(rank: int) -> None:
        groups[rank] = rings[rank].meet(generation, PARTS, lambda: False)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(len(rings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [groups[rank] for rank in range(len(rings))]


def add_up(groups: list[CollectiveGroup]) -> list[float]:
    """Return the first number of the mean that each member gets."""
    totals: dict[int, float] = {}

    def add(rank: int) -> None:
        total, _ = groups[rank].all_reduce([np.full(4, rank, "float32")], 1, b"")
        totals[rank] = float(total[0][0])

    threads = [threading.Thread(target=add, args=(rank,)) for rank in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [totals[rank] for rank in range(len(groups))]


def test_members_of_a_secured_job_meet(rings: list[Ring]) -> None:
    groups = meet(rings, make_generation(*(ring.address for ring in rings)))

    assert add_up(groups) == [0.5, 0.5]
    for group in groups:
        group.close()


def test_a_connection_of_an_earlier_generation_is_not_used(job: Job, rings: list[Ring]) -> None:
    """A member that left its meeting has connected already; the next meeting is another one."""
    first, second = rings
    earlier = make_generation(first.address, second.address)
    with pytest.raises(GenerationEnded):
        second.meet(earlier, PARTS, iter([False] + [True] * 9).__next__)

    following = make_generation(first.address, second.address, number=2)
    with pytest.raises(GenerationEnded):  # the second one has not come yet
        first.meet(following, PARTS, iter([False] * 9 + [True]).__next__)
    groups = meet(rings, make_generation(first.address, second.address, number=3))

    assert add_up(groups) == [0.5, 0.5]
    for group in groups:
        group.close()


def test_a_member_that_cannot_be_reached_is_named(rings: list[Ring]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    generation = make_generation(rings[0].address, f"127.0.0.1:{port}")

    with pytest.raises(PeerUnreachable, match=f"worker 1 cannot be reached: .*{port}") as caught:
        rings[0].meet(generation, PARTS, lambda: False)

    assert caught.value.worker == 1
    assert "refused" in caught.value.cause


def test_a_worker_of_another_job_is_no_peer(tmp_path: Path, rings: list[Ring]) -> None:
    stranger = Job(tmp_path, "other").ring(1)
    generation = make_generation(rings[0].address, stranger.address)

    with pytest.raises(PeerUnreachable, match="worker 1 cannot be reached"):
        rings[0].meet(generation, PARTS, lambda: False)
    stranger.close()


@pytest.mark.parametrize(
    ("role", "number", "greets_as"), [(Role.CLIENT, None, 1), (Role.WORKER, 2, 1)]
)
def test_a_caller_that_greets_as_another_one_is_refused(
    job: Job, rings: list[Ring], role: Role, number: int | None, greets_as: int
) -> None:
    host, _, port = rings[0].address.rpartition(":")
    peer = job.credentials(role, number).to(Role.WORKER, 0)

    with connect_tcp(host, int(port), 5.0, peer) as caller:
        greeting = b"ring" + greets_as.to_bytes(4, "little") + (1).to_bytes(8, "little")
        caller.sendall(greeting + b"one".ljust(64, b"\0"))
        caller.settimeout(10)
        assert caller.recv(1) == b"", "the connection is closed"


def test_a_caller_that_says_nothing_sensible_is_refused(rings: list[Ring]) -> None:
    host, _, port = rings[0].address.rpartition(":")

    with socket.create_connection((host, int(port)), 5) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(200))
        caller.settimeout(20)
        try:
            while caller.recv(1000):
                pass
        except ConnectionResetError:
            pass
