"""Random requests at the direct port of a real master: none is served by accident or breaks a job.

``EDL_FUZZ_EXAMPLES=1000000 pytest packages/master/tests/services/test_raw_fuzz.py`` tries more,
``EDL_FUZZ_SEED`` other ones.
"""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from collections.abc import Callable

import pytest
from test_refusals import NBYTES, Held, held

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport.direct_connection import ANSWER, ERROR, MAGIC, MAX_HEADER_BYTES, REQUEST
from edl_proto.transport.parameters import PARAMETERS
from edl_proto.v1 import parameters_pb2 as pb

__all__ = ["held"]  # the fixture

EXAMPLES = int(os.environ.get("EDL_FUZZ_EXAMPLES", "3000"))
PER_JOB = 20_000
"""A worker that is held for minutes would be taken for a stalled one."""
SEED = int(os.environ.get("EDL_FUZZ_SEED", "1"))
WAIT_S = 200.0
UNKNOWN_TOKEN = (1 << 63) - 1
"""Of no lease; nor is what a changed byte makes of it, so no push may count."""

NUMBERS = (
    0,
    1,
    3,
    4,
    255,
    NBYTES - 4,
    NBYTES,
    NBYTES + 4,
    1 << 20,
    1 << 31,
    1 << 40,
    (1 << 64) - 1,
)


class RequestMaker:
    """Makes requests: right ones of a worker without a lease, changed in one way or another."""

    def __init__(self, held: Held, seed: int) -> None:
        self._random = random.Random(seed)
        worker = held.worker
        known = {
            "worker_id": worker.id,
            "incarnation": worker.incarnation,
            "layout_fingerprint": worker.fingerprint,
        }
        push = held.header()
        push.claim.lease.token = UNKNOWN_TOKEN
        self._headers = {
            "Initialize": pb.InitializeHeader(**known, nbytes=NBYTES),
            "PutValues": pb.PutValuesHeader(**known, nbytes=NBYTES),
            "Pull": pb.PullHeader(**known),
            "Push": push,
            "PutRows": pb.PutRowsHeader(**known, rows=pb.TableRows(table=0, count=1)),
            "ScanRows": pb.ScanRowsHeader(**known, most=10),
        }
        self._changes: list[Callable[[bytearray], None]] = [
            self._set_bytes,
            self._insert,
            self._cut,
            self._repeat,
            self._replace,
        ]

    def request(self) -> bytes:
        name = self._random.choice(PARAMETERS.methods)
        header = bytearray(self._headers[name].SerializeToString())
        for _ in range(self._random.choice((0, 1, 1, 2, 8))):
            self._random.choice(self._changes)(header)
        payload = self._random.randbytes(self._random.choice((0, 0, 1, 4, NBYTES, 2 * NBYTES)))
        number = PARAMETERS.methods.index(name)
        envelope = bytearray(REQUEST.pack(MAGIC, number, len(header), len(payload)))
        whole = envelope + header + payload
        match self._random.randrange(8):
            case 0:  # other lengths than what follows
                size = self._random.choice((len(header), *NUMBERS)) & 0xFFFFFFFF
                whole[: REQUEST.size] = REQUEST.pack(
                    MAGIC, number, size, self._random.choice(NUMBERS)
                )
            case 1:  # any envelope
                self._set_bytes(whole)
            case 2:  # any bytes
                whole = bytearray(self._random.randbytes(self._random.randrange(200)))
            case 3:  # the end in the middle
                del whole[self._random.randrange(len(whole)) :]
            case _:
                pass
        return bytes(whole)

    def _set_bytes(self, content: bytearray) -> None:
        for _ in range(self._random.randrange(1, 4)):
            if content:
                content[self._random.randrange(len(content))] = self._random.randrange(256)

    def _insert(self, content: bytearray) -> None:
        at = self._random.randrange(len(content) + 1)
        content[at:at] = self._random.randbytes(self._random.randrange(1, 12))

    def _cut(self, content: bytearray) -> None:
        del content[self._random.randrange(len(content) + 1) :]

    def _repeat(self, content: bytearray) -> None:
        at = self._random.randrange(len(content) + 1)
        content += content[at:] * self._random.choice((1, 1, 20))

    def _replace(self, content: bytearray) -> None:
        content[:] = self._random.choice(list(self._headers.values())).SerializeToString()


class RawCaller:
    """Sends requests as they are, one connection after the other."""

    def __init__(self, port: int) -> None:
        self._address = "127.0.0.1", port
        self._connection: socket.socket | None = None
        self.answers: Counter[str] = Counter()

    def try_out(self, request: bytes) -> None:
        connection = self._connection or socket.create_connection(self._address, WAIT_S)
        self._connection = None
        try:
            connection.sendall(request)
            if not _is_complete(request):
                connection.shutdown(socket.SHUT_WR)
            if self._may_go_on(connection):
                self._connection = connection
                return
        except OSError:
            self.answers["closed"] += 1
        connection.close()

    def _may_go_on(self, connection: socket.socket) -> bool:
        answer = _receive(connection, ANSWER.size)
        magic, status, nbytes = ANSWER.unpack(answer)
        assert magic == MAGIC
        assert nbytes <= MAX_HEADER_BYTES
        content = _receive(connection, nbytes)
        if status != ERROR:
            self.answers["served"] += 1
            return False  # how much follows is in the header, which differs with the method
        error = EdlError.from_bytes(content)
        self.answers[ErrorCode.Name(error.code)] += 1
        return True


def _is_complete(request: bytes) -> bool:
    """Whether the master takes exactly this for a request, and may wait for the next one."""
    if len(request) < REQUEST.size:
        return False
    magic, _, header_nbytes, nbytes = REQUEST.unpack_from(request)
    return magic == MAGIC and len(request) == REQUEST.size + header_nbytes + nbytes


def _receive(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        piece = connection.recv(size - len(content))
        if not piece:
            raise ConnectionResetError
        content += piece
    return bytes(content)


@pytest.mark.parametrize("job", range(-(-EXAMPLES // PER_JOB)))
def test_random_requests_change_nothing(held: Held, job: int) -> None:
    """The fixture then has the worker train: each record counts exactly as often as it should."""
    version = held.job.status().progress.parameter_version
    opened = held.worker.channel.unary_unary("/edl.v1.Parameters/Open")(b"", timeout=WAIT_S)
    caller = RawCaller(pb.OpenReply.FromString(opened).direct_port)
    maker = RequestMaker(held, SEED + job)
    examples = min(PER_JOB, EXAMPLES - job * PER_JOB)
    for number in range(examples):
        request = maker.request()
        caller.try_out(request)
        if caller.answers["INTERNAL"]:
            pytest.fail(f"request {number} of seed {SEED + job}: {request!r}")
    assert held.job.status().progress.parameter_version == version
    assert sum(caller.answers.values()) >= examples
    print(dict(caller.answers))
    assert len(caller.answers) > 3, "several kinds of refusals, or nothing much was tried"
    assert caller.answers["served"], "what is not changed, such as Pull"
