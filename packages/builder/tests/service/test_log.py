"""The log names failed builds; a mistake of a caller is no exception."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc
import pytest
import zoos
from service_bench import build, serving, settings

FAILING = {"requirements.txt": "no-such-package-anywhere==0\n", "m.py": "x = 1\n"}
UNREADABLE = b"\xff\xff\xff"


def test_a_failed_build_is_named_with_caller_and_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(settings(tmp_path / "s")) as bench, bench.stub() as stub:
        told = build(stub, zoos.tar(FAILING))
        assert build(stub, zoos.tar({"m.py": "x = 1\n"})).status is grpc.StatusCode.OK
    lines = [each.getMessage() for each in caplog.records if each.name == "edl_builder.app"]
    (line,) = [each for each in lines if "failed" in each]
    assert line.startswith(f"build {told.last.id} of ipv4:127.0.0.1:")
    assert "failed, build: the build failed: pip" in line


@pytest.mark.parametrize("method", ["Build", "Get", "Watch", "Cancel", "List"])
def test_a_message_that_cannot_be_decoded_is_no_exception_of_the_builder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    with serving(settings(tmp_path / "s")) as bench:
        with grpc.insecure_channel(bench.app.address) as channel:
            call = channel.stream_stream(f"/edl.v1.Builder/{method}")
            with pytest.raises(grpc.RpcError) as refused:
                list(call(iter([UNREADABLE]), timeout=200))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "cannot be decoded" in refused.value.details()
        assert bench.metric("edl_internal_errors_total") == 0
    serious = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert not serious
