"""A caller as SQLFlow is one: it knows the generated stubs and gRPC, and nothing else of edl.

``python sqlflow.py HOST:PORT REPOSITORY ZOO`` prints the name of the zoo's image.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator

import grpc

from edl_proto.v1 import builder_pb2, builder_pb2_grpc


def requests(zoo: str, repository: str) -> Iterator[builder_pb2.BuildRequest]:
    """What is sent: what is wanted, then the zoo."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(zoo, arcname=".")
    archive = buffer.getvalue()
    source = builder_pb2.ArchiveSource(nbytes=len(archive))
    yield builder_pb2.BuildRequest(
        spec=builder_pb2.BuildSpec(
            archive=source, repository=repository, labels={"sqlflow.statement": "17"}
        )
    )
    for start in range(0, len(archive), 1 << 16):
        yield builder_pb2.BuildRequest(chunk=archive[start : start + (1 << 16)])


def build(address: str, repository: str, zoo: str) -> str:
    """The zoo as an image; its name with the digest."""
    with grpc.insecure_channel(address) as channel:
        stub = builder_pb2_grpc.BuilderStub(channel)
        last = builder_pb2.BuildStatus()
        for news in stub.Build(requests(zoo, repository), timeout=300):
            if news.WhichOneof("update") == "status":
                last = news.status
            else:
                print(news.line.text, file=sys.stderr)
        return last.result.image


if __name__ == "__main__":
    print(build(*sys.argv[1:]))
